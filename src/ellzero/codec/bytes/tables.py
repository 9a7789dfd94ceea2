"""Builds the constant tables of the byte model with Python integers, so that they are the same on every machine."""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ellzero.codec.logistic import LOGIT_LIMIT, rate_table, squash_table

Whole = int | np.int64
"""What kernels compute with: Python's where nothing is compiled."""

EXACT_LENGTH = 4
"""Histories up to this many bits are remembered exactly."""

COUNT_CAPS = (40, 24, 12, 8, 6, 5)
"""The largest count of one bit value when the other has been seen 0, 1, ... 5 times."""


class History(NamedTuple):
    """What a context remembers of the bits that followed it: the bits themselves while few, then counts and the last bit."""

    zeros: int
    ones: int
    last: int
    exact: str


class HistoryTables(NamedTuple):
    """The bit histories as a machine with at most 256 states.

    Attributes:
        following: the next state, at 2 * state + bit.
        initial: the first probability of a one in each state, in 1/65536.
        total: the bits that each state counts.
    """

    following: npt.NDArray[np.uint8]
    initial: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]


def stretch_table() -> npt.NDArray[np.int32]:
    """Returns the inverse of `squash_table` at the middle of each of 4096 intervals of probability: the smallest x that reaches it."""
    squash = squash_table()
    middles = np.arange(4096, dtype=np.int64) * 16 + 8
    return (np.searchsorted(squash, middles) - LOGIT_LIMIT).astype(np.int32)


def _follow(history: History, bit: int) -> History:
    if len(history.exact) < EXACT_LENGTH and len(history.exact) == history.zeros + history.ones:
        exact = history.exact + str(bit)
        return History(exact.count("0"), exact.count("1"), bit, exact)
    same, other = (history.ones, history.zeros) if bit else (history.zeros, history.ones)
    # A surprise makes old evidence for the other value count for less.
    if other > 2:
        other = min(other - 1, 2 + (other + 4) // 8)
    cap = COUNT_CAPS[min(other, len(COUNT_CAPS) - 1)]
    same = min(same + 1, cap) if same < cap else same
    other = min(other, COUNT_CAPS[min(same, len(COUNT_CAPS) - 1)])
    zeros, ones = (other, same) if bit else (same, other)
    return History(zeros, ones, bit, "")


@cache
def history_tables() -> HistoryTables:
    """Returns every reachable bit history, numbered by the bits seen, then by their content; state 0 has seen none."""
    start = History(0, 0, 0, "")
    reached = {start}
    border = [start]
    while border:
        border = [new for old in border for bit in (0, 1) if (new := _follow(old, bit)) not in reached and not reached.add(new)]
    states = sorted(reached, key=lambda h: (h.zeros + h.ones, h))
    number = {state: index for index, state in enumerate(states)}
    assert len(states) <= 256
    following = np.zeros(512, dtype=np.uint8)
    initial = np.full(256, 32768, dtype=np.int64)
    total = np.zeros(256, dtype=np.int64)
    for state, index in number.items():
        for bit in (0, 1):
            following[2 * index + bit] = number[_follow(state, bit)]
        initial[index] = (65536 * (2 * state.ones + 1)) // (2 * (state.zeros + state.ones) + 2)
        total[index] = state.zeros + state.ones
    return HistoryTables(following, initial, total)


def byte_classes() -> npt.NDArray[np.uint8]:
    """Returns the class of each byte.

    0 lower case, 1 upper case, 2 digit, 3 blank, 4 line end, 5 sentence mark, 6 other sign, 7 control or high.
    """
    kinds = np.full(256, 7, dtype=np.uint8)
    kinds[33:127] = 6
    kinds[97:123] = 0
    kinds[65:91] = 1
    kinds[48:58] = 2
    kinds[[9, 32]] = 3
    kinds[[10, 13]] = 4
    kinds[[ord(c) for c in ".,;:!?'\"()"]] = 5
    return kinds


SQUASH = squash_table()
STRETCH = stretch_table()
RECIPROCALS = rate_table()
CLASSES = byte_classes()
FOLLOWING = history_tables().following
