"""The proximal step on all parameters at once: small networks spend their time in calls, not in numbers."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.attaching.steps import TINY, cap_of
from ellzero.attaching.survivors import Survivors, joined
from ellzero.methods.protocol import Method
from ellzero.types import At, Params

LIMIT = 2**20
"""Scalars up to which parameters are joined; beyond, a pass over memory costs more than the calls it saves."""

REFRESH = 16
"""Steps between two computations of the median that caps the step sizes, which moves slowly."""


class FlatProximal:
    """Joins the parameters of one Adam into one vector, lets a separable method step on it, and writes the result back.

    The numbers are those of `step_sizes` and of the method on each tensor, but for caps that are up to `REFRESH` steps old.
    """

    def __init__(self) -> None:
        self._caps: dict[str, float] = {}
        self._flat_caps: Tensor | None = None
        self._sizes: list[int] = []
        self._fits: tuple[int, bool] | None = None

    def fits(self, method: Method, optimizer: torch.optim.Optimizer, params: Params, at: At) -> bool:
        """Tells whether the parameters can be joined: one group of plain Adam on a CPU, all of one type, updated equally often."""
        if self._fits is None or self._fits[0] != len(params) or at.step % REFRESH == 0:
            self._fits = (len(params), _can_be_joined(method, optimizer, params))
        return self._fits[1]

    @torch.no_grad()
    def step_(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        params: Params,
        state: nn.Module,
        at: At,
        survivors: Survivors | None = None,
    ) -> None:
        """Does what `method.after_step_` does with `step_sizes`, on all parameters together, and of pruned ones on the survivors."""
        group, tensors = optimizer.param_groups[0], [parameter.detach() for parameter in params.values()]
        states: list[dict[str, Tensor]] = [optimizer.state[parameter] for parameter in params.values()]
        root = (1.0 - float(group["betas"][1]) ** float(states[0]["step"])) ** 0.5
        learning_rate, eps = float(group["lr"]), float(group["eps"])
        moments = {name: memory["exp_avg_sq"] for name, memory in zip(params, states, strict=True)}
        named = zip(params, tensors, moments.values(), strict=True)
        indices = [None if survivors is None else survivors.index(name, tensor, moment) for name, tensor, moment in named]

        flat = joined(tensors, indices)
        moment = joined(moments.values(), indices)
        sizes = [tensor.numel() if index is None else index.numel() for tensor, index in zip(tensors, indices, strict=True)]
        caps = self._capped(moments, sizes, root, eps, refresh=at.step % REFRESH == 0)
        steps = moment.clamp_min(TINY).sqrt_().add_(eps * root).reciprocal_().mul_(learning_rate * root)
        torch.minimum(steps, caps * learning_rate, out=steps)
        steps.mul_(moment.sign_())  # v is never negative, so its sign is the indicator of v > 0
        method.after_step_({"": flat}, state, {"": steps}, at)
        for tensor, index, part in zip(tensors, indices, flat.split(sizes), strict=True):
            if index is None:
                tensor.copy_(part.view(tensor.shape))
            else:
                tensor.view(-1).scatter_(0, index, part)

    def forget(self) -> None:
        """Drops what was derived from the optimizer's memory, because some of that memory is gone."""
        self._caps, self._flat_caps, self._fits = {}, None, None

    def state_dict(self) -> dict[str, float]:
        """Returns the caps in force, in units of the learning rate, so that a resumed run computes them at the same steps."""
        return dict(self._caps)

    def load_state_dict(self, caps: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.forget()
        self._caps = dict(caps)

    def _capped(self, moments: Mapping[str, Tensor], sizes: list[int], root: float, eps: float, *, refresh: bool) -> Tensor:
        if refresh or self._caps.keys() != moments.keys():
            self._caps = {name: float(cap_of(moment, root, 1.0, eps)) for name, moment in moments.items()}
            self._flat_caps = None
        if self._flat_caps is None or self._sizes != sizes:
            like = next(iter(moments.values()))
            self._sizes = sizes
            self._flat_caps = torch.cat([like.new_full((size,), self._caps[name]) for name, size in zip(moments, sizes, strict=True)])
        return self._flat_caps


def _can_be_joined(method: Method, optimizer: torch.optim.Optimizer, params: Params) -> bool:
    if not (method.proximal and method.laws.separable and isinstance(optimizer, torch.optim.Adam)):
        return False
    if len(optimizer.param_groups) != 1 or optimizer.param_groups[0]["amsgrad"] or len(params) < 2:
        return False
    tensors = list(params.values())
    if sum(tensor.numel() for tensor in tensors) > LIMIT or not all(tensor.device.type == "cpu" for tensor in tensors):
        return False
    steps = [optimizer.state.get(tensor, {}).get("step") for tensor in tensors]
    same_type = all(first.dtype == second.dtype for first, second in pairwise(tensors))
    return same_type and None not in steps and len({float(step) for step in steps}) == 1
