"""Schedules: ends, clamping, monotony, and what counts as moving."""

import math

import pytest
from hypothesis import given, strategies as st

from ellzero.methods import DRR, RL1, Cosine, Schedule, Unregularised, geometric, moves, ramp, value_at
from ellzero.types import At

unit = st.floats(0, 1)


@given(a=st.floats(-10, 10), b=st.floats(-10, 10), start=unit, end=unit, progress=unit)
def test_ramp_is_clamped_linear_interpolation(a: float, b: float, start: float, end: float, progress: float) -> None:
    start, end = sorted((start, end))
    schedule = ramp(a, b, start=start, end=end)
    value = schedule(progress)
    if progress >= end:
        assert value == b
    elif progress <= start:
        assert value == a
    else:
        assert value == pytest.approx(a + (b - a) * ((progress - start) / (end - start)), abs=1e-9)


@given(a=st.floats(1e-6, 10), b=st.floats(1e-6, 10), progress=unit)
def test_geometric_moves_by_equal_factors(a: float, b: float, progress: float) -> None:
    schedule = geometric(a, b)
    assert schedule(0.0) == a
    assert schedule(1.0) == b
    assert math.log(schedule(progress)) == pytest.approx((1 - progress) * math.log(a) + progress * math.log(b), abs=1e-9)


def test_a_ramp_of_no_width_is_a_step() -> None:
    schedule = ramp(0.0, 1.0, start=0.5, end=0.5)
    assert [schedule(progress) for progress in (0.0, 0.49, 0.5, 1.0)] == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(("start", "end"), [(-0.1, 1.0), (0.0, 1.1), (0.6, 0.4), (math.nan, 1.0)])
def test_a_bad_interval_is_refused(start: float, end: float) -> None:
    with pytest.raises(ValueError, match="0 <= start <= end <= 1"):
        ramp(0.0, 1.0, start=start, end=end)


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        ramp(0.0, math.nan)
    with pytest.raises(ValueError, match=r"positive finite values, got 0\.0"):
        geometric(0.0, 1.0)
    for first, last in ((math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match="a cosine needs finite values"):
            Cosine(first=first, last=last)


def test_value_at_takes_numbers_and_schedules() -> None:
    assert value_at(0.25, At(progress=0.5)) == 0.25
    assert value_at(ramp(0.0, 1.0), At(progress=0.5)) == 0.5


def test_moves_finds_moving_fields_only() -> None:
    assert isinstance(ramp(0.0, 1.0), Schedule)
    assert moves(RL1(alpha=ramp(0.0, 1e-5)))
    assert moves(DRR(beta=geometric(1.0, 10.0)))
    assert not moves(DRR(alpha=1e-5))
    assert not moves(RL1(alpha=ramp(1e-5, 1e-5)))
    assert not moves(Unregularised())
