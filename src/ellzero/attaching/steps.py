"""The optimizer's own step per element: how far a unit of gradient moves a weight, the metric of a proximal step."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ellzero.methods.workspace import Workspace
from ellzero.types import Params

CAP = 10.0
"""A step is at most this many times the median step of its tensor."""

SAMPLE = 4096
"""The median is taken over at most this many elements, at equal strides."""

REFRESH = 16
"""Steps between two computations of the median, which moves slowly and takes longer than the rest of a small step."""

TINY = 1e-36
"""Second moments are raised to this: the root of a smaller one is lost beside eps, or the step is capped."""


def check_has_steps(optimizer: torch.optim.Optimizer) -> None:
    """Checks that an optimizer has a step per element that a proximal method can use.

    Raises:
        TypeError: it is neither Adam, AdamW nor SGD.
    """
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW | torch.optim.SGD):
        raise TypeError(
            f"{type(optimizer).__name__} has no step per element, so a proximal method cannot follow it:"
            " use the gradient form (proximal=False), or Adam, AdamW or SGD"
        )


def learning_rates(optimizer: torch.optim.Optimizer, params: Params) -> dict[str, float]:
    """Looks up the learning rate of each parameter's group, those the optimizer does not own left out."""
    names = {parameter: name for name, parameter in params.items()}
    groups = [(float(group["lr"]), group["params"]) for group in optimizer.param_groups]
    return {names[parameter]: rate for rate, parameters in groups for parameter in parameters if parameter in names}


class Caps:
    """The largest steps of each parameter, computed at every `REFRESH`th step and kept in between, however parameters are grouped."""

    def __init__(self) -> None:
        self._caps: dict[str, Tensor | float] = {}

    def begin(self, step: int) -> None:
        """Begins an optimizer step: at every `REFRESH`th one the caps are computed anew when they are asked for."""
        if step % REFRESH == 0:
            self.forget()

    def of(self, moments: Params, roots: list[float], eps: float) -> list[Tensor]:
        """Returns the caps in units of the learning rate, scalars of the moments' types on their devices.

        Args:
            moments: name -> second moments of that parameter.
            roots: `sqrt(1 - beta2^t)` of each, t the steps it has done.
            eps: Adam's.
        """
        caps: list[Tensor] = []
        for (name, moment), root in zip(moments.items(), roots, strict=True):
            cap = self._caps.get(name)
            if cap is None:
                cap = _cap_of(moment, root, eps)
            elif not isinstance(cap, Tensor):
                cap = moment.new_tensor(cap)
            self._caps[name] = cap = cap.to(moment)
            caps.append(cap)
        return caps

    def forget(self) -> None:
        """Drops the caps: the moments that they were computed from are gone or old."""
        self._caps = {}

    def state_dict(self) -> dict[str, float]:
        """Returns the caps in force, so that a resumed run computes them at the same steps."""
        return {name: float(cap) for name, cap in self._caps.items()}

    def load_state_dict(self, caps: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self._caps = {name: float(cap) for name, cap in caps.items()}


def step_sizes(optimizer: torch.optim.Optimizer, params: Params, workspace: Workspace, caps: Caps) -> dict[str, Tensor]:
    """Computes the step that an optimizer has just used, per element.

    Adam and AdamW: `lr / (sqrt(v / (1 - beta2^t)) + eps)`, with the maximum of v under amsgrad. It is capped at `CAP` times its
    median over the elements of the tensor with v > 0 (over a strided sample of at most `SAMPLE` elements, at most `REFRESH` steps
    before), and 0 where v is 0: an embedding row that no token has reached would otherwise have the step `lr / eps` and be lost at
    once. A parameter that the optimizer has not updated yet has step 0. SGD: `lr`; momentum multiplies the long-run effect of a data
    gradient by `1 / (1 - momentum)`, of which the step takes no account.

    Args:
        optimizer: an optimizer that `check_has_steps` accepts.
        params: the parameters asked for, those the optimizer does not own left out of the result.
        workspace: temporaries that hold the result until the next call.
        caps: the caps of earlier steps.

    Returns:
        Name -> tensor of the parameter's shape, not to be written to.
    """
    names = {parameter: name for name, parameter in params.items()}
    steps: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        owned: dict[str, Tensor] = {names[parameter]: parameter for parameter in group["params"] if parameter in names}
        if owned:
            rule: Callable[[torch.optim.Optimizer, dict[str, Any], Params, Workspace, Caps], dict[str, Tensor]]
            rule = _sgd if isinstance(optimizer, torch.optim.SGD) else _adam
            steps.update(rule(optimizer, group, owned, workspace, caps))
    return {name: steps[name] for name in params if name in steps}


def _sgd(optimizer: torch.optim.Optimizer, group: dict[str, Any], params: Params, workspace: Workspace, caps: Caps) -> dict[str, Tensor]:
    learning_rate = float(group["lr"])
    return {name: parameter.new_full((), learning_rate).expand_as(parameter) for name, parameter in params.items()}


def _adam(optimizer: torch.optim.Optimizer, group: dict[str, Any], params: Params, workspace: Workspace, caps: Caps) -> dict[str, Tensor]:
    key = "max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"
    updated: dict[str, Tensor] = {name: parameter for name, parameter in params.items() if key in optimizer.state.get(parameter, {})}
    untouched = {name: parameter.new_zeros(()).expand_as(parameter) for name, parameter in params.items() if name not in updated}
    if not updated:
        return untouched
    states: list[dict[str, Tensor]] = [optimizer.state[parameter] for parameter in updated.values()]
    moments: dict[str, Tensor] = {name: state[key] for name, state in zip(updated, states, strict=True)}
    roots: list[float] = [(1.0 - float(group["betas"][1]) ** float(state["step"])) ** 0.5 for state in states]
    learning_rate, eps = float(group["lr"]), float(group["eps"])

    steps, signs = workspace.like(updated, 0), workspace.like(updated, 1)
    torch._foreach_copy_(steps, list(moments.values()))
    # The square root of 0 takes ten times as long as any other on a CPU, and a pruned network has many; what is 0 is set to 0 below.
    torch._foreach_clamp_min_(steps, TINY)
    torch._foreach_sqrt_(steps)
    torch._foreach_add_(steps, [eps * root for root in roots])
    torch._foreach_reciprocal_(steps)
    torch._foreach_mul_(steps, [learning_rate * root for root in roots])
    torch._foreach_minimum_(steps, [cap * learning_rate for cap in caps.of(moments, roots, eps)])
    # v is never negative, so its sign is the indicator of v > 0.
    torch._foreach_copy_(signs, list(moments.values()))
    torch._foreach_sign_(signs)
    torch._foreach_mul_(steps, signs)
    return {**untouched, **dict(zip(updated, steps, strict=True))}


def _cap_of(moment: Tensor, root: float, eps: float) -> Tensor:
    """Computes `CAP` times the median step where a gradient came, at learning rate 1; steps fall as v grows, so v's median is enough."""
    sample = moment.flatten()[:: -(-moment.numel() // SAMPLE)]
    # nanmedian skips what is masked as NaN without the synchronisation that selecting by a mask costs on an accelerator.
    median = torch.nanmedian(torch.where(sample > 0, sample, torch.nan))
    cap = CAP / (median.sqrt() / root + eps)
    return torch.nan_to_num(cap, nan=torch.finfo(cap.dtype).max)
