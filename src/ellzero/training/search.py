"""The search over log alpha for the sparsest network within a tolerated error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ellzero.targets import ErrorIncrease


@dataclass(frozen=True, kw_only=True)
class Try:
    """One value of alpha and its result.

    Attributes:
        alpha: the penalty's strength.
        accepted: whether the target was met.
        error_increase: validation error less the dense network's, as a fraction; None where the network collapsed.
        nonzeros: non-zero trainable scalars of the whole network; 0 where it collapsed.
        warm_start: alpha of the try whose weights this try started from; None for the dense network.
        note: what went wrong, where something did.
    """

    alpha: float
    accepted: bool
    error_increase: float | None
    nonzeros: int
    warm_start: float | None = None
    note: str = ""


_FIRST_STEP, _LARGEST_STEP = 4.0, 16.0
"""Factors of the outward search: a first alpha is often wrong by orders of magnitude, and each factor of 2 would cost a training."""


def next_alpha(tries: Sequence[Try], first: float, target: ErrorIncrease) -> float | None:
    """Proposes the next alpha: outwards in growing steps until accepted and refused values bracket the answer, then the mean of their logs.

    The steps are a factor of 4, then of 16 each.

    Args:
        tries: the tries made so far.
        first: the first value of alpha.
        target: limits the number of tries, and says when to stop.

    Returns:
        The next alpha; None when the search is over.
    """
    if len(tries) >= target.tries:
        return None
    if not tries:
        return first
    low, high = _bracket(tries)
    step = _FIRST_STEP if len(tries) == 1 else _LARGEST_STEP
    if low is None:
        return min(attempt.alpha for attempt in tries) / step
    if high is None:
        return low * step
    return None if high / low <= target.resolution else math.sqrt(low * high)


def bracket_closed(tries: Sequence[Try], target: ErrorIncrease) -> bool:
    """Decides whether an accepted and a refused alpha lie within the target's resolution of each other."""
    low, high = _bracket(tries)
    return low is not None and high is not None and high / low <= target.resolution


def _bracket(tries: Sequence[Try]) -> tuple[float | None, float | None]:
    """Returns the highest accepted alpha and the lowest refused alpha above it; None where there is no such try."""
    low = max((attempt.alpha for attempt in tries if attempt.accepted), default=None)
    # Noise can refuse a value below an accepted value, which says nothing then.
    refused = [attempt.alpha for attempt in tries if not attempt.accepted and (low is None or attempt.alpha > low)]
    return low, min(refused, default=None)


def best_try(tries: Sequence[Try]) -> Try:
    """Returns the accepted try with the fewest non-zeros, or, where none was accepted, the try with the least error."""
    accepted = [attempt for attempt in tries if attempt.accepted]
    if accepted:
        return min(accepted, key=lambda attempt: attempt.nonzeros)
    return min(tries, key=lambda attempt: math.inf if attempt.error_increase is None else attempt.error_increase)
