# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""The matrix of a tensor's levels, cell by cell: which are zero, how large the others are, and their signs."""

import numpy as np

from ellzero.codec.network.layout import (
    ABOVE,
    ALL_COUNT,
    ALL_MEAN,
    BEFORE,
    COLUMNS,
    DIRECT_SLOTS,
    EXTRA_BITS,
    HAS_SIGNS,
    HAS_ZEROS,
    MIXED,
    PICTURE_SIGN,
    REPEATS,
    ROW_CELLS,
    ROW_COUNT,
    ROW_MEAN,
    ROW_SEEN,
    ROWS_LEFT,
    SIGN,
    TAPS,
    TOP_BIT,
    WIDTH,
    Cells,
)
from ellzero.codec.network.magnitudes import ALL_INPUTS, FEW_INPUTS, code_extra, code_magnitude, code_sign
from ellzero.codec.network.means import Expected, expect, follow, start_means
from ellzero.codec.network.mixing import MixingModel, Stream, code_alone
from ellzero.codec.network.repeats import code_repeat, remember
from ellzero.codec.network.window import Cell, is_picture, signs_around
from ellzero.codec.network.zeros import ZERO_LIMIT, code_zero
from ellzero.jit.kernels import Integer, inlined, kernel


@kernel
def code_cells(stream: Stream, model: MixingModel, cells: Cells, start: Integer, stop: Integer) -> None:
    """Codes the cells from `start` up to `stop` of the flat matrix; to be called in order, from 0 to the end."""
    geometry, running, levels = cells.geometry, cells.running, cells.levels
    rows, live_columns = cells.rows, cells.columns
    columns, taps, width = geometry[COLUMNS], geometry[TAPS], geometry[WIDTH]
    has_zeros, mixed = geometry[HAS_ZEROS] != 0, geometry[MIXED] != 0
    zero, one = np.int64(0), np.int64(1)
    row = np.int64(start) // columns
    column = np.int64(start) - row * columns
    tap = column % taps
    channel = column // taps
    # Half of what a column holds on average, and which of the last 32 cells were not zero, one bit each.
    half = (running[ALL_COUNT] >> one) // columns
    recent = zero
    for index in range(start, stop):
        at = np.int64(index)
        if column == columns:
            column = tap = channel = zero
            row += one
        elif tap == taps:
            tap = zero
            channel += one
        if column == zero:
            _start_row(cells, row)
            half = (running[ALL_COUNT] >> one) // columns
        if not rows[row] or not live_columns[column]:
            levels[at] = np.int32(0)
            column += one
            tap += one
            continue
        above = running[ABOVE]
        left = np.int64(levels[at - one]) if column > zero else zero
        over = np.int64(levels[above * columns + column]) if above >= zero else zero
        nonzero = one
        if has_zeros and not mixed:
            context = _direct_context(np.int64(cells.column_count[column]), half, left, over, recent)
            nonzero = code_alone(stream, model, DIRECT_SLOTS + context, np.int64(levels[at] != np.int32(0)), ZERO_LIMIT)
            recent = ((recent << one) | nonzero) & np.int64(0xFFFFFFFF)
        if nonzero or mixed:
            up = np.int64(levels[at - width]) if column >= width and width > one else zero
            block = np.int64(levels[at - taps]) if column >= taps and taps > one else zero
            nonzero = _code_level(stream, model, cells, Cell(at, row, column, channel, tap, left, up, block, over))
        if not nonzero:
            levels[at] = np.int32(0)
        running[ROW_CELLS] += one
        column += one
        tap += one


@inlined
def _start_row(cells: Cells, row: Integer) -> None:
    """Makes the row before this one, if it lives, the row above, and starts the counts of this one."""
    running = cells.running
    zero, one = np.int64(0), np.int64(1)
    if row > zero and cells.rows[row - one]:
        running[ABOVE] = row - one
        running[BEFORE] = running[ROW_COUNT]
        running[ROWS_LEFT] -= one
    running[ROW_SEEN] = running[ROW_COUNT] = running[ROW_CELLS] = zero
    running[ROW_MEAN] = running[ALL_MEAN]


@inlined
def _direct_context(count: Integer, half: Integer, left: Integer, over: Integer, recent: Integer) -> np.int64:
    """Returns the context of a zero in the quick mode, 0..127: two neighbours, how full the column is, and the last cells."""
    zero, two, four = np.int64(0), np.int64(2), np.int64(4)
    context = np.int64(left != zero) + two * np.int64(over != zero)
    context += four * (np.int64(count > half) + np.int64(count > two * half) + np.int64(count > four * half))
    context += np.int64(16) * (recent & np.int64(1)) + np.int64(32) * np.int64((recent & np.int64(0x3E)) != zero)
    return context + np.int64(64) * np.int64((recent >> np.int64(6)) != zero)


@inlined
def _code_level(stream: Stream, model: MixingModel, cells: Cells, cell: Cell) -> np.int64:
    """Codes a cell: where contexts are mixed whether it is zero, and its level where it is not. Returns 1 where it is not, int64."""
    running, geometry, one = cells.running, cells.geometry, np.int64(1)
    start_means(cells, cell)
    expected = expect(cells, cell)
    nonzero = one
    if geometry[HAS_ZEROS] != 0 and geometry[MIXED] != 0:
        nonzero = code_zero(stream, model, cells, cell, expected)
    size = abs(np.int64(cells.levels[cell.at]))
    if nonzero:
        size = _code_value(stream, model, cells, cell, expected, size)
        running[ALL_COUNT] += one
        running[ROW_COUNT] += one
        cells.column_count[cell.column] += np.int32(1)
    follow(cells, cell, size)
    return nonzero


@inlined
def _code_value(stream: Stream, model: MixingModel, cells: Cells, cell: Cell, expected: Expected, size: Integer) -> np.int64:
    """Codes a level that is not zero, with the bits behind it. Returns its magnitude, int64."""
    levels, extra, geometry, at, zero = cells.levels, cells.extra, cells.geometry, cell.at, np.int64(0)
    repeats = geometry[REPEATS] != 0
    negative = np.int64(levels[at] < 0)
    if not repeats or not code_repeat(stream, model, levels, extra, cells.repeat, at):
        size = code_magnitude(stream, model, cell, expected, size, np.int64(ALL_INPUTS if geometry[MIXED] != 0 else FEW_INPUTS))
        bits = geometry[EXTRA_BITS]
        if bits < zero:
            bits = max(geometry[TOP_BIT] - size, zero)
        if bits > zero:
            extra[at] = code_extra(stream, model, extra[at], bits, size)
    else:
        size = abs(np.int64(levels[at]))
    if geometry[HAS_SIGNS]:
        window = signs_around(levels, at, cell.column, geometry[WIDTH])
        negative = code_sign(stream, model, cell, negative, window, np.int64(PICTURE_SIGN if is_picture(cells) else SIGN))
    levels[at] = np.int32(-size if negative else size)
    if repeats:
        remember(levels, extra, cells.repeat, cells.table, at)
    return size
