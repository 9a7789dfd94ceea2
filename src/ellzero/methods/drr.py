"""DRR, differentiable relaxation of l0: the exponential penalty of eq. 11."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ellzero.methods.foreach import exponential_into_, sign_into_
from ellzero.methods.protocol import Laws, no_masks_, no_state
from ellzero.methods.proximal import soft_threshold_
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, value_at
from ellzero.methods.workspace import Workspace, gradients, workspace_of
from ellzero.types import At, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class DRR:
    """Adds `alpha * sum_i (1 - exp(-beta * |theta_i|))` to the data loss (eq. 11).

    The sum tends to the number of non-zeros as beta grows. A weight is pulled by `alpha * beta` at 0 and hardly at all beyond a
    few times `1 / beta`, so large weights are not shrunk as l1 shrinks them.

    Attributes:
        alpha: price of one weight, in units of the data loss; with a mean loss 1e-5 to 1e-4 is where to start.
        beta: inverse width of the penalty's well; the paper uses 5. 0 would be no penalty at all and is refused.
        proximal: False adds the gradient, as the paper does; True soft-thresholds after the step, which gives exact zeros.
    """

    alpha: Hyperparameter = 1e-5
    beta: Hyperparameter = 5.0
    proximal: bool = False

    def __post_init__(self) -> None:
        check_hyperparameter("alpha", self.alpha)
        check_hyperparameter("beta", self.beta, zero=False)

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys."""
        return Laws(linear_in_alpha=True, zero_at_zero=True, separable=True)

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `alpha * sum_i (1 - exp(-beta * |theta_i|))` (eq. 11)."""
        beta = value_at(self.beta, at)
        # expm1 keeps the many terms near 0 exact where 1 - exp would cancel.
        total = torch.stack([-torch.expm1(-beta * parameter.abs()).sum() for parameter in params.values()]).sum()
        return value_at(self.alpha, at) * total

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        """Adds `alpha * beta * sign(theta) * exp(-beta * |theta|)` to every `.grad`; nothing in the proximal form."""
        if self.proximal:
            return
        workspace = workspace_of(state)
        slopes = self._slopes(params, workspace, at)
        signs = workspace.like(params, 1)
        sign_into_(signs, list(params.values()))
        price = value_at(self.alpha, at) * value_at(self.beta, at) * scale
        torch._foreach_addcmul_(gradients(params), slopes, signs, value=price)

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Soft-thresholds by `step * alpha * beta * exp(-beta * |theta|)` in the proximal form.

        The penalty is concave in the magnitude. It is replaced by its tangent at the present magnitude, which bounds it from
        above, and the proximal step of that tangent is exact: one iteration of reweighted l1 (Candes, Wakin and Boyd,
        "Enhancing sparsity by reweighted l1 minimization", 2008) in the optimizer's metric.
        """
        if not self.proximal:
            return
        workspace = workspace_of(state)
        thresholds = self._slopes(params, workspace, at)
        torch._foreach_mul_(thresholds, value_at(self.alpha, at) * value_at(self.beta, at))
        torch._foreach_mul_(thresholds, [steps[name] for name in params])
        soft_threshold_(list(params.values()), thresholds, workspace.like(params, 1))

    def _slopes(self, params: Params, workspace: Workspace, at: At) -> list[Tensor]:
        """Computes `exp(-beta * |theta|)` in temporaries."""
        slopes = workspace.like(params, 0)
        exponential_into_(slopes, list(params.values()), value_at(self.beta, at))
        return slopes

    init = no_state
    masks_ = no_masks_
