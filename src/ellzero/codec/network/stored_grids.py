"""What quantised levels are worth: multiplication of doubles and rounding alone, which every machine does alike."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.dtypes import DType, Words

MAX_LOGARITHMIC_LEVEL = 4096
MAX_UNIFORM_LEVEL = 1 << 29


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """A level is worth itself times the step.

    Attributes:
        steps: positive single-precision numbers, one for the whole tensor or one for each of its rows. Steps with few bits take less room.
    """

    steps: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Logarithmic:
    """A level k is worth the smallest magnitude times the ratio to the power of |k| - 1, with the sign of k.

    Attributes:
        smallest: positive single-precision number.
        ratio: single-precision number above 1. Numbers with few bits take less room.
    """

    smallest: float
    ratio: float


Grid = Uniform | Logarithmic


def worth(levels: NDArray[np.int32], grid: Grid, dtype: DType, rows: int) -> Words:
    """Returns the bits of the numbers that levels stand for.

    Args:
        levels: row by row, [rows * columns].
        grid: what they are worth.
        dtype: floating-point type of the numbers.
        rows: as many as there are steps, where there are several.

    Returns:
        The words, [rows * columns].

    Raises:
        ValueError: a logarithmic level too large for a table.
    """
    if isinstance(grid, Uniform):
        steps = np.array(grid.steps, np.float64)
        matrix = levels.reshape(steps.size if steps.size > 1 else 1, -1) if levels.size else levels.reshape(1, 0)
        assert steps.size == 1 or steps.size == rows
        return rounded((matrix * steps.reshape(-1, 1)).reshape(-1), dtype)
    largest = int(np.abs(levels).max(initial=0))
    if largest > MAX_LOGARITHMIC_LEVEL:
        raise ValueError(f"a logarithmic grid has at most {MAX_LOGARITHMIC_LEVEL} levels, not {largest}")
    table = np.zeros(largest + 1, np.float64)
    magnitude = np.float64(grid.smallest)
    with np.errstate(over="ignore"):
        for level in range(1, largest + 1):
            table[level] = magnitude
            magnitude = magnitude * np.float64(grid.ratio)
    return rounded(np.sign(levels) * table[np.abs(levels)], dtype)


def roundable(dtype: DType) -> bool:
    """Tells whether numbers of a type can be quantised: single, double and half precision, and bfloat16."""
    return dtype in (DType.F32, DType.F16, DType.BF16, DType.F64)


def rounded(values: NDArray[np.float64], dtype: DType) -> Words:
    """Rounds doubles to a type, to the nearest and to even between two, and returns their bits; bfloat16 by way of single precision.

    Args:
        values: finite or not, never NaN.
        dtype: one that is `roundable`.
    """
    # Adding zero turns -0.0 into 0.0.
    values = values + 0.0
    with np.errstate(over="ignore"):
        if dtype is DType.BF16:
            single = values.astype("<f4").view("<u4").astype(np.uint64)
            return ((single + np.uint64(0x7FFF) + ((single >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype("<u2")
        kind = dtype.array_type
        assert roundable(dtype)
        assert kind is not None
        return values.astype(kind).view(dtype.word_type)
