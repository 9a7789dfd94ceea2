# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Which rows and columns of a tensor hold anything but zeros."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.layout import LIVE, LIVE_AROUND, LIVE_BORDER, LIVE_COUNT, LIVE_LINKED, LIVE_SLOTS
from ellzero.codec.network.mixing import MIXER_RATE, MixingModel, Stream, code_mixed
from ellzero.jit.kernels import Integer, kernel

_LIMIT = 255

# Contexts of a line: none, the lines around it, the linked line, that and how many lines around it live, how far the border is.
_BIAS, _AROUND, _LINKED, _COUNT, _BORDER = range(5)
_INPUTS = 5


@kernel
def code_flags(stream: Stream, model: MixingModel, flags: NDArray[np.uint8], width: Integer, link: NDArray[np.uint8]) -> None:
    """Codes one decision per line.

    Args:
        stream: as in `mix`.
        model: as in `mix`.
        flags: 1 where the line lives, [n]; filled in where the stream is read.
        width: of the image that the lines are pixels of, or 1.
        link: class of the same line in an earlier tensor, 0..7, [n]; zeros without one.
    """
    width, slots = np.int64(width), model.slots
    inputs, mixer, limit, rate = np.int64(_INPUTS), np.int64(LIVE), np.int64(_LIMIT), np.int64(MIXER_RATE)
    zero, one, two = np.int64(0), np.int64(1), np.int64(2)
    last_row = (np.int64(flags.size) + width - one) // width - one
    for index in range(flags.size):
        at = np.int64(index)
        left = np.int64(flags[at - one]) if at > zero else zero
        second = np.int64(flags[at - two]) if at > one else zero
        up = np.int64(flags[at - width]) if at >= width and width > one else zero
        up_right = np.int64(flags[at - width + one]) if at >= width and width > one else zero
        up_left = np.int64(flags[at - width - one]) if at > width and width > one else zero
        linked = min(np.int64(link[at]), np.int64(3))
        slots[_BIAS] = LIVE_SLOTS
        slots[_AROUND] = LIVE_AROUND + left + two * up + np.int64(4) * up_right + np.int64(8) * up_left
        slots[_LINKED] = LIVE_LINKED + linked
        slots[_COUNT] = LIVE_COUNT + linked * np.int64(6) + left + second + up + up_right + up_left
        slots[_BORDER] = LIVE_BORDER
        if width > one:
            row = at // width
            column = at - row * width
            border = min(min(row, last_row - row), min(column, width - one - column))
            slots[_BORDER] += one + min(max(border, zero), np.int64(14))
        flags[at] = np.uint8(code_mixed(stream, model, inputs, mixer, np.int64(flags[at]), limit, rate))
