"""PMMP, probabilistic minimax pruning: gates as probabilities, tied to the weights by a squared constraint (Corollary 2.4, eq. 10)."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ellzero.methods.choices import choices
from ellzero.methods.pmmp.formulas import constraint, differences_into_
from ellzero.methods.pmmp.state import PMMPState, block_of
from ellzero.methods.pmmp.updates import Alternating, ExactGates, Round, Simultaneous, Updates
from ellzero.methods.protocol import Laws, no_masks_, replace_alpha, require_object
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, value_at
from ellzero.methods.workspace import gradients
from ellzero.types import At, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class PMMP:
    """Adds `alpha * sum(gamma) + m * sum(u * ((theta - w * gamma)^2 + w^2 * gamma * (1 - gamma)))` to the data loss (eq. 10).

    Minimised over theta, w and gamma and maximised over u, it is `alpha * l0(theta)` exactly. For given u the minimum over w and
    gamma is the capped square `min(alpha, m * u * theta^2)`: a weight lives where its magnitude is above `sqrt(alpha / (m * u))`.

    The network computes with theta. w starts as a copy of theta, so attach after a prelude without penalty, not before. The variables
    w, gamma and u have an Adam of their own, which is part of the method's state, with the learning rate of the parameter's group.
    Under Adam gamma moves by about that rate per step whatever its gradient, so most decisions fall at about the same time, after
    1 / lr steps from `p_init=1`; with `updates=ExactGates()` there is no such delay.

    Attributes:
        alpha: price of one weight, in units of the data loss.
        p_init: gamma at the beginning, in [0, 1]; the paper uses 0, 0.5 or 1.
        multiplier: m, a factor of u; the paper uses 1.
        u_init: u at the beginning, not negative.
        u: None ascends u; a number or a schedule sets u of every weight to it after every step instead.
        updates: when the variables move: `Simultaneous()` with theta, as in the authors' experiments; `Alternating()`, as in the
            paper's text; `ExactGates()`, w and gamma at their minimum after every step.
        lr: learning rate of w, gamma and u; None for the optimizer's.
    """

    alpha: Hyperparameter = 1e-5
    p_init: float = 1.0
    multiplier: float = 1.0
    u_init: float = 0.0
    u: Hyperparameter | None = None
    updates: Updates = field(
        default_factory=Simultaneous, metadata=choices(simultaneous=Simultaneous, alternating=Alternating, exact=ExactGates)
    )
    lr: Hyperparameter | None = None

    def __post_init__(self) -> None:
        check_hyperparameter("alpha", self.alpha)
        if not 0.0 <= self.p_init <= 1.0:
            raise ValueError(f"p_init is a probability in [0, 1], got {self.p_init}")
        if not (math.isfinite(self.multiplier) and self.multiplier > 0):
            raise ValueError(f"multiplier must be finite and above 0, got {self.multiplier}")
        check_hyperparameter("u_init", self.u_init)
        for name, value in (("u", self.u), ("lr", self.lr)):
            if value is not None:
                check_hyperparameter(name, value)
        require_object("updates", self.updates, Updates)
        if isinstance(self.updates, ExactGates) and self.u is None and self.u_init == 0:
            raise ValueError("with u = 0 the exact step closes every gate: pass u=, a number or a rising schedule, or a positive u_init")

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys: none, as its terms depend on the state."""
        return Laws(linear_in_alpha=False, zero_at_zero=False, separable=False)

    @property
    def proximal(self) -> bool:
        """Whether the penalty acts after the step: theta feels it in its gradient."""
        return False

    def init(self, params: Params) -> PMMPState:
        """Creates w as a copy of theta, gamma = p_init and u = u_init, or the value of `u` at the beginning."""
        return PMMPState(params, p_init=self.p_init, u_init=self.u_init if self.u is None else value_at(self.u, At()))

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `alpha * sum(gamma) + m * sum(u * constraint(theta, w, gamma))`, differentiable in all four variables."""
        assert isinstance(state, PMMPState)
        alpha = value_at(self.alpha, at)
        terms: list[Tensor] = []
        for theta, own in zip(params.values(), state.every(params), strict=True):
            terms.append(alpha * own.gamma.sum() + self.multiplier * (own.u * constraint(theta, own.w, own.gamma)).sum())
        return torch.stack(terms).sum()

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        """Adds `2 m u (theta - w gamma)` to every `.grad`, and notes the other gradients at this point for `after_step_`."""
        assert isinstance(state, PMMPState)
        block = block_of(params, state.every(params))
        differences = state.workspace.like(params, 0)
        differences_into_(differences, block)
        torch._foreach_addcmul_(gradients(params), block.u, differences, value=2.0 * self.multiplier * scale)
        self.updates.note_(params, state, self._round(at))

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Moves w, gamma and u, and warns where every gate of a layer has closed.

        Raises:
            ValueError: no learning rate is known.
        """
        assert isinstance(state, PMMPState)
        if self.u is not None:
            value = value_at(self.u, at)
            for variables in state.every(params):
                variables.u.fill_(value)
        self.updates.move_(params, state, self._round(at))

    def _round(self, at: At) -> Round:
        return Round(
            alpha=value_at(self.alpha, at),
            multiplier=self.multiplier,
            ascends=self.u is None,
            rate=None if self.lr is None else value_at(self.lr, at),
            step=at.step,
        )

    masks_ = no_masks_
    with_alpha = replace_alpha
