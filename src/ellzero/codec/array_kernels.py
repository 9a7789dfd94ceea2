# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Loops of the range coder over arrays."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.kernels import (
    Buffer,
    State,
    decode_bit,
    decode_raw as decode_one_raw,
    decode_slot,
    encode_bit,
    encode_raw as encode_one_raw,
    encode_symbol,
    take_symbol,
)
from ellzero.jit.kernels import Integer, kernel


@kernel
def encode_bits(state: State, buffer: Buffer, bits: NDArray[np.uint8], p: NDArray[np.int64]) -> None:
    """Encodes decisions, each with its probability of 1."""
    for index in range(bits.size):
        encode_bit(state, buffer, bits[index], p[index])


@kernel
def decode_bits(state: State, data: Buffer, bits: NDArray[np.uint8], p: NDArray[np.int64]) -> None:
    """Decodes decisions into `bits`."""
    for index in range(bits.size):
        bits[index] = np.uint8(decode_bit(state, data, p[index]))


@kernel
def encode_symbols(state: State, buffer: Buffer, symbols: NDArray[np.int64], cumulative: NDArray[np.int64], total_bits: Integer) -> None:
    """Encodes symbols of one distribution; `cumulative` has one entry more than there are symbols."""
    for index in range(symbols.size):
        symbol = symbols[index]
        first = cumulative[symbol]
        encode_symbol(state, buffer, first, cumulative[symbol + np.int64(1)] - first, total_bits)


@kernel
def find_symbol(cumulative: NDArray[np.int64], slot: Integer) -> np.int64:
    """Looks up the symbol that owns a slot, by bisection."""
    low, high = np.int64(0), np.int64(cumulative.size - 1)
    wanted = np.int64(slot)
    while high - low > np.int64(1):
        middle = (low + high) >> np.int64(1)
        if cumulative[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low


@kernel
def decode_symbols(state: State, data: Buffer, symbols: NDArray[np.int64], cumulative: NDArray[np.int64], total_bits: Integer) -> None:
    """Decodes symbols of one distribution into `symbols`."""
    for index in range(symbols.size):
        symbol = find_symbol(cumulative, decode_slot(state, total_bits))
        first = cumulative[symbol]
        take_symbol(state, data, first, cumulative[symbol + np.int64(1)] - first, total_bits)
        symbols[index] = symbol


@kernel
def encode_raw(state: State, buffer: Buffer, values: NDArray[np.uint64], width: Integer) -> None:
    """Encodes numbers of `width` bits."""
    for index in range(values.size):
        encode_one_raw(state, buffer, values[index], width)


@kernel
def decode_raw(state: State, data: Buffer, values: NDArray[np.uint64], width: Integer) -> None:
    """Decodes numbers of `width` bits into `values`."""
    for index in range(values.size):
        values[index] = decode_one_raw(state, data, width)
