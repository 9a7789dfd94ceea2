"""Least squares with a price per coefficient, lowered by flips of one or two gates; after every flip all coefficients are solved anew."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_DEPENDENT = 1e-8
"""A column of which less than this share of its squared length is left is taken to be spanned by the others."""


@dataclass(frozen=True, kw_only=True)
class Flips:
    """The result of `flip_gates`.

    Attributes:
        gates: True where a coefficient is used.
        coefficients: least squares on those, 0 elsewhere.
        path: the objective at the start and after each flip; it never rises.
    """

    gates: Bool[Tensor, "n"]
    coefficients: Float[Tensor, "n"]
    path: tuple[float, ...]


def flip_gates(G: Float[Tensor, "n n"], b: Float[Tensor, "n"], squared: float, *, price: float, start: Bool[Tensor, "n"]) -> Flips:  # noqa: N803
    """Lowers `||y - P z||^2 + price * l0(z)` by the best flip of one gate, or of two where none helps, until neither does.

    The problem is NP-hard, and the result is a minimum among its neighbours, not always the global one. For given gates everything is in
    a tableau of n + 1 rows, the matrix `[G b; b^T squared]` with the open gates swept out (J. H. Goodnight, A tutorial on the SWEEP
    operator, 1979), from which the objective after each flip follows in closed form. A flip costs n^3.

    Args:
        G: `P^T P`.
        b: `P^T y`.
        squared: `||y||^2`.
        price: of one coefficient that is not 0, positive.
        start: the gates open at first; columns that the others span are closed at once, in the order of their numbers.
    """
    corner = b.new_tensor([squared])
    whole = torch.cat([torch.cat([G, b.unsqueeze(1)], dim=1), torch.cat([b, corner]).unsqueeze(0)]).double()
    gates, scale = torch.zeros_like(start), whole.diagonal()[:-1]
    for j in start.nonzero().flatten().tolist():
        gates[j] = _left_of_column(whole, gates, j) > _DEPENDENT * scale[j]
    tableau = _swept(whole, gates)
    path = [_objective(whole, tableau, gates, price)]
    while True:
        for best in (_best_flip, _best_pair):
            candidate = best(tableau, gates, scale, price)
            swept = _swept(whole, candidate)
            value = _objective(whole, swept, candidate, price)
            # Below this a gain is rounding, and flips could go on for ever.
            if value < path[-1] - 1e-12 * max(squared, price):
                tableau, gates = swept, candidate
                path.append(value)
                break
        else:
            return Flips(gates=gates, coefficients=_coefficients(tableau, gates), path=tuple(path))


def _coefficients(tableau: Tensor, gates: Tensor) -> Tensor:
    return torch.where(gates, tableau[:-1, -1], 0.0)


def _objective(whole: Tensor, tableau: Tensor, gates: Tensor, price: float) -> float:
    """Computes the objective of the coefficients themselves: the tableau's own corner loses digits where columns are nearly dependent."""
    extended = torch.cat([_coefficients(tableau, gates), -whole.new_ones(1)])
    return float(extended @ whole @ extended) + price * int(gates.sum())


def _left_of_column(whole: Tensor, gates: Tensor, j: int) -> Tensor:
    """Computes the squared length of what the open columns do not span of column j."""
    support = gates.nonzero().flatten()
    shared = whole[support, j]
    return whole[j, j] - shared @ torch.linalg.solve(whole[support][:, support], shared)


def _swept(whole: Float[Tensor, "m m"], gates: Bool[Tensor, "n"]) -> Float[Tensor, "m m"]:
    """Sweeps the open gates A out of `[G b; b^T squared]`, B all other rows: `[-H, H G_AB; G_BA H, G_BB - G_BA H G_AB]`, H = inv(G_AA).

    The last column then holds the coefficients of open gates (the solution of eq. 31), what the residual has of the columns of closed
    ones, and the squared residual.
    """
    opened = torch.cat([gates, gates.new_zeros(1)])
    inside, outside = opened.nonzero().flatten(), (~opened).nonzero().flatten()
    inverse = torch.linalg.inv(whole[inside][:, inside])
    spans = inverse @ whole[inside][:, outside]
    swept = whole.clone()
    swept[inside.unsqueeze(1), inside] = -inverse
    swept[inside.unsqueeze(1), outside] = spans
    swept[outside.unsqueeze(1), inside] = spans.T
    swept[outside.unsqueeze(1), outside] -= whole[outside][:, inside] @ spans
    return swept


def _reductions(pivots: Tensor, last: Tensor, gates: Tensor, scale: Tensor) -> Tensor:
    """Computes by how much the squared residual falls with a flip, negative where a gate closes; -inf where the flip is not possible."""
    possible = gates | (pivots > _DEPENDENT * scale)
    return torch.where(possible, last.square() / torch.where(possible, pivots, 1.0), -torch.inf)


def _best_flip(tableau: Tensor, gates: Tensor, scale: Tensor, price: float) -> Tensor:
    """Flips the gate with which the objective falls most."""
    gains = _reductions(tableau.diagonal()[:-1], tableau[:-1, -1], gates, scale) - _prices(gates, price)
    return gates ^ torch.nn.functional.one_hot(gains.argmax(), len(gates)).bool()


def _best_pair(tableau: Tensor, gates: Tensor, scale: Tensor, price: float) -> Tensor:
    """Flips the pair with which the objective falls most: in row k and column l is the gain of k first, and then of l."""
    diagonal, last, inner = tableau.diagonal()[:-1], tableau[:-1, -1], tableau[:-1, :-1]
    first = _reductions(diagonal, last, gates, scale)
    ratios = inner / torch.where(first > -torch.inf, diagonal, 1.0).unsqueeze(1)
    second = _reductions(diagonal - ratios * inner, last - ratios * last.unsqueeze(1), gates, scale)
    gains = (first - _prices(gates, price)).unsqueeze(1) + second - _prices(gates, price)
    pair = torch.stack(torch.unravel_index(gains.fill_diagonal_(-torch.inf).argmax(), gains.shape))
    return gates ^ torch.nn.functional.one_hot(pair, len(gates)).bool().any(dim=0) if len(gates) > 1 else gates


def _prices(gates: Tensor, price: float) -> Tensor:
    return torch.where(gates, -price, price).double()
