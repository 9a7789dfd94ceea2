# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The range coder over arrays of decisions, by which tests compare the library's kernels with references."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ellzero.codec.rangecoder import (
    MAX_BYTES_PER_DECISION,
    MAX_TOTAL_BITS,
    Buffer,
    State,
    decode_bit,
    decode_raw,
    decode_slot,
    encode_bit,
    encode_raw,
    encode_symbol,
    finish_encoder,
    start_decoder,
    start_encoder,
    take_symbol,
)
from ellzero.jit.kernels import Integer, kernel


@kernel
def _encode_bits(state: State, buffer: Buffer, bits: NDArray[np.uint8], p: NDArray[np.int64]) -> None:
    """Encodes decisions, each with its probability of 1."""
    for index in range(bits.size):
        encode_bit(state, buffer, bits[index], p[index])


@kernel
def _decode_bits(state: State, data: Buffer, bits: NDArray[np.uint8], p: NDArray[np.int64]) -> None:
    """Decodes decisions into `bits`."""
    for index in range(bits.size):
        bits[index] = np.uint8(decode_bit(state, data, p[index]))


@kernel
def _encode_symbols(state: State, buffer: Buffer, symbols: NDArray[np.int64], cumulative: NDArray[np.int64], total_bits: Integer) -> None:
    """Encodes symbols of one distribution; `cumulative` has one entry more than there are symbols."""
    for index in range(symbols.size):
        symbol = symbols[index]
        first = cumulative[symbol]
        encode_symbol(state, buffer, first, cumulative[symbol + np.int64(1)] - first, total_bits)


@kernel
def _find_symbol(cumulative: NDArray[np.int64], slot: Integer) -> np.int64:
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
def _decode_symbols(state: State, data: Buffer, symbols: NDArray[np.int64], cumulative: NDArray[np.int64], total_bits: Integer) -> None:
    """Decodes symbols of one distribution into `symbols`."""
    for index in range(symbols.size):
        symbol = _find_symbol(cumulative, decode_slot(state, total_bits))
        first = cumulative[symbol]
        take_symbol(state, data, first, cumulative[symbol + np.int64(1)] - first, total_bits)
        symbols[index] = symbol


@kernel
def _encode_numbers(state: State, buffer: Buffer, values: NDArray[np.uint64], width: Integer) -> None:
    """Encodes numbers of `width` bits."""
    for index in range(values.size):
        encode_raw(state, buffer, values[index], width)


@kernel
def _decode_numbers(state: State, data: Buffer, values: NDArray[np.uint64], width: Integer) -> None:
    """Decodes numbers of `width` bits into `values`."""
    for index in range(values.size):
        values[index] = decode_raw(state, data, width)


class RangeEncoder:
    """Encodes decisions one after the other into one message.

    A message has no length and no end mark of its own: whoever stores it stores its length too, and what was encoded in which order.
    """

    def __init__(self) -> None:
        self._state = np.zeros(3, np.uint64)
        self._buffer = np.zeros(256, np.uint8)
        start_encoder(self._state)

    def encode_bits(self, bits: ArrayLike, p: ArrayLike) -> None:
        """Encodes binary decisions.

        Args:
            bits: 0 or 1, [n].
            p: the probabilities of 1, times 2^16, in 1..65535; [n], or one number for all.

        Raises:
            ValueError: a probability is 0 or 1, or the shapes differ.
        """
        decided = np.asarray(bits, np.uint8).ravel()
        probabilities = _probabilities(p, decided.size)
        if decided.size and decided.max() > 1:
            raise ValueError(f"a binary decision is 0 or 1, not {decided.max()}; use encode_symbols")
        self._reserve(decided.size)
        _encode_bits(self._state, self._buffer, decided, probabilities)

    def encode_symbols(self, symbols: ArrayLike, frequencies: ArrayLike) -> None:
        """Encodes symbols that all have the same distribution.

        Args:
            symbols: indices into `frequencies`, [n]; only such with a frequency above 0.
            frequencies: of each symbol, [symbols]; their sum is a power of two, at most 2^24.

        Raises:
            ValueError: the sum is no power of two, or a symbol has the frequency 0.
        """
        cumulative, total_bits = _cumulative(frequencies)
        chosen = np.asarray(symbols, np.int64).ravel()
        if chosen.size:
            if chosen.min() < 0 or chosen.max() >= cumulative.size - 1:
                raise ValueError(f"symbols must lie in 0..{cumulative.size - 2}, not {chosen.min()}..{chosen.max()}")
            if (impossible := np.diff(cumulative)[chosen] == 0).any():
                raise ValueError(f"symbol {chosen[impossible][0]} has the frequency 0 and cannot be encoded; give it 1")
        self._reserve(chosen.size)
        _encode_symbols(self._state, self._buffer, chosen, cumulative, total_bits)

    def encode_raw(self, values: ArrayLike, width: int) -> None:
        """Encodes the `width` low bits of numbers, at most 64, each as likely 0 as 1.

        Raises:
            ValueError: a number needs more bits.
        """
        numbers = np.asarray(values, np.uint64).ravel()
        if not 0 <= width <= 64 or (width < 64 and numbers.size and int(numbers.max()) >> width):
            raise ValueError(f"{int(numbers.max()) if numbers.size else 0} does not fit into {width} bits; at most 64 are coded at once")
        self._reserve(4 * numbers.size)
        _encode_numbers(self._state, self._buffer, numbers, width)

    def finish(self) -> bytes:
        """Ends the message and returns it. The encoder is of no use afterwards."""
        self._reserve(1)
        return self._buffer[: finish_encoder(self._state, self._buffer)].tobytes()

    def _reserve(self, decisions: int) -> None:
        needed = int(self._state[2]) + MAX_BYTES_PER_DECISION * decisions
        if needed > self._buffer.size:
            self._buffer = np.concatenate((self._buffer, np.zeros(needed, np.uint8)))


class RangeDecoder:
    """Decodes a message of `RangeEncoder`: the same decisions with the same probabilities in the same order.

    Damaged data decode to other decisions, never to an error; a check of the bytes is the container's task.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._state = np.zeros(3, np.uint64)
        self._data = np.frombuffer(data, np.uint8)
        start_decoder(self._state, self._data)

    def decode_bits(self, p: ArrayLike, count: int | None = None) -> NDArray[np.uint8]:
        """Decodes binary decisions.

        Args:
            p: as in `RangeEncoder.encode_bits`.
            count: how many, where `p` is one number.

        Returns:
            0 or 1, [n].
        """
        probabilities = _probabilities(p, np.size(p) if count is None else count)
        bits = np.empty(probabilities.size, np.uint8)
        _decode_bits(self._state, self._data, bits, probabilities)
        return bits

    def decode_symbols(self, count: int, frequencies: ArrayLike) -> NDArray[np.int64]:
        """Decodes `count` symbols; `frequencies` as in `RangeEncoder.encode_symbols`.

        Returns:
            The symbols, [count].
        """
        cumulative, total_bits = _cumulative(frequencies)
        symbols = np.empty(count, np.int64)
        _decode_symbols(self._state, self._data, symbols, cumulative, total_bits)
        return symbols

    def decode_raw(self, count: int, width: int) -> NDArray[np.uint64]:
        """Decodes `count` numbers of `width` bits.

        Returns:
            The numbers, [count].
        """
        if not 0 <= width <= 64:
            raise ValueError(f"numbers of {width} bits: at most 64 are coded at once")
        values = np.empty(count, np.uint64)
        _decode_numbers(self._state, self._data, values, width)
        return values


def _probabilities(p: ArrayLike, count: int) -> NDArray[np.int64]:
    given = np.asarray(p, np.int64)
    if given.size and (given.min() < 1 or given.max() > 65535):
        raise ValueError(f"probabilities are multiples of 2^-16 in 1..65535, not {given.min()}..{given.max()}")
    if given.ndim and given.size != count:
        raise ValueError(f"{count} decisions with {given.size} probabilities; give one each, or one number for all")
    return np.ascontiguousarray(np.broadcast_to(given.ravel() if given.ndim else given, count))


def _cumulative(frequencies: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """Sums frequencies: those of all symbols before each, and the total's logarithm."""
    given = np.asarray(frequencies, np.int64).ravel()
    total = int(given.sum())
    if given.size == 0 or given.min() < 0 or total < 1 or total & (total - 1) or total > 1 << MAX_TOTAL_BITS:
        raise ValueError(f"frequencies sum to {total}; the sum must be a power of two, at most 2^{MAX_TOTAL_BITS}, and none negative")
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(given))), total.bit_length() - 1
