"""A network as a file: groups of tensors, each a section of the container. Written down in docs/formats/format.md."""

from collections.abc import Iterable, Iterator

from ellzero.codec.container import DEFAULT_LIMIT, ContainerReader, ContainerWriter, Kind, Sink, Source
from ellzero.codec.errors import FormatError
from ellzero.codec.network.group import Accept, Group, Names
from ellzero.codec.network.message import MessageCoder
from ellzero.codec.network.tensors import Description, Entry, ExactTensor, Tied, check_entries

GROUP_SECTION = 1
_GROUP_CELLS = 1 << 20
_GROUP_NAMES = 1 << 16


def accept_all(description: Description) -> None:
    """Refuses no tensor."""


def encode_network(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Encodes tensors into groups of about a million numbers; a larger tensor is a group of its own.

    Args:
        entries: the tensors in the order in which they come back. One at a time is held.

    Yields:
        The message of each group.

    Raises:
        ValueError: an entry that does not fit; see `check_entries`.
    """
    names = Names()
    coder, group, cells, characters = MessageCoder(), None, 0, 0
    for entry in check_entries(entries):
        size = 0 if isinstance(entry, Tied) else (entry.words if isinstance(entry, ExactTensor) else entry.levels).size
        if group is not None and (cells + size > _GROUP_CELLS or characters > _GROUP_NAMES):
            group.end()
            yield coder.finish()
            group = None
        if group is None:
            coder = MessageCoder()
            group, cells, characters = Group(coder, names), 0, 0
        group.encode(entry)
        cells += size
        characters += len(entry.name.encode()) + 1
    if group is not None:
        group.end()
        yield coder.finish()


def decode_network(groups: Iterable[bytes], *, max_bytes: int = DEFAULT_LIMIT, accept: Accept = accept_all) -> Iterator[ExactTensor | Tied]:
    """Decodes groups, one tensor at a time.

    Args:
        groups: their messages, in order.
        max_bytes: the most that one tensor may take.
        accept: is told of each tensor before memory is taken for it, and may raise.

    Yields:
        The tensors in their order.

    Raises:
        FormatError: the groups are damaged.
        LimitError: a tensor is larger than `max_bytes`.
    """
    names = Names()
    for message in groups:
        coder = MessageCoder(message)
        yield from Group(coder, names).decode(max_bytes, accept)
        coder.end()


def write_network(file: Sink, entries: Iterable[Entry]) -> int:
    """Writes a network file; arguments as in `encode_network`.

    Returns:
        The number of bytes written.
    """
    writer = ContainerWriter(file, Kind.NETWORK)
    held: bytes | None = None
    several = False
    for message in encode_network(entries):
        if held is not None:
            writer.section(GROUP_SECTION, held, check=True)
            several = True
        held = message
    if held is not None:
        # The check of the file is enough for a group that is alone.
        writer.section(GROUP_SECTION, held, check=several)
    return writer.finish()


def read_network(file: Source, *, max_bytes: int = DEFAULT_LIMIT, accept: Accept = accept_all) -> Iterator[ExactTensor | Tied]:
    """Reads a network file, one tensor at a time; arguments as in `decode_network`.

    Yields:
        The tensors in their order. Those of the last group come only when the check of the whole file has held.

    Raises:
        FormatError: the file holds no network, or is damaged.
        LimitError: a tensor or a group is larger than `max_bytes`.
    """
    reader = ContainerReader(file, max_section=max_bytes)
    reader.expect(Kind.NETWORK)
    yield from decode_network(checked_groups(reader), max_bytes=max_bytes, accept=accept)


def checked_groups(reader: ContainerReader) -> Iterator[bytes]:
    """Reads the groups of a network file, each one late: the last comes after the end of the file, whose check covers it.

    Args:
        reader: at the beginning of the sections.

    Raises:
        FormatError, LimitError: as in `ContainerReader.sections`.
    """
    held: bytes | None = None
    for section in reader.sections((GROUP_SECTION,)):
        if held is not None:
            yield held
        held = section.payload
    if held is not None:
        yield held


__all__ = ["GROUP_SECTION", "Accept", "FormatError", "accept_all", "decode_network", "encode_network", "read_network", "write_network"]
