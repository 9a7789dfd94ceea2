"""Expectations over Bernoulli gates in closed form, and the sum over all gates that they are checked against.

A gate `z` in {0, 1}^n is drawn from the product of Bernoulli distributions with parameters `gamma` in [0, 1]^n, and theta = w * z.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ellzero.types import Scalar

_MOST_GATES = 20
"""2^20 gate vectors of 20 float64 take 160 MiB; one more gate doubles that."""


def expected_l0(gamma: Float[Tensor, "..."]) -> Scalar:
    """Computes E[l0(z)] = sum(gamma) (eq. 8).

    Args:
        gamma: probability that each gate is open, any shape.

    Returns:
        The expected number of open gates.
    """
    return gamma.sum()


def expected_squared_error(
    y: Float[Tensor, "samples"], X: Float[Tensor, "samples n"], w: Float[Tensor, "n"], gamma: Float[Tensor, "n"]
) -> Scalar:
    """Computes E[sum_i (y_i - sum_j X_ij w_j z_j)^2] without a sum over gates (Lemma 2.3).

    The first term is the error of the mean gate, the second the variance that the gates add: it vanishes where every gamma is 0 or 1.

    Args:
        y: targets.
        X: inputs, a row a sample.
        w: weights behind the gates.
        gamma: probability that each gate is open.

    Returns:
        The expected squared error, summed over samples.
    """
    error = y - X @ (w * gamma)
    return error.square().sum() + (X.square() @ (w.square() * gamma * (1 - gamma))).sum()


def expected_layer_squared_error(
    y: Float[Tensor, "outputs samples"],
    X: Float[Tensor, "inputs samples"],
    w: Float[Tensor, "outputs inputs"],
    gamma: Float[Tensor, "outputs inputs"],
) -> Scalar:
    """Computes E[sum_ki (y_ki - sum_j w_kj z_kj X_ji)^2], Lemma 2.3 for a whole layer (eq. 38, appendix C.5).

    A bias is a last column of `w` with a row of ones in `X`.

    Args:
        y: what the layer should put out, a column a sample.
        X: activations that enter the layer, a column a sample.
        w: the layer's weights behind the gates.
        gamma: probability that each gate is open.

    Returns:
        The expected squared error, summed over outputs and samples.
    """
    error = y - (w * gamma) @ X
    return error.square().sum() + ((w.square() * gamma * (1 - gamma)) @ X.square()).sum()


def all_gates(n: int, dtype: torch.dtype = torch.float64) -> Float[Tensor, "gates {n}"]:
    """Lists all 2^n gate vectors, in the order of binary counting with the first gate as the lowest bit.

    Args:
        n: number of gates.
        dtype: floating-point type of the zeros and ones.

    Returns:
        One gate vector a row.

    Raises:
        ValueError: `n` is negative or above 20.
    """
    if not 0 <= n <= _MOST_GATES:
        raise ValueError(f"{n} gates cannot be enumerated: pass between 0 and {_MOST_GATES}, as their number is 2^n")
    return (torch.arange(2**n).unsqueeze(1) >> torch.arange(n) & 1).to(dtype)


def expectation_by_enumeration(g: Callable[[Float[Tensor, "gates n"]], Float[Tensor, "gates"]], gamma: Float[Tensor, "n"]) -> Scalar:
    """Computes E[g(z)] as the sum over all 2^n gates: exact for any `g`, and the reference of Proposition 2.2.

    Separately linear in every component of `gamma`, so its minimum over [0, 1]^n is the minimum of `g` over {0, 1}^n (eq. 7).

    Args:
        g: any function of gates, called once with all gate vectors as rows.
        gamma: probability that each gate is open.

    Returns:
        The expectation, differentiable in `gamma`.

    Raises:
        ValueError: there are more than 20 gates.
    """
    gates = all_gates(gamma.numel(), gamma.dtype)
    probabilities = torch.where(gates.bool(), gamma, 1 - gamma).prod(dim=1)
    return probabilities @ g(gates)
