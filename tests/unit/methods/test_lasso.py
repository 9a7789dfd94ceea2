"""The lasso against scikit-learn and the conditions of optimality; the relaxed lasso against least squares."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.linear_model import Lasso
from torch import Tensor

from ellzero.methods.linear._lasso import lasso, relaxed_lasso
from ellzero.methods.linear.lasso_kernel import descend_


def problem(seed: int, samples: int, n: int) -> tuple[Tensor, Tensor]:
    """Correlated columns of different scales."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, n)) + 0.7 * rng.normal(size=(samples, 1))
    X *= 10 ** rng.uniform(-0.5, 0.5, size=n)
    theta = rng.normal(size=n) * (rng.random(n) < 0.4)
    return torch.from_numpy(X), torch.from_numpy(X @ theta + 0.3 * rng.normal(size=samples))


def largest_alpha(X: Tensor, y: Tensor) -> float:
    return 2 * float((X.T @ y).abs().max())


@pytest.mark.parametrize("fraction", [0.5, 0.1, 0.01])
@pytest.mark.parametrize(("samples", "n"), [(40, 12), (15, 30)])
def test_is_the_lasso_of_scikit_learn(samples: int, n: int, fraction: float) -> None:
    X, y = problem(samples, samples, n)
    alpha = fraction * largest_alpha(X, y)
    # Theirs halves the squared error and divides it by the number of samples.
    theirs = Lasso(alpha=alpha / (2 * samples), fit_intercept=False, tol=1e-12, max_iter=1_000_000).fit(X.numpy(), y.numpy()).coef_
    ours = lasso(X, y, alpha=alpha).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours != 0, np.abs(theirs) > 1e-9)


@given(seed=st.integers(0, 2**31), samples=st.integers(1, 20), n=st.integers(1, 20), fraction=st.floats(0.01, 0.99))
def test_the_gradient_of_the_error_is_the_price_where_a_coefficient_is_left_and_no_more_elsewhere(
    seed: int, samples: int, n: int, fraction: float
) -> None:
    X, y = problem(seed, samples, n)
    most = largest_alpha(X, y)
    theta = lasso(X, y, alpha=fraction * most)
    pull = 2 * X.T @ (y - X @ theta)
    torch.testing.assert_close(pull[theta != 0], fraction * most * theta[theta != 0].sign(), rtol=0, atol=1e-8 * most)
    assert float(pull.abs().max()) <= fraction * most + 1e-8 * most


def test_everything_is_zero_from_the_largest_alpha_on_and_not_below() -> None:
    X, y = problem(1, 30, 10)
    assert int((lasso(X, y, alpha=1.000001 * largest_alpha(X, y)) != 0).sum()) == 0
    assert int((lasso(X, y, alpha=0.99 * largest_alpha(X, y)) != 0).sum()) == 1


def test_where_it_starts_does_not_matter() -> None:
    X, y = problem(2, 30, 10)
    cold = lasso(X, y, alpha=3.0)
    torch.testing.assert_close(lasso(X, y, alpha=3.0, start=torch.full((10,), 5.0, dtype=torch.float64)), cold, rtol=1e-6, atol=1e-8)


def test_empty_and_repeated_columns_are_no_trouble() -> None:
    X, y = problem(3, 20, 4)
    twice = torch.cat([X, X[:, :1], torch.zeros(20, 1, dtype=torch.float64)], dim=1)
    once, both = lasso(X, y, alpha=2.0), lasso(twice, y, alpha=2.0)
    assert both[5] == 0
    torch.testing.assert_close(twice @ both, X @ once, rtol=1e-6, atol=1e-7)
    # The relaxed lasso's least squares must not fail on them either.
    found = relaxed_lasso(twice, y, alpha=2.0, start=torch.ones(6, dtype=torch.float64))
    assert bool(found.coefficients.isfinite().all())


def test_the_kernel_is_the_same_without_the_compiler() -> None:
    X, y = problem(4, 20, 8)
    G, b = (X.T @ X).numpy(), (X.T @ y).numpy()
    ends = []
    for run in (descend_, descend_.py_func):
        r, theta = b.copy(), np.zeros(8)
        missed = run(G, r, theta, 1.5, 1e-9, 10_000)
        assert missed <= 1e-9
        np.testing.assert_allclose(r, b - G @ theta, atol=1e-10)
        ends.append(theta)
    np.testing.assert_allclose(*ends, rtol=1e-12, atol=1e-14)


def test_the_relaxed_lasso_is_least_squares_on_the_lassos_support() -> None:
    X, y = problem(5, 25, 15)
    alpha = 0.05 * largest_alpha(X, y)
    found = relaxed_lasso(X, y, alpha=alpha)
    torch.testing.assert_close(found.lasso, lasso(X, y, alpha=alpha))
    assert torch.equal(found.support, found.lasso != 0)
    assert 1 < int(found.support.sum()) < 15
    reference = np.zeros(15)
    columns = found.support.numpy()
    reference[columns] = np.linalg.lstsq(X.numpy()[:, columns], y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(found.coefficients, reference, rtol=1e-9)
    half = relaxed_lasso(X, y, alpha=alpha, phi=0.25)
    torch.testing.assert_close(half.coefficients, 0.25 * found.lasso + 0.75 * found.coefficients)
    torch.testing.assert_close(relaxed_lasso(X, y, alpha=alpha, phi=1.0).coefficients, found.lasso)


def test_relaxing_undoes_the_shrinkage_of_orthogonal_columns() -> None:
    Q = torch.linalg.qr(torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    found = relaxed_lasso(Q, Q @ torch.tensor([2.0, 0.9, -1.1, 0.0], dtype=torch.float64), alpha=2.0)
    # Each coefficient is moved towards 0 by half the price.
    torch.testing.assert_close(found.lasso, torch.tensor([1.0, 0.0, -0.1, 0.0], dtype=torch.float64), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.coefficients, torch.tensor([2.0, 0.0, -1.1, 0.0], dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_float32_comes_back_as_float32() -> None:
    X, y = problem(6, 20, 6)
    assert relaxed_lasso(X.float(), y.float(), alpha=2.0).coefficients.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, r"alpha must be finite and above 0, got 0\.0"),
        ({"alpha": math.inf}, "alpha must be finite and above 0, got inf"),
        ({"alpha": 1.0, "phi": 1.5}, r"phi must be in \[0, 1\], got 1\.5"),
    ],
)
def test_bad_options_are_refused_with_their_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relaxed_lasso(*problem(0, 8, 4), **options)


def test_whole_numbers_are_computed_with_as_float64() -> None:
    X, y = torch.tensor([[1, 0], [2, 1], [3, 0], [4, 1]]), torch.tensor([1, 0, 2, 3])
    found, expected = relaxed_lasso(X, y, alpha=0.1), relaxed_lasso(X.double(), y.double(), alpha=0.1)
    assert found.coefficients.dtype == torch.float64
    assert torch.equal(found.coefficients, expected.coefficients)
    assert torch.equal(lasso(X, y, alpha=0.1), expected.lasso)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("solve", [lasso, relaxed_lasso])
@pytest.mark.parametrize("shape", [(12, 1), (13,)])
def test_shapes_that_do_not_belong_together_are_refused(solve: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"X has the shape [12, 3] and y {list(shape)}")):
        solve(torch.ones(12, 3), torch.ones(shape), alpha=1.0)


def test_data_that_is_not_finite_and_too_few_sweeps_are_refused() -> None:
    X, y = problem(0, 8, 12)
    with pytest.raises(ValueError, match="after max_sweeps=2 passes"):
        lasso(X, y, alpha=1e-3, max_sweeps=2)
    with pytest.raises(ValueError, match="NaN or infinity"):
        lasso(X, y * math.nan, alpha=1.0)
