"""Linear maps as a pair of functions, the map and its adjoint: the constraint matrices of ADMM (eq. 24)."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class LinearOperator:
    """A linear map from vectors of n to vectors of m numbers.

    Both functions map the last dimension and keep all others, so that many vectors go through at once.

    Attributes:
        apply: x -> A x.
        adjoint: y -> A^T y.
    """

    apply: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


IDENTITY = LinearOperator(apply=_same, adjoint=_same)
"""The identity, for which the z-step of ADMM has a closed form."""


def dense_operator(matrix: Float[Tensor, "m n"]) -> LinearOperator:
    """Makes the operator of a matrix.

    Args:
        matrix: A; kept, not copied.
    """
    return LinearOperator(apply=lambda x: x @ matrix.T, adjoint=lambda y: y @ matrix)
