"""Compaction while training: dead units and inputs are removed physically, so that sparse training gets faster on the way.

The network keeps its class and its state_dict keys; only tensors get smaller. The indices in `kept` always refer to the full network.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.params import count_nonzeros
from ellzero.surgery import compose, expand_, rebind_, shrink, shrink_to, slice_tensors

_MODE_DEPENDENT = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
"""Modules under which a unit that is constant in eval mode is not constant while training."""


class Compact:
    """A full network, the smaller one that trains in its place, and the map between them."""

    def __init__(self, full: nn.Module) -> None:
        self.full = full
        self.model = full
        self.kept: dict[str, tuple[Tensor | None, ...]] | None = None
        self.example: Tensor | None = None
        self.possible = not any(isinstance(module, _MODE_DEPENDENT) for module in full.modules())
        self.nonzeros = count_nonzeros(full)

    def worthwhile(self, method_state: nn.Module | None = None) -> bool:
        """Tells whether enough weights have died since the last compaction to try another.

        State that a method has per weight (PMMP's gates) is not sliced, so a stage with such a method goes on at its size.
        """
        if method_state is not None and any(tensor.ndim for tensor in method_state.state_dict().values()):
            return False
        return self.possible and self.example is not None and count_nonzeros(self.model) < 0.9 * self.nonzeros

    def shrink_(self, optimizer: torch.optim.Optimizer, sparsifier_state: dict[str, Any]) -> None:
        """Removes dead units and inputs from the network, the optimizer's moments and the sparsifier's masks."""
        assert self.example is not None
        self.nonzeros = count_nonzeros(self.model)
        try:
            smaller = shrink(self.model, self.example, inputs=True)
        except ValueError:
            # What cannot be traced trains at full size: compaction is for speed alone.
            self.possible = False
            return
        rebind_(optimizer, self.model, smaller.model, smaller.kept)
        masks: Mapping[str, Tensor] | None = sparsifier_state.get("masks")
        if masks:
            # A constant unit's value may have been folded into a bias that was masked: non-zero scalars stay.
            parameters = dict(smaller.model.named_parameters())
            sliced = slice_tensors(masks, smaller.kept)
            sparsifier_state["masks"] = {name: mask | (parameters[name].detach() != 0) for name, mask in sliced.items()}
        self.kept = dict(smaller.kept if self.kept is None else compose(self.kept, smaller.kept))
        self.model = smaller.model

    def expand_(self) -> None:
        """Writes the smaller network back into the full one, which then trains again."""
        if self.kept is not None:
            expand_(self.full, self.model, self.kept)
            self.full.train(self.model.training)
            self.model, self.kept = self.full, None

    def state(self) -> dict[str, Tensor]:
        """Copies the network's state_dict in its full shape; training goes on with the smaller network."""
        return {name: tensor.detach().clone() for name, tensor in self.whole().state_dict().items()}

    def whole(self) -> nn.Module:
        """Returns the full network with the present weights, not to be trained; training goes on with the smaller network."""
        if self.kept is not None:
            expand_(self.full, self.model, self.kept)
        return self.full

    def checkpoint(self) -> dict[str, Any]:
        """Returns what `restore_` needs: the full network, the map, and the smaller network's tensors."""
        return {
            "full": self.state(),
            "kept": None if self.kept is None else {name: list(dims) for name, dims in self.kept.items()},
            "model": None if self.kept is None else self.model.state_dict(),
            "example": self.example,
            "possible": self.possible,
            "nonzeros": self.nonzeros,
        }

    def restore_(self, saved: Mapping[str, Any]) -> None:
        """Restores what `checkpoint` returned."""
        self.full.load_state_dict(saved["full"])
        self.example, self.possible, self.nonzeros = saved["example"], saved["possible"], saved["nonzeros"]
        if saved["kept"] is not None:
            self.kept = {name: tuple(dims) for name, dims in saved["kept"].items()}
            self.model = shrink_to(self.full, self.kept)
            self.model.load_state_dict(saved["model"])
