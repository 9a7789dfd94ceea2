"""Compresses bytes into a `.l0` file and back: blocks of at most 1 MiB, one model for all of them. See docs/formats/format.md."""

import io
from collections.abc import Callable, Iterator
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.bytes.block_coder import code_piece
from ellzero.codec.bytes.parameters import BLOCK, ByteModel, model_for, parameters_of
from ellzero.codec.bytes.pictures import LONGEST_ROW, find_picture
from ellzero.codec.bytes.presets import PICTURED, WIDENED
from ellzero.codec.bytes.state import ROW, STRIDE, Model
from ellzero.codec.bytes.transforms import LONGEST_STRIDE, change_x86_calls, find_stride, has_x86_calls, looks_like_text, looks_random
from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, ContainerWriter, Kind, Section, Sink, Source, Tally
from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.varint import Cursor, varint

DEFAULT_LEVEL = 5
PIECE = 1 << 15
"""Bytes coded in one go: signals and reports wait no longer than that."""

_X86, _ROWS = 1, 2
_NOTHING = np.zeros(1, np.uint8)


class DataSection(IntEnum):
    """The sections of a data file."""

    MODEL = 1
    CODED = 2
    STORED = 3
    STORED_AND_LEARNT = 4


class ByteEncoder:
    """Compresses what is written to it, block by block.

    Args:
        file: where to, binary.
        level: 1 (fast) to 9 (small).
        size: of all that will be written, where it is known: the model takes no more memory than it warrants.
        memory: the most bytes that the model may take.
        report: called at least every 32 KiB with the number of bytes that are coded.

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
        model_for(level, size, memory)
        self._level, self._size, self._memory = level, size, memory
        self._report = report
        self._writer = ContainerWriter(file, Kind.DATA)
        self._tally = Tally()
        self._waiting = bytearray()
        self._model: Model | None = None

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return self._writer.position

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Takes bytes, and compresses as many blocks as they fill."""
        view = memoryview(data).cast("B")
        taken = 0
        # A block that is just full waits: it may be the last, and the model then need not be larger.
        while view.nbytes - taken > BLOCK - len(self._waiting):
            end = taken + BLOCK - len(self._waiting)
            self._waiting += view[taken:end]
            taken = end
            self._encode()
        self._waiting += view[taken:]
        return view.nbytes

    def finish(self) -> int:
        """Compresses what is left and ends the file; returns its size in bytes."""
        if self._waiting:
            if self._model is None:
                self._size = len(self._waiting)
            self._encode()
        return self._writer.finish(self._tally.original)

    def _encode(self) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        start = self._tally.original.size
        self._tally.update(data)
        block = np.frombuffer(data, np.uint8).copy()
        if looks_random(block):
            self._writer.section(DataSection.STORED, data, check=True)
            self._tell(start + block.size)
            return
        text = looks_like_text(block)
        stride, row = (0, 0) if text or self._level not in PICTURED else find_picture(block)
        if row == 0:
            stride = find_stride(block)
        if self._model is None:
            parameters = self._parameters(wide=self._level in WIDENED and (stride > 0 or not text))
            self._model = parameters.start()
            self._writer.section(DataSection.MODEL, parameters.payload, check=True)
        flags = (_X86 if has_x86_calls(block) else 0) | (_ROWS if row else 0)
        if flags & _X86:
            change_x86_calls(block, np.int64(start), False)
        coded = np.zeros(block.size + block.size // 16 + 64, np.uint8)
        self._model.registers[[STRIDE, ROW]] = stride, row
        length = 0
        for place in range(0, block.size, PIECE):
            stop = min(place + PIECE, block.size)
            length = int(code_piece(self._model, block, coded, np.int64(place), np.int64(stop), False))
            self._tell(start + stop)
        head = bytes((flags,)) + varint(stride) + (varint(row) if row else b"")
        size = varint(block.size)
        if len(size) + len(head) + length < block.size:
            self._writer.section(DataSection.CODED, size + head + coded[:length].tobytes(), check=True)
        else:
            # The model has learnt the block, so the decoder's must as well.
            self._writer.section(DataSection.STORED_AND_LEARNT, head + data, check=True)

    def _parameters(self, *, wide: bool) -> ByteModel:
        try:
            return model_for(self._level, self._size, self._memory, wide=wide)
        except ValueError:
            # What more parts take does not fit into the memory any more, which was enough for the level itself.
            return model_for(self._level, self._size, self._memory)

    def _tell(self, done: int) -> None:
        if self._report is not None:
            self._report(done)


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
    model: Model | None = None
    for section in reader.sections(tuple(DataSection)):
        if section.kind == DataSection.MODEL:
            if model is not None:
                raise FormatError(f"a second model at byte {section.offset}: the file is damaged")
            model = parameters_of(section, memory).start()
            continue
        length, pieces = _decode(section, model, size)
        size += length
        if max_size is not None and size > max_size:
            raise LimitError(f"the file holds more than the limit of {max_size} bytes: raise the limit")
        for piece in pieces:
            tally.update(piece)
            yield piece
    if tally.original != reader.original:
        raise FormatError("what was decoded differs from the original (its size or hash): the file is damaged; get it again")


def read_parameters(file: Source) -> ByteModel | None:
    """Reads the parameters of a compressed file without decoding it; None where it has no model before its first block."""
    for section in ContainerReader(file, max_section=2 * BLOCK).sections(tuple(DataSection)):
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
    encoder = ByteEncoder(file, level=level, size=memoryview(data).nbytes, memory=memory)
    encoder.write(data)
    encoder.finish()
    return file.getvalue()


def decompress_bytes(data: bytes, *, max_size: int | None = DEFAULT_LIMIT, memory: int | None = None) -> bytes:
    """Gives back what `compress_bytes` was given; arguments and errors as `decode_blocks`."""
    return b"".join(decode_blocks(io.BytesIO(data), max_size=max_size, memory=memory))


def _decode(section: Section, model: Model | None, start: int) -> tuple[int, Iterator[bytes]]:
    """Returns how many bytes a block holds, and an iterator that decodes them; it begins at byte `start` of the original."""
    what = f"the block at byte {section.offset}"
    if section.kind != DataSection.CODED and len(section.payload) > BLOCK + 6:
        raise FormatError(f"{what} is larger than a block may be: the file is damaged")
    if section.kind == DataSection.STORED:
        return len(section.payload), iter((section.payload,))
    if model is None:
        raise FormatError(f"{what} comes before its model: the file is damaged")
    cursor = Cursor(section.payload, what)
    size = cursor.count(BLOCK, "bytes") if section.kind == DataSection.CODED else None
    flags, stride = cursor.byte(), cursor.count(LONGEST_STRIDE, "bytes a record")
    if flags > _X86 | _ROWS:
        raise FormatError(f"{what} has unknown flags {flags}: the file is damaged, or upgrade ellzero")
    row = cursor.count(LONGEST_ROW, "bytes a row") if flags & _ROWS else 0
    if flags & _ROWS and not 0 < stride < row:
        raise FormatError(f"{what} has rows of {row} bytes and pixels of {stride}: the file is damaged")
    model.registers[[STRIDE, ROW]] = stride, row
    rest = np.frombuffer(cursor.rest(), np.uint8).copy()
    calls = start if flags & _X86 else None
    return (rest.size, _learnt(model, rest, calls)) if size is None else (size, _decoded(model, rest, size, calls))


def _learnt(model: Model, block: NDArray[np.uint8], calls: int | None) -> Iterator[bytes]:
    """Takes the model through a block that was stored; `calls` is where the block lies if the model sees targets of calls."""
    data = block.tobytes()
    if calls is not None:
        change_x86_calls(block, np.int64(calls), False)
    for start in range(0, block.size, PIECE):
        stop = min(start + PIECE, block.size)
        code_piece(model, block, _NOTHING, np.int64(start), np.int64(stop), False)
        yield data[start:stop]


def _decoded(model: Model, coded: NDArray[np.uint8], size: int, calls: int | None) -> Iterator[bytes]:
    """Decodes a block piece by piece; `calls` is where it lies if targets of calls become distances again."""
    block = np.zeros(size, np.uint8)
    held = block[:0]
    for start in range(0, size, PIECE):
        stop = min(start + PIECE, size)
        code_piece(model, block, coded, np.int64(start), np.int64(stop), True)
        if calls is None:
            yield block[start:stop].tobytes()
            continue
        # In a copy, because the model goes on with the targets. The last four bytes may belong to a call that begins in the next piece's.
        piece = np.concatenate((held, block[start:stop]))
        change_x86_calls(piece, np.int64(calls + start - held.size), True)
        final = piece.size if stop == size else max(piece.size - 4, 0)
        yield piece[:final].tobytes()
        held = piece[final:]
