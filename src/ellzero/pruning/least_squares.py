"""Sparse least squares, many rows over one set of inputs: which weights to remove, and what the others become.

Row k wants the fewest w_kj with ||Y_k - w_k X||^2 small. With the mask given, that is a linear system in the Gram matrix H = X X^T. Without
it, weights are removed one by one, each time the one whose removal costs least once all others have adapted: w_j^2 / (H^-1)_jj (Hassibi,
Stork, Second order derivatives for network pruning: optimal brain surgeon, 1993; row by row: Frantar, Alistarh, Optimal brain compression,
2022).

The rows may be in groups of equal size, one after the other, each with inputs and a Gram matrix of its own.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

_BLOCK = 64
"""Columns removed between two updates of the inverse matrices, so that those are matrix products."""

_CHUNK_ENTRIES = 1 << 22
"""Entries of the inverse matrices held at once: 32 MiB."""


class Elimination(NamedTuple):
    """In which order the weights of each row go, and the squared error that each removal adds."""

    order: Int64[Tensor, "rows steps"]
    cost: Float64[Tensor, "rows steps"]


def damped(gram: Float64[Tensor, "*groups n n"], damping: float) -> Float64[Tensor, "*groups n n"]:
    """Adds `damping` times the mean of the diagonal to the diagonal, so that the matrices can be inverted whatever the inputs were."""
    mean = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return gram + damping * torch.where(mean > 0, mean, 1.0) * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)


def times(weight: Float64[Tensor, "rows n"], gram: Float64[Tensor, "*groups n n"]) -> Float64[Tensor, "rows n"]:
    """Multiplies each row with the Gram matrix of its group."""
    return (weight.unflatten(0, (gram.shape[:-2].numel(), -1)) @ gram.reshape(-1, *gram.shape[-2:])).flatten(0, 1)


def groups_of_rows(weight: Float64[Tensor, "rows n"], gram: Float64[Tensor, "*groups n n"]) -> Int64[Tensor, " rows"]:
    """Numbers the group of each row."""
    return torch.arange(len(weight), device=weight.device) // (len(weight) // gram.shape[:-2].numel())


def eliminate(weight: Float64[Tensor, "rows n"], gram: Float64[Tensor, "*groups n n"], prunable: Bool[Tensor, " n"]) -> Elimination:
    """Removes the weights of each row one by one, always the cheapest after the others have adapted, until none is left.

    The cost is rows * n^3 operations, in n steps of a few batched ones.

    Args:
        weight: the weights that leave the least error while all may be used: where y = w X, w itself.
        gram: X X^T, positive definite.
        prunable: which columns may be removed.

    Returns:
        Order and costs; zeros come first, at cost 0.
    """
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram)).reshape(-1, *gram.shape[-2:])
    rows = max(1, _CHUNK_ENTRIES // gram.shape[-1] ** 2)
    chunks = zip(weight.split(rows), groups_of_rows(weight, gram).split(rows), strict=True)
    parts = [_eliminate(part, inverse[groups], prunable) for part, groups in chunks]
    return Elimination(torch.cat([part.order for part in parts]), torch.cat([part.cost for part in parts]))


def _eliminate(weight: Float64[Tensor, "rows n"], inverses: Float64[Tensor, "rows n n"], prunable: Bool[Tensor, " n"]) -> Elimination:
    rows, n = weight.shape
    every = torch.arange(rows, device=weight.device)
    left = weight.clone()
    columns = torch.arange(n, device=weight.device).expand(rows, n)
    fixed = ~prunable.expand(rows, n)
    order: list[Tensor] = []
    cost: list[Tensor] = []
    steps = int(prunable.sum())
    while len(order) < steps:
        block = min(_BLOCK, steps - len(order))
        diagonal = inverses.diagonal(dim1=1, dim2=2).clone()
        gone = torch.zeros_like(fixed)
        # Removing j takes u u^T from the inverse, u = its column j over the root of its entry jj. The block's u are kept and subtracted
        # from a column where it is needed, and from the whole matrix at the end.
        updates = weight.new_empty(rows, block, left.shape[1])
        for k in range(block):
            price, j = (left.square() / diagonal).masked_fill_(gone | fixed, math.inf).min(1)
            column = inverses[every, j]
            if k:
                column = column - torch.bmm(updates[every, :k, j][:, None], updates[:, :k])[:, 0]
            update = column / column[every, j].clamp_min(1e-300).sqrt()[:, None]
            left -= update * (left[every, j] / update[every, j])[:, None]
            left[every, j] = 0
            diagonal = (diagonal - update.square()).clamp_min_(1e-300)
            updates[:, k] = update
            gone[every, j] = True
            order.append(columns[every, j])
            cost.append(price)
        stay = (~gone).nonzero()[:, 1].view(rows, -1)
        updates = updates.gather(2, stay[:, None].expand(-1, block, -1))
        inverses = inverses[every[:, None, None], stay[:, :, None], stay[:, None]].baddbmm_(updates.mT, updates, alpha=-1)
        left, columns, fixed = (tensor.gather(1, stay) for tensor in (left, columns, fixed))
    if not order:
        return Elimination(torch.empty(rows, 0, dtype=torch.int64), weight.new_empty(rows, 0))
    return Elimination(torch.stack(order, 1), torch.stack(cost, 1))


def mask_after(elimination: Elimination, counts: Int64[Tensor, " rows"], n: int) -> Bool[Tensor, "rows n"]:
    """Builds the mask of what is left of n weights per row after the first `counts[k]` removals of row k."""
    order = elimination.order
    mask = torch.ones(len(order), n, dtype=torch.bool, device=order.device)
    return mask.scatter_(1, order, torch.arange(order.shape[1], device=order.device) >= counts[:, None])


def refit(
    gram: Float64[Tensor, "*groups n n"], cross: Float64[Tensor, "rows n"], mask: Bool[Tensor, "rows n"]
) -> Float64[Tensor, "rows n"]:
    """Solves for the weights of every row that minimise w H w^T - 2 c w^T among those in a mask; the others are exactly 0.

    Args:
        gram: H = X X^T, positive definite.
        cross: c = Y X^T.
        mask: which weights may be used.
    """
    grams, n = gram.reshape(-1, *gram.shape[-2:]), gram.shape[-1]
    solved: list[Tensor] = []
    rows = max(1, _CHUNK_ENTRIES // n**2)
    for used, right, groups in zip(
        mask.to(gram.dtype).split(rows), cross.split(rows), groups_of_rows(cross, gram).split(rows), strict=True
    ):
        # A removed weight's row and column are those of the identity, so that all rows are systems of one size.
        system = grams[groups] * used[:, :, None] * used[:, None] + torch.diag_embed(1 - used)
        solved.append(torch.cholesky_solve((right * used)[:, :, None], torch.linalg.cholesky(system))[:, :, 0] * used)
    return torch.cat(solved)


def squared_error(change: Float64[Tensor, "rows n"], gram: Float64[Tensor, "*groups n n"]) -> Float64[Tensor, " rows"]:
    """Computes ||d X||^2 of each row of a change of weights."""
    return (times(change, gram) * change).sum(1)
