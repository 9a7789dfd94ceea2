"""Where the slots and weights of a tensor's model lie, and with which weights it starts. Written down in docs/format.md."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.adaptive import NEW
from ellzero.codec.network.mixing import MAX_INPUTS, WEIGHT_ONE, Model, new_model

UNARY = 20
"""Magnitudes up to this one are counted up; the rest of larger ones is an Elias gamma code."""

MEANS = 48
"""Classes of an expected magnitude."""

# Rows of the weights.
LIVE, ZERO, MAGNITUDE, SIGN = 0, 1, 2, 2 + UNARY
MIXERS = SIGN + 1

# Slots that all tensors of a model share.
LIVE_SLOTS = 0
ZERO_SLOTS = 64
DIRECT_SLOTS = 384
MAGNITUDE_SLOTS = 512
SIGN_SLOTS = MAGNITUDE_SLOTS + UNARY * 256
ESCAPE_SLOTS = SIGN_SLOTS + 64
EXTRA_SLOTS = ESCAPE_SLOTS + 32
REPEAT_SLOTS = EXTRA_SLOTS + 256
SHARED_SLOTS = REPEAT_SLOTS + 64

# Slots of the tensor alone: its magnitudes, then its rows, then its columns.
OWN_SLOTS = SHARED_SLOTS
LINE_SLOTS = OWN_SLOTS + 32

_FIRST_WEIGHTS = {
    LIVE: (-0.3, 0.6, 0.3, 0.4),
    ZERO: (-0.6, 0.0, 0.2, 0.2, 0.3, 0.3, -0.15, 0.25, 0.2, 0.0, 0.0, 0.0),
    **dict.fromkeys(range(MAGNITUDE, SIGN), (0.0, 0.25, 0.15, 0.2, 0.15, 0.1, 0.15)),
    SIGN: (0.2, 0.4, 0.4),
}

# Geometry of a tensor as a matrix, as the kernels take it.
ROWS, COLUMNS, TAPS, WIDTH, LOGARITHMIC, HAS_ZEROS, MIXED, HAS_SIGNS, EXTRA_BITS, TOP_BIT, REPEATS = range(11)

# What runs along: means in 1/256, counts of cells seen.
ALL_MEAN, ALL_SEEN, ALL_COUNT, ROW_MEAN, ROW_SEEN, ROW_COUNT, ROW_CELLS, ROWS_LEFT, ABOVE, LIVE_COLUMNS = range(10)
RUNNING = 10


class Cells(NamedTuple):
    """A tensor as a matrix, which of its lines live, the profile that its columns are linked to, and what has been seen so far."""

    levels: NDArray[np.int32]
    extra: NDArray[np.uint64]
    rows: NDArray[np.uint8]
    columns: NDArray[np.uint8]
    link: NDArray[np.uint8]
    geometry: NDArray[np.int64]
    running: NDArray[np.int64]
    column_count: NDArray[np.int32]
    channel_mean: NDArray[np.int64]
    channel_seen: NDArray[np.int64]
    tap_mean: NDArray[np.int64]
    tap_seen: NDArray[np.int64]
    repeat: NDArray[np.int64]
    table: NDArray[np.int32]


def first_model() -> Model:
    """Returns the model of levels that has seen nothing."""
    weights = np.zeros((MIXERS, MAX_INPUTS), np.int64)
    for mixer, row in _FIRST_WEIGHTS.items():
        weights[mixer, : len(row)] = [round(weight * WEIGHT_ONE) for weight in row]
    return new_model(SHARED_SLOTS, weights)


def with_own_slots(model: Model, lines: int) -> Model:
    """Returns a model with fresh slots for one tensor after those that it shares; everything else is shared with the given one."""
    return model._replace(memory=np.concatenate((model.memory, np.full(LINE_SLOTS - SHARED_SLOTS + lines, NEW, np.uint32))))
