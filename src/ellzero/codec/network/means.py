# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""What the magnitudes before a cell let one expect of it: means of its row, its channel and its place in the kernel."""

from typing import NamedTuple

import numpy as np

from ellzero.codec.logistic import rate_table
from ellzero.codec.network.layout import ALL_MEAN, ALL_SEEN, LOGARITHMIC, MEANS, ROW_MEAN, ROW_SEEN, Cells
from ellzero.codec.network.window import Cell
from ellzero.jit.kernels import Integer, inlined, kernel

_RATE = rate_table()
_LONGEST = np.int64(255)


class Expected(NamedTuple):
    """Classes of what is expected of a magnitude: by row, channel and place together, by the neighbours, by row and by channel apart."""

    together: int
    near: int
    lines: int


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


@inlined
def start_means(cells: Cells, cell: Cell) -> None:
    """Starts the means of a channel and of a place in the kernel that have seen nothing at that of the tensor."""
    if cells.channel_seen[cell.channel] == np.int64(0):
        cells.channel_mean[cell.channel] = cells.running[ALL_MEAN]
    if cells.tap_seen[cell.tap] == np.int64(0):
        cells.tap_mean[cell.tap] = cells.running[ALL_MEAN]


@inlined
def expect(cells: Cells, cell: Cell) -> Expected:
    """Returns the classes of what is expected of a cell's magnitude."""
    two, four, eight = np.int64(2), np.int64(4), np.int64(8)
    of_all, of_row = cells.running[ALL_MEAN], cells.running[ROW_MEAN]
    of_channel, of_tap = cells.channel_mean[cell.channel], cells.tap_mean[cell.tap]
    around = abs(cell.left) + abs(cell.up) + abs(cell.block) + abs(cell.over)
    if cells.geometry[LOGARITHMIC] != 0:
        together = _clip((of_row + of_channel + of_tap - two * of_all) >> np.int64(6), MEANS)
        near = _clip(around, MEANS)
        lines = _clip(of_row >> eight, 8) * eight + _clip(of_channel >> eight, 8)
    else:
        row, channel = _log(of_row >> four), _log(of_channel >> four)
        together = _clip(row + channel + _log(of_tap >> four) - two * _log(of_all >> four), MEANS)
        near = _clip(_log(four * around), MEANS)
        lines = _clip(row >> two, 8) * eight + _clip(channel >> two, 8)
    return Expected(together, near, lines)


@inlined
def follow(cells: Cells, cell: Cell, size: Integer) -> None:
    """Moves all means towards a magnitude."""
    running, channel, tap, one = cells.running, cell.channel, cell.tap, np.int64(1)
    running[ALL_MEAN] = _moved(running[ALL_MEAN], running[ALL_SEEN], size)
    running[ALL_SEEN] += one
    running[ROW_MEAN] = _moved(running[ROW_MEAN], running[ROW_SEEN], size)
    running[ROW_SEEN] += one
    cells.channel_mean[channel] = _moved(cells.channel_mean[channel], cells.channel_seen[channel], size)
    cells.channel_seen[channel] += one
    cells.tap_mean[tap] = _moved(cells.tap_mean[tap], cells.tap_seen[tap], size)
    cells.tap_seen[tap] += one
