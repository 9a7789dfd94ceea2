"""The proximal step on all parameters at once: small networks spend their time in calls, not in numbers."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from ellzero.attaching.steps import REFRESH, TINY, Caps
from ellzero.attaching.survivors import Survivors, joined
from ellzero.methods.protocol import Method
from ellzero.types import At, Params

LIMIT = 2**20
"""Scalars up to which parameters are joined; beyond, a pass over memory costs more than the calls it saves."""


class FlatProximal:
    """Joins the parameters of one Adam into one vector, lets a separable method step on it, and writes the result back.

    The numbers are those of `step_sizes` and of the method on each tensor, up to rounding in an exponential.
    """

    def __init__(self) -> None:
        self._caps: list[Tensor] = []
        self._flat_caps: Tensor | None = None
        self._sizes: list[int] = []
        self._fits: tuple[int, int, bool] | None = None

    def fits(self, method: Method, optimizer: torch.optim.Optimizer, params: Params, at: At) -> bool:
        """Tells whether the parameters can be joined: one group of plain Adam on a CPU, all of one type, updated equally often."""
        counts = len(params), len(optimizer.param_groups)
        if self._fits is None or self._fits[:2] != counts or at.step % REFRESH == 0:
            self._fits = (*counts, _can_be_joined(method, optimizer, params))
        return self._fits[2] and _equally_often(optimizer, params)

    @torch.no_grad()
    def step_(
        self,
        method: Method,
        optimizer: torch.optim.Optimizer,
        params: Params,
        state: nn.Module,
        at: At,
        caps: Caps,
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
        largest = self._joined_caps(caps.of(moments, [root] * len(moments), eps), sizes)
        steps = moment.clamp_min(TINY).sqrt_().add_(eps * root).reciprocal_().mul_(learning_rate * root)
        torch.minimum(steps, largest * learning_rate, out=steps)
        steps.mul_(moment.sign_())  # v is never negative, so its sign is the indicator of v > 0
        method.after_step_({"": flat}, state, {"": steps}, at)
        for tensor, index, part in zip(tensors, indices, flat.split(sizes), strict=True):
            if index is None:
                tensor.copy_(part.view(tensor.shape))
            else:
                tensor.view(-1).scatter_(0, index, part)

    def _joined_caps(self, caps: list[Tensor], sizes: list[int]) -> Tensor:
        """Repeats the caps for every element, at most once for each time that they are computed."""
        same = len(caps) == len(self._caps) and all(cap is other for cap, other in zip(caps, self._caps, strict=True))
        if self._flat_caps is None or self._sizes != sizes or not same:
            self._sizes, self._caps = sizes, caps
            self._flat_caps = torch.cat([cap.expand(size) for cap, size in zip(caps, sizes, strict=True)])
        return self._flat_caps


def _can_be_joined(method: Method, optimizer: torch.optim.Optimizer, params: Params) -> bool:
    if not (method.proximal and method.laws.separable and isinstance(optimizer, torch.optim.Adam)):
        return False
    if len(optimizer.param_groups) != 1 or optimizer.param_groups[0]["amsgrad"] or len(params) < 2:
        return False
    tensors = list(params.values())
    if sum(tensor.numel() for tensor in tensors) > LIMIT or not all(tensor.device.type == "cpu" for tensor in tensors):
        return False
    return all(first.dtype == second.dtype for first, second in pairwise(tensors))


def _equally_often(optimizer: torch.optim.Optimizer, params: Params) -> bool:
    """Tells whether the optimizer has updated all parameters, and all equally often: a layer that a step skips falls behind."""
    counts: set[float] = set()
    for parameter in params.values():
        step = optimizer.state.get(parameter, {}).get("step")
        if step is None:
            return False
        counts.add(float(step))
    return len(counts) == 1
