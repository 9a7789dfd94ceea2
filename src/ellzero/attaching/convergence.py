"""When to stop a phase: the noise-aware saturation of a loss (appendix G), and of the active set of R-L1 (section 2.2.2)."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

_SHORTEST_WINDOW = 6
"""With fewer than three values per half, the smoothing has no neighbours."""


def saturated(losses: Sequence[float], window: int, deviation: float = 1e-10) -> bool:
    """Decides whether a noisy loss curve has stopped falling (appendix G).

    The last `window` values are split into an older and a newer half. The curve is saturated if the newer half's mean is not below the
    older one's by more than the noise: the smaller of the two sample standard deviations of the values about their own smoothed curve,
    so that the trend within a half is not taken for noise.

    Args:
        losses: the logged loss without the penalty, one value per epoch, oldest first; training or validation.
        window: the smoothing window length w of the paper, even, in epochs.
        deviation: what the mean may fall beyond the noise and still count as saturated, in the unit of the loss. The default only
            absorbs rounding; a larger one gives an earlier, coarser criterion.

    Returns:
        False where there are fewer than `window` values.

    Raises:
        ValueError: `window` is odd or below 6, or a loss within the window is not finite.
    """
    if window % 2 or window < _SHORTEST_WINDOW:
        raise ValueError(f"window is {window}: expected an even number of epochs, at least {_SHORTEST_WINDOW}")
    if len(losses) < window:
        return False
    last = np.asarray(losses[-window:], dtype=np.float64)
    if not np.isfinite(last).all():
        raise ValueError(f"the loss is {last[~np.isfinite(last)][0]} within the last {window} epochs: lower the learning rate or alpha")
    older, newer = np.split(last, 2)
    noise = min(float(np.std(half - smooth(half), ddof=1)) for half in (older, newer))
    return float(older.mean() - newer.mean()) <= noise + deviation


def smooth(values: Float[np.ndarray, "times"]) -> Float[np.ndarray, "times"]:
    """Smooths equally spaced values by local linear regression with Epanechnikov weights.

    Time runs over [0, 1]; values at a distance of z bandwidths weigh 0.75 (1 - z^2), and 0 beyond z = 1. The bandwidth is
    n^(-1/5) n^(-3/35) (ln n)^(-1/16), that of the routine the paper used (Liang and Wu, "Parameter estimation for differential
    equation models using a framework of measurement error in regression models", 2008).

    Args:
        values: the values, at least 3.

    Returns:
        The smoothed curve at the same times.
    """
    n = len(values)
    times = np.linspace(0, 1, n)
    bandwidth = n ** (-1 / 5) * n ** (-3 / 35) * math.log(n) ** (-1 / 16)
    distances = times[None, :] - times[:, None]
    kernel = 0.75 * np.clip(1 - np.square(distances / bandwidth), 0, None)
    # The fit at each time is the intercept of a weighted least-squares line in the distance from it, by the normal equations.
    moment0, moment1, moment2 = (np.sum(kernel * distances**power, axis=1) for power in range(3))
    # Deviations from the mean keep the sums small, so that a large constant in the loss costs no digits of the noise.
    mean = values.mean()
    target0, target1 = kernel @ (values - mean), (kernel * distances) @ (values - mean)
    return mean + (moment2 * target0 - moment1 * target1) / (moment0 * moment2 - moment1**2)


def active_set_change(before: Bool[np.ndarray, "weights"], after: Bool[np.ndarray, "weights"]) -> float:
    """Computes the share of the active set, the weights above a small threshold, that was exchanged between two epochs.

    Args:
        before: which weights were active at the earlier epoch.
        after: which weights are active at the later epoch.

    Returns:
        The Jaccard distance |before xor after| / |before or after|, in [0, 1]; 0 where both are empty.
    """
    either = np.count_nonzero(before | after)
    return float(np.count_nonzero(before ^ after) / either) if either else 0.0


def active_set_saturated(changes: Sequence[float], window: int, tolerance: float = 0.01) -> bool:
    """Decides whether R-L1's active set has converged, so that the l1 penalty can be lifted (section 2.2.2).

    The paper asks that all parameters that are supposed to be 0 are close to 0 and names no test. Here: the changes of the last
    `window` epochs sum to at most `tolerance`. The Jaccard distance is a metric, so the set then differs from that `window` epochs ago
    by no more than that; weights that merely flicker across the threshold count every time, which errs towards training longer.
    Choose the threshold above the oscillation of weights that the penalty holds at 0, about the learning rate for a penalty in Adam's
    gradient; any positive one does where the method gives exact zeros.

    Args:
        changes: `active_set_change` of each epoch against the previous epoch, oldest first.
        window: number of latest epochs that count.
        tolerance: the largest share of the active set exchanged within the window, in [0, 1].

    Returns:
        False where there are fewer than `window` changes.

    Raises:
        ValueError: `window` is not positive or `tolerance` is outside [0, 1].
    """
    if window < 1:
        raise ValueError(f"window is {window}: expected at least 1 epoch")
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance is {tolerance}: expected a share of the active set in [0, 1]")
    return len(changes) >= window and math.fsum(changes[-window:]) <= tolerance
