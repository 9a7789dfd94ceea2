"""The formulas of PMMP (eq. 10): the constraint, the exact step, and gradients in closed form."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def constraint(theta: Float[Tensor, "*shape"], w: Float[Tensor, "*shape"], gamma: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Computes `(theta - w * gamma)^2 + w^2 * gamma * (1 - gamma)`, the expectation of `(theta - w * z)^2` (Lemma 2.3).

    Not negative, and 0 only where gamma is 0 or 1 and theta equals w * gamma (or w and theta are 0). Least at w = theta, where it is
    `theta^2 * (1 - gamma)`.

    Args:
        theta: the network's weights.
        w: weights behind the gates.
        gamma: probability that each gate is open.
    """
    return (theta - w * gamma).square() + w.square() * gamma * (1.0 - gamma)


def exact_gamma(
    theta: Float[Tensor, "*shape"], u: Float[Tensor, "*shape"], *, alpha: float, multiplier: float = 1.0
) -> Float[Tensor, "*shape"]:
    """Computes the gamma that minimises eq. 10 together with w = theta: 1 where `m * u * theta^2 > alpha`, 0 elsewhere.

    With w = theta the objective is `alpha * gamma + m * u * theta^2 * (1 - gamma)`, linear in gamma. In a tie every gamma is a minimum,
    and the closed gate is chosen.

    Args:
        theta: the network's weights.
        u: multipliers.
        alpha: price of a weight.
        multiplier: m.
    """
    return (multiplier * u * theta.square() > alpha).to(theta.dtype)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tensors of several parameters, as lists in one order: what the formulas below are written in."""

    theta: list[Tensor]
    w: list[Tensor]
    gamma: list[Tensor]
    u: list[Tensor]


def differences_into_(outputs: list[Tensor], block: Block) -> None:
    """Writes `theta - w * gamma`."""
    torch._foreach_copy_(outputs, block.w)
    torch._foreach_mul_(outputs, block.gamma)
    torch._foreach_neg_(outputs)
    torch._foreach_add_(outputs, block.theta)


def descents_into_(for_w: list[Tensor], for_gamma: list[Tensor], block: Block, *, alpha: float, multiplier: float) -> None:
    """Writes the gradients of eq. 10 in w, `2 m u gamma (w - theta)`, and in gamma, `alpha + m u w (w - 2 theta)`."""
    torch._foreach_copy_(for_w, block.w)
    torch._foreach_sub_(for_w, block.theta)
    torch._foreach_copy_(for_gamma, for_w)
    torch._foreach_sub_(for_gamma, block.theta)
    torch._foreach_mul_(for_w, block.gamma)
    torch._foreach_mul_(for_w, block.u)
    torch._foreach_mul_(for_w, 2.0 * multiplier)
    torch._foreach_mul_(for_gamma, block.w)
    torch._foreach_mul_(for_gamma, block.u)
    torch._foreach_mul_(for_gamma, multiplier)
    torch._foreach_add_(for_gamma, alpha)


def ascents_into_(for_u: list[Tensor], differences: list[Tensor], block: Block, *, multiplier: float) -> None:
    """Writes the negative gradient of eq. 10 in u, `-m ((theta - w gamma)^2 + w^2 gamma (1 - gamma))`: descending it ascends u.

    Args:
        for_u: where it is written.
        differences: `theta - w * gamma`, not written to.
        block: the point.
        multiplier: m.
    """
    # A sum of two terms that are not negative: u cannot fall by rounding, as it could in the shorter theta^2 + gamma w (w - 2 theta).
    torch._foreach_copy_(for_u, block.gamma)
    torch._foreach_neg_(for_u)
    torch._foreach_add_(for_u, 1.0)
    torch._foreach_mul_(for_u, block.gamma)
    torch._foreach_mul_(for_u, block.w)
    torch._foreach_mul_(for_u, block.w)
    torch._foreach_addcmul_(for_u, differences, differences)
    torch._foreach_mul_(for_u, -multiplier)
