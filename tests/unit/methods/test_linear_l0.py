"""l0-regularised least squares against all 2^n subsets, CEL0, and the right side of Lemma 2.3."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ellzero.methods.linear import linear_l0
from ellzero.methods.linear._linear_l0 import _moves, _Problem
from gates import all_gates, expected_squared_error


def problem(seed: int, n: int, samples: int, correlation: float = 0.0, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """A third of the coefficients is not 0; columns share a common part, and have scales over one order of magnitude."""
    rng = np.random.default_rng(seed)
    X = np.sqrt(1 - correlation) * rng.normal(size=(samples, n)) + np.sqrt(correlation) * rng.normal(size=(samples, 1))
    X *= 10 ** rng.uniform(-0.5, 0.5, size=n)
    theta = rng.normal(size=n) * (rng.random(n) < 1 / 3) / np.linalg.norm(X, axis=0) * np.sqrt(samples)
    return torch.from_numpy(X), torch.from_numpy(X @ theta + noise * rng.normal(size=samples))


def best_subset(X: Tensor, y: Tensor, alpha: float) -> tuple[float, Tensor]:
    """Tries all 2^n subsets, by numpy's least squares."""
    best, support = float(y.square().sum()), np.zeros(X.shape[1], dtype=bool)
    for z in all_gates(X.shape[1]).bool().numpy()[1:]:
        columns = X.numpy()[:, z]
        rest = y.numpy() - columns @ np.linalg.lstsq(columns, y.numpy(), rcond=None)[0]
        value = float(rest @ rest) + alpha * int(z.sum())
        if value < best:
            best, support = value, z
    return best, torch.from_numpy(support)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_finds_the_best_of_all_subsets(correlation: float) -> None:
    """The problem is NP-hard and nothing is guaranteed; ten seeds of each are exact."""
    gaps: list[float] = []
    for seed in range(10):
        n = 7 + seed % 3
        X, y = problem(seed, n, samples=20, correlation=correlation)
        alpha = (0.5, 2.0)[seed % 2]
        found = linear_l0(X, y, alpha=alpha)
        best, support = best_subset(X, y, alpha)
        assert found.objective >= best * (1 - 1e-9)
        gaps.append(found.objective / best - 1)
        assert torch.equal(found.support, support)
    assert max(gaps) < 1e-9, gaps


def test_finds_the_best_of_4096_subsets_with_fewer_samples_than_columns() -> None:
    X, y = problem(3, 12, samples=9, noise=0.1)
    found = linear_l0(X, y, alpha=0.3)
    best, support = best_subset(X, y, 0.3)
    assert found.objective == pytest.approx(best, rel=1e-8)
    assert torch.equal(found.support, support)


def test_the_result_is_consistent() -> None:
    X, y = problem(1, 9, samples=30)
    found = linear_l0(X, y, alpha=0.7)
    rest = y - X @ found.coefficients
    assert found.objective == pytest.approx(float(rest.square().sum()) + 0.7 * int(found.support.sum()), rel=1e-9)
    assert torch.equal(found.coefficients != 0, found.support)
    # Least squares on the support: the residual is orthogonal to every open column.
    torch.testing.assert_close(X[:, found.support].T @ rest, torch.zeros(int(found.support.sum()), dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("p_init", [0.05, 0.5, 1.0])
def test_the_descent_never_rises_and_ends_at_the_lemma(p_init: float) -> None:
    X, y = problem(2, 10, samples=15, correlation=0.5)
    found = linear_l0(X, y, alpha=0.7, p_init=p_init)
    assert len(found.path) > 3
    assert all(after <= before * (1 + 1e-12) for before, after in zip(found.path, found.path[1:], strict=False))
    # At the gates reached, the minimum over w of the lemma's right side, by solving for w itself, is at most the path's end.
    G, c = X.T @ X, X.square().sum(dim=0)
    gamma = found.gamma
    w = torch.linalg.pinv(gamma.unsqueeze(1) * G * gamma + torch.diag(c * gamma * (1 - gamma))) @ (gamma * (X.T @ y))
    value = float(expected_squared_error(y, X, w, gamma) + 0.7 * gamma.sum())
    assert value == pytest.approx(found.path[-1], rel=1e-6)


def test_one_column_is_the_continuous_exact_l0_penalty() -> None:
    """min over gamma of the lemma is CEL0: alpha - c (|v| - sqrt(alpha / c))^2 below the threshold, alpha above it."""
    c, alpha = 2.5, 0.8
    for v in (0.0, 0.01, 0.2, 0.5, math.sqrt(alpha / c), 0.7, 3.0):
        gammas = np.linspace(1e-6, 1, 200_001)
        brute = (c * v**2 * (1 - gammas) / gammas + alpha * gammas).min()
        closed = alpha - c * max(0.0, math.sqrt(alpha / c) - v) ** 2
        assert closed == pytest.approx(brute, abs=1e-5)
        gamma = min(1.0, v * math.sqrt(c / alpha))
        value = c * v**2 * (1 - gamma) / gamma + alpha * gamma if gamma else 0.0
        assert value == pytest.approx(closed, abs=1e-12)


def test_recovers_the_support_of_a_signal_with_fewer_samples_than_columns() -> None:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(60, 150)))
    theta = torch.zeros(150, dtype=torch.float64)
    theta[::25] = torch.tensor([1.0, -1.0, 0.5, 2.0, -0.7, 1.3], dtype=torch.float64)
    found = linear_l0(X, X @ theta + 0.05 * torch.from_numpy(rng.normal(size=60)), alpha=0.1)
    assert torch.equal(found.support, theta != 0)
    torch.testing.assert_close(found.coefficients, theta, rtol=0, atol=0.05)


def test_orthogonal_columns_are_thresholded_one_by_one() -> None:
    Q = torch.linalg.qr(torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    y = Q @ torch.tensor([2.0, 0.99, -1.01, 0.0], dtype=torch.float64)
    found = linear_l0(Q, y, alpha=1.0)
    assert found.support.tolist() == [True, False, True, False]
    torch.testing.assert_close(found.coefficients, torch.tensor([2.0, 0.0, -1.01, 0.0], dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_exchanges_leave_a_minimum_that_flips_cannot() -> None:
    """Among strongly correlated columns the descent may open the wrong one, and neither closing nor opening one mends it."""
    improved = 0
    for seed in range(30):
        X, y = problem(seed, 9, samples=12, correlation=0.9)
        with_swaps, without = (linear_l0(X, y, alpha=0.7, swaps=swaps).objective for swaps in (True, False))
        assert with_swaps <= without * (1 + 1e-9)
        improved += with_swaps < without * (1 - 1e-6)
    assert improved >= 1


@pytest.mark.parametrize("seed", range(8))
def test_moves_are_the_best_flip_and_the_best_exchange(seed: int) -> None:
    """The closed forms choose what trying every flip and every exchange by least squares would."""
    X, y = problem(seed, 7, samples=12, correlation=0.5)
    of = _Problem(G=X.T @ X, b=X.T @ y, y_squared=float(y.square().sum()), alpha=0.7)
    gates = torch.rand(7, generator=torch.Generator().manual_seed(seed)) < 0.5
    gates[:2] = torch.tensor([True, False])

    def objective(gates: Tensor) -> float:
        columns = X[:, gates]
        rest = y - columns @ torch.linalg.lstsq(columns, y).solution if bool(gates.any()) else y
        return float(rest.square().sum()) + 0.7 * int(gates.sum())

    others = all_gates(7).bool()
    changed = others ^ gates
    flips = others[changed.sum(dim=1) == 1]
    exchanges = others[(changed.sum(dim=1) == 2) & ((changed & gates).sum(dim=1) == 1)]
    for move, candidates in zip(_moves(of, gates, *of.solve(gates), swaps=True), (flips, exchanges), strict=True):
        assert objective(move) == pytest.approx(min(objective(other) for other in candidates), rel=1e-9)


def test_dependent_and_empty_columns_are_left_out() -> None:
    X, y = problem(5, 4, samples=20)
    X = torch.cat([X, X[:, :1], torch.zeros(20, 1, dtype=torch.float64)], dim=1)
    found = linear_l0(X, y, alpha=1e-3)
    best, _ = best_subset(X, y, 1e-3)
    assert found.objective == pytest.approx(best, rel=1e-6)
    assert not found.support[5]
    assert int(found.support[[0, 4]].sum()) <= 1


def test_float32_gives_the_same_support_in_its_own_type() -> None:
    X, y = problem(1, 9, samples=30)
    double, single = linear_l0(X, y, alpha=0.7), linear_l0(X.float(), y.float(), alpha=0.7)
    assert single.coefficients.dtype == torch.float32
    assert torch.equal(double.support, single.support)


def test_a_price_too_high_closes_everything() -> None:
    X, y = problem(1, 6, samples=20)
    found = linear_l0(X, y, alpha=10 * float(y.square().sum()))
    assert not bool(found.support.any())
    assert found.objective == pytest.approx(float(y.square().sum()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha must be finite and above 0, got 0\.0: without a price it is least squares"),
        ({"alpha": math.nan}, "alpha must be finite and above 0, got nan"),
        ({"alpha": 1.0, "p_init": 0.0}, r"p_init must be in \(0, 1\], got 0\.0"),
        ({"alpha": 1.0, "max_rounds": 0}, "max_rounds must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused_with_their_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_l0(*problem(0, 4, samples=8), **options)


def test_whole_numbers_are_computed_with_as_float64() -> None:
    X = torch.tensor([[1, 0], [2, 1], [3, 0], [4, 1]])
    y = torch.tensor([1, 0, 2, 3])
    found = linear_l0(X, y, alpha=0.1)
    expected = linear_l0(X.double(), y.double(), alpha=0.1)
    assert found.coefficients.dtype == torch.float64
    assert torch.equal(found.coefficients, expected.coefficients)
    assert not torch.equal(found.coefficients, found.coefficients.round())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shapes", [((4, 2), (4, 1)), ((4, 2), (5,)), ((4,), (4,)), ((0, 2), (0,))])
def test_shapes_that_do_not_belong_together_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    X, y = (torch.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match=re.escape(f"X has the shape {list(shapes[0])} and y {list(shapes[1])}")):
        linear_l0(X, y, alpha=1.0)


def test_data_that_is_not_finite_is_refused() -> None:
    X, y = problem(0, 4, samples=8)
    X[0, 0] = math.inf
    with pytest.raises(ValueError, match="X or y holds NaN or infinity"):
        linear_l0(X, y, alpha=1.0)
