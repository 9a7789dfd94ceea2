"""The state that an optimizer keeps of pruned weights, and how it is cleared."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ellzero.types import Masks, Params


@torch.no_grad()
def clear_dead_moments_(optimizers: Sequence[torch.optim.Optimizer], params: Params, masks: Masks) -> None:
    """Zeroes an optimizer's state where a weight is pruned: a moment left behind would move the weight again.

    Every floating tensor of the parameter's shape is cleared, whatever its name (exp_avg, exp_avg_sq, max_exp_avg_sq,
    momentum_buffer or another optimizer's), and left alone where the weight is kept. Quantised state cannot be masked and stays; the
    weights are masked after every step all the same.

    Args:
        optimizers: those that own the parameters.
        params: canonical name -> parameter.
        masks: canonical name -> boolean mask, True where the weight is kept; a subset of the names.
    """
    for name, mask in masks.items():
        for moment in _moments(optimizers, params[name]):
            moment.masked_fill_(~mask.to(moment.device), 0)


def forget_(optimizers: Sequence[torch.optim.Optimizer], params: Params) -> None:
    """Drops the optimizers' state of the parameters, of survivors too, step counts included."""
    for optimizer in optimizers:
        for parameter in params.values():
            optimizer.state.pop(parameter, None)


def _moments(optimizers: Sequence[torch.optim.Optimizer], parameter: Tensor) -> list[Tensor]:
    """Lists the state tensors that have one entry per element; the step count of a 0-dimensional parameter is left out."""
    moments: list[Tensor] = []
    for optimizer in optimizers:
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and key != "step" and value.shape == parameter.shape and _can_be_masked(value):
                moments.append(value)
    return moments


def _can_be_masked(moment: Tensor) -> bool:
    """Tells whether a moment is a tensor of floats: those of low-bit optimizers (torchao) are classes of their own, which hold codes."""
    return moment.is_floating_point() and moment.layout is torch.strided and type(moment).__module__.split(".")[0] == "torch"
