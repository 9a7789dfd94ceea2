"""Kept indices: which slices of a full model's tensors a smaller one holds."""

from collections.abc import Mapping

import torch
from torch import Tensor

KeptIndices = Mapping[str, tuple[Tensor | None, ...]]
"""Name of a parameter or buffer that got smaller -> for each dimension the kept indices of the full tensor, None for all.

An entry `<layer>.features` says which features of its input a linear layer still reads (`shrink(..., inputs=True)`).
"""


def slice_tensor(tensor: Tensor, indices: tuple[Tensor | None, ...]) -> Tensor:
    """Copies the kept part of a tensor."""
    for dim, index in enumerate(indices):
        if index is not None:
            tensor = tensor.index_select(dim, index.to(tensor.device))
    return tensor.clone()


def slice_tensors(tensors: Mapping[str, Tensor], kept: KeptIndices) -> dict[str, Tensor]:
    """Slices tensors shaped as a full model's parameters (masks, moments, gradients) to those of the smaller one.

    Args:
        tensors: by the parameters' names; names that are not in `kept` pass unchanged.
        kept: from `shrink`.

    Returns:
        The same names, copies where something was sliced away.
    """
    return {name: slice_tensor(tensor, kept[name]) if name in kept else tensor for name, tensor in tensors.items()}


def compose(outer: KeptIndices, inner: KeptIndices) -> dict[str, tuple[Tensor | None, ...]]:
    """Joins two shrinkings: `outer` from the full model to a smaller one, `inner` from that to a still smaller one.

    Returns:
        The indices that lead from the full model to the smallest at once.
    """
    composed: dict[str, tuple[Tensor | None, ...]] = dict(outer)
    for name, indices in inner.items():
        first = outer.get(name, (None,) * len(indices))
        composed[name] = tuple(_chain(a, b) for a, b in zip(first, indices, strict=True))
    return composed


def _chain(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner]


def grid(indices: tuple[Tensor | None, ...], shape: torch.Size) -> tuple[Tensor, ...]:
    """Spells out indices so that `tensor[grid(...)]` addresses the kept part of a tensor of the full shape."""
    full = [torch.arange(size) if index is None else index.cpu() for index, size in zip(indices, shape, strict=True)]
    return torch.meshgrid(*full, indexing="ij")
