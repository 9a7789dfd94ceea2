"""Checks of the data that the solvers for linear models take."""

import torch
from jaxtyping import Shaped
from torch import Tensor


def linear_inputs(
    X: Shaped[Tensor, "samples n"],  # noqa: N803  # the paper's letter
    y: Shaped[Tensor, "samples"],
) -> tuple[Tensor, Tensor, torch.dtype]:
    """Checks the data of a linear model, and turns them into float64.

    Args:
        X: inputs, one row per sample.
        y: targets.

    Returns:
        X and y in float64, and the type for coefficients: that of X, or float64 where X holds no fractions.

    Raises:
        ValueError: X and y are not [samples, n] and [samples] with at least one sample, or hold NaN or infinity.
        TypeError: X or y is complex.
    """
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or not len(X):
        raise ValueError(f"X has the shape {list(X.shape)} and y {list(y.shape)}: expected [samples, n] and [samples], not empty")
    if X.is_complex() or y.is_complex():
        raise TypeError(f"X is {X.dtype} and y {y.dtype}: expected real numbers")
    if not bool(X.isfinite().all() & y.isfinite().all()):
        raise ValueError("X or y holds NaN or infinity: remove those samples")
    return X.double(), y.double(), X.dtype if X.is_floating_point() else torch.float64
