"""The z-step of ADMM under an l0 price (appendix C.4): exact for P = id (eq. 36), a descent over gates and weights otherwise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ellzero.methods.linear.operator import IDENTITY, LinearOperator
from ellzero.methods.linear.subset_flips import flip_gates
from ellzero.types import Scalar


@dataclass(frozen=True, kw_only=True)
class ZStep:
    """The result of `z_step`.

    Attributes:
        z: `w * pi`, the new consensus.
        w: weights behind the gates; 0 where a gate of a general P is closed, as any value is a minimum there.
        pi: gates, True where open.
        objective: L(w, pi) of eq. 30.
        path: L where the best descent started, its support solved for, and after each flip; it never rises. For P = id its end alone.
    """

    z: Float[Tensor, "n"]
    w: Float[Tensor, "n"]
    pi: Bool[Tensor, "n"]
    objective: float
    path: tuple[float, ...]


def threshold(alpha: float, rho: float, workers: int = 1) -> float:
    """Computes tau = sqrt(2 alpha / (rho N)): the magnitude above which a weight is worth its price (eq. 36).

    Args:
        alpha: price of a weight, in units of the sum of all workers' losses.
        rho: strength of the constraint, positive.
        workers: N.
    """
    return math.sqrt(2.0 * alpha / (rho * workers))


def hard_threshold(q: Float[Tensor, "*shape"], tau: float) -> Float[Tensor, "*shape"]:
    """Computes `q * 1[|q| > tau]`: the z-step for P = id, q the mean of `x_i + u_i` (eq. 36). A tie is closed, as in eq. 35."""
    return torch.where(q.abs() > tau, q, 0.0)


def z_targets(
    x: Float[Tensor, "workers k"],
    u: Float[Tensor, "workers m"],
    *,
    M: LinearOperator | Sequence[LinearOperator] = IDENTITY,  # noqa: N803
    c: Float[Tensor, "m"] | None = None,
) -> Float[Tensor, "workers m"]:
    """Computes `r_i = M_i x_i - c + u_i`, what every worker would like P z to be (eq. 33).

    Args:
        x: the workers' weights, one row per worker.
        u: their scaled multipliers `y_i / rho` (eq. 28).
        M: one operator for all workers, or one per worker.
        c: the constraint's offset; 0 where None.

    Raises:
        ValueError: the number of operators is not that of workers.
    """
    if isinstance(M, LinearOperator):
        mapped = M.apply(x)
    else:
        if len(M) != len(x):
            raise ValueError(f"{len(M)} operators M for {len(x)} workers: pass one for all, or one per worker")
        mapped = torch.stack([operator.apply(row) for operator, row in zip(M, x, strict=True)])
    return mapped + u if c is None else mapped - c + u


def z_objective(
    w: Float[Tensor, "n"],
    pi: Float[Tensor, "n"],
    r: Float[Tensor, "workers m"],
    *,
    alpha: float,
    rho: float,
    P: LinearOperator = IDENTITY,  # noqa: N803
) -> Scalar:
    """Computes L(w, pi) of eq. 30: `E_Z[alpha l0(Z) + sum_i rho/2 ||r_i - P (w Z)||^2]` over gates Z with probabilities pi.

    Args:
        w: weights behind the gates.
        pi: probability that each gate is open.
        r: the workers' targets.
        alpha: price of a weight, in units of the sum of all workers' losses.
        rho: strength of the constraint.
        P: the operator on z.
    """
    lengths = P.apply(torch.eye(w.numel(), dtype=w.dtype, device=w.device)).square().sum(dim=-1)
    variance = len(r) * (lengths * w.square() * pi * (1.0 - pi)).sum()
    return alpha * pi.sum() + 0.5 * rho * ((r - P.apply(w * pi)).square().sum() + variance)


@torch.no_grad()
def z_step(
    r: Float[Tensor, "workers m"],
    *,
    alpha: float,
    rho: float,
    P: LinearOperator = IDENTITY,  # noqa: N803
    start: Float[Tensor, "n"] | None = None,
) -> ZStep:
    """Minimises `alpha l0(z) + sum_i rho/2 ||r_i - P z||^2` over z = w pi, the gates pi at vertices (eq. 30).

    Only the mean of the targets matters. For P = id the minimum is the hard threshold of eq. 36, exactly. For another P eq. 31 is
    solved on the open gates, in turn with the best flip of one gate or of two, as long as L falls: from `start`, from closed and from
    open gates. The best end is returned, a minimum among its neighbours and never above L at `start`. It takes `P^T P` as a matrix, n^2
    numbers, and is computed in float64.

    Args:
        r: the workers' targets, from `z_targets`.
        alpha: price of a weight, in units of the sum of all workers' losses.
        rho: strength of the constraint.
        P: the operator on z.
        start: z of the round before, a further point to start from. Not used for P = id.

    Raises:
        ValueError: `alpha` or `rho` is not positive and finite, or `r` is not of two dimensions with at least one worker, or holds NaN
            or infinity.
    """
    for name, value in (("alpha", alpha), ("rho", rho)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"z_step({name}={value}): expected a finite number above 0")
    if r.ndim != 2 or not len(r):
        raise ValueError(f"r has the shape {list(r.shape)}: expected [workers, m], one row per worker; for a single worker pass r[None]")
    if not bool(r.isfinite().all()):
        raise ValueError("r holds NaN or infinity: the workers' training has diverged, lower the learning rate")
    mean = r.mean(dim=0)
    if P == IDENTITY:
        z = hard_threshold(mean, threshold(alpha, rho, len(r)))
        value = float(z_objective(mean, (z != 0).to(r.dtype), r, alpha=alpha, rho=rho))
        return ZStep(z=z, w=mean, pi=z != 0, objective=value, path=(value,))
    b = P.adjoint(mean)
    G = P.adjoint(P.apply(torch.eye(b.numel(), dtype=r.dtype, device=r.device)))  # noqa: N806
    half = 0.5 * rho * len(r)
    squared = float(mean.double().square().sum())
    closed = torch.zeros(b.shape, dtype=torch.bool)
    starts = [*([] if start is None else [(start != 0).cpu()]), closed, ~closed]
    ends = [flip_gates(G.cpu(), b.cpu(), squared, price=alpha / half, start=gates) for gates in starts]
    flips = min(ends, key=lambda end: end.path[-1])
    z, pi = flips.coefficients.to(r), flips.gates.to(r.device)
    # The differences between workers add the same to L for every z.
    spread = 0.5 * rho * float((r - mean).double().square().sum())
    value = float(z_objective(z, pi.to(r.dtype), r, alpha=alpha, rho=rho, P=P))
    return ZStep(z=z, w=z, pi=pi, objective=value, path=tuple(half * value + spread for value in flips.path))
