"""Compresses bytes into a `.l0` file and back: blocks of at most 1 MiB, one model for all of them. See docs/formats/format.md."""

import io
from collections.abc import Callable, Iterator
from enum import IntEnum
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.block_coder import BlockCoder
from ellzero.codec.bytes.copies import (
    NEAR,
    NO_COPIES,
    WIDEST_WINDOW,
    Copies,
    Finder,
    Window,
    find_copies,
    num_bytes_of_window,
    widest_window,
)
from ellzero.codec.bytes.known_answers import check_coder
from ellzero.codec.bytes.parameters import BLOCK, BUFFERS, ByteModel, model_for, parameters_of
from ellzero.codec.bytes.pictures import LONGEST_ROW, find_picture
from ellzero.codec.bytes.presets import PICTURED, PRESETS, WIDENED
from ellzero.codec.bytes.transforms import LONGEST_STRIDE, change_x86_calls, find_stride, has_x86_calls, looks_like_text, looks_random
from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, ContainerWriter, Kind, Section, Sink, Source, Tally
from ellzero.codec.errors import FormatError, LimitError, MemoryLimitError
from ellzero.codec.varint import Cursor, varint

DEFAULT_LEVEL = 5
PIECE = 1 << 13
"""Bytes coded in one go: signals and reports wait no longer than that."""

_X86, _ROWS = 1, 2
_NOTHING = np.zeros(1, np.uint8)
_COPIED = 1 << 16  # bytes of a copy handed on in one go
_MOST_COPIES = 1 << 14  # of a block
_FEW = 64  # bytes beside copies for which alone no model is begun


class DataSection(IntEnum):
    """The sections of a data file."""

    MODEL = 1
    CODED = 2
    STORED = 3
    STORED_AND_LEARNT = 4
    WITH_COPIES = 5
    WINDOW = 6


class ByteEncoder:
    """Compresses what is written to it, block by block.

    Long repeats are looked for by `look_for_copies`, or, where the size is not given, on the way, as far back as the level's model reaches.

    Args:
        file: where to, binary.
        level: 1 (fast) to 9 (small).
        size: of all that will be written, where it is known: the model takes no more memory than it warrants.
        memory: the most bytes that the model, and the window of copies, may take.
        report: called at least every 8 KiB with the number of bytes that are coded, but for copies.

    Raises:
        ValueError: see `model_for`.
    """

    def __init__(
        self,
        file: Sink,
        *,
        level: int = DEFAULT_LEVEL,
        size: int | None = None,
        memory: int | None = None,
        report: Callable[[int], None] | None = None,
    ) -> None:
        least = model_for(level, size, memory).num_bytes
        self._room = None if memory is None else memory - least
        self._level, self._size, self._memory = level, size, memory
        self._report = report
        self._writer = ContainerWriter(file, Kind.DATA)
        self._tally = Tally()
        self._waiting = bytearray()
        self._coder: BlockCoder | None = None
        self._copies = NO_COPIES
        self._window: Window | None = None
        self._search: _Search | None = None
        self._lock = Lock()
        self._told = 0

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return self._writer.position

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Takes bytes, and compresses as many blocks as they fill."""
        view = memoryview(data).cast("B")
        taken = 0
        # Kernels let other threads run, which must not find the model in the middle of a block.
        with self._lock:
            # A block that is just full waits: it may be the last, and the model then need not be larger.
            while view.nbytes - taken > BLOCK - len(self._waiting):
                end = taken + BLOCK - len(self._waiting)
                self._waiting += view[taken:end]
                taken = end
                if self._size is None and self._tally.original.size == 0:
                    self._search = self._begin_search()
                self._encode()
            self._waiting += view[taken:]
        return view.nbytes

    def finish(self) -> int:
        """Compresses what is left and ends the file; returns its size in bytes."""
        with self._lock:
            if self._waiting:
                if self._tally.original.size == 0 and self._size is None:
                    self.look_for_copies(np.frombuffer(bytes(self._waiting), np.uint8))
                if self._coder is None:
                    self._size = len(self._waiting)
                self._encode()
            return self._writer.finish(self._tally.original)

    def look_for_copies(self, data: NDArray[np.uint8]) -> None:
        """Looks for long repeats in all that will be written, before any of it is. What has changed when it is written is no repeat."""
        self._copies = find_copies(data, window=self._widest)

    @property
    def _widest(self) -> int:
        """How far back copies may reach, for the memory."""
        return WIDEST_WINDOW if self._room is None else widest_window(self._room)

    def _begin_search(self) -> "_Search | None":
        window = min(1 << PRESETS[self._level].history_bits, self._widest)
        if window < BLOCK:
            return None
        self._announce(window)
        return _Search(window)

    def _announce(self, window: int) -> None:
        """Says how much decoders have to keep, from which the model's memory is subtracted."""
        self._writer.section(DataSection.WINDOW, varint(window), check=True)
        if self._memory is not None:
            self._memory -= num_bytes_of_window(window)

    def _encode(self) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        start = self._tally.original.size
        if start == 0 and self._search is None:
            if self._copies.window > NEAR:
                self._announce(self._copies.window)
            self._window = Window(self._copies.window)
        self._tally.update(data)
        block = np.frombuffer(data, np.uint8).copy()
        copies = self._copies.within(start, start + block.size) if self._search is None else self._search.repeats_of(block)
        if self._window is not None:
            copies = _those_that_hold(copies, block, self._window)
        if copies:
            head, literals = _split(copies, block)
            kind, payload = self._code(literals, start) if literals.size > _FEW or self._coder else (DataSection.STORED, literals.tobytes())
            self._writer.section(DataSection.WITH_COPIES, head + bytes((kind,)) + payload, check=True)
        else:
            kind, payload = self._code(block, start)
            self._writer.section(kind, payload, check=True)
        self._tell(start + len(data))

    def _code(self, block: NDArray[np.uint8], start: int) -> tuple[DataSection, bytes]:
        """Codes a block, or what copies leave of it, in place; returns the section that it becomes."""
        data = block.tobytes()
        if not block.size or looks_random(block):
            return DataSection.STORED, data
        text = looks_like_text(block)
        stride, row = (0, 0) if text or self._level not in PICTURED else find_picture(block)
        if row == 0:
            stride = find_stride(block)
        if self._coder is None:
            parameters = self._parameters(wide=self._level in WIDENED and (stride > 0 or not text))
            self._coder = _coder(parameters)
            self._writer.section(DataSection.MODEL, parameters.payload, check=True)
        flags = (_X86 if has_x86_calls(block) else 0) | (_ROWS if row else 0)
        if flags & _X86:
            change_x86_calls(block, np.int64(start), False)
        coded = np.zeros(block.size + block.size // 16 + 64, np.uint8)
        self._coder.begin(stride=stride, row=row)
        length = 0
        for place in range(0, block.size, PIECE):
            stop = min(place + PIECE, block.size)
            length = self._coder.code(block, coded, place, stop, decode=False)
            self._tell(start + stop)
        head = bytes((flags,)) + varint(stride) + (varint(row) if row else b"")
        size = varint(block.size)
        if len(size) + len(head) + length < block.size:
            return DataSection.CODED, size + head + coded[:length].tobytes()
        # The model has learnt the block, so the decoder's must as well.
        return DataSection.STORED_AND_LEARNT, head + data

    def _parameters(self, *, wide: bool) -> ByteModel:
        try:
            return model_for(self._level, self._size, self._memory, wide=wide)
        except ValueError:
            # What more parts take does not fit into the memory any more, which was enough for the level itself.
            return model_for(self._level, self._size, self._memory)

    def _tell(self, done: int) -> None:
        if self._report is not None and done > self._told:
            self._told = done
            self._report(done)


class _Search:
    """Looks for repeats in a file whose end is not known, as far back as its window.

    Args:
        window: how many bytes before a block are kept.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._kept = np.zeros(window + 2 * BLOCK, np.uint8)
        self._finder = Finder(self._kept, window=window)
        self._start = self._stop = 0

    def repeats_of(self, block: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
        """Takes the next block, and returns its copies as `Copies.within` does."""
        if self._stop - self._start + block.size > self._kept.size:
            dropped = self._stop - self._start - self._window
            self._kept[: self._window] = self._kept[dropped : dropped + self._window].copy()
            self._finder.slide(dropped)
            self._start += dropped
        self._kept[self._stop - self._start :][: block.size] = block
        begin, self._stop = self._stop, self._stop + block.size
        self._finder.forget(begin)
        self._finder.scan(self._stop)
        return Copies(rows=self._finder.rows.copy()).within(begin, self._stop)


def _split(copies: list[tuple[int, int, int]], block: NDArray[np.uint8]) -> tuple[bytes, NDArray[np.uint8]]:
    """Returns the list of copies as it is written, and the bytes between them."""
    head, literals, end = bytearray(varint(len(copies))), [], 0
    for begin, length, distance in copies:
        head += varint(begin - end) + varint(length) + varint(distance)
        literals.append(block[end:begin])
        end = begin + length
    return bytes(head), np.concatenate([*literals, block[end:]])


def _those_that_hold(copies: list[tuple[int, int, int]], block: NDArray[np.uint8], window: Window) -> list[tuple[int, int, int]]:
    """Takes a block into a window, and leaves out copies that are none: the file has changed since they were found."""
    held, end = [], 0
    for begin, length, distance in copies:
        window.append(block[end:begin])
        end = begin + length
        if np.array_equal(window.copied(distance, length), block[begin:end]):
            held.append((begin, length, distance))
        window.append(block[begin:end])
    window.append(block[end:])
    return held


def _coder(parameters: ByteModel) -> BlockCoder:
    check_coder(parameters)
    return BlockCoder(parameters.preset, parameters.start())


def decode_blocks(file: Source, *, max_size: int | None = DEFAULT_LIMIT, memory: int | None = None) -> Iterator[bytes]:
    """Reads a compressed file from front to back.

    Args:
        file: from where, binary and buffered.
        max_size: the most bytes to decode; None for any number.
        memory: the most bytes that the model may take; None for what any level takes.

    Yields:
        Pieces, most of 32 KiB. Only when the last has been taken is it sure that all were right: a caller that acts before must undo.

    Raises:
        FormatError: the file is damaged or of another kind.
        LimitError: it needs more than allowed.
    """
    reader = ContainerReader(file, max_section=2 * BLOCK)
    reader.expect(Kind.DATA)
    tally = Tally()
    size = 0
    coder: BlockCoder | None = None
    window = Window(NEAR)
    announced = False
    for section in reader.sections(tuple(DataSection)):
        if section.kind == DataSection.MODEL:
            if coder is not None:
                raise FormatError(f"a second model at byte {section.offset}: the file is damaged")
            coder = _coder(parameters_of(section, memory))
            continue
        if section.kind == DataSection.WINDOW:
            if announced or size or coder is not None:
                raise FormatError(f"a window at byte {section.offset}, where none may be: the file is damaged")
            announced = True
            window, memory = _window(section, memory)
            continue
        length, pieces = _decode(section, coder, size, window)
        size += length
        if max_size is not None and size > max_size:
            raise LimitError(f"the file holds more than the limit of {max_size} bytes: raise the limit")
        for piece in pieces:
            window.append(np.frombuffer(piece, np.uint8))
            tally.update(piece)
            yield piece
    if tally.original != reader.original:
        raise FormatError("what was decoded differs from the original (its size or hash): the file is damaged; get it again")


def read_parameters(file: Source) -> ByteModel | None:
    """Reads the parameters of a compressed file without decoding it; None where it has no model before its first block."""
    for section in ContainerReader(file, max_section=2 * BLOCK).sections(tuple(DataSection)):
        if section.kind == DataSection.WINDOW:
            continue
        return parameters_of(section, None) if section.kind == DataSection.MODEL else None
    return None


def compress_bytes(data: bytes | bytearray | memoryview, *, level: int = DEFAULT_LEVEL, memory: int | None = None) -> bytes:
    """Compresses bytes.

    Args:
        data: any bytes.
        level: 1 (fast) to 9 (small).
        memory: the most bytes that the model may take, in either direction.

    Returns:
        A `.l0` file.
    """
    file = io.BytesIO()
    view = memoryview(data).cast("B")
    encoder = ByteEncoder(file, level=level, size=view.nbytes, memory=memory)
    encoder.look_for_copies(np.frombuffer(view, np.uint8))
    encoder.write(view)
    encoder.finish()
    return file.getvalue()


def decompress_bytes(data: bytes, *, max_size: int | None = DEFAULT_LIMIT, memory: int | None = None) -> bytes:
    """Gives back what `compress_bytes` was given; arguments and errors as `decode_blocks`."""
    return b"".join(decode_blocks(io.BytesIO(data), max_size=max_size, memory=memory))


def window_of(section: Section) -> int:
    """Reads how many bytes a decoder has to keep.

    Raises:
        FormatError: it cannot be so many.
    """
    cursor = Cursor(section.payload, "the section of the window")
    window = cursor.varint()
    cursor.end()
    if not NEAR < window <= WIDEST_WINDOW:
        raise FormatError(f"a window of {window} bytes cannot be: the file is damaged, or upgrade ellzero")
    return window


def _window(section: Section, memory: int | None) -> tuple[Window, int | None]:
    """Begins the window of a file, and returns what it leaves of the memory.

    Raises:
        MemoryLimitError: it takes more.
    """
    size = window_of(section)
    need = num_bytes_of_window(size)
    if memory is not None and need + BUFFERS > memory:
        raise MemoryLimitError(f"the window needs {need + BUFFERS} bytes of memory, more than the limit of {memory}: raise the limit")
    return Window(size), None if memory is None else memory - need


def _decode(section: Section, coder: BlockCoder | None, start: int, window: Window) -> tuple[int, Iterator[bytes]]:
    """Returns how many bytes a block holds, and an iterator that decodes them; it begins at byte `start` of the original."""
    what = f"the block at byte {section.offset}"
    if section.kind != DataSection.WITH_COPIES:
        return _decode_block(section, coder, start, what)
    cursor = Cursor(section.payload, what)
    copies = [
        (cursor.count(BLOCK, "bytes"), cursor.count(BLOCK, "bytes"), cursor.varint()) for _ in range(cursor.count(_MOST_COPIES, "copies"))
    ]
    kind = cursor.byte()
    if kind not in (DataSection.CODED, DataSection.STORED, DataSection.STORED_AND_LEARNT):
        raise FormatError(f"{what} has bytes of kind {kind}: the file is damaged, or upgrade ellzero")
    size, literals = _decode_block(Section(kind=kind, payload=cursor.rest(), offset=section.offset), coder, start, what)
    copied = sum(length for _, length, _ in copies)
    if sum(count for count, _, _ in copies) > size or size + copied > BLOCK:
        raise FormatError(f"{what} has copies for which it has no room: the file is damaged")
    return size + copied, _with_copies(copies, literals, window)


def _with_copies(copies: list[tuple[int, int, int]], literals: Iterator[bytes], window: Window) -> Iterator[bytes]:
    """Joins the bytes of a block and its copies; what is yielded goes into the window before the next is asked for."""
    held = b""
    for count, length, distance in copies:
        while count:
            held = held or next(literals)
            piece, held = held[:count], held[count:]
            count -= len(piece)
            yield piece
        while length:
            piece = window.copied(distance, min(length, _COPIED)).tobytes()
            length -= len(piece)
            yield piece
    if held:
        yield held
    yield from literals


def _decode_block(section: Section, coder: BlockCoder | None, start: int, what: str) -> tuple[int, Iterator[bytes]]:
    """Does the same for a block without copies, which goes by the name of `what`."""
    if section.kind != DataSection.CODED and len(section.payload) > BLOCK + 6:
        raise FormatError(f"{what} is larger than a block may be: the file is damaged")
    if section.kind == DataSection.STORED:
        return len(section.payload), iter((section.payload,))
    if coder is None:
        raise FormatError(f"{what} comes before its model: the file is damaged")
    cursor = Cursor(section.payload, what)
    size = cursor.count(BLOCK, "bytes") if section.kind == DataSection.CODED else None
    flags, stride = cursor.byte(), cursor.count(LONGEST_STRIDE, "bytes a record")
    if flags > _X86 | _ROWS:
        raise FormatError(f"{what} has unknown flags {flags}: the file is damaged, or upgrade ellzero")
    row = cursor.count(LONGEST_ROW, "bytes a row") if flags & _ROWS else 0
    if flags & _ROWS and not 0 < stride < row:
        raise FormatError(f"{what} has rows of {row} bytes and pixels of {stride}: the file is damaged")
    coder.begin(stride=stride, row=row)
    rest = np.frombuffer(cursor.rest(), np.uint8).copy()
    calls = start if flags & _X86 else None
    return (rest.size, _learnt(coder, rest, calls)) if size is None else (size, _decoded(coder, rest, size, calls))


def _learnt(coder: BlockCoder, block: NDArray[np.uint8], calls: int | None) -> Iterator[bytes]:
    """Takes the model through a block that was stored; `calls` is where the block lies if the model sees targets of calls."""
    data = block.tobytes()
    if calls is not None:
        change_x86_calls(block, np.int64(calls), False)
    for start in range(0, block.size, PIECE):
        stop = min(start + PIECE, block.size)
        coder.code(block, _NOTHING, start, stop, decode=False)
        yield data[start:stop]


def _decoded(coder: BlockCoder, coded: NDArray[np.uint8], size: int, calls: int | None) -> Iterator[bytes]:
    """Decodes a block piece by piece; `calls` is where it lies if targets of calls become distances again."""
    block = np.zeros(size, np.uint8)
    held = block[:0]
    for start in range(0, size, PIECE):
        stop = min(start + PIECE, size)
        coder.code(block, coded, start, stop, decode=True)
        if calls is None:
            yield block[start:stop].tobytes()
            continue
        # In a copy, because the model goes on with the targets. The last four bytes may belong to a call that begins in the next piece's.
        piece = np.concatenate((held, block[start:stop]))
        change_x86_calls(piece, np.int64(calls + start - held.size), True)
        final = piece.size if stop == size else max(piece.size - 4, 0)
        yield piece[:final].tobytes()
        held = piece[final:]
