# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""What stands around a cell in its own row, as far as it is known: places of a picture or of a kernel, the near ones counting more."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.layout import TAPS, WIDTH, Cells
from ellzero.jit.kernels import Integer, inlined, kernel


class Cell(NamedTuple):
    """A cell, and the levels around it, 0 where there are none.

    Attributes:
        at: its place in the flat matrix.
        row: its row in the matrix.
        column: its column in the matrix.
        channel: which channel the column belongs to.
        tap: which place in the kernel the column is.
        left: the level before it in its row.
        up: the level one line of the picture or of the kernel before.
        block: the level at the same place in the channel before.
        over: the level in the same column of the last row that lives.
    """

    at: int
    row: int
    column: int
    channel: int
    tap: int
    left: int
    up: int
    block: int
    over: int


@inlined
def is_picture(cells: Cells) -> bool:
    """Tells whether the columns of a matrix are the pixels of a picture."""
    return cells.geometry[TAPS] == np.int64(1) and cells.geometry[WIDTH] > np.int64(1)


@kernel
def nonzeros_around(levels: NDArray[np.int32], at: Integer, column: Integer, width: Integer) -> np.int64:
    """Counts what is not zero up to three places away: 6 for a neighbour, 3 for the next, 1 for the last.

    Args:
        levels: the flat matrix.
        at: the cell.
        column: its column.
        width: cells after which the next line of the picture comes; at most 1 where there is but one.

    Returns:
        The count, at most 31, int64.
    """
    zero, one, three = np.int64(0), np.int64(1), np.int64(3)
    at, column, width = np.int64(at), np.int64(column), np.int64(width)
    lines = three if width > one else zero
    place = column % width if width > one else column
    count = zero
    for down in range(lines + one):
        for index in range(7):
            right = np.int64(index) - three
            back = np.int64(down) * width + right
            if back <= zero or column < back or place < right or (width > one and place - right >= width):
                continue
            if levels[at - back] != np.int32(0):
                away = max(np.int64(down), abs(right))
                count += np.int64(6) if away == one else (three if away == np.int64(2) else one)
    return min(count, np.int64(31))


@kernel
def signs_around(levels: NDArray[np.int32], at: Integer, column: Integer, width: Integer) -> np.int64:
    """Sums signs up to two places away: twice those of neighbours; arguments as in `nonzeros_around`.

    Returns:
        The sum within -15 and 15, int64.
    """
    zero, one, two = np.int64(0), np.int64(1), np.int64(2)
    at, column, width = np.int64(at), np.int64(column), np.int64(width)
    lines = two if width > one else zero
    place = column % width if width > one else column
    total = zero
    for down in range(lines + one):
        for index in range(5):
            right = np.int64(index) - two
            back = np.int64(down) * width + right
            if back <= zero or column < back or place < right or (width > one and place - right >= width):
                continue
            level = levels[at - back]
            sign = np.int64(level > np.int32(0)) - np.int64(level < np.int32(0))
            total += two * sign if max(np.int64(down), abs(right)) == one else sign
    return min(max(total, np.int64(-15)), np.int64(15))
