# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Pictures and other arrays of two dimensions: how they are found, and the contexts they have instead of words.

See docs/formats/bytes-model.md.
"""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.matches import combine
from ellzero.codec.bytes.state import (
    HISTORY_MASK,
    MIXER_BYTE,
    MIXER_RANK,
    POSITION,
    PREVIOUS,
    ROW,
    STRIDE,
    VALUES,
    Model,
)
from ellzero.codec.bytes.transforms import LONGEST_STRIDE
from ellzero.jit.kernels import inlined

LONGEST_ROW = 8192
_LONGEST_PIXEL = 8
_WINDOWS = 8
_SEEN = 1 << 19
_SAMPLE = 1 << 13


def find_picture(block: NDArray[np.uint8]) -> tuple[int, int]:
    """Returns the two distances at which the neighbours of a byte lie, the shorter first, where a block seems to be a picture.

    They are the size of a pixel, 1 to 8, and of a row, up to 8192; for planes whose pixels are one byte, those of a row and of a plane,
    where the planes show, too. A pixel shows in small differences between bytes, a row in differences of those that are small; (0, 0)
    where either does not.
    """
    levels = block[:_SEEN].astype(np.int16)
    costs = _costs(levels, np.arange(1, _LONGEST_PIXEL + 1))
    if costs.size == 0 or not 10 * costs.min() < 7 * np.sort(costs)[_LONGEST_PIXEL // 2]:
        return 0, 0
    pixel = int(costs.argmin()) + 1
    edges = levels[pixel:] - levels[:-pixel]
    row = _shown(edges, pixel + 1)
    if pixel > 1 or row == 0:
        return (pixel, row) if row else (0, 0)
    other = _shown(edges[row:] - edges[:-row], _LONGEST_PIXEL)
    shorter, longer = min(row, other), max(row, other)
    return (shorter, longer) if 0 < shorter < longer and shorter <= LONGEST_STRIDE else (pixel, row)


def _shown(values: NDArray[np.int16], shortest: int) -> int:
    """Returns the distance at which numbers resemble each other most; 0 where they do not much more than at others."""
    lags = np.arange(shortest, min(LONGEST_ROW, values.size // 16) + 1)
    costs = _costs(values, lags)
    return int(lags[costs.argmin()]) if costs.size and 10 * costs.min() < 6 * np.sort(costs)[costs.size // 2] else 0


def _costs(values: NDArray[np.int16], lags: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns, for each lag, how much numbers differ from those so far before them, summed over pieces from all parts of a block."""
    longest = int(lags[-1]) if lags.size else 0
    size = min(_SAMPLE // _WINDOWS, (values.size - longest) // _WINDOWS)
    if longest == 0 or size < 64:
        return np.zeros(0, np.int64)
    starts = longest + np.arange(_WINDOWS) * ((values.size - longest - size) // (_WINDOWS - 1))
    windows = np.lib.stride_tricks.sliding_window_view(values, size)
    here = windows[starts]
    return np.array([np.abs(here - windows[starts - lag]).sum(dtype=np.int64) for lag in lags])


@inlined
def clip(value: np.int64) -> np.int64:
    """Returns the byte that is nearest to a number."""
    return min(max(value, np.int64(0)), np.int64(255))


@inlined
def set_picture_contexts(m: Model) -> None:
    """Computes the contexts of a block that has rows, in the place of those of words, and what the mixers are selected by."""
    r = m.registers
    history = m.history
    mask = r[HISTORY_MASK]
    place = r[POSITION]
    stride = r[STRIDE]
    row = r[ROW]
    c1 = r[PREVIOUS] & 255
    channel = (place % row) % stride
    # Neighbours by the points of the compass, and those of the byte before.
    w = np.int64(history[(place - stride) & mask])
    n = np.int64(history[(place - row) & mask])
    nw = np.int64(history[(place - row - stride) & mask])
    ne = np.int64(history[(place - row + stride) & mask])
    ww = np.int64(history[(place - 2 * stride) & mask])
    nn = np.int64(history[(place - 2 * row) & mask])
    w1 = np.int64(history[(place - stride - 1) & mask])
    n1 = np.int64(history[(place - row - 1) & mask])
    nw1 = np.int64(history[(place - row - stride - 1) & mask])
    ne1 = np.int64(history[(place - row + stride - 1) & mask])
    plane = clip(w + n - nw)
    down = clip(n + c1 - n1)
    right = clip(w + c1 - w1)
    solid = clip(w + n - nw + c1 - w1 - n1 + nw1)
    mean = (w + n + 1) >> 1
    shift = c1 - ((w1 + n1 + 1) >> 1)
    level = clip(mean + shift)
    guess = (2 * solid + level + down + right) // 5
    activity = abs(w - nw) + abs(n - nw) + abs(n - ne)
    rank = np.int64(0)
    while activity > 0:
        activity = activity * 2 // 3
        rank += 1
    rank = min(rank, np.int64(15))
    r[MIXER_RANK] = rank
    r[MIXER_BYTE] = guess
    r[VALUES + 8] = combine(combine(level, clip(ne + c1 - ne1)), channel)
    r[VALUES + 9] = combine(solid, channel)
    r[VALUES + 10] = combine(combine(guess, rank), channel)
    r[VALUES + 11] = combine(combine(plane, solid), channel)
    r[VALUES + 12] = combine(plane, channel)
    r[VALUES + 24] = combine(down, channel)
    r[VALUES + 25] = combine(combine(down, right), channel)
    r[VALUES + 26] = combine(combine(clip(2 * n - nn), clip(2 * w - ww)), channel)
    r[VALUES + 27] = combine(combine(mean, shift & 511), channel)
    r[VALUES + 28] = combine(combine(w >> 3, n >> 3), combine(combine(nw >> 3, ne >> 3), channel))
    r[VALUES + 29] = combine(combine(n, nn), channel)
    r[VALUES + 35] = combine(combine(n, c1), combine(n1, channel))
    r[VALUES + 39] = combine(combine(w, c1), combine(w1, channel))
    r[VALUES + 40] = combine(combine(guess, (w - n) & 511), channel)
