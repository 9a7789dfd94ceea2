"""Least squares at a price per weight (eq. 38 with gates of 0 and 1), row by row: which weights are worth it.

The search of `lz.linear_l0`, for many rows at once: of all flips of one gate and exchanges of two, the best is made as long as the sum of
squared error and prices falls. Each move is a sweep of the row's matrix (J. Goodnight, "A tutorial on the SWEEP operator", 1979), which
holds the inverse of the Gram matrix on the open gates, the coefficients, and what of every closed column the open ones do not span; so all
moves are priced in closed form, in n^2 operations.
"""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from ellzero.pruning.least_squares import Elimination, groups_of_rows, mask_after, refit, squared_error, times

_CHUNK_ENTRIES = 1 << 18
"""Entries of the rows' matrices held at once, so few that they stay in a cache."""

STARTS = 8
"""Points on the way of the elimination that the search begins with, where rows are short."""

SHORT = 32
"""Weights of a row up to which several starts pay: the time of a start is that of the elimination."""

MOVES = 8
"""Moves that are made in a longer row: with them the search takes a few times as long as its elimination."""

_TOLERANCE = 1e-10
"""Gains below this fraction of the squared norm of the outputs are rounding."""

_SPANNED = 1e-9
"""A column of which the open ones leave less than this fraction is spanned by them."""


def priced_mask(
    weight: Float64[Tensor, "rows n"],
    gram: Float64[Tensor, "*groups n n"],
    elimination: Elimination,
    prunable: Bool[Tensor, " n"],
    alpha: float,
) -> Bool[Tensor, "rows n"]:
    """Finds for every row the weights to keep, so that the squared error after a fit plus `alpha` per kept weight is small.

    The search begins with the best point on the way of the elimination, in short rows also with `STARTS` points at equal distances on
    it, both ends included; the best end is taken. In a short row it is a local minimum: no flip of one gate and no exchange of two
    improves on it. In a longer one the search ends after `MOVES` moves.

    Args:
        weight: the weights that leave no error.
        gram: X X^T of each group of rows, positive definite.
        elimination: the order in which the weights of each row go.
        prunable: which columns may be left out; the others are free.
        alpha: price of a weight, in units of the squared error.
    """
    n, steps = weight.shape[1], elimination.order.shape[1]
    counts = [_cheapest_prefix(elimination, alpha)]
    if n <= SHORT:
        counts += [torch.full_like(counts[0], count) for count in sorted({round(steps * i / (STARTS - 1)) for i in range(STARTS)})]
    best = _search(weight, gram, mask_after(elimination, counts[0], n), prunable, alpha)
    score = objective(weight, gram, best, prunable, alpha)
    for count in counts[1:]:
        end = _search(weight, gram, mask_after(elimination, count, n), prunable, alpha)
        other = objective(weight, gram, end, prunable, alpha)
        best = torch.where((other < score)[:, None], end, best)
        score = torch.minimum(score, other)
    return best


def objective(
    weight: Float64[Tensor, "rows n"],
    gram: Float64[Tensor, "*groups n n"],
    mask: Bool[Tensor, "rows n"],
    prunable: Bool[Tensor, " n"],
    alpha: float,
) -> Float64[Tensor, " rows"]:
    """Computes squared error after a fit plus prices of every row."""
    error = squared_error(refit(gram, times(weight, gram), mask) - weight, gram)
    return error + alpha * (mask & prunable).sum(1)


def _cheapest_prefix(elimination: Elimination, alpha: float) -> Tensor:
    """Counts the removals of each row after which error and prices are least; a dear removal may make others free."""
    costs = torch.nn.functional.pad((elimination.cost - alpha).cumsum(1), (1, 0))
    return costs.argmin(1)


def _search(
    weight: Float64[Tensor, "rows n"],
    gram: Float64[Tensor, "*groups n n"],
    start: Bool[Tensor, "rows n"],
    prunable: Bool[Tensor, " n"],
    alpha: float,
) -> Bool[Tensor, "rows n"]:
    n = weight.shape[1]
    grams, mask = gram.reshape(-1, n, n), start.clone()
    chunks = torch.arange(len(weight), device=weight.device).split(max(1, _CHUNK_ENTRIES // (n + 1) ** 2))
    groups = groups_of_rows(weight, gram)
    for rows in chunks:
        mask[rows] = _search_rows(weight[rows], grams[groups[rows]], mask[rows], prunable, alpha)
    return mask


def _search_rows(
    weight: Float64[Tensor, "rows n"],
    grams: Float64[Tensor, "rows n n"],
    mask: Bool[Tensor, "rows n"],
    prunable: Bool[Tensor, " n"],
    alpha: float,
) -> Bool[Tensor, "rows n"]:
    swept, scale = _swept(weight, grams, mask), grams.diagonal(dim1=1, dim2=2)
    least = _TOLERANCE * torch.einsum("ri,rij,rj->r", weight, grams, weight).clamp_min(torch.finfo(weight.dtype).tiny)
    found = mask.clone()
    left = torch.arange(len(weight), device=weight.device)
    # A move leads to another mask with a smaller objective, so the loop ends where rows are short; of long ones it makes the best moves.
    n = weight.shape[1]
    for _ in range(10 * n if n <= SHORT else MOVES):
        flip, flipped = _best_flip(swept, scale, found[left], prunable, alpha)
        gain, first, second = _best_exchange(swept, scale, found[left], prunable)
        exchange = gain > flip
        gain, first, second = torch.maximum(gain, flip), torch.where(exchange, first, flipped), torch.where(exchange, second, -1)
        moves = gain > least
        if not bool(moves.all()):
            left, swept, scale, least, first, second = (t[moves] for t in (left, swept, scale, least, first, second))
        if not len(left):
            break
        _sweep_(swept, first)
        found[left, first] ^= True
        exchanged = (second >= 0).nonzero().flatten()
        if len(exchanged):
            part = swept[exchanged]
            _sweep_(part, second[exchanged])
            swept[exchanged] = part
            found[left[exchanged], second[exchanged]] ^= True
    return found


def _swept(
    weight: Float64[Tensor, "rows n"], grams: Float64[Tensor, "rows n n"], mask: Bool[Tensor, "rows n"]
) -> Float64[Tensor, "rows m m"]:
    """Sweeps the matrix [[G, G w], [w G, w G w]] of each row at its open gates."""
    n = weight.shape[1]
    products = torch.einsum("rij,rj->ri", grams, weight)
    whole = weight.new_empty(len(weight), n + 1, n + 1)
    whole[:, :n, :n] = grams
    whole[:, :n, n] = whole[:, n, :n] = products
    whole[:, n, n] = (products * weight).sum(1)
    used = torch.nn.functional.pad(mask, (0, 1))
    open_open = (used[:, :, None] & used[:, None]).to(weight.dtype)
    system = whole * open_open + torch.diag_embed((~used).to(weight.dtype))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(system)) * open_open
    spans = inverse @ whole
    closed = whole - whole @ spans
    rows, columns = used[:, :, None], used[:, None]
    return torch.where(rows, torch.where(columns, -inverse, spans), torch.where(columns, spans.mT, closed))


def _sweep_(matrices: Float64[Tensor, "rows m m"], pivot: Tensor) -> None:
    """Sweeps each matrix at its pivot: opens a closed gate, or closes an open one, whose diagonal entry is negative."""
    every = torch.arange(len(matrices), device=matrices.device)
    column = matrices[every, :, pivot]
    entry = column[every, pivot]
    matrices -= column[:, :, None] * (column / entry[:, None])[:, None]
    line = column / entry.abs()[:, None]
    line[every, pivot] = -1 / entry
    matrices[every, :, pivot] = line
    matrices[every, pivot] = line


def _worth(swept: Float64[Tensor, "rows m m"], scale: Float64[Tensor, "rows n"], opened: Bool[Tensor, "rows n"]) -> tuple[Tensor, Tensor]:
    """Computes what each open gate takes from the error and each closed one would, and which closed ones are not spanned."""
    n = scale.shape[1]
    # Of open gates -diagonal is the inverse's, and last the coefficients; of closed ones what is not spanned, and the residual's products.
    diagonal, last = swept.diagonal(dim1=1, dim2=2)[:, :n], swept[:, :n, n]
    free = ~opened & (diagonal > _SPANNED * scale)
    return last.square() / torch.where(opened, -diagonal, torch.where(free, diagonal, 1.0)), free


def _best_flip(
    swept: Float64[Tensor, "rows m m"],
    scale: Float64[Tensor, "rows n"],
    opened: Bool[Tensor, "rows n"],
    prunable: Bool[Tensor, " n"],
    alpha: float,
) -> tuple[Tensor, Tensor]:
    """Returns what the best flip of one gate gains, and which gate it is."""
    worth, free = _worth(swept, scale, opened)
    flips = torch.where(opened & prunable, alpha - worth, torch.where(free & prunable, worth - alpha, -torch.inf))
    return flips.max(1)


def _best_exchange(
    swept: Float64[Tensor, "rows m m"], scale: Float64[Tensor, "rows n"], opened: Bool[Tensor, "rows n"], prunable: Bool[Tensor, " n"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what the best exchange gains, the open gate and the closed one.

    The open gate is closed first: what the other one adds is then larger, and the sweep at it better conditioned.
    """
    n = scale.shape[1]
    worth, free = _worth(swept, scale, opened)
    links, last, diagonal = swept[:, :n, :n], swept[:, :n, n], swept.diagonal(dim1=1, dim2=2)[:, :n]
    inverse = torch.where(opened, -diagonal, 1.0)[:, None]
    gained = torch.addcmul(last[:, :, None], links, last[:, None] / inverse).square_()
    gained /= torch.addcmul(torch.where(free, diagonal, 1.0)[:, :, None], links, links / inverse)
    gained -= worth[:, None]
    gained.masked_fill_(~((free & prunable)[:, :, None] & (opened & prunable)[:, None]), -torch.inf)
    gain, place = gained.flatten(1).max(1)
    return gain, place % n, place // n
