"""Prunes by magnitude: ranks all weights together and keeps the largest, by exact count or by threshold."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ellzero.params import select_parameters
from ellzero.types import Params


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The magnitudes of several tensors in one order: larger first, equal ones by their index in the flattened tensors.

    Attributes:
        shapes: name -> shape, in the order in which the tensors were flattened.
        magnitudes: |w| of every scalar, infinite where the scalar is protected.
        ascending: the same numbers sorted.
        nonzeros: how many are not zero; the largest count that can be kept.
        protected: how many are never pruned; the smallest count that can be kept.
    """

    shapes: dict[str, torch.Size]
    magnitudes: Float[Tensor, " scalars"]
    ascending: Float[Tensor, " scalars"]
    nonzeros: int
    protected: int

    def masks(self, keep: int) -> dict[str, Tensor]:
        """Builds the masks that keep the `keep` largest weights, the lower index first among equal ones."""
        return self._split(self._kept(min(keep, self.nonzeros)))

    def masks_above(self, threshold: float) -> dict[str, Tensor]:
        """Builds the masks that keep every weight of magnitude larger than `threshold`."""
        return self._split(self.magnitudes > threshold)

    def largest_pruned(self, keep: int) -> float:
        """Returns the largest magnitude pruned when `keep` weights stay: epsilon of Algorithm 1, 0.0 where none is pruned."""
        pruned = self.magnitudes.numel() - min(keep, self.nonzeros)
        return float(self.ascending[pruned - 1]) if pruned > 0 else 0.0

    def _kept(self, keep: int) -> Bool[Tensor, " scalars"]:
        if keep == 0:
            return torch.zeros_like(self.magnitudes, dtype=torch.bool)
        smallest = self.ascending[-keep]
        kept = self.magnitudes >= smallest
        excess = kept.numel() - int(torch.searchsorted(self.ascending, smallest)) - keep
        if excess > 0:
            kept[(self.magnitudes == smallest).nonzero().flatten()[-excess:]] = False
        return kept

    def _split(self, kept: Bool[Tensor, " scalars"]) -> dict[str, Tensor]:
        parts = kept.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.reshape(shape).clone() for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


@torch.no_grad()
def flatten(params: Params) -> Float[Tensor, " scalars"]:
    """Copies all parameters into one vector of the widest dtype among them, on the first one's device."""
    first = next(iter(params.values()))
    return torch.cat([parameter.detach().reshape(-1).to(first.device) for parameter in params.values()])


@torch.no_grad()
def rank(params: Params, *, min_keep: int = 0) -> Ranking:
    """Ranks the magnitudes of all parameters together.

    Args:
        params: name -> tensor; their order is the order of ties.
        min_keep: how many non-zero weights of each tensor, its largest, are never pruned.

    Raises:
        ValueError: nothing to rank, a negative `min_keep`, or a tensor that holds NaN or infinity.
    """
    if not params:
        raise ValueError("no parameter to rank: pass a model or a mapping of names to tensors")
    if min_keep < 0:
        raise ValueError(f"min_keep counts weights to keep in each tensor and cannot be negative, got {min_keep}")
    for name, parameter in params.items():
        if not bool(torch.isfinite(parameter.detach()).all()):
            raise ValueError(
                f"{name} holds NaN or infinity, which has no place in an order of magnitudes: training diverged before pruning"
            )
    # Half precision is ranked in single precision: exact, and the sort of numpy knows no bfloat16.
    magnitudes = flatten(params).abs_()
    magnitudes = magnitudes if magnitudes.dtype == torch.float64 else magnitudes.float()
    nonzeros = int(torch.count_nonzero(magnitudes))
    protected = 0
    if min_keep > 0:
        for part in magnitudes.split([parameter.numel() for parameter in params.values()]):
            largest = part.sort(descending=True, stable=True).indices[: min(min_keep, int(torch.count_nonzero(part)))]
            part[largest] = math.inf
            protected += largest.numel()
    shapes = {name: parameter.shape for name, parameter in params.items()}
    return Ranking(shapes=shapes, magnitudes=magnitudes, ascending=_sorted(magnitudes), nonzeros=nonzeros, protected=protected)


def magnitude_masks(
    params: Params | nn.Module, *, keep: int | None = None, threshold: float | None = None, min_keep: int = 0
) -> dict[str, Tensor]:
    """Finds the masks that keep the largest weights, all tensors ranked together; changes nothing.

    Ties are broken by the index in the flattened tensors, in the order of `params`: the lower index is kept first, so that
    every process finds the same masks. Exact zeros are never kept.

    Args:
        params: name -> tensor, or a model, of which the default selection (`ellzero.params.weights`) is taken.
        keep: how many weights to keep, exactly; all non-zero ones where there are fewer.
        threshold: alternatively, prunes |w| <= threshold (line 7 of Algorithm 1).
        min_keep: keeps at least this many non-zero weights of each tensor, so that no layer is cut through.

    Returns:
        Name -> boolean tensor, True where the weight is kept.

    Raises:
        ValueError: not exactly one of `keep` and `threshold`, a negative or NaN value, `keep` below what `min_keep` protects,
            nothing to rank, or a tensor that holds NaN or infinity (it is named).
        TypeError: neither a mapping nor a model.
    """
    if (keep is None) == (threshold is None):
        raise ValueError(f"pass exactly one of keep= and threshold=, got keep={keep} and threshold={threshold}")
    if keep is not None and keep < 0:
        raise ValueError(f"keep is a number of weights and cannot be negative, got {keep}")
    if threshold is not None and not threshold >= 0:
        raise ValueError(f"threshold is a magnitude and cannot be negative, got {threshold}")
    ranking = rank(params if isinstance(params, Mapping) else select_parameters(params), min_keep=min_keep)
    if threshold is not None:
        return ranking.masks_above(threshold)
    assert keep is not None
    if keep < ranking.protected:
        raise ValueError(f"keep={keep} is less than the {ranking.protected} weights that min_keep={min_keep} protects: lower min_keep")
    return ranking.masks(keep)


def _sorted(values: Float[Tensor, " scalars"]) -> Float[Tensor, " scalars"]:
    """Sorts ascending; on the CPU by numpy, which is ten times faster here and makes no array of 64-bit indices."""
    return torch.from_numpy(np.sort(values.numpy())) if values.device.type == "cpu" else values.sort().values
