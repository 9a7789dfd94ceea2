"""Soft thresholding, the proximal step of a weighted l1 norm."""

import torch
from torch import Tensor


def soft_threshold_(tensors: list[Tensor], thresholds: list[Tensor], temporaries: list[Tensor]) -> None:
    """Moves every element towards 0 by its threshold, and to exactly 0 where the threshold is at least its magnitude.

    Computes `x - clamp(x, -t, t)`, the minimiser over z of `(z - x)^2 / 2 + t * |z|`, because `x - x` is exactly 0.

    Args:
        tensors: what is thresholded in place, outside autograd.
        thresholds: thresholds of the same shapes, not negative; overwritten.
        temporaries: room of the same shapes; overwritten.
    """
    torch._foreach_copy_(temporaries, tensors)
    torch._foreach_minimum_(temporaries, thresholds)
    torch._foreach_neg_(thresholds)
    torch._foreach_maximum_(temporaries, thresholds)
    torch._foreach_sub_(tensors, temporaries)
