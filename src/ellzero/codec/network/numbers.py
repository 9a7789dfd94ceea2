"""Shapes and the parameters of grids, in few bytes."""

import numpy as np

from ellzero.codec.errors import FormatError
from ellzero.codec.network.message import MessageCoder
from ellzero.codec.network.tensors import MAX_DIMENSIONS, MAX_SIZE, possible_shape

_REMEMBERED = 8

# Contexts of numbers: of dimensions; which remembered size, for the first three and the others; a new size; exponents and bits of floats.
_DIMENSIONS, _PLACE, _SIZE, _EXPONENT, _BITS = 8, 9, 13, 14, 15


def code_shape(coder: MessageCoder, remembered: list[int], shape: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Codes a shape: each size by its place among the latest ones, or as a number.

    Args:
        coder: written or read.
        remembered: sizes met before, the latest first; changes.
        shape: ignored where it is read.

    Raises:
        FormatError: no array has the shape that was read.
    """
    dimensions = coder.number(_DIMENSIONS, len(shape), below=MAX_DIMENSIONS + 1, what="a number of dimensions")
    sizes: list[int] = []
    for index in range(dimensions):
        size = 0 if coder.reading else shape[index]
        place = remembered.index(size) + 1 if not coder.reading and size in remembered else 0
        place = coder.number(_PLACE + min(index, 3), place, below=len(remembered) + 1, what="a remembered size")
        size = remembered.pop(place - 1) if place else coder.number(_SIZE, size, below=MAX_SIZE, what="the size of a dimension")
        remembered.insert(0, size)
        del remembered[_REMEMBERED:]
        sizes.append(size)
    if not possible_shape(tuple(sizes)):
        raise FormatError(f"the shape {tuple(sizes)} is that of no array: the file is damaged")
    return tuple(sizes)


def code_single(coder: MessageCoder, value: float = 1.0) -> float:
    """Codes a positive number of single precision: its exponent, how many bits its mantissa has, and those.

    Raises:
        ValueError: the number is no normal positive one of single precision.
    """
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    if not coder.reading and (float(np.float32(value)) != value or not 1 <= bits >> 23 <= 254):
        raise ValueError(f"the parameter {value} of a grid is no positive number of single precision: round it with numpy.float32")
    mantissa = bits & 0x7FFFFF
    count = 23 - ((mantissa & -mantissa).bit_length() - 1) if mantissa else 0
    exponent = (bits >> 23) - 120
    coded = coder.number(_EXPONENT, exponent * 2 if exponent >= 0 else -exponent * 2 - 1, below=1 << 9, what="an exponent")
    exponent = (coded >> 1 if coded & 1 == 0 else -(coded + 1 >> 1)) + 120
    if not 1 <= exponent <= 254:
        raise FormatError(f"an exponent is {exponent}, which must lie in 1..254: the file is damaged")
    count = coder.number(_BITS, count, below=24, what="a number of bits")
    # The last of the bits is a 1.
    bits = (coder.raw(mantissa >> (24 - count), count - 1) << 1 | 1) << (23 - count) if count else 0
    return float(np.uint32(exponent << 23 | bits).view(np.float32))
