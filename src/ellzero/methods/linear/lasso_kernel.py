# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Cyclic coordinate descent for the lasso, compiled."""

import numpy as np
from numpy.typing import NDArray

from ellzero.jit.kernels import Integer, kernel

Doubles = NDArray[np.float64]


@kernel
def descend_(G: Doubles, r: Doubles, theta: Doubles, threshold: float, tolerance: float, max_sweeps: Integer) -> float:  # noqa: N803
    """Moves the coefficients in turn to their minima, until the conditions of optimality hold.

    Args:
        G: X'X, float64, n x n.
        r: X'(y - X theta), n; kept up to date.
        theta: the coefficients, n; moved.
        threshold: half the price of a unit of the l1 norm.
        tolerance: how far a condition may be missed, in units of r.
        max_sweeps: passes over all coefficients at most.

    Returns:
        The largest miss at the end.
    """
    n = np.int64(theta.shape[0])
    missed = np.float64(np.inf)
    for _ in range(np.int64(max_sweeps)):
        for j in range(n):
            curvature = np.float64(G[j, j])
            if curvature <= np.float64(0.0):
                theta[j] = np.float64(0.0)
                continue
            alone = np.float64(r[j] + curvature * theta[j])
            moved = np.float64(0.0)
            if alone > threshold:
                moved = np.float64((alone - threshold) / curvature)
            elif alone < -threshold:
                moved = np.float64((alone + threshold) / curvature)
            step = np.float64(moved - theta[j])
            if step != np.float64(0.0):
                for i in range(n):
                    r[i] -= G[j, i] * step
                theta[j] = moved
        missed = np.float64(0.0)
        for j in range(n):
            if theta[j] > np.float64(0.0):
                miss = np.float64(abs(r[j] - threshold))
            elif theta[j] < np.float64(0.0):
                miss = np.float64(abs(r[j] + threshold))
            else:
                miss = np.float64(abs(r[j]) - threshold)
            missed = max(missed, miss)
        if missed <= tolerance:
            break
    return missed
