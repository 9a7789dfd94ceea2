"""Initial values of weights and biases, drawn from a generator that the caller owns."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

WeightLayer = nn.Linear | nn.Conv2d

LayerType = TypeVar("LayerType", nn.Linear, nn.Conv2d)

Initialise = Callable[[WeightLayer, nn.Module, torch.Generator], None]
"""Fills a layer in place, given the activation that follows it (`nn.Identity()` after the last layer) and a generator."""

_GAINS: dict[type[nn.Module], float] = {nn.ReLU: 2.0, nn.Tanh: 5 / 3, nn.Sigmoid: 1.0, nn.Identity: 1.0}


@torch.no_grad()
def _fill_uniform_(layer: WeightLayer, bound: float, bias_bound: float, generator: torch.Generator) -> None:
    layer.weight.uniform_(-bound, bound, generator=generator)
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]  # torch types an optional bias as a tensor
        layer.bias.uniform_(-bias_bound, bias_bound, generator=generator)


def paper_uniform_(layer: WeightLayer, activation: nn.Module, generator: torch.Generator) -> None:
    """Fills a layer as the paper's experiments on images did.

    Weights follow U(-b, b) with b = sqrt(3) g / sqrt(fan_in), where the gain g is 2 before a ReLU, 5/3 before a tanh and 1 elsewhere;
    biases follow U(-1/sqrt(fan_in), 1/sqrt(fan_in)). A gain of 2 and not sqrt(2) makes activations grow by sqrt(2) per layer: this is
    the default of the Julia library Lux, in which those experiments ran.

    Args:
        layer: a linear layer or a convolution.
        activation: what follows the layer.
        generator: the source of randomness.

    Raises:
        ValueError: no gain is known for this activation.
    """
    gain = _GAINS.get(type(activation))
    if gain is None:
        known = ", ".join(kind.__name__ for kind in _GAINS)
        raise ValueError(
            f"no gain is known for {type(activation).__name__} (only for {known}): pass initialise=pytorch_uniform_ or your own"
        )
    fan_in = layer.weight[0].numel()
    _fill_uniform_(layer, math.sqrt(3) * gain / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator)


def pytorch_uniform_(layer: WeightLayer, activation: nn.Module, generator: torch.Generator) -> None:
    """Fills a layer as PyTorch does by default: weights and biases both follow U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    With a generator seeded s, a chain of layers gets the very values that `torch.manual_seed(s)` before building them would give.

    Args:
        layer: a linear layer or a convolution.
        activation: what follows the layer; this rule does not depend on it.
        generator: the source of randomness.
    """
    bound = 1 / math.sqrt(layer.weight[0].numel())
    _fill_uniform_(layer, bound, bound, generator)


def uninitialised(kind: type[LayerType], *arguments: Any, **options: Any) -> LayerType:
    """Builds a layer without filling it: the constructor alone would draw from the global generator."""
    layer = nn.utils.skip_init(kind, *arguments, **options)
    assert isinstance(layer, kind)
    return layer


def as_generator(seed: torch.Generator | int) -> torch.Generator:
    """Returns the generator itself, or a new one on the CPU seeded with the number."""
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
