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


def next_alpha(tries: Sequence[Try], first: float, target: ErrorIncrease, factor: float = 2.0) -> float | None:
    """Proposes the next alpha: outwards by `factor` until accepted and refused values bracket the answer, then the mean of their logs.

    Args:
        tries: the tries made so far.
        first: the first value of alpha.
        target: limits the number of tries, and says when to stop.
        factor: step of the outward search.

    Returns:
        The next alpha; None when the search is over.
    """
    if len(tries) >= target.tries:
        return None
    if not tries:
        return first
    accepted = [attempt.alpha for attempt in tries if attempt.accepted]
    refused = [attempt.alpha for attempt in tries if not attempt.accepted]
    if not refused:
        return max(accepted) * factor
    if not accepted:
        return min(refused) / factor
    # Noise can refuse a value below an accepted value: the bracket is the highest accepted and the lowest refused above it.
    low = max(accepted)
    above = [alpha for alpha in refused if alpha > low]
    if not above:
        return low * factor
    high = min(above)
    if high / low <= target.resolution:
        return None
    return math.sqrt(low * high)


def best_try(tries: Sequence[Try]) -> Try:
    """Returns the accepted try with the fewest non-zeros, or, where none was accepted, the try with the least error."""
    accepted = [attempt for attempt in tries if attempt.accepted]
    if accepted:
        return min(accepted, key=lambda attempt: attempt.nonzeros)
    return min(tries, key=lambda attempt: math.inf if attempt.error_increase is None else attempt.error_increase)
