"""Weight-normalised layers: a weight `g * v / ||v||` does not depend on the length of v, which a penalty would shrink to nothing."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.params import WeightNorm, weight_norms
from ellzero.types import Params


class Directions:
    """Holds the norms of regularised directions v at what they were, and no row of them becomes 0.

    A row is what has a norm of its own, an output unit as a rule. As the network does not depend on the norms, holding them changes
    nothing but what the penalty can do: it chooses among the weights of a row, and does not shrink all of them together until
    `v / ||v||` is 0 / 0.

    Args:
        model: the model.
        trainable: all trainable parameters of the model, by canonical name.
        params: the regularised ones.
    """

    def __init__(self, model: nn.Module, trainable: Params, params: Params) -> None:
        self._all: Mapping[str, WeightNorm] = {name: normed for name, normed in weight_norms(model).items() if name in trainable}
        self._trainable = trainable
        self._regularised = [name for name in self._all if name in params]
        self._norms: dict[str, Tensor] = {}
        self.begin()

    @torch.no_grad()
    def begin(self) -> None:
        """Takes the present norms as those to hold."""
        self._norms = {name: self._norm(name) for name in self._regularised}

    def copies(self, params: Params) -> dict[str, Tensor]:
        """Copies the directions among the parameters of one optimizer, before a penalty acts on the weights themselves."""
        return {name: params[name].detach().clone() for name in self._regularised if name in params}

    @torch.no_grad()
    def hold_(self, before: Params) -> None:
        """Puts back the largest weight of a row that has become 0, and the norm of every row.

        Args:
            before: what `copies` returned before the penalty acted.
        """
        for name, old in before.items():
            v, norm = self._trainable[name], self._norm(name)
            if not bool(norm.all()):
                v.copy_(torch.where(norm == 0, old.masked_fill(~self._is_largest(name, old), 0), v))
                norm = self._norm(name)
            # A row that was 0 from the beginning stays 0.
            v.mul_(torch.where(norm > 0, self._norms[name].to(norm) / norm, 1))

    def completed(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Prunes a row of v altogether by its norm g, and keeps the largest weight of v, as 0 / 0 is no weight.

        Args:
            masks: checked masks, by canonical name.

        Raises:
            ValueError: a row is pruned whose norm is frozen.
        """
        completed = dict(masks)
        for name, normed in self._all.items():
            if name not in masks:
                continue
            v, mask = self._trainable[name], masks[name]
            empty = torch.norm_except_dim(mask.to(v.dtype), 2, normed.dim) == 0
            if not bool(empty.any()):
                continue
            if normed.norms not in self._trainable:
                raise ValueError(
                    f"a whole row of {name} is pruned, and its norm {normed.norms} is frozen: weight_norm would divide 0 by 0; let the norm"
                    " be trained, or remove weight_norm before"
                )
            norms = self._trainable[normed.norms]
            completed[name] = mask | (empty & self._is_largest(name, v.detach()))
            completed[normed.norms] = masks.get(normed.norms, torch.ones_like(norms, dtype=torch.bool)) & ~empty.view(norms.shape)
        return completed

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the norms in force."""
        return dict(self._norms)

    def load_state_dict(self, norms: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._norms = {name: norms.get(name, norm) for name, norm in self._norms.items()}

    def _norm(self, name: str) -> Tensor:
        return torch.norm_except_dim(self._trainable[name].detach(), 2, self._all[name].dim)

    def _is_largest(self, name: str, v: Tensor) -> Tensor:
        """Marks one largest magnitude in every row."""
        dim = self._all[name].dim
        rows = v.reshape(1, -1) if dim == -1 else v.transpose(0, dim).flatten(1)
        marked = torch.zeros_like(rows, dtype=torch.bool).scatter_(1, rows.abs().argmax(dim=1, keepdim=True), True)
        return marked.view(v.shape) if dim == -1 else marked.view(v.transpose(0, dim).shape).transpose(0, dim)
