"""Data types by the names of safetensors, and how their bits are read: sign, exponent, mantissa; or integers."""

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.unsignedinteger]
"""The bits of numbers, one unsigned integer each."""


class Reading(enum.Enum):
    """How the bits of a word are read."""

    FLOAT = 0
    SIGNED = 1
    UNSIGNED = 2


@dataclass(frozen=True, kw_only=True)
class _Layout:
    word_bits: int
    reading: Reading = Reading.FLOAT
    mantissa_bits: int = 0
    words: int = 1


class DType(enum.Enum):
    """A data type. The value is its name in safetensors; the order is that of its number in a file."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    F64 = "F64"
    I64 = "I64"
    I32 = "I32"
    I16 = "I16"
    I8 = "I8"
    U8 = "U8"
    U16 = "U16"
    U32 = "U32"
    U64 = "U64"
    BOOL = "BOOL"
    F8_E4M3 = "F8_E4M3"
    F8_E5M2 = "F8_E5M2"
    C64 = "C64"
    F8_E8M0 = "F8_E8M0"
    F8_E4M3FNUZ = "F8_E4M3FNUZ"
    F8_E5M2FNUZ = "F8_E5M2FNUZ"

    @property
    def number(self) -> int:
        """Its number in a file."""
        return _NUMBERS[self]

    @property
    def word_bits(self) -> int:
        """Bits of a word: of the number, or of half a complex one."""
        return _LAYOUTS[self].word_bits

    @property
    def words(self) -> int:
        """Words of a number: two of a complex one."""
        return _LAYOUTS[self].words

    @property
    def num_bytes(self) -> int:
        """Bytes of a number."""
        return self.word_bits * self.words // 8

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa of a float."""
        return _LAYOUTS[self].mantissa_bits

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent of a float."""
        return self.word_bits - 1 - self.mantissa_bits

    @property
    def reading(self) -> Reading:
        """How its bits are read."""
        return _LAYOUTS[self].reading

    @property
    def word_type(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned integer of numpy that holds a word."""
        return np.dtype(f"<u{self.word_bits // 8}")

    @property
    def array_type(self) -> np.dtype[np.generic] | None:
        """The type of numpy that holds its numbers; None where numpy has none."""
        name = _NUMPY.get(self)
        return None if name is None else np.dtype(name)


def dtype_of(array: NDArray[np.generic]) -> DType:
    """Looks up the data type of an array of numpy.

    Raises:
        TypeError: no network file knows it.
    """
    for dtype, name in _NUMPY.items():
        if np.dtype(name) == array.dtype.newbyteorder("<"):
            return dtype
    raise TypeError(f"a tensor of {array.dtype} cannot be stored; convert it to one of {', '.join(d.value for d in DType)}")


def _float(word_bits: int, mantissa_bits: int, words: int = 1) -> _Layout:
    return _Layout(word_bits=word_bits, mantissa_bits=mantissa_bits, words=words)


def _integer(word_bits: int, reading: Reading) -> _Layout:
    return _Layout(word_bits=word_bits, reading=reading)


_NUMBERS = {dtype: number for number, dtype in enumerate(DType)}
_LAYOUTS = {
    DType.F32: _float(32, 23),
    DType.F16: _float(16, 10),
    DType.BF16: _float(16, 7),
    DType.F64: _float(64, 52),
    DType.F8_E4M3: _float(8, 3),
    DType.F8_E5M2: _float(8, 2),
    DType.F8_E4M3FNUZ: _float(8, 3),
    DType.F8_E5M2FNUZ: _float(8, 2),
    DType.C64: _float(32, 23, words=2),
    **{DType(f"I{bits}"): _integer(bits, Reading.SIGNED) for bits in (8, 16, 32, 64)},
    **{DType(f"U{bits}"): _integer(bits, Reading.UNSIGNED) for bits in (8, 16, 32, 64)},
    DType.BOOL: _integer(8, Reading.UNSIGNED),
    DType.F8_E8M0: _integer(8, Reading.UNSIGNED),
}
_NUMPY = {
    DType.F32: "<f4",
    DType.F16: "<f2",
    DType.F64: "<f8",
    DType.I64: "<i8",
    DType.I32: "<i4",
    DType.I16: "<i2",
    DType.I8: "i1",
    DType.U8: "u1",
    DType.U16: "<u2",
    DType.U32: "<u4",
    DType.U64: "<u8",
    DType.BOOL: "?",
    DType.C64: "<c8",
}
