"""Turns the bits of numbers into levels and the bits that follow them, and back: floats by exponent, integers by length."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.dtypes import DType, Reading, Words

_PIECE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Split:
    """How words are split.

    Attributes:
        top: the largest exponent of a float, or the length in bits of the longest integer; level 1 stands for it, 2 for the next below.
        low_zeros: low bits of the mantissa that are 0 in all numbers.
    """

    top: int
    low_zeros: int

    def extra_bits(self, dtype: DType) -> int:
        """Bits that follow each level; -1 where the level says how many."""
        return dtype.mantissa_bits - self.low_zeros if dtype.reading is Reading.FLOAT else -1


def find_split(words: Words, dtype: DType) -> Split:
    """Finds how to split words so that few bits are left.

    Args:
        words: of numbers of `dtype`, [n].
        dtype: their type.
    """
    if dtype.reading is not Reading.FLOAT:
        lengths = (int(_lengths(_magnitudes(piece, dtype)).max(initial=1)) for piece in _pieces(words))
        return Split(top=max(lengths, default=1), low_zeros=0)
    mantissa_bits, exponents = dtype.mantissa_bits, 1 << dtype.exponent_bits
    counts, used = np.zeros(exponents, np.int64), 0
    for piece in _pieces(words):
        bits = piece.astype(np.uint64)
        exponent = ((bits >> np.uint64(mantissa_bits)) & np.uint64(exponents - 1)).astype(np.int64)
        counts += np.bincount(exponent[bits != 0], minlength=exponents)
        used |= int(np.bitwise_or.reduce(bits)) & ((1 << mantissa_bits) - 1)
    # Rare large exponents, such as those of infinities, would push all others away from level 1.
    frequent = np.flatnonzero(counts * 4096 >= max(counts.sum(), 1))
    low_zeros = (used & -used).bit_length() - 1 if used else mantissa_bits
    return Split(top=int(frequent.max(initial=0)), low_zeros=low_zeros)


def split_words(words: Words, dtype: DType, split: Split) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Splits words into levels and what follows them.

    Returns:
        Levels, [n], 0 where all bits are 0; and the bits that follow, [n].
    """
    levels, extra = np.empty(words.size, np.int32), np.empty(words.size, np.uint64)
    for start in range(0, words.size, _PIECE):
        part = slice(start, start + _PIECE)
        levels[part], extra[part] = _split(words[part], dtype, split)
    return levels, extra


def _split(words: Words, dtype: DType, split: Split) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    bits = words.astype(np.uint64)
    if dtype.reading is Reading.FLOAT:
        exponent_mask = (1 << dtype.exponent_bits) - 1
        exponents = ((bits >> np.uint64(dtype.mantissa_bits)) & np.uint64(exponent_mask)).astype(np.int64)
        sizes = ((split.top - exponents) & exponent_mask) + 1
        negative = (bits >> np.uint64(dtype.word_bits - 1)) != 0
        extra = (bits & np.uint64((1 << dtype.mantissa_bits) - 1)) >> np.uint64(split.low_zeros)
    else:
        magnitudes = _magnitudes(words, dtype)
        lengths = _lengths(magnitudes)
        sizes = split.top + 1 - lengths
        negative = np.zeros(bits.shape, bool)
        if dtype.reading is Reading.SIGNED:
            negative = (bits >> np.uint64(dtype.word_bits - 1)) != 0
        extra = magnitudes - (np.uint64(1) << np.maximum(lengths - 1, 0).astype(np.uint64))
    levels = np.where(bits == 0, 0, np.where(negative, -sizes, sizes)).astype(np.int32)
    return levels, np.where(bits == 0, np.uint64(0), extra)


def join_words(levels: NDArray[np.int32], extra: NDArray[np.uint64], dtype: DType, split: Split) -> Words:
    """Joins levels and what follows them into words again; levels that no words have give other words, never an error.

    Returns:
        The words, [n].
    """
    words = np.empty(levels.size, dtype.word_type)
    for start in range(0, levels.size, _PIECE):
        part = slice(start, start + _PIECE)
        words[part] = _join(levels[part], extra[part], dtype, split)
    return words


def _join(levels: NDArray[np.int32], extra: NDArray[np.uint64], dtype: DType, split: Split) -> Words:
    sizes = np.abs(levels).astype(np.int64)
    if dtype.reading is Reading.FLOAT:
        exponents = (split.top + 1 - sizes) & ((1 << dtype.exponent_bits) - 1)
        bits = (exponents.astype(np.uint64) << np.uint64(dtype.mantissa_bits)) | (extra << np.uint64(split.low_zeros))
        bits |= (levels < 0).astype(np.uint64) << np.uint64(dtype.word_bits - 1)
    else:
        lengths = np.clip(split.top - sizes, 0, 63)
        bits = (np.uint64(1) << lengths.astype(np.uint64)) | extra
        bits = np.where(levels < 0, np.uint64(0) - bits, bits)
    return np.where(levels == 0, np.uint64(0), bits).astype(dtype.word_type)


def _pieces(words: Words) -> Iterator[Words]:
    """Cuts words into pieces, so that what is computed of them takes little memory beside a large tensor."""
    return (words[start : start + _PIECE] for start in range(0, words.size, _PIECE))


def _magnitudes(words: Words, dtype: DType) -> NDArray[np.uint64]:
    bits = words.astype(np.uint64)
    if dtype.reading is not Reading.SIGNED:
        return bits
    negative = (bits >> np.uint64(dtype.word_bits - 1)) != 0
    mask = np.uint64((1 << dtype.word_bits) - 1)
    return np.where(negative, (np.uint64(0) - bits) & mask, bits)


def _lengths(magnitudes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Counts the bits of numbers, 0 for 0."""
    lengths = np.zeros(magnitudes.shape, np.int64)
    rest = magnitudes.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= (np.uint64(1) << np.uint64(step))
        lengths += np.where(large, step, 0)
        rest = np.where(large, rest >> np.uint64(step), rest)
    return lengths + (magnitudes > 0)
