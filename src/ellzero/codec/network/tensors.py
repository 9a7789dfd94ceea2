"""What the coder of networks takes: tensors by name, each as the bits it has, as levels on a grid, or as another one's double."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.dtypes import DType, Words, dtype_of
from ellzero.codec.network.stored_grids import MAX_LOGARITHMIC_LEVEL, MAX_UNIFORM_LEVEL, Grid, Uniform, roundable

MAX_DIMENSIONS = 32
MAX_NAME_BYTES = 4095
MAX_SIZE = (1 << 40) - 1
"""Sizes of dimensions lie below this, where the integers of a message end."""
MAX_WIDTH = 1 << 20
"""Widths of images lie below this."""
MAX_EXTENT = 1 << 60
"""The product of the sizes that are not 0 lies below this, so that an array of the shape is possible although it is empty."""


@dataclass(frozen=True, kw_only=True)
class ExactTensor:
    """A tensor that comes back bit for bit.

    Attributes:
        name: unique within the network; text without the character NUL.
        dtype: data type.
        shape: sizes of the dimensions.
        words: the bits of its numbers, row by row, [numbers * words of a number]; see `exact`.
        image_width: width of the image whose pixels the columns are, for the first layer of a network of images; 0 for none.
        coded_bytes: what its grid and numbers took in the file that it was read from, to a byte or two; None where it was not read.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    words: Words
    image_width: int = 0
    coded_bytes: int | None = field(default=None, compare=False)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor in memory."""
        return math.prod(self.shape) * self.dtype.num_bytes

    def array(self) -> NDArray[np.generic]:
        """Returns the tensor as an array of numpy, or its bits as unsigned integers where numpy lacks the type (bfloat16, 8-bit floats)."""
        return self.words.view(self.dtype.array_type or self.dtype.word_type).reshape(self.shape)


@dataclass(frozen=True, kw_only=True)
class QuantisedTensor:
    """A tensor that comes back as levels times a grid, on every machine with the same bits.

    Attributes:
        name: unique within the network; text without the character NUL.
        dtype: a floating-point data type.
        shape: sizes of the dimensions.
        levels: integers, of that shape; 0 is exactly zero.
        grid: what a level is worth.
        image_width: as in `ExactTensor`.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    levels: NDArray[np.int32]
    grid: Grid
    image_width: int = 0


@dataclass(frozen=True, kw_only=True)
class Tied:
    """A tensor that is another one under a second name, and takes no more room than that name.

    Attributes:
        name: unique within the network.
        of: name of the tensor, which comes earlier.
    """

    name: str
    of: str


Entry = ExactTensor | QuantisedTensor | Tied


@dataclass(frozen=True, kw_only=True)
class Description:
    """What is known of a tensor before its numbers are decoded, so that a caller can refuse it in time.

    Attributes:
        name: of the tensor.
        dtype: data type.
        shape: sizes of the dimensions.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]


def exact(name: str, array: NDArray[np.generic] | np.generic, *, image_width: int = 0) -> ExactTensor:
    """Takes an array of numpy as it is.

    Args:
        name: of the tensor.
        array: or a scalar, of any type that safetensors knows and numpy has; for others make an `ExactTensor` of their bits.
        image_width: as in `ExactTensor`.

    Raises:
        TypeError: a type that no network file knows.
    """
    array = np.asarray(array)
    dtype = dtype_of(array)
    little = np.ascontiguousarray(array, dtype=dtype.array_type)
    words = little.reshape(-1).view(dtype.word_type)
    return ExactTensor(name=name, dtype=dtype, shape=array.shape, words=words, image_width=image_width)


def check_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Passes entries on, each checked against those before it.

    Raises:
        ValueError: a name twice, too long or with the character NUL, a shape that does not fit, a tie to no earlier tensor, levels that
            their grid has not.
    """
    seen: set[str] = set()
    own: set[str] = set()
    for entry in entries:
        try:
            length = len(entry.name.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"the name {entry.name!r} is no Unicode text ({error.reason}): rename it") from error
        if entry.name in seen:
            raise ValueError(f"two tensors are called {entry.name!r}; names are unique")
        if length > MAX_NAME_BYTES:
            raise ValueError(f"the name {entry.name[:40]!r}... has {length} bytes, at most {MAX_NAME_BYTES}: rename it")
        seen.add(entry.name)
        if "\0" in entry.name:
            raise ValueError(f"the name {entry.name!r} has the character NUL; rename it")
        if isinstance(entry, Tied):
            if entry.of not in own:
                raise ValueError(f"{entry.name!r} is tied to {entry.of!r}, which does not come before it")
        else:
            _check_size(entry)
            own.add(entry.name)
        yield entry


def possible_shape(shape: tuple[int, ...]) -> bool:
    """Tells whether a shape can be stored and made, which an empty tensor's memory does not tell."""
    return all(size < MAX_SIZE for size in shape) and math.prod(size for size in shape if size) < MAX_EXTENT


def _check_size(entry: ExactTensor | QuantisedTensor) -> None:
    given = entry.words.size if isinstance(entry, ExactTensor) else entry.levels.size
    wanted = math.prod(entry.shape) * entry.dtype.words
    if given != wanted or min(entry.shape, default=0) < 0 or len(entry.shape) > MAX_DIMENSIONS:
        raise ValueError(f"{entry.name!r} has {given} words for the shape {entry.shape}, which takes {wanted}; at most 32 dimensions")
    if not possible_shape(entry.shape):
        raise ValueError(
            f"{entry.name!r} has the shape {entry.shape}: no file holds sizes of 2^40 - 1 or more, or a product of 2^60, 0 aside"
        )
    if not 0 <= entry.image_width < MAX_WIDTH:
        raise ValueError(f"{entry.name!r} has the image_width {entry.image_width}: expected 0 for none, or less than {MAX_WIDTH}")
    if isinstance(entry, ExactTensor):
        return
    if not roundable(entry.dtype):
        raise ValueError(f"{entry.name!r} of {entry.dtype.value} cannot be quantised; keep it exact, or convert it to F32, F16 or BF16")
    largest = max(int(entry.levels.max(initial=0)), -int(entry.levels.min(initial=0)))
    limit = MAX_UNIFORM_LEVEL if isinstance(entry.grid, Uniform) else MAX_LOGARITHMIC_LEVEL
    if largest > limit:
        raise ValueError(f"{entry.name!r} has a level {largest}; at most {limit} on its grid: take a larger step")
    rows = entry.shape[0] if len(entry.shape) > 1 else 1
    if isinstance(entry.grid, Uniform) and len(entry.grid.steps) not in (1, rows):
        raise ValueError(f"{entry.name!r} has {len(entry.grid.steps)} steps for {rows} rows; give one, or one for each row")


def values_of(entry: ExactTensor) -> np.ndarray:
    """Returns the numbers of a floating-point tensor as doubles, in its shape."""
    if entry.dtype is DType.BF16:
        return (entry.words.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64).reshape(entry.shape)
    return entry.array().astype(np.float64)
