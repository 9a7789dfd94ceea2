"""Layerwise normalisation of alpha and rho: small layers are pulled harder, so that each layer weighs about the same.

The penalty of a group of `n_group` scalars is multiplied by `N_theta / (n_group * G)`, with `N_theta` regularised scalars in all and
`G` layers (G. de Resende Oliveira and others, reference [8] of the paper). Two readings of "layer" are in use.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from ellzero.methods.workspace import NoState
from ellzero.types import Params


@runtime_checkable
class Normalisation(Protocol):
    """A rule that gives every tensor a factor of its penalty."""

    def factors(self, params: Params) -> Mapping[str, float]:
        """Computes name -> factor for all regularised parameters together."""
        ...


@dataclass(frozen=True, kw_only=True)
class PerModule:
    """A layer is one module: a weight with its bias, a normalisation's gain with its shift.

    `G` is the number of regularised tensors of two and more dimensions, the layers proper: normalisation layers have a group each,
    and are not counted. 16 for a VGG-16.
    """

    def factors(self, params: Params) -> dict[str, float]:
        """Computes the factors.

        Raises:
            ValueError: no regularised tensor has two dimensions.
        """
        count = sum(parameter.ndim >= 2 for parameter in params.values())
        if count == 0:
            raise ValueError(f"no regularised tensor has two dimensions, so there is no layer to count ({', '.join(list(params)[:5])})")
        return _factors(params, {name: _parent(name) for name in params}, count)


@dataclass(frozen=True, kw_only=True)
class PerStage:
    """A layer is the innermost module around a tensor whose own name is `prefix` and a number: a stage of several convolutions, say.

    `G` is the number of such modules with regularised parameters: 3 for the stages of `ellzero.models.ResNet`, whose first convolution
    and last layer lie in none and are to be left out with `select=`.

    Attributes:
        prefix: what stands before the number, an underscore between them aside: "layer" finds `layer_1`, and `layer4` of a ResNet, but
            not a list of `layers`; "" finds the modules of a list or a `Sequential`, whose names are numbers alone.
    """

    prefix: str = "layer"

    def factors(self, params: Params) -> dict[str, float]:
        """Computes the factors.

        Raises:
            ValueError: a parameter lies in no such module.
        """
        stage = re.compile(re.escape(self.prefix) + r"_?\d+")
        groups: dict[str, str] = {}
        for name in params:
            parts = name.split(".")
            depths = [depth for depth, part in enumerate(parts[:-1], start=1) if stage.fullmatch(part)]
            if not depths:
                raise ValueError(
                    f"{name} lies in no module whose name is {self.prefix!r} and a number: pass another prefix, as PerStage(prefix='') for"
                    " the modules of a list, or PerModule(), or leave the parameter out with select="
                )
            groups[name] = ".".join(parts[: depths[-1]])
        return _factors(params, groups, len(set(groups.values())))


class NormalisedState(NoState):
    """Temporaries, and a factor for each parameter.

    The factors are part of the state_dict: they are those of the network that regularisation began with, also after dead units
    have been removed from it.
    """

    factors: Tensor

    def __init__(self, factors: Mapping[str, float]) -> None:
        super().__init__()
        self.positions = {name: position for position, name in enumerate(factors)}
        self.register_buffer("factors", torch.tensor(list(factors.values()), dtype=torch.float64))


def factors_of(state: nn.Module, params: Params) -> list[float]:
    """Returns each parameter's factor: 1 where the state has none."""
    if not isinstance(state, NormalisedState):
        return [1.0] * len(params)
    factors = cast("list[float]", state.factors.tolist())
    return [factors[state.positions[name]] for name in params]


def _factors(params: Params, groups: Mapping[str, str], count: int) -> dict[str, float]:
    sizes: dict[str, int] = {}
    for name, group in groups.items():
        sizes[group] = sizes.get(group, 0) + params[name].numel()
    total = sum(sizes.values())
    # An empty tensor has no penalty, and its factor is not to be infinite.
    return {name: total / (max(1, sizes[group]) * count) for name, group in groups.items()}


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
