# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The range coder: kernels to be called within other kernels. Written down in docs/formats/format.md.

The message is a number in [0, 1); each decision narrows an interval [low, low + width) to the share of what was decided. `width` lies in
[2^32, 2^40) before each decision, so that products with 24-bit frequencies are exact in 64 bits and rounding costs less than 2^-8 of the
rarest decision. A carry out of `low` runs back over the bytes that are already written.

The state is `uint64[3]`: (low, width, position) of an encoder, (offset of the message within the interval, width, position) of a decoder.
An encoder never writes past its buffer: `position` goes on counting, and a `finish_encoder` that returns more than the buffer holds says
that the bytes in it are useless (store the block instead, or encode anew into a larger buffer). A decoder reads zeros past the end of its
data.

Martin, Range encoding: an algorithm for removing redundancy from a digitised message, 1979.
"""

import numpy as np
from numpy.typing import NDArray

from ellzero.jit.kernels import Integer, kernel

PROBABILITY_BITS = 16
MAX_TOTAL_BITS = 24
MAX_BYTES_PER_DECISION = 3  # of any kind; a binary decision alone takes 2 at most

_LOW, _OFFSET, _WIDTH, POSITION = 0, 0, 1, 2
_ONE = np.uint64(1)
_BYTE = np.uint64(8)
_BYTE_MASK = np.uint64(0xFF)
_TOP = np.uint64(32)
_SMALLEST = np.uint64(1 << 32)
_FULL = np.uint64((1 << 40) - 1)
_CARRY = np.uint64(1 << 40)
_PROBABILITY_BITS = np.uint64(PROBABILITY_BITS)
_PIECE = np.uint64(16)

State = NDArray[np.uint64]
Buffer = NDArray[np.uint8]


@kernel
def start_encoder(state: State) -> None:
    """Starts a message at the beginning of a buffer."""
    state[_LOW] = np.uint64(0)
    state[_WIDTH] = _FULL
    state[POSITION] = np.uint64(0)


@kernel
def _carry(buffer: Buffer, position: np.uint64) -> None:
    """Adds 1 to the last byte written, and to those before it where it overflows."""
    # The first byte never overflows: the message is smaller than 1.
    index = position - _ONE
    while index < np.uint64(buffer.size) and buffer[index] == np.uint8(255):
        buffer[index] = np.uint8(0)
        index -= _ONE
    if index < np.uint64(buffer.size):
        buffer[index] = np.uint8(np.uint64(buffer[index]) + _ONE)


@kernel
def _narrow(state: State, buffer: Buffer, start: np.uint64, width: np.uint64) -> None:
    """Narrows the interval to [low + start, low + start + width), and writes the bytes that are settled but for a carry."""
    low = state[_LOW] + start
    position = state[POSITION]
    if low >= _CARRY:
        low -= _CARRY
        _carry(buffer, position)
    while width < _SMALLEST:
        if position < np.uint64(buffer.size):
            buffer[position] = np.uint8(low >> _TOP)
        position += _ONE
        low = (low << _BYTE) & _FULL
        width <<= _BYTE
    state[_LOW] = low
    state[_WIDTH] = width
    state[POSITION] = position


@kernel
def encode_bit(state: State, buffer: Buffer, bit: Integer, p: Integer) -> None:
    """Encodes a binary decision.

    Args:
        state: of the encoder.
        buffer: where the message goes.
        bit: 0 or 1.
        p: the probability of 1, times 2^16, in 1..65535.
    """
    width = state[_WIDTH]
    split = (width * np.uint64(p)) >> _PROBABILITY_BITS
    if bit:
        _narrow(state, buffer, np.uint64(0), split)
    else:
        _narrow(state, buffer, split, width - split)


@kernel
def encode_symbol(state: State, buffer: Buffer, cumulative: Integer, frequency: Integer, total_bits: Integer) -> None:
    """Encodes a symbol that owns `frequency` of 2^`total_bits` slots from `cumulative` on.

    Args:
        state: of the encoder.
        buffer: where the message goes.
        cumulative: the frequencies of all symbols before it.
        frequency: its own, at least 1.
        total_bits: log2 of the sum of all, at most 24.
    """
    width = state[_WIDTH]
    bits = np.uint64(total_bits)
    first = np.uint64(cumulative)
    start = (width * first) >> bits
    end = (width * (first + np.uint64(frequency))) >> bits
    _narrow(state, buffer, start, end - start)


@kernel
def encode_raw(state: State, buffer: Buffer, value: Integer, count: Integer) -> None:
    """Encodes the `count` low bits of `value`, at most 64, each as likely 0 as 1; the high ones first, 16 at a time."""
    left = np.uint64(count)
    number = np.uint64(value)
    while left > np.uint64(0):
        bits = min(left, _PIECE)
        left -= bits
        piece = (number >> left) & ((_ONE << bits) - _ONE)
        encode_symbol(state, buffer, piece, _ONE, bits)


@kernel
def finish_encoder(state: State, buffer: Buffer) -> np.int64:
    """Ends the message with at most one more byte.

    Returns:
        The number of bytes of the message; zeros at the end are left out, because a decoder reads zeros there. More than the buffer holds
        where it was too small.
    """
    low = state[_LOW]
    position = state[POSITION]
    end = low + state[_WIDTH]
    if low > np.uint64(0):
        if end > _CARRY:
            _carry(buffer, position)
        else:
            if position < np.uint64(buffer.size):
                buffer[position] = np.uint8((low + _SMALLEST - _ONE) >> _TOP)
            position += _ONE
    if position > np.uint64(buffer.size):
        return np.int64(position)
    while position > np.uint64(0) and buffer[position - _ONE] == np.uint8(0):
        position -= _ONE
    return np.int64(position)


@kernel
def start_decoder(state: State, data: Buffer) -> None:
    """Starts reading a message at the beginning of its bytes."""
    offset = np.uint64(0)
    for index in range(5):
        byte = np.uint64(data[index]) if index < data.size else np.uint64(0)
        offset = (offset << _BYTE) | byte
    # No encoder writes five bytes 255 first; with this, damaged data stay within the interval too.
    state[_OFFSET] = min(offset, _FULL - _ONE)
    state[_WIDTH] = _FULL
    state[POSITION] = np.uint64(5)


@kernel
def _follow(state: State, data: Buffer, start: np.uint64, width: np.uint64) -> None:
    """Narrows the interval as the encoder did, and reads the bytes that it wrote then."""
    offset = state[_OFFSET] - start
    position = state[POSITION]
    while width < _SMALLEST:
        byte = np.uint64(data[position]) if position < np.uint64(data.size) else np.uint64(0)
        position += _ONE
        offset = (offset << _BYTE) | byte
        width <<= _BYTE
    state[_OFFSET] = offset
    state[_WIDTH] = width
    state[POSITION] = position


@kernel
def decode_bit(state: State, data: Buffer, p: Integer) -> np.int64:
    """Decodes a binary decision; `p` as in `encode_bit`.

    Returns:
        0 or 1, int64.
    """
    width = state[_WIDTH]
    split = (width * np.uint64(p)) >> _PROBABILITY_BITS
    if state[_OFFSET] < split:
        _follow(state, data, np.uint64(0), split)
        return np.int64(1)
    _follow(state, data, split, width - split)
    return np.int64(0)


@kernel
def decode_slot(state: State, total_bits: Integer) -> np.int64:
    """Looks up which of 2^`total_bits` slots the next symbol owns; `take_symbol` with that symbol must follow.

    Returns:
        The slot, int64, below 2^`total_bits`.
    """
    # The largest slot whose share starts at or below the offset: slot * width < (offset + 1) * 2^bits.
    return np.int64((((state[_OFFSET] + _ONE) << np.uint64(total_bits)) - _ONE) // state[_WIDTH])


@kernel
def take_symbol(state: State, data: Buffer, cumulative: Integer, frequency: Integer, total_bits: Integer) -> None:
    """Goes past a symbol found by `decode_slot`; the arguments are those of `encode_symbol`."""
    width = state[_WIDTH]
    bits = np.uint64(total_bits)
    first = np.uint64(cumulative)
    start = (width * first) >> bits
    end = (width * (first + np.uint64(frequency))) >> bits
    _follow(state, data, start, end - start)


@kernel
def decode_raw(state: State, data: Buffer, count: Integer) -> np.uint64:
    """Decodes `count` raw bits, at most 64, as a uint64."""
    left = np.uint64(count)
    number = np.uint64(0)
    while left > np.uint64(0):
        bits = min(left, _PIECE)
        left -= bits
        piece = decode_slot(state, bits)
        take_symbol(state, data, piece, _ONE, bits)
        number = (number << bits) | np.uint64(piece)
    return number
