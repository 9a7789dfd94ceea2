"""R-L1, relaxed l1: an l1 penalty while regularising, nothing but masks while fine-tuning (section 2.2.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ellzero.methods.foreach import sign_into_
from ellzero.methods.protocol import Laws, no_masks_, no_state, replace_alpha
from ellzero.methods.proximal import soft_threshold_
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, value_at
from ellzero.methods.workspace import gradients, workspace_of
from ellzero.types import At, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class RL1:
    """Adds `alpha * ||theta||_1` to the data loss.

    The gradient `alpha * sign(theta)` is independent of the magnitude, so every weight is pulled equally hard towards 0, with
    sign(0) = 0. "Relaxed" is the second phase: the survivors are trained without the penalty under a fixed mask.

    Attributes:
        alpha: price of a unit of magnitude, in units of the data loss; with a mean loss 1e-5 to 1e-4 is where to start.
        proximal: False adds the gradient, as the paper does; True soft-thresholds after the step, which gives exact zeros.
    """

    alpha: Hyperparameter = 1e-5
    proximal: bool = False

    def __post_init__(self) -> None:
        check_hyperparameter("alpha", self.alpha)

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys."""
        return Laws(linear_in_alpha=True, zero_at_zero=True, separable=True)

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `alpha * ||theta||_1` (section 2.2.2)."""
        total = torch.stack([parameter.abs().sum() for parameter in params.values()]).sum()
        return value_at(self.alpha, at) * total

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        """Adds `alpha * sign(theta)` to every `.grad`; nothing in the proximal form."""
        if self.proximal:
            return
        signs = workspace_of(state).like(params, 0)
        sign_into_(signs, list(params.values()))
        torch._foreach_add_(gradients(params), signs, alpha=value_at(self.alpha, at) * scale)

    def exponential_pull(self, at: At) -> tuple[float, float] | None:
        """Returns alpha, which pulls all weights alike; None in the proximal form, which has no gradient."""
        return None if self.proximal else (value_at(self.alpha, at), 0.0)

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Soft-thresholds by `step * alpha` in the proximal form: the exact proximal step of the l1 norm."""
        if not self.proximal:
            return
        workspace = workspace_of(state)
        thresholds: list[Tensor] = workspace.like(params, 0)
        torch._foreach_copy_(thresholds, [steps[name] for name in params])
        torch._foreach_mul_(thresholds, value_at(self.alpha, at))
        soft_threshold_(list(params.values()), thresholds, workspace.like(params, 1))

    init = no_state
    masks_ = no_masks_
    with_alpha = replace_alpha
