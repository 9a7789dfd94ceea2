"""Inputs made up from a trained network alone, for calibration where there are no data.

A batch normalisation remembers the mean and the variance of what came to it in training. Inputs on which every one of them sees just that
again stand in for the training data (Cai, Yao, Dong, Gholami, Mahoney, Keutzer, ZeroQ: a novel zero shot quantization framework, 2020).
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.params import duplicate
from ellzero.surgery.batch_statistics import distance_from
from ellzero.surgery.calls import Forward, call_model, evaluating
from ellzero.surgery.known_modules import NORMS, known


def synthetic_inputs(
    model: nn.Module,
    shape: Sequence[int],
    *,
    count: int = 64,
    updates: int = 100,
    lr: float = 0.1,
    seed: int = 0,
    forward: Forward = call_model,
) -> Float[Tensor, "count ..."]:
    """Makes inputs that a trained network takes for its training data, for `Calibrated(inputs=...)`.

    Starts with normal noise and moves it, by Adam with a rate that falls to zero, until mean and standard deviation at each batch
    normalisation are those it remembers, in units of the latter.

    Args:
        model: a model with batch normalisation that was trained; it is not changed.
        shape: of one input, without the dimension of the batch.
        count: how many inputs; they are optimised together.
        updates: each costs a forward and a backward pass of all inputs.
        lr: the first learning rate, in units of an input.
        seed: draws the noise.
        forward: how to call the model on a batch.

    Returns:
        The inputs, in single precision on the model's device. Equal only on equal machines: what is packed by them decodes alike anywhere.

    Raises:
        ValueError: the model has no batch normalisation with statistics, cannot be copied, or does not take inputs of this shape.
    """
    if count < 2 or updates < 1 or not lr > 0:
        raise ValueError(f"count={count}, updates={updates}, lr={lr}: expected at least two inputs, one update and a positive lr")
    copy = duplicate(model)
    norms = [module for module in copy.modules() if isinstance(module, NORMS) and known(module) and module.running_mean is not None]
    if not norms:
        raise ValueError("the model has no batch normalisation with statistics, from which inputs could be made up: pass some of the data")
    device = next((parameter.device for parameter in copy.parameters()), torch.device("cpu"))
    inputs = torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()
    optimizer = torch.optim.Adam([inputs], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    copy.requires_grad_(False)
    with ExitStack() as stack:
        stack.enter_context(evaluating(copy))
        stack.enter_context(torch.enable_grad())
        distances: list[Tensor] = []
        for norm in norms:
            stack.callback(norm.register_forward_pre_hook(lambda norm, arguments: distances.append(_distance(norm, arguments))).remove)
        for _ in range(updates):
            distances.clear()
            try:
                forward(copy, inputs)
            except (RuntimeError, TypeError, IndexError) as error:
                first = str(error).partition("\n")[0]
                raise ValueError(f"the model does not take inputs of the shape {tuple(inputs.shape)}: {first}") from error
            if not distances:
                raise ValueError("the model calls none of its batch normalisations: pass some of the data")
            optimizer.zero_grad()
            torch.stack(distances).mean().backward()
            optimizer.step()
            schedule.step()
    return inputs.detach()


def _distance(norm: Any, arguments: Any) -> Tensor:
    """Measures how far mean and standard deviation of each channel are from those remembered, in the latter."""
    by_channel = arguments[0].transpose(0, 1).flatten(1)
    return distance_from(norm, by_channel.mean(1), by_channel.var(1, correction=0))
