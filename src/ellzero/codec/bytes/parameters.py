"""The parameters of the model of bytes in a file: the level, and how much memory it takes."""

from dataclasses import dataclass

from ellzero.codec.bytes.presets import PRESETS, SECTIONED, Preset, preset_for
from ellzero.codec.bytes.state import Model, new_model, num_bytes_of_model
from ellzero.codec.container import Section
from ellzero.codec.errors import FormatError, MemoryLimitError
from ellzero.codec.varint import Cursor

BLOCK = 1 << 20
BUFFERS = 8 * BLOCK
"""What either direction needs beside the model: a block and its message, each as read, as worked on, and as handed on in pieces."""

_SMALLEST_TABLE, _SMALLEST_HISTORY = 10, 10
_WIDE, _SECTIONS = 16, 32


@dataclass(frozen=True, kw_only=True)
class ByteModel:
    """The parameters of the model in a file.

    Args:
        level: 1 to 9.
        wide: whether the parts are those of level 7, which suit what is no text.
        sections: whether there are contexts of sections, and all others, which the levels 8 and 9 had not at first.
        table_bits: log2 of the number of buckets.
        history_bits: log2 of the bytes kept.
    """

    level: int
    wide: bool = False
    sections: bool = False
    table_bits: int
    history_bits: int

    @property
    def preset(self) -> Preset:
        """The parts of the model."""
        return preset_for(self.level, wide=self.wide, sections=self.sections)

    @property
    def payload(self) -> bytes:
        """The section of the model."""
        return bytes((self.level + _WIDE * self.wide + _SECTIONS * self.sections, self.table_bits, self.history_bits))

    @property
    def num_bytes(self) -> int:
        """The memory that either direction needs, beside the interpreter's."""
        return num_bytes_of_model(self.preset, self.table_bits, self.history_bits) + BUFFERS

    @property
    def microseconds_per_byte(self) -> float:
        """What a byte roughly costs in either direction, on one core of the year 2020."""
        return self.preset.microseconds

    def start(self) -> Model:
        """Allocates the model."""
        return new_model(self.preset, self.table_bits, self.history_bits)


def model_for(level: int, size: int | None, memory: int | None = None, *, wide: bool = False) -> ByteModel:
    """Returns the parameters for a file: those of the level, cut down to what the file and the memory allow.

    Args:
        level: 1 (fast) to 9 (small).
        size: of the file in bytes; None where it is not known, which takes as much memory as the level may.
        memory: the most bytes that the model may take.
        wide: whether the parts are those of level 7.

    Raises:
        ValueError: there is no such level, or the memory is too little for its smallest model.
    """
    if level not in PRESETS:
        raise ValueError(f"level {level!r}: levels are 1 (fast) to 9 (small)")
    sections = level in SECTIONED and not wide
    preset = preset_for(level, wide=wide, sections=sections)
    table_bits, history_bits = preset.table_bits, preset.history_bits
    if size is not None:
        table_bits = min(table_bits, max(_SMALLEST_TABLE, (size * len(preset.contexts) // 2).bit_length()))
        history_bits = min(history_bits, max(_SMALLEST_HISTORY, (size + 128).bit_length()))
    while memory is not None:
        model = ByteModel(level=level, wide=wide, sections=sections, table_bits=table_bits, history_bits=history_bits)
        if model.num_bytes <= memory:
            break
        if table_bits > _SMALLEST_TABLE:
            table_bits -= 1
        elif history_bits > _SMALLEST_HISTORY:
            history_bits -= 1
        else:
            raise ValueError(f"level {level} needs at least {model.num_bytes} bytes of memory, not {memory}: raise it, or lower the level")
    return ByteModel(level=level, wide=wide, sections=sections, table_bits=table_bits, history_bits=history_bits)


def parameters_of(section: Section, memory: int | None) -> ByteModel:
    """Reads the section of the model.

    Args:
        section: its three bytes.
        memory: the most bytes that the model may take; None for what any level takes.

    Raises:
        FormatError: there is no such model: the file is damaged, or newer.
        MemoryLimitError: it takes more.
    """
    cursor = Cursor(section.payload, "the section of the model")
    parts = cursor.byte()
    level, wide, sections = parts & ~(_WIDE | _SECTIONS), parts & _WIDE > 0, parts & _SECTIONS > 0
    model = ByteModel(level=level, wide=wide, sections=sections, table_bits=cursor.byte(), history_bits=cursor.byte())
    cursor.end()
    if level not in PRESETS or (sections and (wide or level not in SECTIONED)):
        raise FormatError(f"level {parts} is unknown to this ellzero: the file is damaged, or upgrade ellzero")
    preset = model.preset
    if not (_SMALLEST_TABLE <= model.table_bits <= preset.table_bits and _SMALLEST_HISTORY <= model.history_bits <= preset.history_bits):
        raise FormatError(f"a model of 2^{model.table_bits} buckets at level {model.level} cannot be: the file is damaged")
    if memory is not None and model.num_bytes > memory:
        raise MemoryLimitError(f"the model needs {model.num_bytes} bytes of memory, more than the limit of {memory}: raise the limit")
    return model
