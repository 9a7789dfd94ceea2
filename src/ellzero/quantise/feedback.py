"""Rounding with feedback: each weight's rounding error is made up for by the weights that are still to be rounded.

A layer's outputs change by (Q - W) X where weights W become Q. Rounding column by column, the best that the later columns can do about the
error of an earlier one is linear in it, by the inverse of the Gram matrix H = X X^T (Hassibi, Stork, Second order derivatives for network
pruning: optimal brain surgeon, 1993; for rounding, in one pass with a Cholesky factor: Frantar, Ashkboos, Hoefler, Alistarh, GPTQ, 2022).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

_BLOCK = 64
"""Columns after which the error is passed on to all later ones, so that most of the work is products of matrices."""

_LARGEST = 4096
"""Magnitudes above this count as many bits as it does while weights are rounded."""


class GramFactor(NamedTuple):
    """What rounding needs of a Gram matrix.

    Attributes:
        upper: U with H^-1 = U^T U; U_jj^-2 is what of column j the columns after it cannot make up for.
        gram: H as it was observed.
    """

    upper: Float64[Tensor, "groups n n"]
    gram: Float64[Tensor, "groups n n"]

    @property
    def left(self) -> Float64[Tensor, "groups n"]:
        """How much a squared error in each column counts once all later columns have adapted."""
        return self.upper.diagonal(dim1=1, dim2=2) ** -2


@dataclass(frozen=True, kw_only=True)
class RoundingPrice:
    """What bits are worth while rounding: of a weight's neighbouring levels, the one with the least loss + nats_per_bit * bits is taken.

    Attributes:
        curvature: the second derivative of the loss by a weight, over the variance of its input, in nats.
        nats_per_bit: the exchange rate.
    """

    curvature: float
    nats_per_bit: float


def factorise(gram: Float64[Tensor, "groups n n"], damping: float) -> GramFactor:
    """Inverts and factorises a Gram matrix.

    Args:
        gram: X X^T over positions, one matrix per group of channels.
        damping: added to the diagonal, as a fraction of its mean, so that directions without inputs here still count.
    """
    mean = gram.diagonal(dim1=1, dim2=2).mean(1)
    # Groups that are dead beside others are damped by a little of what those have.
    mean = mean.clamp_min(max(1e-6 * float(mean.mean()), 1e-30))
    identity = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram + damping * mean[:, None, None] * identity))
    return GramFactor(torch.linalg.cholesky(inverse, upper=True), gram)


def round_with_feedback(
    weight: Float64[Tensor, "groups rows n"], factor: GramFactor, step: float, price: RoundingPrice | None = None
) -> Float64[Tensor, "groups rows n"]:
    """Rounds weights to multiples of a step. Those that are exactly zero stay so: what was pruned is not revived to make up for others.

    Args:
        weight: the weights, rows of a group sharing its inputs.
        factor: of their inputs.
        step: of the grid.
        price: what bits are worth; None to round to the nearest.

    Returns:
        Whole numbers. Without a price, no row has a larger squared error of its outputs than plain rounding leaves it; with one, no row
        with zeros costs more than rounding each weight by itself does.
    """
    plain = torch.round(weight / step)
    if price is not None:
        # The levels that plain rounding gives say what levels cost, and those that come of it say it better.
        levels = _round(weight, factor.upper, step, price, bits_of_levels(plain))
        bits = bits_of_levels(levels)
        levels = _round(weight, factor.upper, step, price, bits)
        pruned = (weight == 0).any(2)
        if not bool(pruned.any()):
            return levels
        # Feedback counts on all later weights, and those that are zero do not move.
        scale = factor.gram.diagonal(dim1=1, dim2=2).clamp_min(1e-30)[:, None].rsqrt().expand_as(weight)
        alone = _cheapest(weight, plain, scale, step, price, bits)
        dearer = _price(weight, levels, factor, step, price, bits) > _price(weight, alone, factor, step, price, bits)
        return torch.where((pruned & dearer)[:, :, None], alone, levels)
    levels = _round(weight, factor.upper, step, None, None)
    worse = _error(weight - levels * step, factor.gram) > _error(weight - plain * step, factor.gram)
    return torch.where(worse[:, :, None], plain, levels)


def bits_of_levels(levels: Float64[Tensor, "*shape"]) -> Float64[Tensor, " sizes"]:
    """Estimates the bits of each magnitude, its sign included, from how often it occurs, smoothed by a geometric distribution."""
    sizes = levels.abs().flatten().clamp(max=_LARGEST).long()
    counts = torch.bincount(sizes).double()
    counts = torch.cat((counts, counts.new_zeros(64)))
    mean = float(sizes.double().mean())
    expected = (mean / (1 + mean)) ** torch.arange(len(counts), dtype=torch.float64, device=counts.device) / (1 + mean)
    bits = -((counts + 8 * expected.clamp_min(1e-12)) / (len(sizes) + 8)).log2()
    bits[1:] += 1
    return bits


def _round(weight: Tensor, upper: Tensor, step: float, price: RoundingPrice | None, bits: Tensor | None) -> Tensor:
    left, levels, n, zero = weight.clone(), torch.empty_like(weight), weight.shape[2], weight == 0
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block, errors = left[:, :, start:stop], torch.empty_like(left[:, :, start:stop])
        own = upper[:, start:stop, start:stop]
        for j in range(stop - start):
            level = torch.round(block[:, :, j] / step)
            if price is not None and bits is not None:
                level = _cheapest(block[:, :, j], level, own[:, None, j, j], step, price, bits)
            level = torch.where(zero[:, :, start + j], 0.0, level)
            levels[:, :, start + j] = level
            error = (block[:, :, j] - level * step) / own[:, None, j, j]
            block[:, :, j:] -= error[:, :, None] * own[:, j, None, j:]
            errors[:, :, j] = error
        left[:, :, stop:] -= errors @ upper[:, start:stop, stop:]
    return levels


def _cheapest(weight: Tensor, nearest: Tensor, scale: Tensor, step: float, price: RoundingPrice, bits: Tensor) -> Tensor:
    """Chooses among the nearest level, the next one toward zero, and zero."""
    candidates = torch.stack((nearest, nearest - nearest.sign(), torch.zeros_like(nearest)))
    loss = ((weight - candidates * step) / scale).square() * (price.curvature / 2)
    bits_in_nats = bits[candidates.abs().clamp(max=len(bits) - 1).long()] * price.nats_per_bit
    return candidates.gather(0, (loss + bits_in_nats).argmin(0, keepdim=True))[0]


def _price(weight: Tensor, levels: Tensor, factor: GramFactor, step: float, price: RoundingPrice, bits: Tensor) -> Tensor:
    """Computes what the levels of each row cost: the loss, and the bits at their price."""
    bits_in_nats = bits[levels.abs().clamp(max=len(bits) - 1).long()].sum(2) * price.nats_per_bit
    return _error(weight - levels * step, factor.gram) * (price.curvature / 2) + bits_in_nats


def _error(change: Tensor, gram: Tensor) -> Tensor:
    return ((change @ gram) * change).sum(2)
