"""The survivors of masks without the pruned scalars: arithmetic that is expensive per scalar is done for the survivors alone."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ellzero.methods.protocol import GradientOnSurvivors, Method
from ellzero.methods.workspace import gradients
from ellzero.types import At, Masks, Params

SHARE = 0.2
"""Share of a tensor up to which its survivors are gathered; beyond, a pass over all of it is as quick."""

LANES = 64
"""Survivors are padded to a multiple of this. A kernel computes the remainder that fills none of its vectors by another function, whose
last bit may differ; padding makes a survivor's value independent of its place."""


class Survivors:
    """The places of the survivors of sparse masks, and memory to gather them in.

    Only ordinary contiguous tensors on a CPU are gathered: an accelerator's memory makes a pass over zeros cheap.

    Args:
        masks: name -> boolean mask, True where the weight is kept.
        method: what regularises; None where the survivors are only looked up.
    """

    def __init__(self, masks: Masks, method: Method | None = None) -> None:
        self._method = method
        self._gathers = isinstance(method, GradientOnSurvivors) and method.gradient_on_survivors
        self._indices: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}
        for name, mask in masks.items():
            if mask.device.type == "cpu" and 0 < int(mask.sum()) <= SHARE * mask.numel():
                self._indices[name] = _padded(mask.flatten().nonzero().flatten())

    def index(self, name: str, *tensors: Tensor) -> Tensor | None:
        """Returns the places of a parameter's survivors in its flat view, None where a tensor like it has to be taken whole.

        The last place is repeated up to a multiple of `LANES`.
        """
        index = self._indices.get(name)
        return index if index is not None and all(map(_is_plain, tensors)) else None

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float) -> list[str]:
        """Does what `method.add_gradient_` does and sets gradients of pruned weights to 0, for a method that takes survivors alone.

        Returns:
            The names of the parameters whose gradients are masked; where there are none, the penalty is yet to be added.

        Raises:
            TypeError: a gradient is sparse.
        """
        if not (self._indices and self._gathers):
            return []
        assert self._method is not None
        whole = {name: grad for name, grad in zip(params, gradients(params), strict=True) if name in self._indices}
        indices = {name: index for name, grad in whole.items() if (index := self.index(name, params[name], grad)) is not None}
        if not indices:
            return []
        gathered = {name: self._gathered(name, params[name], whole[name], index) for name, index in indices.items()}
        self._method.add_gradient_({**params, **gathered}, state, at, scale)
        for (name, index), grad in zip(indices.items(), gradients(gathered), strict=True):
            whole[name].view(-1).zero_().scatter_(0, index, grad)
        return list(indices)

    def _gathered(self, name: str, parameter: Tensor, grad: Tensor, index: Tensor) -> Tensor:
        weights = self._weights.get(name)
        if weights is None or weights.dtype != parameter.dtype:
            weights = self._weights[name] = torch.empty(index.numel(), dtype=parameter.dtype)
            weights.grad = torch.empty_like(weights)
        assert weights.grad is not None
        torch.index_select(parameter.detach().view(-1), 0, index, out=weights)
        torch.index_select(grad.view(-1), 0, index, out=weights.grad)
        return weights


def joined(tensors: Iterable[Tensor], indices: Iterable[Tensor | None]) -> Tensor:
    """Concatenates the elements at the indices; all of a tensor where its index is None."""
    parts = zip(tensors, indices, strict=True)
    return torch.cat([tensor.reshape(-1) if index is None else tensor.view(-1).index_select(0, index) for tensor, index in parts])


def _padded(index: Tensor) -> Tensor:
    return torch.cat([index, index[-1:].expand(-index.numel() % LANES)])


def _is_plain(tensor: Tensor) -> bool:
    # A distributed tensor or another subclass may have no flat view of its own memory.
    return tensor.is_cpu and type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided and tensor.is_contiguous()
