# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Magnitudes that come again in the same order, or backwards: tables of sines, copied filters, windows."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.adaptive import code_adaptive
from ellzero.codec.network.layout import REPEAT_SLOTS
from ellzero.codec.network.mixing import MixingModel, Stream
from ellzero.jit.kernels import Integer, kernel

TABLE_BITS = 16

# What runs along: the place that is repeated, the direction, the length so far; the last cell that is not zero, and where it was before.
_PLACE, _STEP, _LENGTH, _LAST, _BEFORE = range(5)

_LIMIT = 255
_MULTIPLIER = np.uint64(0x1E3779B1)
_MASK = np.uint64(0xFFFFFFFF)


def nothing_repeated() -> NDArray[np.int64]:
    """Returns what runs along at the start of a tensor: no repetition, and no cell that is not zero."""
    running = np.zeros(5, np.int64)
    running[_LAST] = running[_BEFORE] = -1
    return running


@kernel
def _same(levels: NDArray[np.int32], extra: NDArray[np.uint64], a: Integer, b: Integer) -> bool:
    return abs(np.int64(levels[a])) == abs(np.int64(levels[b])) and extra[a] == extra[b]


@kernel
def code_repeat(
    stream: Stream,
    model: MixingModel,
    levels: NDArray[np.int32],
    extra: NDArray[np.uint64],
    running: NDArray[np.int64],
    at: Integer,
) -> bool:
    """Codes whether the cell `at`, which is not zero, has a magnitude that is expected, and if so copies it and the bits that follow.

    Expected is the next one where a repetition runs; else what stood after or before the last cell's magnitude when that was met before;
    else, as in a palindrome, the cell before the last one or the last one itself.

    Returns:
        Whether it has.
    """
    zero, one = np.int64(0), np.int64(1)
    for attempt in range(4):
        if running[_LENGTH] == zero:
            if attempt < 2:
                if running[_BEFORE] < zero:
                    continue
                running[_STEP] = one if attempt == 0 else -one
                running[_PLACE] = running[_BEFORE] + running[_STEP]
            else:
                running[_STEP] = -one
                running[_PLACE] = running[_LAST] - np.int64(attempt == 2)
        place = running[_PLACE]
        if place < zero or place >= np.int64(at) or levels[place] == np.int32(0):
            running[_LENGTH] = zero
            continue
        context = REPEAT_SLOTS + np.int64(attempt) * np.int64(16) + min(running[_LENGTH], np.int64(15))
        if code_adaptive(
            stream.state, stream.data, stream.decode, model.memory, context, np.int64(_same(levels, extra, at, place)), _LIMIT
        ):
            levels[at] = np.int32(abs(levels[place]) if stream.decode or levels[at] > np.int32(0) else -abs(levels[place]))
            extra[at] = extra[place]
            running[_PLACE] = place + running[_STEP]
            running[_LENGTH] += one
            return True
        running[_LENGTH] = zero
    return False


@kernel
def remember(
    levels: NDArray[np.int32], extra: NDArray[np.uint64], running: NDArray[np.int64], table: NDArray[np.int32], at: Integer
) -> None:
    """Remembers where a magnitude was last, and looks up where it was before."""
    word = np.uint64(abs(np.int64(levels[at]))) ^ (extra[at] << np.uint64(5))
    folded = (word ^ (word >> np.uint64(32))) & _MASK
    key = np.int64(((folded * _MULTIPLIER) & _MASK) >> np.uint64(32 - TABLE_BITS))
    before = np.int64(table[key])
    running[_BEFORE] = before if before >= np.int64(0) and _same(levels, extra, at, before) else np.int64(-1)
    running[_LAST] = np.int64(at)
    table[key] = np.int32(at)
