import math

import pytest
from hypothesis import given, settings, strategies as st

from ellzero.targets import ErrorIncrease, NonZeros
from ellzero.training.search import Try, best_try, bracket_closed, next_alpha


def search(limit: float, first: float, target: ErrorIncrease) -> list[Try]:
    """Plays a search in which every alpha up to `limit` is accepted and larger ones give fewer non-zeros."""
    tries: list[Try] = []
    while (alpha := next_alpha(tries, first, target)) is not None:
        increase = target.fraction * (0.5 if alpha <= limit else 2.0)
        tries.append(Try(alpha=alpha, accepted=alpha <= limit, error_increase=increase, nonzeros=round(1 / alpha)))
    return tries


@given(st.floats(-9, -1), st.floats(-9, -1))
@settings(deadline=None, max_examples=60)
def test_brackets_and_bisects_any_monotone_answer(log_limit, log_first):
    target = ErrorIncrease(0.002, tries=60, resolution=1.15)
    limit = 10.0**log_limit
    best = best_try(search(limit, 10.0**log_first, target))
    assert best.accepted
    assert limit / 1.15 <= best.alpha <= limit


@given(st.floats(-2.4, 2.4))
@settings(deadline=None, max_examples=60)
def test_ten_tries_close_the_bracket_where_the_first_alpha_is_off_by_a_factor_of_250(log_ratio):
    target = ErrorIncrease(0.002)
    limit = 1e-4 * 10.0**log_ratio
    tries = search(limit, 1e-4, target)
    assert len(tries) <= target.tries == 10
    assert bracket_closed(tries, target)
    assert limit / target.resolution <= best_try(tries).alpha <= limit


def test_a_bracket_is_closed_by_a_refusal_close_above_what_was_accepted():
    target = ErrorIncrease(0.002, resolution=1.15)
    accepted, close, far, below = (
        Try(alpha=alpha, accepted=good, error_increase=0.0, nonzeros=9)
        for alpha, good in ((1e-4, True), (1.1e-4, False), (2e-4, False), (0.9e-4, False))
    )
    assert bracket_closed([accepted, close], target)
    assert bracket_closed([far, accepted, close], target)
    assert not bracket_closed([accepted, far], target)
    assert not bracket_closed([accepted, below], target)
    assert not bracket_closed([accepted], target)
    assert not bracket_closed([close], target)
    assert not bracket_closed([], target)


def test_stops_after_the_tries_allowed():
    assert len(search(1e-3, 1e-5, ErrorIncrease(0.002, tries=4))) == 4


def test_goes_outwards_from_where_it_starts():
    assert next_alpha([], 1e-4, ErrorIncrease(0.002)) == 1e-4
    accepted = Try(alpha=1e-4, accepted=True, error_increase=0.0, nonzeros=9)
    refused = Try(alpha=1e-4, accepted=False, error_increase=0.1, nonzeros=9)
    assert next_alpha([accepted], 1e-4, ErrorIncrease(0.002)) == 4e-4
    assert next_alpha([refused], 1e-4, ErrorIncrease(0.002)) == 2.5e-5


@pytest.mark.parametrize("accepted", [True, False])
def test_steps_outwards_grow(accepted):
    tries: list[Try] = []
    for _ in range(4):
        alpha = next_alpha(tries, 1.0, ErrorIncrease(0.002))
        tries.append(Try(alpha=alpha, accepted=accepted, error_increase=0.0, nonzeros=9))
    ratios = [4.0, 64.0, 1024.0]
    assert [attempt.alpha for attempt in tries] == [1.0, *(ratios if accepted else (1 / ratio for ratio in ratios))]


def test_bisects_in_the_logarithm():
    tries = [
        Try(alpha=1e-4, accepted=True, error_increase=0.0, nonzeros=9),
        Try(alpha=4e-4, accepted=False, error_increase=1.0, nonzeros=2),
    ]
    assert math.isclose(next_alpha(tries, 1e-4, ErrorIncrease(0.002)), 2e-4)


def test_best_try_prefers_fewest_nonzeros_among_the_accepted_and_least_error_without_one():
    many = Try(alpha=1e-5, accepted=True, error_increase=0.0, nonzeros=900)
    few = Try(alpha=1e-4, accepted=True, error_increase=0.001, nonzeros=300)
    bad = Try(alpha=1e-3, accepted=False, error_increase=0.2, nonzeros=10)
    dead = Try(alpha=1e-2, accepted=False, error_increase=None, nonzeros=0)
    assert best_try([many, few, bad, dead]) is few
    assert best_try([dead, bad]) is bad


@pytest.mark.parametrize(
    "make", [lambda: NonZeros(0), lambda: ErrorIncrease(2.0), lambda: ErrorIncrease(0.1, tries=0), lambda: ErrorIncrease(0.1, resolution=1)]
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match=r"NonZeros|ErrorIncrease"):
        make()
