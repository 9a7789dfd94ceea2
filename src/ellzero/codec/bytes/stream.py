"""Compresses bytes into a `.l0` file and back: blocks of at most 1 MiB, one model for all of them. Written down in docs/format.md."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ellzero.codec.bytes.coder import code_block
from ellzero.codec.bytes.presets import PRESETS
from ellzero.codec.bytes.state import STRIDE, Model, new_model, num_bytes_of_model
from ellzero.codec.bytes.transforms import LONGEST_STRIDE, change_x86_calls, find_stride, has_x86_calls
from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, ContainerWriter, Kind, Section, Tally
from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.streams import Sink, Source
from ellzero.codec.varint import Cursor, varint

DEFAULT_LEVEL = 5
BLOCK = 1 << 20
_SMALLEST_TABLE, _SMALLEST_HISTORY = 10, 10
_X86 = 1


class Part(IntEnum):
    """The sections of a data file."""

    MODEL = 1
    CODED = 2
    STORED = 3
    STORED_AND_LEARNT = 4


@dataclass(frozen=True, kw_only=True)
class ByteModel:
    """The parameters of the model in a file.

    Args:
        level: 1 to 9.
        table_bits: log2 of the number of buckets.
        history_bits: log2 of the bytes kept.
    """

    level: int
    table_bits: int
    history_bits: int

    @property
    def num_bytes(self) -> int:
        """The memory that either direction needs, beside the interpreter's."""
        return num_bytes_of_model(PRESETS[self.level], self.table_bits, self.history_bits) + 4 * BLOCK

    @property
    def microseconds_per_byte(self) -> float:
        """What a byte roughly costs in either direction, on one core of the year 2020."""
        return PRESETS[self.level].microseconds

    def start(self) -> Model:
        """Allocates the model."""
        return new_model(PRESETS[self.level], self.table_bits, self.history_bits)


def model_for(level: int, size: int | None, memory: int | None = None) -> ByteModel:
    """Returns the parameters for a file: those of the level, cut down to what the file and the memory allow.

    Args:
        level: 1 (fast) to 9 (small).
        size: of the file in bytes; None where it is not known, which takes as much memory as the level may.
        memory: the most bytes that the model may take.

    Raises:
        ValueError: there is no such level, or the memory is too little for its smallest model.
    """
    if level not in PRESETS:
        raise ValueError(f"level {level!r}: levels are 1 (fast) to 9 (small)")
    preset = PRESETS[level]
    table_bits, history_bits = preset.table_bits, preset.history_bits
    if size is not None:
        table_bits = min(table_bits, max(_SMALLEST_TABLE, (size * len(preset.contexts) // 2).bit_length()))
        history_bits = min(history_bits, max(_SMALLEST_HISTORY, (size + 128).bit_length()))
    while memory is not None:
        model = ByteModel(level=level, table_bits=table_bits, history_bits=history_bits)
        if model.num_bytes <= memory:
            break
        if table_bits > _SMALLEST_TABLE:
            table_bits -= 1
        elif history_bits > _SMALLEST_HISTORY:
            history_bits -= 1
        else:
            raise ValueError(f"level {level} needs at least {model.num_bytes} bytes of memory, not {memory}: raise it, or lower the level")
    return ByteModel(level=level, table_bits=table_bits, history_bits=history_bits)


class ByteEncoder:
    """Compresses what is written to it, block by block.

    Args:
        file: where to, binary.
        level: 1 (fast) to 9 (small).
        size: of all that will be written, where it is known: the model takes no more memory than it warrants.
        memory: the most bytes that the model may take.

    Raises:
        ValueError: see `model_for`.
    """

    def __init__(self, file: Sink, *, level: int = DEFAULT_LEVEL, size: int | None = None, memory: int | None = None) -> None:
        self._parameters = model_for(level, size, memory)
        self._level, self._size, self._memory = level, size, memory
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
        self._waiting += data
        # A block that is just full waits: it may be the last, and the model then need not be larger.
        while len(self._waiting) > BLOCK:
            self._encode(bytes(self._waiting[:BLOCK]))
            del self._waiting[:BLOCK]
        return len(data)

    def finish(self) -> int:
        """Compresses what is left and ends the file; returns its size in bytes."""
        if self._waiting:
            if self._model is None:
                self._parameters = model_for(self._level, len(self._waiting), self._memory)
            self._encode(bytes(self._waiting))
            self._waiting.clear()
        return self._writer.finish(self._tally.original)

    def _encode(self, data: bytes) -> None:
        start = self._tally.original.size
        self._tally.update(data)
        block = np.frombuffer(data, np.uint8).copy()
        if _looks_random(block):
            self._writer.section(Part.STORED, data, check=True)
            return
        if self._model is None:
            p = self._parameters
            self._model = p.start()
            self._writer.section(Part.MODEL, bytes((p.level, p.table_bits, p.history_bits)), check=True)
        stride = find_stride(block)
        flags = _X86 if has_x86_calls(block) else 0
        if flags & _X86:
            change_x86_calls(block, np.int64(start), False)
        coded = np.zeros(block.size + block.size // 16 + 64, np.uint8)
        self._model.registers[STRIDE] = stride
        length = code_block(self._model, block, coded, False)
        head = varint(block.size) + bytes((flags,)) + varint(stride)
        if len(head) + length < block.size:
            self._writer.section(Part.CODED, head + coded[:length].tobytes(), check=True)
        else:
            # The model has learnt the block, so the decoder's must as well.
            self._writer.section(Part.STORED_AND_LEARNT, bytes((flags,)) + varint(stride) + data, check=True)


def decode_blocks(file: Source, *, max_size: int | None = DEFAULT_LIMIT, memory: int | None = None) -> Iterator[bytes]:
    """Reads a compressed file from front to back.

    Args:
        file: from where, binary and buffered.
        max_size: the most bytes to decode; None for any number.
        memory: the most bytes that the model may take; None for what any level takes.

    Yields:
        Blocks of at most 1 MiB. Only when the last has been taken is it sure that all were right: a caller that acts before must undo.

    Raises:
        FormatError: the file is damaged or of another kind.
        LimitError: it needs more than allowed.
    """
    reader = ContainerReader(file, max_section=2 * BLOCK)
    reader.expect(Kind.DATA)
    tally = Tally()
    size = 0
    model: Model | None = None
    for section in reader.sections(tuple(Part)):
        if section.kind == Part.MODEL:
            if model is not None:
                raise FormatError(f"a second model at byte {section.offset}: the file is damaged")
            model = _read_parameters(section, memory).start()
            continue
        data = _decode(section, model, size)
        size += len(data)
        if max_size is not None and size > max_size:
            raise LimitError(f"the file holds more than the limit of {max_size} bytes: raise the limit")
        tally.update(data)
        yield data
    if tally.original != reader.original:
        raise FormatError("what was decoded differs from the original (its size or hash): the file is damaged; get it again")


def read_parameters(file: Source) -> ByteModel | None:
    """Reads the parameters of a compressed file without decoding it; None where it has no model before its first block."""
    for section in ContainerReader(file, max_section=2 * BLOCK).sections(tuple(Part)):
        return _read_parameters(section, None) if section.kind == Part.MODEL else None
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


def _looks_random(block: np.ndarray) -> bool:
    """Whether a block of some size has bytes that are all about as frequent, so that a model would only lose time."""
    if block.size < 1 << 14:
        return False
    counts = np.bincount(block, minlength=256).astype(np.int64)
    # The statistic is 255 on average for random bytes, with a standard deviation of 23.
    deviation = int((counts * counts).sum()) * 256 / block.size - block.size
    return deviation < 400


def _read_parameters(section: Section, memory: int | None) -> ByteModel:
    cursor = Cursor(section.payload, "the section of the model")
    model = ByteModel(level=cursor.byte(), table_bits=cursor.byte(), history_bits=cursor.byte())
    cursor.end()
    preset = PRESETS.get(model.level)
    if preset is None:
        raise FormatError(f"level {model.level} is unknown to this ellzero: the file is damaged, or upgrade ellzero")
    if not (_SMALLEST_TABLE <= model.table_bits <= preset.table_bits and _SMALLEST_HISTORY <= model.history_bits <= preset.history_bits):
        raise FormatError(f"a model of 2^{model.table_bits} buckets at level {model.level} cannot be: the file is damaged")
    if memory is not None and model.num_bytes > memory:
        raise LimitError(f"the model needs {model.num_bytes} bytes of memory, more than the limit of {memory}: raise the limit")
    return model


def _decode(section: Section, model: Model | None, start: int) -> bytes:
    if section.kind != Part.CODED and len(section.payload) > BLOCK + 4:
        raise FormatError(f"the block at byte {section.offset} is larger than a block may be: the file is damaged")
    if section.kind == Part.STORED:
        return section.payload
    if model is None:
        raise FormatError(f"the block at byte {section.offset} comes before its model: the file is damaged")
    cursor = Cursor(section.payload, f"the block at byte {section.offset}")
    size = cursor.count(BLOCK, "bytes") if section.kind == Part.CODED else None
    flags = cursor.byte()
    model.registers[STRIDE] = cursor.count(LONGEST_STRIDE, "bytes a record")
    rest = np.frombuffer(cursor.rest(), np.uint8)
    if flags > _X86:
        raise FormatError(f"the block at byte {section.offset} has unknown flags {flags}: the file is damaged, or upgrade ellzero")
    if size is None:
        block = rest.copy()
        if flags & _X86:
            change_x86_calls(block, np.int64(start), False)
        code_block(model, block, np.zeros(1, np.uint8), False)
        return rest.tobytes()
    block = np.zeros(size, np.uint8)
    code_block(model, block, rest.copy(), True)
    if flags & _X86:
        change_x86_calls(block, np.int64(start), True)
    return block.tobytes()
