"""The lasso and the relaxed lasso for linear models: what `linear_l0` is compared with, and where R-L1 comes from (section 2.2.2).

R. Tibshirani, "Regression shrinkage and selection via the lasso" (1996); N. Meinshausen, "Relaxed lasso" (2007), in the simplified form
of T. Hastie, R. Tibshirani and R. J. Tibshirani, "Extended comparisons of best subset selection, forward stepwise selection, and the
lasso" (2017).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ellzero.methods.linear.inputs import linear_inputs


@dataclass(frozen=True, kw_only=True)
class RelaxedLasso:
    """The result of `relaxed_lasso`.

    Attributes:
        coefficients: `phi` times the lasso's plus `1 - phi` times those of least squares on its support; exactly 0 elsewhere.
        support: which coefficients the lasso left.
        lasso: the lasso's own coefficients, shrunk towards 0.
    """

    coefficients: Float[Tensor, "n"]
    support: Bool[Tensor, "n"]
    lasso: Float[Tensor, "n"]


@torch.no_grad()
def lasso(
    X: Shaped[Tensor, "samples n"],  # noqa: N803  # the paper's letter
    y: Shaped[Tensor, "samples"],
    *,
    alpha: float,
    start: Float[Tensor, "n"] | None = None,
    tolerance: float = 1e-9,
    max_sweeps: int = 100_000,
) -> Float[Tensor, "n"]:
    """Minimises `||y - X theta||_2^2 + alpha * ||theta||_1` by coordinate descent.

    Scales matter: a column twice as long needs a coefficient half as large, which costs half as much. There is no intercept.

    Args:
        X: inputs, one row per sample.
        y: targets.
        alpha: price of a unit of the l1 norm, in units of the squared error summed over samples. At `2 * max(abs(X' y))` and above
            every coefficient is 0.
        start: where the descent begins, such as the solution for a neighbouring alpha; None for 0.
        tolerance: how far a condition of optimality may be missed, as a fraction of `max(abs(X' y))`.
        max_sweeps: passes over all coefficients at most.

    Returns:
        The coefficients in the type of `X`, in float64 where that holds no fractions, many of them exactly 0; all is computed in float64.
        With more columns than samples there may be several solutions, which share one `X theta`.

    Raises:
        ValueError: `alpha` is not positive and finite, the data is not finite, the shapes of X and y do not belong together, or
            `max_sweeps` passes were not enough.
    """
    # Nothing else among the methods needs numba, whose import takes a while.
    from ellzero.methods.linear.lasso_kernel import descend_

    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and above 0, got {alpha}: without a price it is least squares")
    X64, y64, dtype = linear_inputs(X, y)  # noqa: N806
    theta = torch.zeros(X.shape[1], dtype=torch.float64) if start is None else start.double().cpu().clone()
    gram, b = (X64.T @ X64).cpu(), (X64.T @ y64).cpu()
    r = b - gram @ theta
    allowed = tolerance * float(b.abs().max()) if b.numel() else 0.0
    missed = descend_(gram.contiguous().numpy(), r.numpy(), theta.numpy(), 0.5 * alpha, allowed, max_sweeps)
    if missed > allowed:
        raise ValueError(
            f"after max_sweeps={max_sweeps} passes the gradient is still off by {missed:.3g}: raise max_sweeps, tolerance or alpha={alpha}"
        )
    return theta.to(device=X.device, dtype=dtype)


@torch.no_grad()
def relaxed_lasso(
    X: Shaped[Tensor, "samples n"],  # noqa: N803
    y: Shaped[Tensor, "samples"],
    *,
    alpha: float,
    phi: float = 0.0,
    start: Float[Tensor, "n"] | None = None,
) -> RelaxedLasso:
    """Chooses a support by the lasso, then lifts its shrinkage: the linear model of R-L1's two phases.

    Args:
        X: inputs, one row per sample.
        y: targets.
        alpha: price of a unit of the l1 norm while the support is chosen, as in `lasso`.
        phi: how much of the shrinkage stays, in [0, 1]: 0 is least squares on the support, 1 the lasso.
        start: where the lasso's descent begins.

    Raises:
        ValueError: `phi` is not in [0, 1], or `lasso` refuses the rest.
    """
    if not 0.0 <= phi <= 1.0:
        raise ValueError(f"phi must be in [0, 1], got {phi}")
    shrunk = lasso(X, y, alpha=alpha, start=start)
    support = shrunk != 0
    # The lasso keeps at most as many columns as samples, except in ties; the driver that allows dependent columns costs little.
    fitted = torch.linalg.lstsq(X[:, support].double().cpu(), y.double().cpu().unsqueeze(1), driver="gelsd").solution.squeeze(1)
    relaxed = torch.zeros_like(shrunk).index_put((support,), fitted.to(shrunk))
    return RelaxedLasso(coefficients=phi * shrunk + (1.0 - phi) * relaxed, support=support, lasso=shrunk)
