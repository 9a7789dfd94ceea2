"""PMMP by ADMM: the l0 price lives in a second copy of the weights, where it is solved exactly (appendix C.4, eq. 36 and 37)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ellzero.methods.admm._z_step import hard_threshold
from ellzero.methods.admm.state import ADMMState
from ellzero.methods.pmmp.collapse import is_bias
from ellzero.methods.protocol import Laws, no_gradient_, replace_alpha, require_object
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, geometric, value_at
from ellzero.types import At, Masks, Params, Scalar


@runtime_checkable
class MeanOverWorkers(Protocol):
    """A mean over the workers that train copies of one model, each on its own data."""

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Replaces every tensor by its mean over workers, in place and with the same bits on each of them."""
        ...


@dataclass(frozen=True)
class OneWorker:
    """The mean over one worker: itself."""

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Leaves the tensors as they are."""


@dataclass(frozen=True, kw_only=True)
class ADMM:
    """Minimises `sum_i loss_i(x_i) + alpha_total * l0(z)` subject to `x_i = z` (eq. 29): M = P = id and c = 0 in eq. 24.

    The network computes with x, every step of the optimizer is followed by an implicit step towards `z - u` in the optimizer's own
    metric, `x <- (x + k (z - u)) / (1 + k)` with `k = step * rho`, and every few steps z and the scaled multiplier u move (eq. 36 and 37):
    `q = x + u`, `z = q * 1[|q| > tau]`, `u = q - z`. The gates of PMMP are in z, decided exactly and anew each time.

    The method is given by alpha and tau; `rho = 2 alpha / tau^2` follows. A weight of z lives where its magnitude is above tau, and one
    that is 0 comes to life where the data pull it by more than `rho * tau = 2 alpha / tau` for long enough. So with tau falling,
    the first weights to live are few and large, and all others stay within reach of their gradient.

    Units of alpha: those of the loss that the optimizer sees, as a rule a mean over samples. Where that loss is a sum over B samples,
    alpha is B times as large for the same tau. With N workers alpha is the price in each worker's own loss: the sum over workers
    in eq. 29 has `alpha_total = N * alpha`, and the threshold `sqrt(2 alpha_total / (rho N))` is the same tau for every N.

    Attach after a prelude without penalty. Weights get exact zeros when masks are taken: by `admm_masks` from z, by TAMADE from x, or both.

    Attributes:
        alpha: price of one weight, in units of one worker's loss.
        tau: the threshold, as a rule a falling schedule.
        every: optimizer steps between two z-steps.
        settle: progress from which the masks of z are in force and the survivors train without penalty; None never.
        mean_over_workers: one worker where not given; `ellzero.distributed.WorkerMean()` over `torch.distributed`. All workers start
            from equal weights and do equally many steps.
    """

    alpha: Hyperparameter = 6e-5
    tau: Hyperparameter = field(default_factory=lambda: geometric(0.8, 0.12))
    every: int = 20
    settle: float | None = None
    mean_over_workers: MeanOverWorkers = field(default_factory=OneWorker)

    def __post_init__(self) -> None:
        check_hyperparameter("alpha", self.alpha)
        check_hyperparameter("tau", self.tau, zero=False)
        if self.every < 1:
            raise ValueError(f"every counts steps between two z-steps, expected at least 1, got {self.every}")
        if self.settle is not None and not 0.0 < self.settle <= 1.0:
            raise ValueError(f"settle is a progress in (0, 1], or None, got {self.settle}")
        require_object("mean_over_workers", self.mean_over_workers, MeanOverWorkers)

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys: it is linear in alpha, and depends on the state."""
        return Laws(linear_in_alpha=True, zero_at_zero=False, separable=False)

    @property
    def proximal(self) -> bool:
        """Whether the penalty acts after the step: always."""
        return True

    def init(self, params: Params) -> nn.Module:
        """Starts with z equal to the weights and u at 0."""
        return ADMMState(params)

    def rho(self, at: At) -> float:
        """Computes rho = 2 alpha / tau^2, the strength of the constraint."""
        return 2.0 * value_at(self.alpha, at) / value_at(self.tau, at) ** 2

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `alpha * l0(z) + rho/2 * (||x - z + u||^2 - ||u||^2)`, what the augmented Lagrangian adds to the loss (eq. 28)."""
        assert isinstance(state, ADMMState)
        alpha, rho = value_at(self.alpha, at), self.rho(at)
        terms: list[Tensor] = []
        for x, split in zip(params.values(), state.every(params), strict=True):
            gap = (x - split.z + split.u).square().sum() - split.u.square().sum()
            terms.append(alpha * torch.count_nonzero(split.z).to(x.dtype) + 0.5 * rho * gap)
        return torch.stack(terms).sum()

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Draws x towards `z - u`, and every few steps moves z and u; warns where a layer is lost."""
        assert isinstance(state, ADMMState)
        if self._settled(at):
            return
        self._draw_(params, state, steps, self.rho(at))
        if (at.step + 1) % self.every == 0:
            self._move_(params, state, at)

    def masks_(self, params: Params, state: nn.Module, at: At) -> Masks | None:
        """Returns the masks of z once progress has reached `settle`, once per parameter."""
        assert isinstance(state, ADMMState)
        fresh = [name for name in params if name not in state.settled] if self._settled(at) else []
        state.settled.update(fresh)
        return {name: split.z != 0 for name, split in zip(fresh, state.every(fresh), strict=True)} or None

    def _settled(self, at: At) -> bool:
        return self.settle is not None and at.progress >= self.settle

    def _draw_(self, params: Params, state: ADMMState, steps: Params, rho: float) -> None:
        weights, room, splits = state.workspace.like(params, 0), state.workspace.like(params, 1), state.every(params)
        torch._foreach_copy_(weights, [steps[name] for name in params])
        torch._foreach_mul_(weights, rho)
        torch._foreach_copy_(room, weights)
        torch._foreach_add_(room, 1.0)
        torch._foreach_div_(weights, room)
        torch._foreach_copy_(room, [split.z for split in splits])
        torch._foreach_sub_(room, [split.u for split in splits])
        torch._foreach_lerp_(list(params.values()), room, weights)

    def _move_(self, params: Params, state: ADMMState, at: At) -> None:
        alpha, tau, rho, splits = value_at(self.alpha, at), value_at(self.tau, at), self.rho(at), state.every(params)
        mean = state.workspace.like(params, 0)
        for x, split, q in zip(params.values(), splits, mean, strict=True):
            # The multiplier is y = rho * u: it stays what it is when rho changes (Boyd and others, Distributed optimization, 2011, 3.4.1).
            split.u.mul_(float(split.rho) / rho if rho > 0 else 0.0).add_(x)
            split.rho.fill_(rho)
            q.copy_(split.u)
        self.mean_over_workers(mean)
        for split, q in zip(splits, mean, strict=True):
            split.z.copy_(hard_threshold(q, tau))
            split.u.sub_(split.z)
        _warn_of_collapse(params, state, mean, alpha=alpha, tau=tau, step=at.step)

    add_gradient_ = no_gradient_
    with_alpha = replace_alpha


def _warn_of_collapse(params: Params, state: ADMMState, mean: Sequence[Tensor], *, alpha: float, tau: float, step: int) -> None:
    """Warns once of every layer, biases excepted, that has lived and of which every weight is now less than half-way to living.

    With a threshold that begins high, layers are closed at first and open as their multipliers grow: that is no collapse.

    Args:
        params: the parameters.
        state: records which layers have lived, and which a warning has named.
        mean: the mean of `x_i + u_i` over workers, by which a weight lives or not, in the order of `params`.
        alpha: price of one weight, for the message.
        tau: the threshold.
        step: optimizer steps done, for the message.
    """
    maxima = [q.abs().max() if q.numel() else q.new_full((), torch.inf) for q in mean]
    largest: dict[str, float] = dict(zip(params, torch.stack(maxima).tolist(), strict=True))
    state.opened.update(name for name, maximum in largest.items() if maximum > tau)
    low = {name: maximum for name, maximum in largest.items() if maximum <= 0.5 * tau and not is_bias(name)}
    fresh = {name: maximum for name, maximum in low.items() if name in state.opened and name not in state.collapsed}
    if fresh:
        state.collapsed.update(fresh)
        warnings.warn(
            f"ADMM has closed every weight of {', '.join(fresh)} by step {step}: |x + u| there is at most {max(fresh.values()):g}, and a"
            f" weight lives above tau = {tau:g}. They may never come back: lower alpha = {alpha:g}, or begin with a smaller tau",
            UserWarning,
            stacklevel=2,
        )
