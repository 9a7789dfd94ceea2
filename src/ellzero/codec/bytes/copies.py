# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Long repeats, found over the whole file before anything is modelled: copies of what was decoded before, or of a run's own beginning.

Fingerprints of every aligned stretch of 2 KiB are kept, and one is rolled over every place (Bentley and McIlroy, Data compression with long
repeated strings, 2001). So every repeat of 4 KiB is noticed, however far back; a run is a repeat at a distance of its period.
"""

import ctypes
import mmap
from dataclasses import dataclass
from io import IOBase
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.tables import Whole
from ellzero.codec.errors import FormatError
from ellzero.jit.entry_points import entry
from ellzero.jit.kernels import kernel

LEAST, LEAST_RUN = 1 << 15, 1 << 14
"""The shortest repeat that is copied, and the shortest run, whose source begins less than 2 KiB before it. A model takes hardly more bytes
for a repeat than a copy does, and codes better what comes next: shorter copies would make some files larger."""

NEAR = 1 << 16
"""How far back copies reach in any file."""

SHORTEST = 64
"""The shortest end of a repeat that a block of its own gets."""

WIDEST_WINDOW = 1 << 30
_STRETCH = 1 << 11
_SCANNED = 1 << 21
"""Bytes scanned in one go: signals wait no longer than that."""

_POSITION, _FREE, _COUNT, _BASE, _BLIND, _SOURCE, _DISTANCE = range(7)
_FACTOR = 0x2C9277B5
_FACTOR_OUT = pow(_FACTOR, _STRETCH, 1 << 32)
_WORD = 0xFFFFFFFF
_HALF = np.uint64(32)


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Long repeats of a file.

    Attributes:
        rows: int64 (copies, 3): where each begins, its length, and how far back its source begins; in order, without overlaps.
    """

    rows: NDArray[np.int64]

    @property
    def window(self) -> int:
        """The bytes that a decoder has to keep."""
        return int(self.rows[:, 2].max(initial=NEAR))

    def within(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Returns the copies of a block: where they begin in it, their length and distance."""
        first = int(np.searchsorted(self.rows[:, 0] + self.rows[:, 1], start, side="right"))
        last = int(np.searchsorted(self.rows[:, 0], stop, side="left"))
        found: list[tuple[int, int, int]] = []
        for begin, length, distance in self.rows[first:last].tolist():
            end = min(begin + length, stop)
            begin = max(begin, start)
            if end - begin >= SHORTEST:
                found.append((begin - start, end - begin, distance))
        return found


NO_COPIES = Copies(rows=np.zeros((0, 3), np.int64))


def num_bytes_of_window(window: int) -> int:
    """Returns the memory that copies take in either direction, beside the model: what is kept, and where its fingerprints lie."""
    return window + window // 64 + (1 << 22) if window > NEAR else 0


def widest_window(room: int) -> int:
    """Returns the widest window that takes at most so much memory."""
    return min(max((room - (1 << 22)) * 64 // 65, NEAR), WIDEST_WINDOW)


def find_copies(data: NDArray[np.uint8], *, window: int = WIDEST_WINDOW) -> Copies:
    """Finds long repeats.

    Args:
        data: all bytes of a file; they are not changed.
        window: how far back a source may begin.
    """
    if data.size <= LEAST_RUN:
        return NO_COPIES
    finder = Finder(_as_writable(data), window=min(window, data.size))
    finder.scan(data.size)
    return Copies(rows=finder.rows.copy())


class Finder:
    """The state of a search, which may go on when more bytes have come.

    Args:
        data: the bytes, of which the first is that at `base`.
        window: how far back a source may begin.
    """

    def __init__(self, data: NDArray[np.uint8], *, window: int) -> None:
        self.data = data
        self._window = window
        self._heads = np.zeros(1 << max((2 * window // _STRETCH).bit_length(), 8), np.uint64)
        self._rows = np.zeros((data.size // LEAST_RUN + 2, 3), np.int64)
        self._state = np.zeros(7, np.int64)

    @property
    def rows(self) -> NDArray[np.int64]:
        """What was found since `forget`."""
        return self._rows[: self._state[_COUNT]]

    def scan(self, stop: int) -> None:
        """Searches up to a place in the file."""
        while self._state[_POSITION] + _STRETCH <= stop:
            limit = min(int(self._state[_POSITION]) + _SCANNED, stop - _STRETCH + 1)
            find_repeats(self.data, self._state, np.int64(limit), np.int64(stop), np.int64(self._window), self._heads, self._rows)

    def forget(self, start: int) -> None:
        """Drops what was found; repeats begin at a place or behind it from now on."""
        self._state[[_FREE, _COUNT]] = start, 0
        self._state[_POSITION] = max(self._state[_POSITION], start)

    def slide(self, count: int) -> None:
        """Tells that the first bytes of the data have been dropped, and all others moved to the front."""
        self._state[_BASE] += count


@kernel
def fingerprint(data: NDArray[np.uint8], start: Whole) -> np.int64:
    """Hashes the stretch that begins at an index."""
    mark = np.int64(0)
    for index in range(start, start + _STRETCH):
        mark = (mark * _FACTOR + np.int64(data[index]) + 1) & _WORD
    return mark


@kernel
def slot_of(mark: Whole) -> np.int64:
    """Spreads fingerprints over the table."""
    return np.int64(((mark ^ (mark >> 15)) * 0x1E35A7BD) >> 16)


@kernel
def common(data: NDArray[np.uint8], first: Whole, second: Whole, stop: Whole) -> np.int64:
    """Counts the bytes that follow alike behind two indices; the second is the larger."""
    length = np.int64(0)
    while second + length < stop and data[first + length] == data[second + length]:
        length += 1
    return length


@kernel
def take_repeat(data: NDArray[np.uint8], state: NDArray[np.int64], place: Whole, stop: Whole, rows: NDArray[np.int64]) -> np.int64:
    """Enters the repeat around a place whose stretch seems to stand at `state[_SOURCE]` too; returns its bytes from there on, or 0."""
    base = state[_BASE]
    length = common(data, state[_SOURCE] - base, place - base, stop - base)
    # A run is a repeat of what stands directly before it.
    near = common(data, place - 1 - base, place - base, stop - base)
    if near >= length:
        length = near
        state[_SOURCE] = place - 1
    # Within a repeat that is too short, no other is looked for: so each byte is compared a few times at most.
    state[_BLIND] = place + max(length - _STRETCH + 1, np.int64(1))
    distance = place - state[_SOURCE]
    begin = place
    while begin > state[_FREE] and begin - distance > base and data[begin - 1 - base] == data[begin - 1 - distance - base]:
        begin -= 1
    if length < _STRETCH or place + length - begin < (LEAST_RUN if distance < _STRETCH else LEAST):
        return np.int64(0)
    count = state[_COUNT]
    rows[count, 0] = begin
    rows[count, 1] = place + length - begin
    rows[count, 2] = distance
    state[_COUNT] = count + 1
    state[_DISTANCE] = distance
    return length


@kernel
def note_stretches(data: NDArray[np.uint8], base: Whole, start: Whole, stop: Whole, heads: NDArray[np.uint64]) -> None:
    """Enters the aligned stretches between two places."""
    mask = np.int64(heads.size) - 1
    for number in range((start + _STRETCH - 1) // _STRETCH, stop // _STRETCH):
        mark = fingerprint(data, number * _STRETCH - base)
        heads[slot_of(mark) & mask] = (np.uint64(mark) << _HALF) | np.uint64(number + 1)


@entry
def find_repeats(
    data: NDArray[np.uint8],
    state: NDArray[np.int64],
    limit: Whole,
    stop: Whole,
    window: Whole,
    heads: NDArray[np.uint64],
    rows: NDArray[np.int64],
) -> None:
    """Looks for repeats that begin before `limit` and end at `stop` at the latest.

    Args:
        data: the bytes from `state[_BASE]` on.
        state: where the search stands, the first place that a repeat may begin at, how many were found, the place of the first byte; and
            three numbers for within.
        limit: the first place where no stretch is looked up.
        stop: the end of the bytes.
        window: how far back a source may begin.
        heads: for each fingerprint its upper half, and the number of the last such stretch, plus 1.
        rows: to be filled with place, length and distance.
    """
    base = state[_BASE]
    place = state[_POSITION]
    mask = np.int64(heads.size) - 1
    mark = fingerprint(data, place - base)
    state[_BLIND] = place
    while place < limit:
        slot = slot_of(mark) & mask
        length = np.int64(0)
        # A repeat that went on to the end of a block goes on in the next.
        again = place == state[_FREE] and state[_DISTANCE] > 0
        if again or (np.int64(heads[slot] >> _HALF) == mark and place >= state[_BLIND]):
            number = np.int64(heads[slot] & np.uint64(_WORD))
            state[_SOURCE] = place - state[_DISTANCE] if again else (number - 1) * _STRETCH
            if base <= state[_SOURCE] < place and place - state[_SOURCE] <= window:
                length = take_repeat(data, state, place, stop, rows)
        if length > 0:
            # The stretches of a repeat are noted as well, because nearer ones are better; not those of a run, which are all the same.
            if state[_SOURCE] + _STRETCH < place:
                note_stretches(data, base, place, place + length, heads)
            place += length
            state[_FREE] = place
            if place < limit:
                mark = fingerprint(data, place - base)
            continue
        if place % _STRETCH == 0:
            heads[slot] = (np.uint64(mark) << _HALF) | np.uint64(place // _STRETCH + 1)
        if place + _STRETCH < stop:
            leaving = (np.int64(data[place - base]) + 1) * _FACTOR_OUT
            mark = (mark * _FACTOR + np.int64(data[place + _STRETCH - base]) + 1 - leaving) & _WORD
        place += 1
    state[_POSITION] = place


def map_file(file: IOBase | BinaryIO, size: int) -> NDArray[np.uint8]:
    """Returns the bytes of a regular file without reading them; of one that is not empty, and that keeps its size meanwhile."""
    return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


def _as_writable(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the same bytes as an array that may be written: a kernel is compiled for such, and this one only reads."""
    if data.flags.carray:
        return data
    assert data.flags.c_contiguous
    return np.ctypeslib.as_array((ctypes.c_uint8 * data.size).from_address(data.ctypes.data))


class Window:
    """The last bytes of the original, from which copies are taken.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self._ring = np.zeros(size, np.uint8)
        self._position = 0

    def append(self, data: NDArray[np.uint8]) -> None:
        """Takes the next bytes."""
        size = self._ring.size
        kept = data[-size:]
        first = (self._position + data.size - kept.size) % size
        head = min(kept.size, size - first)
        self._ring[first : first + head] = kept[:head]
        self._ring[: kept.size - head] = kept[head:]
        self._position += data.size

    def copied(self, distance: int, length: int) -> NDArray[np.uint8]:
        """Returns the bytes that begin `distance` back; they repeat where there are fewer of them than `length`.

        Raises:
            FormatError: so many bytes are not kept, or there are not so many.
        """
        size = self._ring.size
        if not 0 < distance <= min(size, self._position):
            raise FormatError(f"a copy from {distance} bytes back, where {min(size, self._position)} are kept: the file is damaged")
        first, count = (self._position - distance) % size, min(distance, length)
        out = np.empty(length, np.uint8)
        head = min(count, size - first)
        out[:head] = self._ring[first : first + head]
        out[head:count] = self._ring[: count - head]
        while count < length:
            more = min(count, length - count)
            out[count : count + more] = out[:more]
            count += more
        return out
