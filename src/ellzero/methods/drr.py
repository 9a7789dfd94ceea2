"""DRR, differentiable relaxation of l0: a smooth well around 0 for every weight (eq. 11, eq. 39-41)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ellzero.methods.choices import choices
from ellzero.methods.foreach import sign_into_
from ellzero.methods.normalisation import Normalisation, NormalisedState, PerModule, PerStage, factors_of
from ellzero.methods.protocol import Laws, no_masks_, replace_alpha, require_object
from ellzero.methods.proximal import soft_threshold_
from ellzero.methods.relaxation import Exponential, Gaussian, Rational, Relaxation
from ellzero.methods.schedule import Hyperparameter, check_hyperparameter, value_at
from ellzero.methods.workspace import NoState, Workspace, gradients, workspace_of
from ellzero.types import At, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class DRR:
    """Adds `alpha * sum_i (1 - exp(-beta * |theta_i|)) + rho * ||theta||_2^2` to the data loss (eq. 11).

    The sum tends to the number of non-zeros as beta grows. A weight is pulled by `alpha * beta` at 0 and hardly at all beyond a
    few times `1 / beta`, so large weights are not shrunk as l1 shrinks them.

    With `rho` and `normalise` it is the original method, DRR-O (G. de Resende Oliveira and others, reference [8] of the paper); the
    paper drops both. An alpha that rises while training, which it recommends instead, is a schedule: `alpha=lz.ramp(0.0, 1e-4)`.

    Attributes:
        alpha: price of one weight, in units of the data loss; with a mean loss 1e-5 to 1e-4 is where to start.
        beta: inverse width of the penalty's well; the paper uses 5. 0 would be no penalty at all and is refused.
        proximal: False adds the gradient, as the paper does; True soft-thresholds after the step, which gives exact zeros.
        relaxation: the form of the well: `Exponential()`, `Gaussian()` or `Rational()`. Only a concave one has a proximal form.
        rho: price of the squared l2 norm, in units of the data loss.
        normalise: None, or how the penalty is weighted by the size of layers, `PerModule()` or `PerStage()`. Both alpha and rho are
            multiplied, as the paper describes DRR-O; its authors' experiments multiplied alpha alone.
    """

    alpha: Hyperparameter = 1e-5
    beta: Hyperparameter = 5.0
    proximal: bool = False
    relaxation: Relaxation = field(
        default_factory=Exponential, metadata=choices(exponential=Exponential, gaussian=Gaussian, rational=Rational)
    )
    rho: Hyperparameter = 0.0
    normalise: Normalisation | None = field(default=None, metadata=choices(per_module=PerModule, per_stage=PerStage))

    def __post_init__(self) -> None:
        check_hyperparameter("alpha", self.alpha)
        check_hyperparameter("beta", self.beta, zero=False)
        check_hyperparameter("rho", self.rho)
        require_object("relaxation", self.relaxation, Relaxation)
        if self.normalise is not None:
            require_object("normalise", self.normalise, Normalisation)
        if self.proximal and not self.relaxation.concave:
            raise ValueError(
                f"{self.relaxation} is not concave: its slope vanishes at 0, where a threshold would have to be largest, so a proximal"
                " step gives no exact zeros: use relaxation=Exponential() or proximal=False"
            )

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys; a normalised one depends on the sizes of layers."""
        return Laws(linear_in_alpha=self.rho == 0.0, zero_at_zero=True, separable=self.normalise is None)

    @property
    def gradient_on_survivors(self) -> bool:
        """Whether the gradient of a weight depends on that weight alone: in the gradient form, where no layer's size enters it."""
        return not self.proximal and self.normalise is None

    def init(self, params: Params) -> nn.Module:
        """Creates room for temporaries, and the factors of a normalised penalty."""
        return NoState() if self.normalise is None else NormalisedState(self.normalise.factors(params))

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Computes `alpha * sum_i well(theta_i) + rho * sum_i theta_i^2`, each tensor times its factor where normalised."""
        alpha, beta, rho = value_at(self.alpha, at), value_at(self.beta, at), value_at(self.rho, at)
        terms: list[Tensor] = []
        for parameter, factor in zip(params.values(), factors_of(state, params), strict=True):
            term = alpha * self.relaxation.value(parameter.abs(), beta).sum()
            terms.append(factor * (term + rho * parameter.square().sum() if rho else term))
        return torch.stack(terms).sum()

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        """Adds `alpha * sign(theta) * slope + 2 * rho * theta` to every `.grad`; nothing in the proximal form.

        The slope is the well's: `beta * exp(-beta * |theta|)` of the exponential one.
        """
        if self.proximal:
            return
        workspace = workspace_of(state)
        tensors, grads, factors = list(params.values()), gradients(params), factors_of(state, params)
        slopes, price = self._slopes(params, workspace, at)
        signs = workspace.like(params, 1)
        sign_into_(signs, tensors)
        torch._foreach_addcmul_(grads, slopes, signs, scalars=[price * factor * scale for factor in factors])
        rho = value_at(self.rho, at)
        if rho:
            torch._foreach_copy_(slopes, tensors)
            torch._foreach_mul_(slopes, [2.0 * rho * factor * scale for factor in factors])
            torch._foreach_add_(grads, slopes)

    def exponential_pull(self, at: At) -> tuple[float, float] | None:
        """Returns `alpha * beta` and beta, where the well is the exponential one alone; None in every other form."""
        if self.proximal or self.normalise is not None or not isinstance(self.relaxation, Exponential) or value_at(self.rho, at) != 0.0:
            return None
        beta = value_at(self.beta, at)
        return value_at(self.alpha, at) * beta, beta

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        """Soft-thresholds by `step * alpha * slope`, then divides by `1 + 2 * step * rho`, in the proximal form.

        The penalty is concave in the magnitude. It is replaced by its tangent at the present magnitude, which bounds it from
        above, and the proximal step of that tangent and of the squared norm is exact: one iteration of reweighted l1 (Candes, Wakin
        and Boyd, "Enhancing sparsity by reweighted l1 minimization", 2008) in the optimizer's metric.
        """
        if not self.proximal:
            return
        workspace = workspace_of(state)
        tensors, factors = list(params.values()), factors_of(state, params)
        sizes = [steps[name] for name in params]
        thresholds, price = self._slopes(params, workspace, at)
        torch._foreach_mul_(thresholds, [price * factor for factor in factors])
        torch._foreach_mul_(thresholds, sizes)
        soft_threshold_(tensors, thresholds, workspace.like(params, 1))
        rho = value_at(self.rho, at)
        if rho:
            torch._foreach_copy_(thresholds, sizes)
            torch._foreach_mul_(thresholds, [2.0 * rho * factor for factor in factors])
            torch._foreach_add_(thresholds, 1.0)
            torch._foreach_div_(tensors, thresholds)

    def _slopes(self, params: Params, workspace: Workspace, at: At) -> tuple[list[Tensor], float]:
        """Computes the well's slopes in temporaries, and alpha times the constant factor that they lack."""
        beta = value_at(self.beta, at)
        slopes = workspace.like(params, 0)
        self.relaxation.slopes_into_(slopes, list(params.values()), beta)
        return slopes, value_at(self.alpha, at) * self.relaxation.steepness(beta)

    masks_ = no_masks_
    with_alpha = replace_alpha
