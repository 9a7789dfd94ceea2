"""How fine each layer's grid is: one exchange rate between bits and divergence for the whole network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ellzero.codec.network.stored_grids import Uniform
from ellzero.quantise.feedback import GramFactor, RoundingPrice, factorise, round_with_feedback
from ellzero.quantise.grids import Levels, rounded_up
from ellzero.quantise.moments import Moments
from ellzero.quantise.observed import ObservedLayer, mean_output
from ellzero.quantise.sensitivity import Sensitivity
from ellzero.surgery.layer_matrices import layer_matrices

_MOST_LEVELS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The grids of a layer.

    Attributes:
        weight: step of the weights.
        bias: step of the biases.
        curvature: second derivative of the divergence by a weight, over the variance of its input, in nats per sample.
    """

    weight: float
    bias: float
    curvature: float

    def scaled(self, ratio: float) -> "Steps":
        """Returns another step of the weights, and the curvature with which it would have been chosen."""
        return replace(self, weight=rounded_up(self.weight * ratio), curvature=self.curvature / ratio**2)


def choose_steps(sensitivity: Sensitivity, inputs: GramFactor, nats_per_bit: float) -> Steps:
    """Chooses steps at which one bit less per weight costs as many nats as it is worth.

    The squared error of rounding to a step s is s^2 / 12 per weight, so the divergence grows by F s^2 / 24 per weight, and by
    F s^2 ln 2 / 12 for each bit that a coarser step saves.

    Args:
        sensitivity: of the layer.
        inputs: the factored Gram matrix; what feedback leaves of each input counts, in the geometric mean.
        nats_per_bit: the exchange rate.
    """
    scale = math.sqrt(12 * nats_per_bit / math.log(2))
    left = math.exp(float(inputs.left.log().mean()))
    return Steps(
        weight=rounded_up(scale / math.sqrt(max(sensitivity.weight * left, 1e-30))),
        bias=rounded_up(scale / math.sqrt(max(sensitivity.bias, 1e-30))),
        curvature=sensitivity.weight,
    )


def input_factor(layer: ObservedLayer, inputs: Moments, damping: float) -> GramFactor:
    """Factorises the Gram matrix of a layer's inputs: without their mean where most of the biases can make up for it."""
    gram = inputs.covariance
    if layer.constant is None or 2 * int(layer.constant.fixed.sum()) > layer.constant.fixed.numel():
        gram = gram + inputs.mean[:, :, None] * inputs.mean[:, None]
    return factorise(gram, damping)


@torch.no_grad()
def quantise_weight_(layer: ObservedLayer, inputs: GramFactor, steps: Steps, nats_per_bit: float) -> dict[str, Levels]:
    """Moves a layer's weights to their grid, in place.

    Args:
        layer: the layer.
        inputs: of the layer.
        steps: of its grids.
        nats_per_bit: what a bit is worth while single weights are rounded; 0 rounds to the nearest.

    Returns:
        The levels by name; empty where they are too many for a grid, and then the weights are as before.
    """
    weight = layer.layer.weight
    price = RoundingPrice(curvature=steps.curvature, nats_per_bit=nats_per_bit) if nats_per_bit > 0 else None
    levels = round_with_feedback(layer_matrices(layer.layer), inputs, steps.weight, price).reshape(weight.shape)
    if not float(levels.abs().max()) < _MOST_LEVELS:
        return {}
    weight.copy_(levels * steps.weight)
    return {f"{layer.name}.weight": _levels(levels, steps.weight)}


@torch.no_grad()
def correct_bias_(layer: ObservedLayer, inputs: Sequence[Tensor], steps: Steps) -> dict[str, Levels]:
    """Brings a layer's mean output back to the original's by its bias, which goes to a grid of its own, or by a running mean.

    Args:
        layer: the layer, its weights quantised.
        inputs: its inputs in the network as quantised so far.
        steps: of its grids.

    Returns:
        The bias's levels by name.
    """
    constant = layer.constant
    if constant is None:
        return {}
    wanted = constant.plus(layer.mean_output - mean_output(layer.layer, inputs))
    levels = torch.round(wanted / steps.bias)
    if constant.name is None or not float(levels.abs().max()) < _MOST_LEVELS:
        constant.tensor.copy_(wanted)
        return {}
    constant.tensor.copy_(levels * steps.bias)
    return {constant.name: _levels(levels, steps.bias)}


def _levels(levels: Tensor, step: float) -> Levels:
    return Levels(levels=levels.cpu().numpy().astype(np.int32), grid=Uniform(steps=(step,)))
