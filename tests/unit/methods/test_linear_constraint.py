"""Why the constraint of eq. 9 is squared (appendix C.3): with a linear one the gates vanish and the weights behind them grow."""

import pytest
import torch
from torch import Tensor

from ellzero.methods import constraint, exact_gamma
from gates import expectation_by_enumeration

ALPHA = 0.1
THETA = torch.tensor([1.5, -0.8, 0.3], dtype=torch.float64)


def linear(theta: Tensor, w: Tensor, gamma: Tensor) -> Tensor:
    """What is left of `theta - w z` in the mean over gates."""
    return theta - w * gamma


def test_the_mean_over_gates_of_a_linear_constraint_has_no_variance_and_that_of_a_squared_one_has() -> None:
    w = torch.tensor([2.0, -1.0, 0.7], dtype=torch.float64)
    gamma = torch.tensor([0.3, 0.9, 0.5], dtype=torch.float64)
    u = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    of_linear = expectation_by_enumeration(lambda z: (THETA - w * z) @ u, gamma)
    of_square = expectation_by_enumeration(lambda z: (THETA - w * z).square() @ u, gamma)
    torch.testing.assert_close(of_linear, linear(THETA, w, gamma) @ u)
    torch.testing.assert_close(of_square, constraint(THETA, w, gamma) @ u)
    assert not torch.allclose(of_square, linear(THETA, w, gamma).square() @ u)


@pytest.mark.parametrize("u", [1.0, 100.0])
def test_along_w_equal_theta_over_gamma_the_linear_objective_falls_to_nothing_and_the_squared_one_rises(u: float) -> None:
    """Every point of the ray is feasible for the linear constraint, so no multiplier can forbid it: its price goes to 0."""
    gammas = [1.0, 1e-1, 1e-2, 1e-4, 1e-8]
    linears, squares = [], []
    for value in gammas:
        gamma = torch.full_like(THETA, value)
        w = THETA / gamma
        linears.append(float(ALPHA * gamma.sum() + u * linear(THETA, w, gamma).sum()))
        squares.append(float(ALPHA * gamma.sum() + u * constraint(THETA, w, gamma).sum()))
    assert linears == pytest.approx([ALPHA * 3 * value for value in gammas], abs=1e-12)
    assert linears[-1] < 1e-8 < ALPHA * 3
    assert squares == sorted(squares)
    assert squares[-1] == pytest.approx(u * float(THETA.square().sum()) * 1e8, rel=1e-6)


@pytest.mark.parametrize("u", [0.1, 1.0, 30.0])
def test_the_minimum_of_the_squared_objective_is_at_decided_gates_and_tends_to_the_price_of_l0(u: float) -> None:
    """On a grid of w and gamma, for each theta alone."""
    gamma = torch.linspace(0, 1, 201, dtype=torch.float64).unsqueeze(0)
    for theta in THETA:
        w = torch.cat([torch.linspace(-40, 40, 4001, dtype=torch.float64), theta.unsqueeze(0)]).unsqueeze(1)
        values = ALPHA * gamma + u * constraint(theta.expand(len(w), 201), w.expand(-1, 201), gamma.expand(len(w), -1))
        best = gamma.flatten()[int(values.argmin()) % 201]
        assert best == exact_gamma(theta, torch.tensor(u, dtype=torch.float64), alpha=ALPHA)
        assert float(values.min()) == pytest.approx(min(ALPHA, u * float(theta) ** 2), rel=1e-6)


def play(*, squared: bool, rate: float = 0.02) -> list[tuple[float, float, float]]:
    """Descends theta, w and gamma and ascends u on `(theta - 1)^2 / 2 + alpha gamma + u * constraint`; returns where steps 1000, 2000 end.

    Plain descent and ascent would go round in circles under the linear constraint, so half the squared difference of theta and w gamma
    is added for both, which is 0 wherever the constraint holds.
    """
    theta, w, gamma = (torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (1.0, 1.0, 0.9))
    u = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    ends: list[tuple[float, float, float]] = []
    for step in range(1, 2001):
        term = constraint(theta, w, gamma) if squared else linear(theta, w, gamma)
        value = 0.5 * (theta - 1).square() + ALPHA * gamma + u * term + 0.5 * linear(theta, w, gamma).square()
        *down, up = torch.autograd.grad(value.sum(), (theta, w, gamma, u))
        with torch.no_grad():
            for variable, gradient in zip((theta, w, gamma), down, strict=True):
                variable -= rate * gradient
            u += rate * up
            gamma.clamp_(0, 1)
        if step % 1000 == 0:
            ends.append((theta.item(), w.item(), gamma.item()))
    return ends


def test_descent_and_ascent_decide_the_gate_under_a_squared_constraint_and_not_under_a_linear_one() -> None:
    """The weight is worth its price, 1/2 against 0.1, so the gate belongs open."""
    assert play(squared=True)[-1] == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)
    (_, w_before, gamma_before), (theta, w, gamma) = play(squared=False)
    # The constraint holds and the network fits, but the gate goes on closing, and w grows by what it no longer lets through.
    assert w * gamma == pytest.approx(theta, abs=0.02)
    assert theta > 0.9
    assert 0 < gamma < gamma_before - 0.05 < 0.5
    assert w > w_before + 0.3 > 2
