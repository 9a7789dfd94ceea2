# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Which rows and columns of a tensor hold anything but zeros."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.layout import LIVE, LIVE_AROUND, LIVE_BORDER, LIVE_COUNT, LIVE_LINKED, LIVE_SLOTS
from ellzero.codec.network.mixing import MIXER_RATE, Memory, Slots, Weights, code_mixed
from ellzero.codec.rangecoder import Buffer, State
from ellzero.jit.kernels import Integer, kernel

_LIMIT = 255


@kernel
def code_flags(
    state: State,
    data: Buffer,
    decode: bool,
    memory: Memory,
    weights: Weights,
    slots: Slots,
    flags: NDArray[np.uint8],
    width: Integer,
    link: NDArray[np.uint8],
) -> None:
    """Codes one decision per line.

    The arguments from `state` to `slots` are those of `mix`.

    Args:
        flags: 1 where the line lives, [n]; filled in where the stream is read.
        width: of the image that the lines are pixels of, or 1.
        link: class of the same line in an earlier tensor, 0..7, [n]; zeros without one.
    """
    width = np.int64(width)
    inputs, mixer, limit, rate = np.int64(5), np.int64(LIVE), np.int64(_LIMIT), np.int64(MIXER_RATE)
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
        slots[0] = LIVE_SLOTS
        slots[1] = LIVE_AROUND + left + two * up + np.int64(4) * up_right + np.int64(8) * up_left
        slots[2] = LIVE_LINKED + linked
        slots[3] = LIVE_COUNT + linked * np.int64(6) + left + second + up + up_right + up_left
        slots[4] = LIVE_BORDER
        if width > one:
            row = at // width
            column = at - row * width
            border = min(min(row, last_row - row), min(column, width - one - column))
            slots[4] += one + min(max(border, zero), np.int64(14))
        flags[at] = np.uint8(code_mixed(state, data, decode, memory, weights, slots, inputs, mixer, np.int64(flags[at]), limit, rate))
