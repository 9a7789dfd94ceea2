"""Folding: dead units lose their weights and biases, constant units move into the next bias; shapes and keys stay.

After pruning, a unit may feed nothing (dead), or have no live input left, so that only its bias speaks (constant). What its bias
says through its activation is a number, which the bias of the next layer can say instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from ellzero.params import require_module
from ellzero.surgery.analysis import Analysis
from ellzero.surgery.calls import evaluating
from ellzero.surgery.known_modules import copied
from ellzero.types import Mask


@dataclass(frozen=True, kw_only=True)
class Folded:
    """What folding changed.

    Attributes:
        zeroed: for each parameter that lost non-zeros, True where it did.
        absorbed: for each bias that took constants over, True where it did; where a mask was False there, it must open.
        removed: non-zero scalars before minus after, trainable or not, at least 0.
    """

    zeroed: Mapping[str, Mask]
    absorbed: Mapping[str, Mask]
    removed: int


def fold(model: nn.Module, example: Tensor) -> nn.Module:
    """Copies a model without dead and constant units' weights: same shapes, keys, and function in eval mode.

    Args:
        model: a traceable model of the layers listed in `docs/guides/fold-and-shrink.md`; it is not changed.
        example: a batch of inputs, floating point; two are enough.

    Returns:
        The folded copy. It has at most as many non-zeros.

    Raises:
        ValueError: the model cannot be traced, or holds a module or function that is not known; the message names it.
        RuntimeError: the copy answers differently on `example`.
    """
    folded = copied(model)
    fold_(folded, example)
    return folded


def fold_(model: nn.Module, example: Tensor) -> Folded:
    """Folds a model in place; see `fold`.

    Args:
        model: the model, changed in place; gradients and optimizer states are left alone.
        example: a batch of inputs, floating point; two are enough.

    Returns:
        Which scalars became zero, and which biases changed.

    Raises:
        ValueError: as in `fold`.
        RuntimeError: the folded model would answer differently on `example`; the model is as before.
    """
    require_module(model)
    expected = outputs(model, example)
    return write_folded_(model, Analysis(model, example), example, expected)


def write_folded_(model: nn.Module, analysis: Analysis, example: Tensor, expected: list[Tensor]) -> Folded:
    """Writes what an analysis of a model folds, and takes it back if the model then answers differently."""
    tensors = named_tensors(model)
    before: dict[str, Tensor] = {}
    zeroed: dict[str, Tensor] = {}
    absorbed: dict[str, Tensor] = {}
    removed = 0
    with torch.no_grad():
        for operation in analysis.operations:
            for name, new in operation.folded().items():
                old = tensors[name]
                if torch.equal(old, new):
                    continue
                before[name] = old.detach().clone()
                gone = (old != 0) & (new == 0)
                if isinstance(old, nn.Parameter):
                    removed += int(torch.count_nonzero(old) - torch.count_nonzero(new))
                    if gone.any():
                        zeroed[name] = gone
                    changed = (new != old) & (new != 0)
                    if changed.any():
                        absorbed[name] = changed
                old.copy_(new)
        try:
            check_equal(outputs(model, example), expected)
        except RuntimeError:
            for name, old in before.items():
                tensors[name].copy_(old)
            raise
    return Folded(zeroed=zeroed, absorbed=absorbed, removed=removed)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Lists all parameters and buffers of a model, shared ones under each of their names."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def outputs(model: nn.Module, example: Tensor) -> list[Tensor]:
    """Runs a model in eval mode on a copy of the example and lists the tensors it returns."""
    tensors: list[Tensor] = []

    def collect(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            tensors.append(leaf.clone())
        return leaf

    with evaluating(model):
        map_aggregate(model(example.clone()), collect)
    return tensors


def check_equal(new_outputs: list[Tensor], expected: list[Tensor]) -> None:
    """Raises RuntimeError unless two lists of outputs agree up to rounding: a wrong network is never returned."""
    if len(new_outputs) != len(expected):
        raise RuntimeError(f"the new model returns {len(new_outputs)} tensors, the old one {len(expected)}")
    for new, old in zip(new_outputs, expected, strict=True):
        if new.shape != old.shape:
            raise RuntimeError(f"the new model returns shape {tuple(new.shape)}, the old one {tuple(old.shape)}")
        if not old.is_floating_point():
            continue
        # The sums run in another order: half of the digits have to agree, at the scale of the largest output.
        tolerance = torch.finfo(old.dtype).eps ** 0.5
        scale = old[old.isfinite()].abs().max().item() if old.isfinite().any() else 0.0
        if not torch.allclose(new, old, rtol=tolerance, atol=tolerance * (1e-3 + scale), equal_nan=True):
            worst = (new - old).abs().max().item()
            raise RuntimeError(
                f"outputs on the example differ by {worst:g} (largest output {scale:g}): the model does more than its trace shows"
            )
