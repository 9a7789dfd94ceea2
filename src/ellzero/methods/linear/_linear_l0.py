"""l0-regularised least squares by gates alone: Lemma 2.3 plus the price of the gates, with no theta and no u (section 2.2.1).

For a linear model nothing stands between the gates and the squared error, so the right side of Lemma 2.3 plus `alpha * sum(gamma)` is
minimised directly. With `v = w * gamma` and `c_j = sum_i X_ij^2` it reads

    sum_i (y_i - (X v)_i)^2 + sum_j c_j v_j^2 (1 - gamma_j) / gamma_j + alpha * sum_j gamma_j

Given gamma it is a ridge regression in v; given v the best gate is `gamma_j = min(1, |v_j| * sqrt(c_j / alpha))`. Put back, that is
the continuous exact l0 penalty of E. Soubies, L. Blanc-Feraud and G. Aubert, "A continuous exact l0 penalty (CEL0) for least squares
regularized problem" (2015), whose global minima are those of l0.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ellzero.methods.linear.inputs import linear_inputs

_RIDGE = 1e-12
"""Added to the diagonal of a normal matrix, as a fraction of its mean: columns may be dependent."""


@dataclass(frozen=True, kw_only=True)
class LinearL0:
    """The result of `linear_l0`.

    Attributes:
        coefficients: w * z of the gates chosen: least squares on the support, exactly 0 elsewhere.
        support: which gates are open.
        objective: `||y - X coefficients||^2 + alpha * (number of open gates)`.
        gamma: the gates where the descent ended, before they were rounded.
        path: the right side of Lemma 2.3 plus `alpha * sum(gamma)` at the start and after every round; it never rises.
        moves: gates, or pairs of gates, that were flipped to get there: from the rounded gates, closed ones or open ones.
    """

    coefficients: Float[Tensor, "n"]
    support: Bool[Tensor, "n"]
    objective: float
    gamma: Float[Tensor, "n"]
    path: tuple[float, ...]
    moves: int


@torch.no_grad()
def linear_l0(
    X: Shaped[Tensor, "samples n"],  # noqa: N803  # the paper's letter
    y: Shaped[Tensor, "samples"],
    *,
    alpha: float,
    p_init: float = 0.5,
    max_rounds: int = 1000,
    swaps: bool = True,
) -> LinearL0:
    """Minimises `||y - X theta||_2^2 + alpha * ||theta||_0`, to a point that no flip of one gate improves, nor an exchange of two.

    First gamma and w are moved to their minima in turn, from `gamma = p_init`. Then gamma is rounded, and gates are flipped one at a
    time, w being solved for again, as long as the objective falls; where no flip lowers it, one open gate is exchanged for one closed
    gate. The same is done from closed and from open gates, and the best end is returned. The problem is NP-hard and the result may be
    a local minimum. A round of the descent costs n^3, a move n * k^2 with k open gates.

    Args:
        X: inputs, one row per sample; a column of ones for an intercept, which is then priced too.
        y: targets.
        alpha: price of a coefficient, in units of the squared error summed over samples.
        p_init: gamma at the beginning, in (0, 1].
        max_rounds: rounds of the descent at most; it ends where a round gains less than a factor of 1e-10.
        swaps: whether gates are exchanged.

    Returns:
        The coefficients in the type of `X`, in float64 where that holds no fractions; all is computed in float64.

    Raises:
        ValueError: `alpha` is not positive and finite, `p_init` not in (0, 1], `max_rounds` not positive, the data is not finite, or the
            shapes of X and y do not belong together.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and above 0, got {alpha}: without a price it is least squares")
    if not 0 < p_init <= 1:
        raise ValueError(f"p_init must be in (0, 1], got {p_init}: a closed gate would never open")
    if max_rounds < 1:
        raise ValueError(f"max_rounds must be at least 1, got {max_rounds}")
    X64, y64, dtype = linear_inputs(X, y)  # noqa: N806
    problem = _Problem(G=X64.T @ X64, b=X64.T @ y64, y_squared=float(y64.square().sum()), alpha=alpha)
    gamma, path = _descend(problem, torch.full_like(problem.b, p_init), max_rounds)
    closed = torch.zeros_like(gamma, dtype=torch.bool)
    # With more open gates than samples anything fits, and no move leads out of there, as the closed forms need independent columns.
    starts = [start for start in (gamma > 0.5, closed, ~closed) if int(start.sum()) <= len(y)]
    ends = [_flip(problem, start, swaps=swaps) for start in starts]
    gates, coefficients, moves = min(ends, key=lambda end: problem.objective(end[1], end[0]))
    return LinearL0(
        coefficients=coefficients.to(dtype),
        support=gates,
        objective=problem.objective(coefficients, gates),
        gamma=gamma.to(dtype),
        path=path,
        moves=moves,
    )


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """Least squares in terms of `G = X'X` and `b = X'y`."""

    G: Float[Tensor, "n n"]
    b: Float[Tensor, "n"]
    y_squared: float
    alpha: float

    @property
    def ridge(self) -> Tensor:
        return (_RIDGE * self.G.diagonal().mean()).clamp_min(torch.finfo(torch.float64).tiny)

    def value(self, v: Float[Tensor, "n"]) -> float:
        """Computes the squared error."""
        return self.y_squared + float(v @ self.G @ v - 2.0 * (v @ self.b))

    def objective(self, v: Float[Tensor, "n"], gates: Bool[Tensor, "n"]) -> float:
        """Computes the squared error plus the price of the gates."""
        return self.value(v) + self.alpha * int(gates.sum())

    def solve(self, gates: Bool[Tensor, "n"]) -> tuple[Float[Tensor, "n"], Float[Tensor, "k k"]]:
        """Computes least squares coefficients, 0 behind closed gates, and the inverse of G on the k open ones."""
        support = gates.nonzero().flatten()
        ridge = torch.diag(self.ridge.expand(len(support)))
        inverse = torch.linalg.inv(self.G[support][:, support] + ridge)
        return torch.zeros_like(self.b).index_put((support,), inverse @ self.b[support]), inverse


def _descend(problem: _Problem, gamma: Float[Tensor, "n"], max_rounds: int) -> tuple[Float[Tensor, "n"], tuple[float, ...]]:
    """Moves v and gamma to their minima in turn; returns gamma and the objective along the way."""
    c = problem.G.diagonal()
    path: list[float] = []
    for _ in range(max_rounds):
        # With v = sqrt(gamma) * q the matrix stays regular as gates close, where the ridge on v itself grows without bound.
        roots = gamma.sqrt()
        q = torch.linalg.solve(roots.unsqueeze(1) * problem.G * roots + torch.diag(c * (1.0 - gamma) + problem.ridge), roots * problem.b)
        v = roots * q
        if not path:
            path.append(_lemma(problem, q, v, gamma))
        gamma = (v.abs() * (c / problem.alpha).sqrt()).clamp(max=1.0)
        # q of the new gamma: v is kept, and a gate closes altogether only where v is 0.
        q = torch.where(gamma > 0, v / gamma.sqrt().clamp_min(torch.finfo(torch.float64).tiny), 0.0)
        path.append(_lemma(problem, q, v, gamma))
        if path[-2] - path[-1] <= 1e-10 * abs(path[-2]):
            break
    return gamma, tuple(path)


def _lemma(problem: _Problem, q: Float[Tensor, "n"], v: Float[Tensor, "n"], gamma: Float[Tensor, "n"]) -> float:
    """Computes the right side of Lemma 2.3 plus the price of the gates, with `v = w * gamma` and `q = w * sqrt(gamma)`."""
    variance = (problem.G.diagonal() * q.square() * (1.0 - gamma)).sum()
    return problem.value(v) + float(variance + problem.alpha * gamma.sum())


def _flip(problem: _Problem, gates: Bool[Tensor, "n"], *, swaps: bool) -> tuple[Bool[Tensor, "n"], Float[Tensor, "n"], int]:
    """Flips single gates, and exchanges pairs where none helps, as long as the objective falls.

    Returns:
        The gates, the least squares coefficients behind them, and the number of moves.
    """
    # Below this a gain is rounding.
    least_gain = 1e-12 * max(problem.y_squared, problem.alpha)
    v, inverse = problem.solve(gates)
    value, moves = problem.objective(v, gates), 0
    while True:
        for candidate in _moves(problem, gates, v, inverse, swaps=swaps):
            next_v, next_inverse = problem.solve(candidate)
            next_value = problem.objective(next_v, candidate)
            if next_value < value - least_gain:
                gates, v, inverse, value, moves = candidate, next_v, next_inverse, next_value, moves + 1
                break
        else:
            return gates, v, moves


def _moves(
    problem: _Problem, gates: Bool[Tensor, "n"], v: Float[Tensor, "n"], inverse: Float[Tensor, "k k"], *, swaps: bool
) -> Iterator[Bool[Tensor, "n"]]:
    """Yields the gates after the best flip, then after the best exchange, by the changes of a least squares fit in closed form.

    Closing gate j costs `v_j^2 / H_jj` with `H` the inverse of G on the support; opening gate i gains `r_i^2 / s_i`, with `r` the
    correlations of the residual and `s_i` what of column i the support does not span. After closing j both are updated by
    `spans = G_iS H`.
    """
    opened, closed = gates.nonzero().flatten(), (~gates).nonzero().flatten()
    diagonal, coefficients = inverse.diagonal(), v[opened]
    spans = problem.G[closed][:, opened] @ inverse
    r = problem.b[closed] - problem.G[closed] @ v
    scale = problem.G.diagonal()[closed]
    s = scale - (spans * problem.G[closed][:, opened]).sum(dim=1)
    gain = torch.full_like(v, -torch.inf)
    gain[opened] = problem.alpha - coefficients.square() / diagonal
    gain[closed] = _gained(r, s, scale) - problem.alpha
    flipped = gates.clone()
    best = gain.argmax()
    flipped[best] = ~flipped[best]
    yield flipped
    if swaps and len(opened) and len(closed):
        pairs = _gained(r.unsqueeze(1) + spans * (coefficients / diagonal), s.unsqueeze(1) + spans.square() / diagonal, scale.unsqueeze(1))
        i, j = divmod(int((pairs - coefficients.square() / diagonal).argmax()), len(opened))
        exchanged = gates.clone()
        exchanged[closed[i]], exchanged[opened[j]] = True, False
        yield exchanged


def _gained(r: Tensor, s: Tensor, scale: Tensor) -> Tensor:
    """Computes `r^2 / s`, and 0 where a column is spanned by the others but for rounding."""
    return torch.where(s > 1e-9 * scale, r.square() / s, 0.0)
