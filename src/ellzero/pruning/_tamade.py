"""Threshold Adaptive Mask Determination (section 2.2.4, appendix E): the smallest network that evaluates well enough."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.params import Selector, select_parameters, weights
from ellzero.pruning.accept import Accept
from ellzero.pruning.magnitude import flatten, rank
from ellzero.types import Masks, Params


class Trial(NamedTuple):
    """An evaluation: how many weights were kept, and the value."""

    kept: int
    value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class TamadeResult(Mapping[str, Tensor]):
    """What TAMADE found: the masks, as a mapping that `Sparsifier.freeze` and `apply_masks_` take, and how it got there.

    Attributes:
        masks: name -> True where the weight is kept; evaluated with exactly these masks, and accepted.
        kept: how many weights they keep.
        threshold: the largest magnitude pruned, epsilon of Algorithm 1; of several equal weights some may be kept.
        reference: the evaluation before pruning.
        value: the evaluation with the masks.
        evaluations: how often the model was evaluated, the reference included.
        tried: every evaluation in its order, the reference first.
    """

    masks: Masks
    kept: int
    threshold: float
    reference: float
    value: float
    evaluations: int
    tried: tuple[Trial, ...]

    def __getitem__(self, name: str) -> Tensor:
        return self.masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.masks)

    def __len__(self) -> int:
        return len(self.masks)


@torch.no_grad()
def tamade(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    *,
    accept: Accept,
    select: Selector = weights,
    tolerance: float = 0.0,
    min_keep: int = 0,
) -> TamadeResult:
    """Finds the masks that prune the most weights by magnitude while the evaluation stays acceptable.

    Algorithm 1 bisects a real threshold to a given resolution. This bisects the rank of the sorted magnitudes, which needs no
    resolution and, with `Within`, finds the exact count of weights in at most ceil(log2 n) + 1 evaluations of n non-zero weights,
    the reference included. Where the evaluation is monotone in the count, the result is that of trying every count; where it is
    not, the masks returned still were evaluated and passed.

    The model is left as it was: apply the masks with `apply_masks_`. During the search its selected weights are overwritten from one
    flat copy, and put back bit for bit at the end, also when the evaluation raises. Put the model into eval mode before,
    so that neither dropout nor batch statistics disturb the comparison.

    Args:
        model: the model to prune.
        evaluate: called with the model, returns a loss or an accuracy; runs without gradients.
        accept: `Within(relative=0.01)`, `Within(absolute=0.002, better=Better.HIGHER)` or `ShortestDescription(...)`.
        select: which parameters are pruned, ranked together.
        tolerance: stops within this fraction of the non-zero weights; 0.001 takes at most 12 evaluations with `Within`.
        min_keep: never prunes this many of each tensor's largest weights, so that no layer is cut through.

    Raises:
        ValueError: the reference evaluates to NaN or infinity, is not positive under a relative tolerance, no selected weight is
            non-zero, a weight is not finite, or `tolerance` is outside [0, 1).
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is a fraction of the non-zero weights in [0, 1), got {tolerance}")
    selected = select_parameters(model, select)
    ranking = rank(selected, min_keep=min_keep)
    if ranking.nonzeros == 0:
        raise ValueError("every selected weight is already zero: nothing is left to prune")
    most = ranking.nonzeros
    reference = float(evaluate(model))
    if not math.isfinite(reference):
        raise ValueError(f"the model evaluates to {reference} before anything is pruned: nothing can be compared with that")
    values = {most: reference}
    originals = flatten(selected)

    def evaluate_kept(kept: int) -> float:
        if kept not in values:
            _write_(selected, originals, ranking.masks(kept))
            values[kept] = float(evaluate(model))
        return values[kept]

    try:
        kept = accept.search(evaluate_kept, reference, max(1, ranking.protected), most, tolerance * most)
    finally:
        _write_(selected, originals, {})
    return TamadeResult(
        masks=ranking.masks(kept),
        kept=kept,
        threshold=ranking.largest_pruned(kept),
        reference=reference,
        value=values[kept],
        evaluations=len(values),
        tried=tuple(Trial(*item) for item in values.items()),
    )


def _write_(params: Params, originals: Float[Tensor, " scalars"], masks: Masks) -> None:
    """Writes the original weights back, and zero where a mask says so."""
    parts = originals.split([parameter.numel() for parameter in params.values()])
    for (name, parameter), part in zip(params.items(), parts, strict=True):
        part = part.view(parameter.shape)
        parameter.copy_(torch.where(masks[name], part, 0.0) if name in masks else part)
