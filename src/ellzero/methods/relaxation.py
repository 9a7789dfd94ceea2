"""Smooth wells that stand in for the indicator of a non-zero weight: eq. 39 (which is eq. 11), eq. 40 and eq. 41.

`beta` is the inverse width of the well in all of them, so that each of them tends to the indicator as beta grows. The paper prints the
width itself in eq. 40 and 41: its beta there is `1 / beta` here.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ellzero.methods.foreach import exponential_into_


@runtime_checkable
class Relaxation(Protocol):
    """A function of a weight's magnitude that is 0 at 0 and tends to 1."""

    @property
    def concave(self) -> bool:
        """Whether the tangent at any magnitude lies above the well, which the proximal form needs."""
        ...

    def value(self, magnitude: Float[Tensor, "*shape"], beta: float) -> Float[Tensor, "*shape"]:
        """Computes the well at a `magnitude` of at least 0, differentiably; this is the definition."""
        ...

    def steepness(self, beta: float) -> float:
        """Returns the constant factor of the slope, which `slopes_into_` leaves out."""
        ...

    def slopes_into_(self, outputs: list[Tensor], tensors: list[Tensor], beta: float) -> None:
        """Writes the derivative of `value` at the magnitude of `tensors`, over `steepness(beta)`, into tensors like them."""
        ...


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """`1 - exp(-beta * |theta|)` (eq. 39): steepest at 0, the form of the paper's experiments."""

    @property
    def concave(self) -> bool:
        """Whether the tangent lies above the well: it does, everywhere."""
        return True

    def value(self, magnitude: Float[Tensor, "*shape"], beta: float) -> Float[Tensor, "*shape"]:
        """Computes `1 - exp(-beta * magnitude)`."""
        # expm1 keeps the many terms near 0 exact where 1 - exp would cancel.
        return -torch.expm1(-beta * magnitude)

    def steepness(self, beta: float) -> float:
        """Returns `beta`."""
        return beta

    def slopes_into_(self, outputs: list[Tensor], tensors: list[Tensor], beta: float) -> None:
        """Writes `exp(-beta * |theta|)`."""
        exponential_into_(outputs, tensors, beta)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """`1 - exp(-(beta * theta)^2 / 2)` (eq. 40): flat at 0, so that a weight may change its sign, steepest at `1 / beta`."""

    @property
    def concave(self) -> bool:
        """Whether the tangent lies above the well: not up to `1 / beta`, where the well is convex."""
        return False

    def value(self, magnitude: Float[Tensor, "*shape"], beta: float) -> Float[Tensor, "*shape"]:
        """Computes `1 - exp(-(beta * magnitude)^2 / 2)`."""
        return -torch.expm1(-0.5 * (beta * magnitude).square())

    def steepness(self, beta: float) -> float:
        """Returns `beta^2`."""
        return beta * beta

    def slopes_into_(self, outputs: list[Tensor], tensors: list[Tensor], beta: float) -> None:
        """Writes `|theta| * exp(-(beta * theta)^2 / 2)`."""
        _squares_into_(outputs, tensors)
        torch._foreach_mul_(outputs, -0.5 * beta * beta)
        torch._foreach_exp_(outputs)
        torch._foreach_mul_(outputs, tensors)
        torch._foreach_abs_(outputs)


@dataclass(frozen=True, kw_only=True)
class Rational:
    """`1 - 1 / (1 + (beta * theta)^2 / 3)` (eq. 41), after Student's t: flat at 0, with a heavy tail that still pulls far out."""

    @property
    def concave(self) -> bool:
        """Whether the tangent lies above the well: not up to `1 / beta`, where the well is convex."""
        return False

    def value(self, magnitude: Float[Tensor, "*shape"], beta: float) -> Float[Tensor, "*shape"]:
        """Computes `r / (1 + r)` with `r = (beta * magnitude)^2 / 3`, which is eq. 41 without its cancellation near 0."""
        r = (beta * magnitude).square() / 3.0
        return r / (1.0 + r)

    def steepness(self, beta: float) -> float:
        """Returns `2 * beta^2 / 3`."""
        return 2.0 * beta * beta / 3.0

    def slopes_into_(self, outputs: list[Tensor], tensors: list[Tensor], beta: float) -> None:
        """Writes `|theta| / (1 + (beta * theta)^2 / 3)^2`."""
        _squares_into_(outputs, tensors)
        torch._foreach_mul_(outputs, beta * beta / 3.0)
        torch._foreach_add_(outputs, 1.0)
        torch._foreach_mul_(outputs, outputs)
        torch._foreach_reciprocal_(outputs)
        torch._foreach_mul_(outputs, tensors)
        torch._foreach_abs_(outputs)


def _squares_into_(outputs: list[Tensor], tensors: list[Tensor]) -> None:
    torch._foreach_copy_(outputs, tensors)
    torch._foreach_mul_(outputs, outputs)
