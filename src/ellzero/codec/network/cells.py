# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""The matrix of a tensor's levels, cell by cell: which are zero, how large the others are, and their signs."""

import numpy as np

from ellzero.codec.logistic import LOGIT_LIMIT, rate_table, stretch_table
from ellzero.codec.network.layout import (
    ABOVE,
    ALL_COUNT,
    ALL_MEAN,
    ALL_SEEN,
    BEFORE,
    COLUMNS,
    DIRECT_SLOTS,
    EXTRA_BITS,
    HAS_SIGNS,
    HAS_ZEROS,
    LEFT_SLOTS,
    LINE_SLOTS,
    LIVE_COLUMNS,
    LOGARITHMIC,
    MEANS,
    MIXED,
    PICTURE_SIGN,
    PICTURE_ZERO,
    REPEATS,
    ROW_CELLS,
    ROW_COUNT,
    ROW_MEAN,
    ROW_SEEN,
    ROWS,
    ROWS_LEFT,
    SHARE_SLOTS,
    SIGN,
    TAPS,
    TOP_BIT,
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
from ellzero.codec.network.magnitudes import code_extra, code_magnitude, code_sign
from ellzero.codec.network.mixing import Memory, Slots, Weights, code_alone, code_mixed
from ellzero.codec.network.repeats import code_repeat, remember
from ellzero.codec.network.window import nonzeros_around, signs_around
from ellzero.codec.rangecoder import Buffer, State
from ellzero.jit.kernels import Integer, kernel

_LIMIT = 1023
_ZERO_RATE = 6
_STRETCH = stretch_table()
_RATE = rate_table()
_LONGEST = np.int64(255)


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
def _log(value: Integer) -> np.int64:
    """Returns four times the logarithm to base 2 of 4 + value, less 8; between powers of two by the two bits that follow the first."""
    value = np.int64(value) + np.int64(4)
    shift = np.int64(0)
    while value >= np.int64(8):
        value >>= np.int64(1)
        shift += np.int64(1)
    return np.int64(4) * shift + value - np.int64(4)


@kernel
def _moved(mean: Integer, seen: Integer, size: Integer) -> np.int64:
    """Returns a mean after one more magnitude."""
    rate = np.int64(_RATE[min(np.int64(seen), _LONGEST)])
    return mean + ((((size << np.int64(8)) - mean) * rate) >> np.int64(16))


@kernel
def _clip(value: Integer, limit: Integer) -> np.int64:
    return min(max(np.int64(value), np.int64(0)), np.int64(limit) - np.int64(1))


@kernel
def code_cells(
    state: State, data: Buffer, decode: bool, memory: Memory, weights: Weights, slots: Slots, cells: Cells, start: Integer, stop: Integer
) -> None:
    """Codes the cells from `start` up to `stop` of the flat matrix; to be called in order, from 0 to the end."""
    geometry, running, levels = cells.geometry, cells.running, cells.levels
    extra, rows, live_columns, link = cells.extra, cells.rows, cells.columns, cells.link
    column_count, channel_mean, channel_seen, tap_mean, tap_seen = (
        cells.column_count,
        cells.channel_mean,
        cells.channel_seen,
        cells.tap_mean,
        cells.tap_seen,
    )
    columns, taps, width = geometry[COLUMNS], geometry[TAPS], geometry[WIDTH]
    logarithmic, has_zeros, mixed = geometry[LOGARITHMIC] != 0, geometry[HAS_ZEROS] != 0, geometry[MIXED] != 0
    repeats, repeat, table = geometry[REPEATS] != 0, cells.repeat, cells.table
    inputs = np.int64(7 if mixed else 3)
    picture = taps == np.int64(1) and width > np.int64(1)
    zero, one, two, four = np.int64(0), np.int64(1), np.int64(2), np.int64(4)
    own_rows = np.int64(LINE_SLOTS)
    own_columns = own_rows + geometry[ROWS]
    row = np.int64(start) // columns
    column = np.int64(start) - row * columns
    tap = column % taps
    channel = column // taps
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
            if row > zero and rows[row - one]:
                running[ABOVE] = row - one
                running[BEFORE] = running[ROW_COUNT]
                running[ROWS_LEFT] -= one
            running[ROW_SEEN] = running[ROW_COUNT] = running[ROW_CELLS] = zero
            running[ROW_MEAN] = running[ALL_MEAN]
            half = (running[ALL_COUNT] >> one) // columns
        if not rows[row] or not live_columns[column]:
            levels[at] = np.int32(0)
            column += one
            tap += one
            continue
        above = running[ABOVE]
        left = np.int64(levels[at - one]) if column > zero else zero
        over = np.int64(levels[above * columns + column]) if above >= zero else zero
        level = np.int64(levels[at])
        size = abs(level)
        nonzero = one
        if has_zeros and not mixed:
            count = np.int64(column_count[column])
            context = np.int64(left != zero) + two * np.int64(over != zero)
            context += four * (np.int64(count > half) + np.int64(count > two * half) + np.int64(count > four * half))
            context += np.int64(16) * (recent & np.int64(1)) + np.int64(32) * np.int64((recent & np.int64(0x3E)) != zero)
            context += np.int64(64) * np.int64((recent >> np.int64(6)) != zero)
            nonzero = code_alone(state, data, decode, memory, DIRECT_SLOTS + context, np.int64(size > zero), _LIMIT)
            recent = ((recent << one) | nonzero) & np.int64(0xFFFFFFFF)
        if nonzero or mixed:
            up = np.int64(levels[at - width]) if column >= width and width > one else zero
            block = np.int64(levels[at - taps]) if column >= taps and taps > one else zero
            if channel_seen[channel] == zero:
                channel_mean[channel] = running[ALL_MEAN]
            if tap_seen[tap] == zero:
                tap_mean[tap] = running[ALL_MEAN]
            of_row, of_channel, of_tap = running[ROW_MEAN], channel_mean[channel], tap_mean[tap]
            around = abs(left) + abs(up) + abs(block) + abs(over)
            if logarithmic:
                expected = _clip((of_row + of_channel + of_tap - two * running[ALL_MEAN]) >> np.int64(6), MEANS)
                near = _clip(around, MEANS)
                lines = _clip(of_row >> np.int64(8), 8) * np.int64(8) + _clip(of_channel >> np.int64(8), 8)
            else:
                logs = _log(of_row >> four) + _log(of_channel >> four) + _log(of_tap >> four)
                expected = _clip(logs - two * _log(running[ALL_MEAN] >> four), MEANS)
                near = _clip(_log(four * around), MEANS)
                lines = _clip(_log(of_row >> four) >> two, 8) * np.int64(8) + _clip(_log(of_channel >> four) >> two, 8)
            if has_zeros and mixed:
                a, b = np.int64(left != zero), np.int64(up != zero)
                c = np.int64(levels[at - width + one] != 0) if column >= width and width > one else zero
                d = np.int64(levels[at - width - one] != 0) if column > width and width > one else zero
                touching = a + b + c + d
                touching += np.int64(levels[at - two] != 0) if column > one else zero
                touching += np.int64(levels[at - two * width] != 0) if column >= two * width and width > one else zero
                count = np.int64(column_count[column])
                slots[0] = ZERO_SLOTS
                slots[1] = own_rows + row
                slots[2] = own_columns + column
                slots[3] = ZERO_AROUND + a + two * b + four * c + np.int64(8) * d
                slots[4] = ZERO_LINKED + np.int64(link[column]) * four + min(running[ROW_COUNT], np.int64(3))
                slots[5] = ZERO_TOUCHING + min(touching, np.int64(5)) * np.int64(6) + min(count, np.int64(5))
                slots[6] = ZERO_ROWS_LEFT + (zero if count else _steps(running[ROWS_LEFT]))
                left_cells = running[LIVE_COLUMNS] - running[ROW_CELLS]
                slots[7] = ZERO_CELLS_LEFT + (zero if running[ROW_COUNT] else _steps(left_cells))
                slots[8] = ZERO_ROW_COUNT + min(running[ROW_COUNT], np.int64(15))
                slots[9] = ZERO_EXPECTED + expected
                slots[10] = ZERO_NEAR + near
                around = min(abs(left), two) + np.int64(3) * min(abs(over), two) + np.int64(9) * min(abs(up), two)
                slots[11] = ZERO_SIZES + around + np.int64(27) * min(abs(block), two)
                # What is due in this row if it has as many as the one before.
                due, share = zero, np.int64(60)
                if above >= zero:
                    due = running[BEFORE] - running[ROW_COUNT]
                    part = min((max(four * due, one) << np.int64(14)) // left_cells, np.int64(65535))
                    share = (np.int64(_STRETCH[part]) + np.int64(LOGIT_LIMIT)) // np.int64(103)
                    due = min(max(due, -two), np.int64(24)) + np.int64(3)
                slots[12] = LEFT_SLOTS + due * np.int64(8) + _bits(left_cells)
                slots[13] = SHARE_SLOTS + share
                slots[14] = WINDOW_SLOTS + nonzeros_around(levels, at, column, width)
                bit, mixer = np.int64(size > zero), np.int64(PICTURE_ZERO if picture else ZERO)
                nonzero = code_mixed(
                    state, data, decode, memory, weights, slots, np.int64(15), mixer, bit, np.int64(_LIMIT), np.int64(_ZERO_RATE)
                )
            if nonzero:
                negative = np.int64(levels[at] < 0)
                if not repeats or not code_repeat(state, data, decode, memory, levels, extra, repeat, at):
                    size = code_magnitude(
                        state, data, decode, memory, weights, slots, size, expected, near, abs(left), abs(over), tap, lines, inputs
                    )
                    bits = geometry[EXTRA_BITS]
                    if bits < zero:
                        bits = max(geometry[TOP_BIT] - size, zero)
                    if bits > zero:
                        extra[at] = code_extra(state, data, decode, memory, weights, slots, extra[at], bits, size)
                else:
                    size = abs(np.int64(levels[at]))
                if geometry[HAS_SIGNS]:
                    window, mixer = signs_around(levels, at, column, width), np.int64(PICTURE_SIGN if picture else SIGN)
                    negative = code_sign(state, data, decode, memory, weights, slots, negative, left, up, block, over, window, mixer)
                levels[at] = np.int32(-size if negative else size)
                if repeats:
                    remember(levels, extra, repeat, table, at)
                running[ALL_COUNT] += one
                running[ROW_COUNT] += one
                column_count[column] += np.int32(1)
            running[ALL_MEAN] = _moved(running[ALL_MEAN], running[ALL_SEEN], size)
            running[ALL_SEEN] += one
            running[ROW_MEAN] = _moved(of_row, running[ROW_SEEN], size)
            running[ROW_SEEN] += one
            channel_mean[channel] = _moved(of_channel, channel_seen[channel], size)
            channel_seen[channel] += one
            tap_mean[tap] = _moved(of_tap, tap_seen[tap], size)
            tap_seen[tap] += one
        if not nonzero:
            levels[at] = np.int32(0)
        running[ROW_CELLS] += one
        column += one
        tap += one
