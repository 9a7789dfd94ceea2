# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""What is looked for in a block before it is coded: the length of its records, text, and x86 calls, whose targets are made absolute."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.tables import Whole
from ellzero.jit.entry_points import entry

LONGEST_STRIDE = 1024
_SAMPLE = 1 << 17
_PIECE = 1 << 16


def find_stride(block: NDArray[np.uint8]) -> int:
    """Returns the length of the records that a block seems to consist of, 2 to 1024; 0 where it shows none.

    A stride shows in bytes that equal those one stride before much more often than at other distances.
    """
    sample = block[:_SAMPLE]
    lags = np.arange(2, min(LONGEST_STRIDE, sample.size // 8) + 1)
    if lags.size < 8:
        return 0
    equal = np.array([np.count_nonzero(sample[lag:] == sample[:-lag]) / (sample.size - lag) for lag in lags])
    usual = float(np.median(equal))
    gain = (equal - usual) / max(1.0 - usual, 1e-6)
    if gain.max() < 0.1:
        return 0
    # Multiples of a stride show as well: the shortest that is nearly as good.
    return int(lags[np.flatnonzero(gain >= 0.85 * gain.max())[0]])


def looks_like_text(block: NDArray[np.uint8]) -> bool:
    """Returns whether a block holds hardly any control characters; those of line ends, blanks and terminals count as text."""
    counts = _counts(block)
    return int(counts[:8].sum() + counts[14:27].sum() + counts[28:32].sum()) * 50 <= block.size


def looks_random(block: NDArray[np.uint8]) -> bool:
    """Returns whether a block of some size has bytes that are all about as frequent, so that a model would only lose time."""
    if block.size < 1 << 14:
        return False
    counts = _counts(block)
    # The statistic is 255 on average for random bytes, with a standard deviation of 23.
    deviation = int((counts * counts).sum()) * 256 / block.size - block.size
    return deviation < 400


def _counts(block: NDArray[np.uint8]) -> NDArray[np.int64]:
    # In pieces, because numpy makes eight bytes of each before it counts.
    counts = np.zeros(256, np.int64)
    for start in range(0, block.size, _PIECE):
        counts += np.bincount(block[start : start + _PIECE], minlength=256)
    return counts


def has_x86_calls(block: NDArray[np.uint8]) -> bool:
    """Returns whether a block seems to hold x86 code: most bytes E8 and E9 begin a call or jump of less than 16 MiB."""
    starts = hits = 0
    for place in range(0, block.size - 4, _PIECE):
        piece = block[place : place + _PIECE + 4]
        start = (piece[:-4] & 0xFE) == 0xE8
        starts += np.count_nonzero(start)
        hits += np.count_nonzero(start & ((piece[4:] == 0) | (piece[4:] == 255)))
    return bool(hits * 512 > block.size and hits * 3 > starts)


@entry
def change_x86_calls(block: NDArray[np.uint8], start: Whole, back: bool) -> None:
    """Replaces, in place, distances of x86 calls and jumps by targets, which repeat; or back.

    Only three bytes behind each call are changed, and neither of the two that it is known by: so what is done from the last place to the
    first is undone from the first to the last, however calls overlap.

    Args:
        block: the bytes.
        start: where the block lies in the file.
        back: whether targets are replaced by distances.
    """
    last = np.int64(block.size) - 5
    for step in range(last + 1):
        i = np.int64(step) if back else last - np.int64(step)
        top = np.int64(block[i + 4])
        if np.int64(block[i]) & 0xFE == 0xE8 and (top == 0 or top == 255):
            value = np.int64(block[i + 1]) | (np.int64(block[i + 2]) << 8) | (np.int64(block[i + 3]) << 16)
            place = np.int64(start) + i + 5
            value = value - place if back else value + place
            block[i + 1] = np.uint8(value & 255)
            block[i + 2] = np.uint8((value >> 8) & 255)
            block[i + 3] = np.uint8((value >> 16) & 255)
