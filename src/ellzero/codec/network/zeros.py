# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Whether a cell is zero, seen in fifteen contexts: for matrices that are not large."""

import numpy as np

from ellzero.codec.logistic import LOGIT_LIMIT, stretch_table
from ellzero.codec.network.layout import (
    ABOVE,
    BEFORE,
    LEFT_SLOTS,
    LINE_SLOTS,
    LIVE_COLUMNS,
    PICTURE_ZERO,
    ROW_CELLS,
    ROW_COUNT,
    ROWS,
    ROWS_LEFT,
    SHARE_SLOTS,
    WIDTH,
    WINDOW_SLOTS,
    ZERO,
    ZERO_AROUND,
    ZERO_CELLS_LEFT,
    ZERO_EXPECTED,
    ZERO_LINKED,
    ZERO_NEAR,
    ZERO_ROW_COUNT,
    ZERO_ROWS_LEFT,
    ZERO_SIZES,
    ZERO_SLOTS,
    ZERO_TOUCHING,
    Cells,
)
from ellzero.codec.network.means import Expected
from ellzero.codec.network.mixing import MixingModel, Stream, code_mixed
from ellzero.codec.network.window import Cell, is_picture, nonzeros_around
from ellzero.jit.kernels import Integer, inlined, kernel

ZERO_LIMIT = 1023
"""How many decisions a cell of zeros remembers."""

_RATE = 6
_STRETCH = stretch_table()

# The contexts, as the places of their slots: none, row, column; neighbours as a pattern; linked column and count of the row; neighbours
# counted and count of the column; where nothing was seen yet, how many rows or cells are left; count of the row; magnitudes expected, near
# and around; what is due in the row, alone and as a share of the cells that are left; the window.
_BIAS, _ROW, _COLUMN, _AROUND, _LINKED, _TOUCHING, _ROWS_LEFT, _CELLS_LEFT, _ROW_COUNT = range(9)
_EXPECTED, _NEAR, _SIZES, _DUE, _SHARE, _WINDOW = range(9, 15)
_INPUTS = 15


@kernel
def _steps(left: Integer) -> np.int64:
    """Sorts a number of chances that are left into classes 1 to 7."""
    step = np.int64(1)
    while left > np.int64(1) and step < np.int64(7):
        left = (left + np.int64(1)) >> np.int64(1)
        step += np.int64(1)
    return step


@kernel
def _bits(number: Integer) -> np.int64:
    """Counts the bits behind the leading one of a number, at most 7."""
    number, count = np.int64(number), np.int64(0)
    while number > np.int64(1) and count < np.int64(7):
        number >>= np.int64(1)
        count += np.int64(1)
    return count


@kernel
def code_zero(stream: Stream, model: MixingModel, cells: Cells, cell: Cell, expected: Expected) -> np.int64:
    """Codes whether a cell is zero. Returns 0 where it is, else 1, int64."""
    running, slots, zero, two, three = cells.running, model.slots, np.int64(0), np.int64(2), np.int64(3)
    count = np.int64(cells.column_count[cell.column])
    own_rows = np.int64(LINE_SLOTS)
    slots[_BIAS] = ZERO_SLOTS
    slots[_ROW] = own_rows + cell.row
    slots[_COLUMN] = own_rows + cells.geometry[ROWS] + cell.column
    _set_neighbours(slots, cells, cell, count)
    slots[_LINKED] = ZERO_LINKED + np.int64(cells.link[cell.column]) * np.int64(4) + min(running[ROW_COUNT], three)
    cells_left = running[LIVE_COLUMNS] - running[ROW_CELLS]
    slots[_ROWS_LEFT] = ZERO_ROWS_LEFT + (zero if count else _steps(running[ROWS_LEFT]))
    slots[_CELLS_LEFT] = ZERO_CELLS_LEFT + (zero if running[ROW_COUNT] else _steps(cells_left))
    slots[_ROW_COUNT] = ZERO_ROW_COUNT + min(running[ROW_COUNT], np.int64(15))
    slots[_EXPECTED] = ZERO_EXPECTED + expected.together
    slots[_NEAR] = ZERO_NEAR + expected.near
    sizes = min(abs(cell.left), two) + three * min(abs(cell.over), two)
    sizes += np.int64(9) * min(abs(cell.up), two) + np.int64(27) * min(abs(cell.block), two)
    slots[_SIZES] = ZERO_SIZES + sizes
    _set_due(slots, cells, cells_left)
    slots[_WINDOW] = WINDOW_SLOTS + nonzeros_around(cells.levels, cell.at, cell.column, cells.geometry[WIDTH])
    mixer, nonzero = np.int64(PICTURE_ZERO if is_picture(cells) else ZERO), np.int64(cells.levels[cell.at] != np.int32(0))
    return code_mixed(stream, model, np.int64(_INPUTS), mixer, nonzero, np.int64(ZERO_LIMIT), np.int64(_RATE))


@inlined
def _set_neighbours(slots: np.ndarray, cells: Cells, cell: Cell, count: Integer) -> None:
    """Sets the contexts of which neighbours are not zero: left, up, up to the right and the left, and two places away."""
    levels, at, column, width = cells.levels, cell.at, cell.column, cells.geometry[WIDTH]
    zero, one, two = np.int64(0), np.int64(1), np.int64(2)
    left, up = np.int64(cell.left != zero), np.int64(cell.up != zero)
    up_right = np.int64(levels[at - width + one] != 0) if column >= width and width > one else zero
    up_left = np.int64(levels[at - width - one] != 0) if column > width and width > one else zero
    touching = left + up + up_right + up_left
    touching += np.int64(levels[at - two] != 0) if column > one else zero
    touching += np.int64(levels[at - two * width] != 0) if column >= two * width and width > one else zero
    slots[_AROUND] = ZERO_AROUND + left + two * up + np.int64(4) * up_right + np.int64(8) * up_left
    slots[_TOUCHING] = ZERO_TOUCHING + min(touching, np.int64(5)) * np.int64(6) + min(count, np.int64(5))


@inlined
def _set_due(slots: np.ndarray, cells: Cells, cells_left: Integer) -> None:
    """Sets the contexts of how many cells are due to be not zero in this row if it has as many as the row above."""
    running, zero, one, two = cells.running, np.int64(0), np.int64(1), np.int64(2)
    due, share = zero, np.int64(60)
    if running[ABOVE] >= zero:
        due = running[BEFORE] - running[ROW_COUNT]
        part = min((max(np.int64(4) * due, one) << np.int64(14)) // cells_left, np.int64(65535))
        share = (np.int64(_STRETCH[part]) + np.int64(LOGIT_LIMIT)) // np.int64(103)
        due = min(max(due, -two), np.int64(24)) + np.int64(3)
    slots[_DUE] = LEFT_SLOTS + due * np.int64(8) + _bits(cells_left)
    slots[_SHARE] = SHARE_SLOTS + share
