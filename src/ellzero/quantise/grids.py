"""Grids that weights are moved to without data, by their own error: few values, of which 0 is exactly 0."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.stored_grids import Grid, Logarithmic, Uniform

# Parameters of a grid are rounded to so many bits of mantissa, because each bit of them is in the file.
_MANTISSA_BITS = 5

# A grid reaches from the geometric mean down to the mean over this: 9 levels of ratio 1.3.
_REACH = 10.7


@dataclass(frozen=True, kw_only=True)
class Levels:
    """A tensor on a grid.

    Attributes:
        levels: integers of the tensor's shape; 0 is exactly zero.
        grid: what a level is worth.
    """

    levels: NDArray[np.int32]
    grid: Grid


@runtime_checkable
class Quantiser(Protocol):
    """Moves the weights of a tensor to a grid."""

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Returns levels and grid of a tensor, or None where it is to be stored exactly.

        Args:
            name: of the tensor in its network.
            values: its numbers, finite, in its shape.
        """
        ...


@dataclass(frozen=True)
class LogGrid:
    """One logarithmic grid per tensor: the magnitudes are powers of a ratio times the smallest, and only exact zeros are zero.

    Sparse networks have few small weights and each counts; a uniform grid would round those away.

    Args:
        ratio: of neighbouring magnitudes, above 1; rounded to a 32nd. A weight moves by at most a factor of about sqrt(ratio).
        num_levels: half as many lie below the geometric mean at most, and smaller weights get the smallest of them; None reaches down to a
            tenth of the mean. Above it there are as many as the largest weight takes: the large weights matter most.

    Raises:
        ValueError: a ratio of 1 or less, or fewer than one level.
    """

    ratio: float = 1.3
    num_levels: int | None = None

    def __post_init__(self) -> None:
        if not 1 < self.ratio < math.inf or (self.num_levels is not None and self.num_levels < 1):
            raise ValueError(f"LogGrid({self.ratio}, num_levels={self.num_levels}): the ratio must be above 1, and there must be a level")

    @property
    def span(self) -> int:
        """The levels, or as many as reach equally far from the geometric mean to both sides where none are given."""
        return 2 * max(1, math.floor(math.log(_REACH, self.ratio))) + 1 if self.num_levels is None else self.num_levels

    @property
    def rounded_ratio(self) -> float:
        """The ratio as it stands in a file."""
        return max(round(self.ratio * 32), 33) / 32

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Rounds each weight to the nearest magnitude of the grid."""
        magnitudes = np.abs(values)
        nonzero = magnitudes[magnitudes > 0]
        ratio = self.rounded_ratio
        if nonzero.size == 0:
            return Levels(levels=np.zeros(values.shape, np.int32), grid=Logarithmic(smallest=1.0, ratio=ratio))
        middle = math.exp(float(np.log(nonzero).mean()))
        below = math.ceil(math.log(middle / float(nonzero.min()), ratio) - 0.5)
        smallest = rounded_up(middle * ratio ** -min(max(below, 0), self.span // 2))
        highest = math.ceil(math.log(max(float(nonzero.max()) / smallest, 1.0), ratio)) + 1
        table = smallest * ratio ** np.arange(highest, dtype=np.float64)
        return Levels(levels=nearest_levels(values, table), grid=Logarithmic(smallest=smallest, ratio=ratio))


@dataclass(frozen=True, kw_only=True)
class UniformGrid:
    """One uniform grid per tensor, whose step follows from the error that is allowed.

    Args:
        error: root mean square of the change of a tensor's weights over that of the weights.
        vectors: the same for tensors of one dimension (biases, normalisation), which are few and matter more; 0 stores them exactly.

    Raises:
        ValueError: errors out of range.
    """

    error: float = 0.03
    vectors: float = 0.003

    def __post_init__(self) -> None:
        if not 0 < self.error < 1 or not 0 <= self.vectors < 1:
            raise ValueError(f"UniformGrid(error={self.error}, vectors={self.vectors}): errors lie between 0 and 1")

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Rounds each weight to the nearest multiple of the step."""
        error = self.error if values.ndim >= 2 else self.vectors
        if error == 0 or values.size == 0:
            return None
        # Weights that are exactly zero stay so without error: only the others count.
        nonzero = values[values != 0]
        if nonzero.size == 0:
            return Levels(levels=np.zeros(values.shape, np.int32), grid=Uniform(steps=(1.0,)))
        # The error of rounding is uniform in a step: its root mean square is the step over sqrt(12).
        step = rounded_up(error * math.sqrt(12 * float((nonzero**2).mean())))
        levels = np.round(values / step)
        if not np.abs(levels).max() < 1 << 20:
            return None
        return Levels(levels=levels.astype(np.int32), grid=Uniform(steps=(step,)))


def nearest_levels(values: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.int32]:
    """Finds, for each number that is not zero, the nearest of the magnitudes in a rising table, from 1, with its sign; 0 for zero."""
    borders = (table[1:] + table[:-1]) / 2
    return ((np.searchsorted(borders, np.abs(values)) + 1) * np.sign(values)).astype(np.int32)


def rounded_up(value: float, bits: int = _MANTISSA_BITS) -> float:
    """Rounds a positive number up to `bits` bits of mantissa within the normal range of single precision."""
    mantissa, exponent = math.frexp(min(max(value, 2.0**-120), 2.0**120))
    return math.ldexp(math.ceil(mantissa * (1 << bits)), exponent - bits)
