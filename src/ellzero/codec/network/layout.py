"""Where the slots and weights of a tensor's model lie, and with which weights it starts. Written down in docs/formats/format.md."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.adaptive import NEW
from ellzero.codec.network.mixing import MAX_INPUTS, WEIGHT_ONE, MixingModel, new_model

UNARY = 20
"""Magnitudes up to this one are counted up; the rest of larger ones is an Elias gamma code."""

MEANS = 48
"""Classes of an expected magnitude."""

# Rows of the weights.
LIVE, ZERO, MAGNITUDE, SIGN = 0, 1, 2, 2 + UNARY
PICTURE_ZERO, PICTURE_SIGN = SIGN + 1, SIGN + 2
MIXERS = SIGN + 3

# Slots that all tensors of a model share: which lines live, by the lines around, the linked one, both, and the border of a picture.
LIVE_SLOTS = 0
LIVE_AROUND = LIVE_SLOTS + 1
LIVE_LINKED = LIVE_AROUND + 16
LIVE_COUNT = LIVE_LINKED + 4
LIVE_BORDER = LIVE_COUNT + 24

# Whether a cell is zero, where contexts are mixed.
ZERO_SLOTS = 64
ZERO_AROUND = ZERO_SLOTS + 1
ZERO_LINKED = ZERO_AROUND + 16
ZERO_TOUCHING = ZERO_LINKED + 32
ZERO_ROWS_LEFT = ZERO_TOUCHING + 36
ZERO_CELLS_LEFT = ZERO_ROWS_LEFT + 8
ZERO_ROW_COUNT = ZERO_CELLS_LEFT + 8
ZERO_EXPECTED = ZERO_ROW_COUNT + 16
ZERO_NEAR = ZERO_EXPECTED + MEANS
ZERO_SIZES = ZERO_NEAR + MEANS

# Whether a cell is zero, where one context decides.
DIRECT_SLOTS = 384

# Magnitudes: for each, as many slots as follow from the places of its contexts.
MAGNITUDE_SLOTS = 512
OF_EXPECTED = 1
OF_NEAR = OF_EXPECTED + MEANS
OF_PAIR = OF_NEAR + MEANS
OF_TAP = OF_PAIR + 64
OF_LINES = OF_TAP + 31
MAGNITUDE_SIZE = OF_LINES + 64

# Signs, by the levels beside and before, and by those of the window, whose sum lies within -15 and 15.
SIGN_SLOTS = MAGNITUDE_SLOTS + UNARY * MAGNITUDE_SIZE
SIGN_BESIDE = SIGN_SLOTS + 1
SIGN_BEFORE = SIGN_BESIDE + 9

# Bits behind a magnitude, repetitions, what is left of a row, and windows of zeros and of signs.
ESCAPE_SLOTS = SIGN_SLOTS + 64
EXTRA_SLOTS = ESCAPE_SLOTS + 32
REPEAT_SLOTS = EXTRA_SLOTS + 256
LEFT_SLOTS = REPEAT_SLOTS + 64
SHARE_SLOTS = LEFT_SLOTS + 224
WINDOW_SLOTS = SHARE_SLOTS + 64
SIGN_WINDOW = WINDOW_SLOTS + 32 + 15
SHARED_SLOTS = WINDOW_SLOTS + 64

# Slots of the tensor alone: its magnitudes, then its rows, then its columns.
OWN_SLOTS = SHARED_SLOTS
LINE_SLOTS = OWN_SLOTS + 32

_FIRST_WEIGHTS = {
    LIVE: (-0.24, 0.48, 0.24, 0.32, 0.3),
    ZERO: (-0.5, 0.0, 0.06, 0.06, 0.4, 0.13, -0.13, 0.06, 0.02, 0.03, -0.08, -0.07, 0.0, 0.06, 0.12),
    PICTURE_ZERO: (-0.54, -0.3, 0.0, 0.17, 0.21, 0.24, -0.11, 0.26, 0.25, 0.08, 0.03, 0.07, 0.14, 0.16, 0.46),
    **dict.fromkeys(range(MAGNITUDE, SIGN), (0.0, 0.25, 0.15, 0.2, 0.15, 0.1, 0.15)),
    SIGN: (0.2, 0.35, 0.35, 0.0),
    PICTURE_SIGN: (0.1, 0.2, 0.2, 0.6),
}

# Geometry of a tensor as a matrix, as the kernels take it.
ROWS, COLUMNS, TAPS, WIDTH, LOGARITHMIC, HAS_ZEROS, MIXED, HAS_SIGNS, EXTRA_BITS, TOP_BIT, REPEATS = range(11)
NUM_GEOMETRY = 11

# What runs along: means in 1/256, counts of cells seen.
ALL_MEAN, ALL_SEEN, ALL_COUNT, ROW_MEAN, ROW_SEEN, ROW_COUNT, ROW_CELLS, ROWS_LEFT, ABOVE, LIVE_COLUMNS, BEFORE = range(11)
NUM_RUNNING = 11


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


def first_model() -> MixingModel:
    """Returns the model of levels that has seen nothing."""
    weights = np.zeros((MIXERS, MAX_INPUTS), np.int64)
    for mixer, row in _FIRST_WEIGHTS.items():
        weights[mixer, : len(row)] = [round(weight * WEIGHT_ONE) for weight in row]
    return new_model(SHARED_SLOTS, weights)


def with_own_slots(model: MixingModel, lines: int) -> MixingModel:
    """Returns a model with fresh slots for one tensor after those that it shares; everything else is shared with the given one."""
    return model._replace(memory=np.concatenate((model.memory, np.full(LINE_SLOTS - SHARED_SLOTS + lines, NEW, np.uint32))))
