# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""What stands around a cell in its own row, as far as it is known: places of a picture or of a kernel, the near ones counting more."""

import numpy as np
from numpy.typing import NDArray

from ellzero.jit.kernels import Integer, kernel


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
    found = zero
    for down in range(lines + one):
        for index in range(7):
            right = np.int64(index) - three
            back = np.int64(down) * width + right
            if back <= zero or column < back or place < right or (width > one and place - right >= width):
                continue
            if levels[at - back] != np.int32(0):
                away = max(np.int64(down), abs(right))
                found += np.int64(6) if away == one else (three if away == np.int64(2) else one)
    return min(found, np.int64(31))


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
    found = zero
    for down in range(lines + one):
        for index in range(5):
            right = np.int64(index) - two
            back = np.int64(down) * width + right
            if back <= zero or column < back or place < right or (width > one and place - right >= width):
                continue
            level = levels[at - back]
            sign = np.int64(level > np.int32(0)) - np.int64(level < np.int32(0))
            found += two * sign if max(np.int64(down), abs(right)) == one else sign
    return min(max(found, np.int64(-15)), np.int64(15))
