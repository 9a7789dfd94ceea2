"""What PMMP optimises beside the model: w, gamma and u for every weight, and an Adam for them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ellzero.methods.adam import Moments, adam_step_
from ellzero.methods.pmmp.formulas import Block
from ellzero.methods.workspace import Workspace
from ellzero.types import Params


class Variables(nn.Module):
    """The auxiliary variables of one parameter, of its shape.

    Attributes:
        w: the weight behind the gate, from a copy of theta on.
        gamma: the probability that the gate is open, in [0, 1].
        u: the multiplier of the constraint theta = w * z.
        opened: whether any gate has been open; a parameter whose gates have all closed after that has collapsed.
        reached: the largest magnitude that the parameter has had, at the start or at a check for collapses.
    """

    w: Tensor
    gamma: Tensor
    u: Tensor
    opened: Tensor
    reached: Tensor

    def __init__(self, theta: Tensor, *, p_init: float, u_init: float) -> None:
        super().__init__()
        theta = theta.detach()
        self.register_buffer("w", theta.clone())
        self.register_buffer("gamma", torch.full_like(theta, p_init))
        self.register_buffer("u", torch.full_like(theta, u_init))
        self.register_buffer("opened", torch.tensor(p_init > 0))
        self.register_buffer("reached", theta.abs().max() if theta.numel() else theta.new_zeros(()))
        self.moments_w = Moments(theta)
        self.moments_gamma = Moments(theta)
        self.moments_u = Moments(theta)


class PMMPState(nn.Module):
    """The auxiliary variables of all regularised parameters, in the order of their names.

    Everything is in buffers and thereby in the state_dict: a resumed run goes on bit for bit.

    Attributes:
        names: canonical names of the parameters.
        rates: learning rate of each parameter in the optimizer, empty before its first step; not in the state_dict.
        collapsed: names of the layers that a warning has called lost; not in the state_dict.
    """

    def __init__(self, params: Params, *, p_init: float, u_init: float) -> None:
        super().__init__()
        self.names = list(params)
        # The names of modules may hold no dots, those of parameters do.
        self.variables = nn.ModuleList(Variables(theta, p_init=p_init, u_init=u_init) for theta in params.values())
        self.rates: dict[str, float] = {}
        self.collapsed: set[str] = set()
        self.workspace = Workspace()
        self.pending: set[str] = set()

    def of(self, name: str) -> Variables:
        """Returns the variables of one parameter."""
        return cast("Variables", self.variables[self.names.index(name)])

    def every(self, names: Iterable[str]) -> list[Variables]:
        """Returns the variables of some parameters, in the order of `names`."""
        by_name = dict(zip(self.names, self.variables, strict=True))
        return [cast("Variables", by_name[name]) for name in names]

    def follow_rates_(self, rates: Mapping[str, float]) -> None:
        """Records the optimizer's learning rates."""
        self.rates = {**self.rates, **rates}


def block_of(params: Params, variables: Sequence[Variables]) -> Block:
    """Collects parameters and their variables."""
    return Block(
        theta=list(params.values()),
        w=[own.w for own in variables],
        gamma=[own.gamma for own in variables],
        u=[own.u for own in variables],
    )


def descend_(variables: list[Variables], for_w: list[Tensor], for_gamma: list[Tensor], rates: list[float], room: list[Tensor]) -> None:
    """Moves w and gamma by a step of Adam, and gamma back into [0, 1]."""
    adam_step_([own.w for own in variables], for_w, [own.moments_w for own in variables], rates, room)
    gammas = [own.gamma for own in variables]
    adam_step_(gammas, for_gamma, [own.moments_gamma for own in variables], rates, room)
    torch._foreach_clamp_min_(gammas, 0.0)
    torch._foreach_clamp_max_(gammas, 1.0)


def ascend_(variables: list[Variables], for_u: list[Tensor], rates: list[float], room: list[Tensor]) -> None:
    """Moves u by a step of Adam."""
    adam_step_([own.u for own in variables], for_u, [own.moments_u for own in variables], rates, room)
