"""What ADMM keeps beside the model: the consensus z and the scaled multipliers u of every weight."""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from ellzero.methods.workspace import Workspace
from ellzero.types import Params


class Split(nn.Module):
    """The other half of one parameter, of its shape.

    Attributes:
        z: the consensus, with exact zeros; the parameter itself is x.
        u: this worker's scaled multiplier `y / rho` (eq. 28).
        rho: the strength by which u is scaled, that of the last z-step; 0 before the first.
    """

    z: Tensor
    u: Tensor
    rho: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        x = x.detach()
        self.register_buffer("z", x.clone())
        self.register_buffer("u", torch.zeros_like(x))
        # On the CPU wherever x is: it is read at every z-step.
        self.register_buffer("rho", torch.zeros((), dtype=torch.float64))


class ADMMState(nn.Module):
    """z and u of all regularised parameters, in the order of their names; all of it is in the state_dict.

    Attributes:
        names: canonical names of the parameters.
        opened: names of the layers of which some weight has lived at a z-step; not in the state_dict.
        collapsed: names of the layers of which a warning has said that every weight is closed; not in the state_dict.
        settled: names of the parameters whose masks have been given out; not in the state_dict.
    """

    def __init__(self, params: Params) -> None:
        super().__init__()
        self.names = list(params)
        # The names of modules may hold no dots, those of parameters do.
        self.splits = nn.ModuleList(Split(x) for x in params.values())
        self.opened: set[str] = set()
        self.collapsed: set[str] = set()
        self.settled: set[str] = set()
        self.workspace = Workspace()

    def every(self, names: Iterable[str]) -> list[Split]:
        """Returns the halves of some parameters, in the order of `names`."""
        by_name = dict(zip(self.names, self.splits, strict=True))
        return [cast("Split", by_name[name]) for name in names]
