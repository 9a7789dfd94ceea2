"""Trains weights on a grid: the network computes with the few values that its file will hold, and learns all the same."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.stored_grids import Logarithmic, worth
from ellzero.methods.protocol import Laws, no_gradient_, no_masks_
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, value_at
from ellzero.quantise.grids import Levels, LogGrid, Quantiser, nearest_levels
from ellzero.types import At, Params, Scalar


def magnitudes(grid: Logarithmic, levels: int) -> NDArray[np.float64]:
    """Lists the magnitudes of a grid, [levels], by the decoder's own arithmetic, so that the network sees what a file holds."""
    return worth(np.arange(1, levels + 1, dtype=np.int32), grid, DType.F64, 1).view(np.float64).copy()


class Latent(nn.Module):
    """What one parameter learns with while the network sees it on a grid.

    Attributes:
        weight: the latent weights, of the parameter's shape; 0 where the parameter was 0 at the start.
        shown: what the parameter was set to at the last step.
        table: magnitudes of the grid, rising, [levels].
        bits: what the magnitudes cost in the file, in bits, [levels].
        grid: the smallest magnitude and the ratio, float64.
    """

    weight: Tensor
    shown: Tensor
    table: Tensor
    bits: Tensor
    grid: Tensor

    def __init__(self, parameter: Tensor, grid: LogGrid, name: str) -> None:
        super().__init__()
        values = parameter.detach().double().cpu().numpy()
        quantised = grid.quantise(name, values)
        assert quantised is not None
        assert isinstance(quantised.grid, Logarithmic)
        table = torch.from_numpy(magnitudes(quantised.grid, grid.span)).to(parameter.detach())
        self.register_buffer("weight", parameter.detach().clone())
        self.register_buffer("shown", parameter.detach().clone())
        self.register_buffer("table", table)
        self.register_buffer("bits", torch.zeros_like(table))
        self.register_buffer("grid", torch.tensor([quantised.grid.smallest, quantised.grid.ratio], dtype=torch.float64))

    def levels(self) -> Tensor:
        """Finds the nearest magnitudes of the latent weights, from 0 for the smallest."""
        borders = (self.table[1:] + self.table[:-1]) / 2
        return torch.bucketize(self.weight.abs(), borders)

    def show(self) -> Tensor:
        """Computes what the network is to see: the nearest value of the grid, 0 only for what is 0."""
        self.shown = self.table[self.levels()] * self.weight.sign()
        return self.shown

    def count(self) -> None:
        """Sets what magnitudes cost to -log2 of their shares, each counted half a time more: an adaptive coder's estimate."""
        counts = torch.bincount(self.levels()[self.weight != 0].flatten(), minlength=len(self.table)).to(self.table) + 0.5
        self.bits = -torch.log2(counts / counts.sum())

    def cost(self, weight: Tensor) -> Tensor:
        """Computes what weights cost, in bits: linear between two magnitudes of the grid, in the logarithm of the weight."""
        place = self._place(weight)
        below = place.detach().floor().clamp(0, len(self.table) - 2).long()
        low, high = self.bits[below], self.bits[below + 1]
        return torch.where(weight != 0, low + (place - below) * (high - low), torch.zeros_like(weight))

    def slope(self) -> Tensor:
        """Computes the derivative of `cost` at the latent weights."""
        place = self._place(self.weight)
        inside = (place > 0) & (place < len(self.table) - 1) & (self.weight != 0)
        below = place.floor().clamp(0, len(self.table) - 2).long()
        rise = self.bits[below + 1] - self.bits[below]
        return torch.where(inside, rise / (self.weight * math.log(float(self.grid[1]))), torch.zeros_like(self.weight))

    def _place(self, weight: Tensor) -> Tensor:
        sizes = torch.where(weight != 0, weight, torch.ones_like(weight)).abs()
        place = torch.log(sizes / float(self.grid[0])) / math.log(float(self.grid[1]))
        return place.clamp(0, len(self.table) - 1)


class GridState(nn.Module):
    """The latent weights of all parameters, in the order of their names.

    Attributes:
        names: canonical names of the parameters.
    """

    def __init__(self, params: Params, grid: LogGrid) -> None:
        super().__init__()
        self.names = list(params)
        self.latents = nn.ModuleList(Latent(parameter, grid, name) for name, parameter in params.items())

    def every(self, names: Iterable[str]) -> list[Latent]:
        """Returns the latent weights of some parameters, in the order of `names`."""
        latents = dict(zip(self.names, self.latents, strict=True))
        return [cast("Latent", latents[name]) for name in names]


@dataclass(frozen=True, kw_only=True)
class OnGrid:
    """Keeps weights on a logarithmic grid while they are trained: quantisation-aware training with a straight-through estimator.

    The network computes with the grid's values, the gradient found there moves latent weights, and each weight is set to the value nearest
    to its latent one (Y. Bengio and others, Estimating or propagating gradients through stochastic neurons, 2013). What is 0 at the start
    stays 0, and nothing else becomes 0; signs may change. Grids are fixed at the start, one for each tensor.

    Attach it for the last few passes, then save with `quantise=method.quantiser(sparsifier.state)`, which loses nothing more.

    Attributes:
        grid: ratio and number of the magnitudes.
        bit_price: price of a bit, in units of the data loss: draws weights to magnitudes that are frequent already and so cost few bits.
            The price of the shortest description is ln 2 over the number of training samples, for a mean loss in nats.
        every: optimizer steps between two counts of the magnitudes, where there is a price.
    """

    grid: LogGrid = field(default_factory=LogGrid)
    bit_price: Hyperparameter = 0.0
    every: int = 100

    def __post_init__(self) -> None:
        check_hyperparameter("bit_price", self.bit_price)
        if self.grid.span < 2:
            raise ValueError(f"{self.grid}: there is nothing to learn on a grid of one magnitude")
        if self.every < 1:
            raise ValueError(f"every counts steps between two counts of magnitudes, expected at least 1, got {self.every}")

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys: it depends on all weights together, through their frequencies."""
        return Laws(linear_in_alpha=True, zero_at_zero=True, separable=False)

    @property
    def proximal(self) -> bool:
        """Whether the penalty acts after the step: always, on the latent weights."""
        return True

    @property
    def silent(self) -> bool:
        """Whether there is no penalty by intention."""
        return self.bit_price == 0.0

    def init(self, params: Params) -> nn.Module:
        """Chooses a grid for each parameter by its weights; they are their own latent weights at first.

        Raises:
            ValueError: a weight is not finite.
        """
        for name, parameter in params.items():
            if not bool(parameter.detach().isfinite().all()):
                raise ValueError(f"{name} has weights that are not finite, which no grid holds")
        state = GridState(params, self.grid)
        for latent in state.every(params):
            latent.count()
        return state

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `bit_price` times the bits that the magnitudes of the weights cost; positions and signs are not in it."""
        assert isinstance(state, GridState)
        costs = [latent.cost(parameter).sum() for parameter, latent in zip(params.values(), state.every(params), strict=True)]
        return value_at(self.bit_price, at) * torch.stack(costs).sum()

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Moves the latent weights as the optimizer moved the weights, then sets the weights to the nearest values."""
        assert isinstance(state, GridState)
        price, count = value_at(self.bit_price, at), at.step % self.every == 0
        for (name, parameter), latent in zip(params.items(), state.every(params), strict=True):
            old = latent.weight
            moved = old + (parameter.detach() - latent.shown)
            if price > 0:
                if count:
                    latent.count()
                moved -= price * steps[name] * latent.slope()
            # A latent weight that meets 0 exactly would be lost: it waits on its side.
            moved = torch.where(moved == 0, old, moved)
            latent.weight = torch.where(old == 0, old, moved)
            parameter.copy_(latent.show())

    def grids(self, state: nn.Module) -> dict[str, tuple[float, float]]:
        """Lists the smallest magnitude and the ratio of each parameter's grid."""
        assert isinstance(state, GridState)
        latents = zip(state.names, state.every(state.names), strict=True)
        return {name: (float(latent.grid[0]), float(latent.grid[1])) for name, latent in latents}

    def quantiser(self, state: nn.Module) -> Quantiser:
        """Returns what `save_model(quantise=...)` needs to write the trained weights as they are; other tensors are kept exactly."""
        return KnownGrids(grids=self.grids(state))

    add_gradient_ = no_gradient_
    masks_ = no_masks_


@dataclass(frozen=True, kw_only=True)
class KnownGrids:
    """Quantises tensors by grids that are known already, and keeps all others exactly.

    Attributes:
        grids: the smallest magnitude and the ratio, by name of the tensor.
    """

    grids: Mapping[str, tuple[float, float]]

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Finds the nearest values, for trained weights their own; None where the tensor is unknown."""
        if name not in self.grids:
            return None
        smallest, ratio = self.grids[name]
        grid = Logarithmic(smallest=smallest, ratio=ratio)
        largest = float(np.abs(values).max(initial=0))
        highest = 1 + math.ceil(math.log(max(largest / grid.smallest, 1.0), grid.ratio)) + 1
        return Levels(levels=nearest_levels(values, magnitudes(grid, highest)), grid=grid)
