"""How much a network's answer changes with each layer's weights: the Fisher information, estimated by sampled answers."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ellzero.quantise.answers import Reading, first_tensor
from ellzero.quantise.moments import Moments, pieces
from ellzero.surgery.calls import Forward
from ellzero.surgery.layer_matrices import MatrixLayer, groups_of, layer_columns, output_columns


class Sensitivity(NamedTuple):
    """Expected second derivative of the divergence between a network's answers, in nats per sample.

    Attributes:
        weight: by a weight, over the variance of its input: the mean over a layer.
        bias: by a bias, the mean over a layer.
    """

    weight: float
    bias: float


def sensitivities(
    model: nn.Module,
    batches: Sequence[Any],
    layers: Mapping[str, MatrixLayer],
    moments: Mapping[str, Moments],
    *,
    forward: Forward,
    generator: torch.Generator,
    rounds: int,
    reading: Reading,
) -> dict[str, Sensitivity]:
    """Estimates the sensitivity of every layer.

    Args:
        model: the model, in eval mode.
        batches: its inputs.
        layers: the layers, each called once per batch.
        moments: of their inputs.
        forward: how to call the model on a batch.
        generator: draws answers.
        rounds: answers drawn per sample.
        reading: of the model's answers.
    """
    weights, biases = dict.fromkeys(layers, 0.0), dict.fromkeys(layers, 0.0)
    samples = 0
    for batch in batches:
        with ExitStack() as stack, torch.enable_grad():
            calls: dict[str, tuple[Tensor, Tensor]] = {}
            for name, layer in layers.items():
                stack.callback(layer.register_forward_hook(partial(_record, calls, name)).remove)
            answer = first_tensor(forward(model, batch))
            samples += len(answer)
            for done in range(1, rounds + 1):
                probe = reading.sampled_gradient(answer, generator)
                outputs = [output for _, output in calls.values()]
                gradients = torch.autograd.grad(answer, outputs, probe, retain_graph=done < rounds)
                for (name, (inputs, _)), gradient in zip(calls.items(), gradients, strict=True):
                    weight, bias = _squares(layers[name], inputs, gradient, moments[name])
                    weights[name] += weight / rounds
                    biases[name] += bias / rounds
    return {name: Sensitivity(weights[name] / samples, biases[name] / samples) for name in layers}


def _record(calls: dict[str, tuple[Tensor, Tensor]], name: str, _module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
    calls[name] = (arguments[0].detach(), output)
    return output.clone()  # what follows may work in place


def _squares(layer: MatrixLayer, inputs: Tensor, gradient: Tensor, moments: Moments) -> tuple[float, float]:
    """Sums over samples the mean squared derivative by a weight, over its input's variance, and by a bias."""
    slopes = output_columns(layer, gradient)
    slopes = slopes.unflatten(1, (groups_of(layer), -1))
    total, done = 0.0, 0
    mean = moments.mean.to(slopes.dtype)[None, :, :, None]
    for piece in pieces(layer, inputs):
        centred = layer_columns(layer, piece) - mean
        part = slopes[done : done + len(centred)] @ centred.mT
        total += float(part.double().square().mean((1, 2, 3)).sum())
        done += len(centred)
    variance = float(moments.covariance.diagonal(dim1=1, dim2=2).mean())
    return total / max(variance, 1e-30), float(slopes.sum(3).double().square().mean((1, 2)).sum())
