"""Appendix G against a transcription with loops, and how the criterion behaves on curves whose end is known."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ellzero.attaching.convergence import active_set_change, active_set_saturated, saturated, smooth


def curve(seed: int) -> list[float]:
    """Sixty epochs of a decaying loss with noise; how steep and how noisy is drawn too."""
    random = np.random.default_rng(seed)
    height, rate, noise, floor = random.uniform((0, 0, 0, -1), (2, 5, 0.3, 1))
    return list(floor + height * np.exp(-rate * np.arange(60) / 60) + noise * random.normal(size=60))


curves = st.integers(0, 2**31).map(curve)


def line_at(values: list[float], i: int) -> float:
    """The value at i of the weighted least-squares line, by numpy's solver instead of the normal equations."""
    n = len(values)
    h = n ** (-1 / 5) * n ** (-3 / 35) * math.log(n) ** (-1 / 16)
    rows, targets = [], []
    for j, value in enumerate(values):
        z = (j - i) / (n - 1) / h
        if abs(z) <= 1:
            weight = math.sqrt(0.75 * (1 - z * z))
            rows.append([weight, weight * (j - i)])
            targets.append(weight * value)
    return float(np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0][0])


def fall_beyond_the_noise(losses: list[float], window: int) -> float:
    """How much more the mean of the newer half fell than the noise explains."""
    half = window // 2
    older, newer = losses[-window:-half], losses[-half:]
    noise = [statistics.stdev([value - line_at(part, i) for i, value in enumerate(part)]) for part in (older, newer)]
    return statistics.fmean(older) - statistics.fmean(newer) - min(noise)


@pytest.mark.parametrize("n", [3, 4, 10, 25, 250])
def test_smoothing_is_local_linear_regression(n: int):
    values = np.random.default_rng(n).normal(size=n) + 3
    np.testing.assert_allclose(smooth(values), [line_at(list(values), i) for i in range(n)], rtol=1e-9)


@pytest.mark.parametrize(("half", "bandwidth"), [(10, 0.4916), (15, 0.4334), (25, 0.3706), (250, 0.1856)])
def test_values_weigh_in_within_the_published_bandwidth_only(half: int, bandwidth: float):
    reach = math.floor(bandwidth * (half - 1))
    impulse = np.zeros(half)
    impulse[0] = 1
    curve = smooth(impulse)
    assert abs(curve[reach]) > 1e-6
    np.testing.assert_allclose(curve[reach + 1 :], 0, atol=1e-12)


@given(intercept=st.floats(-1e3, 1e3), slope=st.floats(-10, 10), n=st.integers(3, 100))
def test_smoothing_leaves_straight_lines_as_they_are(intercept: float, slope: float, n: int):
    line = intercept + slope * np.arange(n)
    np.testing.assert_allclose(smooth(line), line, rtol=1e-9, atol=1e-9)


@given(losses=curves, window=st.sampled_from([6, 10, 20, 50]))
def test_the_criterion_switches_where_the_transcription_with_loops_says(losses: list[float], window: int):
    fall = fall_beyond_the_noise(losses, window)
    assert saturated(losses, window, fall + 1e-9)
    assert not saturated(losses, window, fall - 1e-9)


def test_the_curves_of_these_tests_know_both_answers():
    answers = [saturated(curve(seed), 20) for seed in range(100)]
    assert 20 < sum(answers) < 80


@pytest.mark.parametrize("window", [30, 50, 100])
def test_noise_around_a_constant_is_saturated(window: int):
    """The means differ by sigma * sqrt(4 / window) at random: beyond the noise in at most one curve of twenty at these lengths."""
    verdicts = [saturated(list(1 + 0.1 * np.random.default_rng(seed).normal(size=window)), window) for seed in range(100)]
    assert sum(verdicts) >= 95


def test_a_clear_descent_is_not_saturated_however_noisy_its_halves():
    for seed in range(20):
        descent = np.linspace(2, 1, 40) + 0.1 * np.random.default_rng(seed).normal(size=40)
        assert not saturated(list(descent), 40)


def test_the_trend_within_a_half_is_not_taken_for_noise():
    descent = list(1 - 0.01 * np.arange(20))
    older = np.array(descent[:10])
    assert older.mean() - np.mean(descent[10:]) > older.std(ddof=1)
    assert not saturated(descent, 20)
    assert not saturated(list(1 - 1e-8 * np.arange(20)), 20)


def test_constant_and_rising_losses_are_saturated():
    assert saturated([1.0] * 20, 20)
    assert saturated(list(1 + 0.01 * np.arange(20)), 20)


def test_too_few_values_are_not_saturated():
    assert not saturated([], 20)
    assert not saturated([1.0] * 19, 20)


def test_only_the_last_window_counts():
    descent = list(np.linspace(100, 1, 30))
    assert not saturated(descent, 20)
    assert saturated([math.nan, *descent, *[1.0] * 20], 20)


def test_a_larger_deviation_saturates_earlier():
    descent = list(1 - 0.01 * np.arange(20))  # the halves' means are 0.1 apart, without noise
    assert not saturated(descent, 20, deviation=0.099)
    assert saturated(descent, 20, deviation=0.101)


@given(losses=curves, scale=st.sampled_from([0.125, 8.0]), shift=st.floats(-100, 100))
def test_the_unit_and_the_offset_of_the_loss_do_not_matter(losses: list[float], scale: float, shift: float):
    margin = saturated(losses, 20, 1e-7), saturated(losses, 20, -1e-7)
    if margin[0] == margin[1]:  # otherwise the verdict hangs on rounding
        assert saturated([scale * loss + shift for loss in losses], 20) == margin[0]


@pytest.mark.parametrize("window", [0, 4, 21, -20])
def test_windows_without_two_halves_are_refused(window: int):
    with pytest.raises(ValueError, match=f"window is {window}"):
        saturated([1.0] * 50, window)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_has_blown_up_is_reported(bad: float):
    with pytest.raises(ValueError, match="lower the learning rate or alpha"):
        saturated([1.0] * 19 + [bad], 20)


def test_the_change_is_the_jaccard_distance():
    before = np.array([True, True, True, False, False])
    now = np.array([True, True, False, True, False])
    assert active_set_change(before, now) == 2 / 4
    assert active_set_change(before, before) == 0
    assert active_set_change(before, ~before) == 1
    assert active_set_change(np.zeros(5, dtype=bool), np.zeros(5, dtype=bool)) == 0


@given(seed=st.integers(0, 2**31), epochs=st.integers(1, 6), flips=st.floats(0, 0.3))
def test_a_saturated_set_differs_from_the_one_a_window_ago_by_no_more_than_the_tolerance(seed: int, epochs: int, flips: float):
    random = np.random.default_rng(seed)
    sets = [random.random(200) < 0.5]
    for _ in range(epochs):
        sets.append(sets[-1] ^ (random.random(200) < flips))
    changes = [active_set_change(before, now) for before, now in itertools.pairwise(sets)]
    tolerance = min(math.fsum(changes), 1)
    assert active_set_change(sets[0], sets[-1]) <= tolerance + 1e-12
    assert active_set_saturated(changes, epochs, tolerance) == (math.fsum(changes) <= 1)


def test_only_the_last_changes_count_and_all_of_them_add_up():
    assert not active_set_saturated([0.0, 0.0], window=3)
    assert active_set_saturated([1.0, 0.0, 0.004, 0.005], window=3)
    assert not active_set_saturated([0.0, 0.004, 0.004, 0.004], window=3)


def test_the_lasso_saturates_when_it_has_found_its_support():
    """Proximal gradient descent on a small lasso: saturation comes, comes late, and the support is then the solution's."""
    random = np.random.default_rng(0)
    X, truth = random.normal(size=(80, 40)), np.zeros(40)
    truth[:5] = [3, -2, 2, -3, 1]
    y, step, alpha = X @ truth + 0.1 * random.normal(size=80), 0.002, 8.0
    theta = random.normal(size=40)
    sets, changes = [theta != 0], []
    for _ in range(400):
        theta = theta - step * X.T @ (X @ theta - y)
        theta = np.sign(theta) * np.maximum(np.abs(theta) - step * alpha, 0)
        sets.append(theta != 0)
        changes.append(active_set_change(sets[-2], sets[-1]))
    first = next(epoch for epoch in range(401) if active_set_saturated(changes[:epoch], window=50))
    assert 60 < first < 200
    assert sets[first].sum() < 10
    np.testing.assert_array_equal(sets[first], sets[-1])


@pytest.mark.parametrize(
    ("window", "tolerance", "named"), [(0, 0.01, "window is 0"), (5, -0.1, "tolerance is -0.1"), (5, 1.5, "tolerance is 1.5")]
)
def test_senseless_windows_and_tolerances_are_refused(window: int, tolerance: float, named: str):
    with pytest.raises(ValueError, match=named):
        active_set_saturated([0.0] * 10, window, tolerance)
