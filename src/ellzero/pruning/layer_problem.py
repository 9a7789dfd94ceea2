"""One layer of layerwise pruning, and the order in which the layers are pruned."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor, nn

from ellzero.pruning._random_gradient import random_gradient
from ellzero.pruning.least_squares import damped, eliminate, mask_after, refit, squared_error, times
from ellzero.pruning.priced import priced_mask
from ellzero.pruning.regression import Regression, weights_and_bias, write_weights_and_bias_
from ellzero.surgery.calls import Forward
from ellzero.surgery.layer_matrices import bias_of, by_output

_SAMPLES = 2
"""Samples on which random gradient pruning looks at the network."""


class Allocation(enum.Enum):
    """How zeros are divided among layers.

    EVENLY gives every layer the same fraction. TOGETHER removes what costs least anywhere, errors taken relative to each layer's outputs.
    """

    EVENLY = "evenly"
    TOGETHER = "together"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much is pruned.

    Attributes:
        zeros: the fraction of prunable weights that become 0, or None.
        alpha: otherwise, the price of a weight.
        allocation: how zeros are divided among layers.
    """

    zeros: float | None
    alpha: float | None
    allocation: Allocation


class LayerProblem:
    """A layer, its regression on the dense network's inputs, and the order in which its weights may go.

    Args:
        regression: inputs and outputs in the dense network.
        prunable: which columns of the layer's matrix may be pruned.
        damping: added to the Gram matrix, as a fraction of the mean of its diagonal.
        relative: whether errors are measured relative to the sum of squares of the outputs.
    """

    def __init__(self, regression: Regression, prunable: Bool[Tensor, " n"], damping: float, *, relative: bool) -> None:
        self.regression = regression
        self.layer = regression.layer
        self.prunable = prunable
        self.gram = damped(regression.gram, damping)
        self.dense = weights_and_bias(self.layer)
        self.energy = float(squared_error(self.dense, regression.gram).sum())
        self.elimination = eliminate(self.dense, self.gram, prunable)
        # Prices never fall along a row: whoever pays for a removal has paid for those before it.
        self.prices = self.elimination.cost.cummax(1).values / (self.energy if relative and self.energy > 0 else 1.0)
        self.dead = torch.zeros(len(self.dense), dtype=torch.bool, device=self.dense.device)
        self.mask = torch.ones_like(self.dense, dtype=torch.bool)
        self.solution = self.dense

    def name_of(self, leaf: str) -> str:
        """Names the layer's weight or bias."""
        return f"{self.regression.name}.{leaf}" if self.regression.name else leaf

    def rows_of(self, masks: Mapping[str, Tensor]) -> Bool[Tensor, "out inputs"]:
        """Returns the layer's mask among others, one row per output."""
        return by_output(self.layer, masks[self.name_of("weight")]).flatten(2).flatten(0, 1)

    def free_(self, dead: Bool[Tensor, " out"]) -> None:
        """Makes the removal of everything in the rows of dead units free."""
        self.dead |= dead
        self.prices = self.prices.masked_fill(dead[:, None], 0.0)
        self.dense = self.dense.masked_fill(dead[:, None], 0.0)

    def choose_(self, counts: Int64[Tensor, " out"]) -> None:
        """Removes so many weights from each row, by elimination or, where that leaves a smaller error, by magnitude."""
        magnitudes = torch.where(self.prunable, self.dense.abs(), torch.inf).flatten()
        by_magnitude = torch.ones_like(magnitudes, dtype=torch.bool)
        by_magnitude[magnitudes.argsort(stable=True)[: int(counts.sum())]] = False
        candidates: list[tuple[float, Tensor, Tensor]] = []
        for candidate in (mask_after(self.elimination, counts, self.dense.shape[1]), by_magnitude.view_as(self.dense)):
            mask = candidate & ~self.dead[:, None]
            solution = refit(self.gram, times(self.dense, self.gram), mask)
            candidates.append((float(squared_error(solution - self.dense, self.gram).sum()), mask, solution))
        _, self.mask, self.solution = min(candidates, key=lambda scored: scored[0])
        write_weights_and_bias_(self.layer, self.solution)

    def price_(self, alpha: float) -> None:
        """Removes what is not worth `alpha` per weight to its row's outputs."""
        self.mask = priced_mask(self.dense, self.gram, self.elimination, self.prunable, alpha) & ~self.dead[:, None]
        self.solution = refit(self.gram, times(self.dense, self.gram), self.mask)
        write_weights_and_bias_(self.layer, self.solution)

    def drop_(self, masks: Mapping[str, Tensor]) -> None:
        """Removes also what masks of the layer's weight and bias remove."""
        columns = [self.rows_of(masks)]
        if self.name_of("bias") in masks:
            columns.append(masks[self.name_of("bias")][:, None])
        # The masks keep what is not 0; a weight that least squares made 0 may still be needed.
        self.mask = self.mask & (torch.cat(columns, 1) | (self.solution == 0))
        self.solution = self.solution * self.mask
        write_weights_and_bias_(self.layer, self.solution)

    def refit_(self, pruned: Regression, damping: float) -> None:
        """Fits the weights that are left to the dense network's outputs on the inputs that the pruned network gives."""
        gram = damped(pruned.gram, damping)
        cross = pruned.cross + times(self.solution, gram - pruned.gram)
        self.solution = refit(gram, cross, self.mask)
        write_weights_and_bias_(self.layer, self.solution)

    def masks(self) -> dict[str, Tensor]:
        """Returns which weights and biases are kept, by the parameters' names."""
        columns = self.mask.shape[1] - (bias_of(self.layer) is not None)
        weight = torch.empty(self.layer.weight.shape, dtype=torch.bool, device=self.mask.device)
        view = by_output(self.layer, weight)
        view.copy_(self.mask[:, :columns].reshape(view.shape))
        masks = {self.name_of("weight"): weight}
        return masks if columns == self.mask.shape[1] else masks | {self.name_of("bias"): self.mask[:, -1].clone()}

    @property
    def relative_error(self) -> float:
        """The squared error of the outputs over the sum of their squares."""
        error = float(squared_error(self.solution - self.dense, self.regression.gram).sum())
        return error / self.energy if self.energy > 0 else 0.0

    @property
    def cut(self) -> bool:
        """Whether an input or an output of the layer has lost all its weights, so that others may have become useless."""
        links = by_output(self.layer, self.masks()[self.name_of("weight")])
        links = links.flatten(3).any(3) if links.ndim > 3 else links
        return not bool(links.any(1).all() and links.any(2).all())


def choose_(model: nn.Module, problems: Sequence[LayerProblem], budget: Budget, example: Any, *, forward: Forward, seed: int) -> None:
    """Chooses and fits the weights of every layer, the last first, with random gradient pruning after each.

    What dies in layers further up is free there, so that more is left for others.

    Args:
        model: the model, in eval mode.
        problems: its layers in the order of their calls.
        budget: how much is pruned.
        example: a small batch.
        forward: how to call the model on it.
        seed: of random gradient pruning.
    """
    names = {problem.name_of(leaf) for problem in problems for leaf in ("weight", "bias")}
    wanted = None if budget.zeros is None else round(budget.zeros * sum(problem.prices.numel() for problem in problems))
    for index in reversed(range(len(problems))):
        problem = problems[index]
        if wanted is None:
            assert budget.alpha is not None
            problem.price_(budget.alpha)
        elif budget.allocation is Allocation.EVENLY:
            assert budget.zeros is not None
            problem.choose_(cheapest(problem.prices, [], round(budget.zeros * problem.prices.numel())))
        else:
            problem.choose_(cheapest(problem.prices, [other.prices for other in problems[:index]], wanted))
        if problem.cut:
            masks = random_gradient(
                model, [example], select=lambda name, _module, _tensor: name in names, forward=forward, draws=1, seed=seed
            )
            for other in problems[index:]:
                other.drop_(masks)
            for other in problems[:index]:
                other.free_(~other.rows_of(masks).any(1))
        if wanted is not None:
            wanted = max(0, wanted - int((~problem.mask & problem.prunable).sum()))


def cheapest(prices: Float64[Tensor, "out steps"], others: Sequence[Tensor], count: int) -> Int64[Tensor, " out"]:
    """Counts how many removals of each row of a layer are among the cheapest of this and other layers.

    Prices never fall along a row and the sort is stable, so that what is taken of a row is always its beginning.
    """
    taken = torch.cat([matrix.flatten() for matrix in (prices, *others)]).argsort(stable=True)[:count]
    rows = taken[taken < prices.numel()] // max(1, prices.shape[1])
    return torch.bincount(rows, minlength=len(prices))


def num_samples(batch: Any) -> int:
    """Counts the samples of a batch: the length of its first tensor."""
    if isinstance(batch, Tensor):
        return len(batch)
    items = batch.values() if isinstance(batch, Mapping) else batch
    return num_samples(next(iter(items)))


def first_samples(batch: Any) -> Any:
    """Takes the first few samples of a batch."""
    if isinstance(batch, Tensor):
        return batch[:_SAMPLES]
    if isinstance(batch, Mapping):
        return {name: first_samples(item) for name, item in batch.items()}
    return tuple(first_samples(item) for item in batch)
