"""The container `.l0`, format 0: sections of known length, checked, one after the other. Byte by byte in docs/formats/format.md.

Written and read from front to back, so that pipes work: what is known only at the end (size and hash of the original) stands at the end.
"""

import hashlib
import zlib
from collections.abc import Collection, Generator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.varint import Cursor, varint

# The first byte shows what strips the eighth bit, the last one what rewrites line ends.
MAGIC = b"\x89l0\n"
VERSION = 0
DEFAULT_LIMIT = 1 << 30
_CHECKED = 0x80
_END = 0
_PIECE = 1 << 20  # A section is read in pieces: a length that lies costs no more memory than there is file.
_FOREIGN = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip (or a PyTorch checkpoint)",
}


@runtime_checkable
class Source(Protocol):
    """A binary file open for reading, buffered: `sys.stdin.buffer`, `io.BytesIO`, `open(path, "rb")`."""

    def read(self, size: int, /) -> bytes:
        """Reads at most `size` bytes; none only at the end."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A binary file open for writing, buffered."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Writes all of `data`."""
        ...


class Kind(IntEnum):
    """What a file holds."""

    DATA = 1
    NETWORK = 2

    @property
    def described(self) -> str:
        """What it is, and the command for it."""
        return {Kind.DATA: "compressed data, for `ellzero decompress`", Kind.NETWORK: "a network, for `ellzero unpack`"}[self]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section as read; where it has a check of its own, that held.

    Attributes:
        kind: 1 to 127; what it means depends on the kind of file.
        payload: its bytes.
        offset: where it begins in the file.
    """

    kind: int
    payload: bytes
    offset: int


@dataclass(frozen=True, kw_only=True)
class Original:
    """The data that a file was made from.

    Attributes:
        size: number of bytes.
        sha256: their hash, 32 bytes.
    """

    size: int
    sha256: bytes


class Tally:
    """Size and hash of data that pass by."""

    def __init__(self) -> None:
        self._size = 0
        self._hash = hashlib.sha256()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes into account."""
        self._size += memoryview(data).nbytes
        self._hash.update(data)

    @property
    def original(self) -> Original:
        """What has passed so far."""
        return Original(size=self._size, sha256=self._hash.digest())


class ContainerWriter:
    """Writes a file from front to back, without seeking.

    Args:
        file: where to, binary; the container begins at its present position.
        kind: what the file holds.
    """

    def __init__(self, file: Sink, kind: Kind) -> None:
        self._file = file
        self._kind = kind
        self._crc = 0
        self.position = 0  # the number of bytes written
        self._write(MAGIC + bytes((VERSION, kind)))

    def section(self, kind: int, payload: bytes | bytearray | memoryview, *, check: bool) -> None:
        """Writes a section.

        Args:
            kind: 1 to 127.
            payload: its bytes.
            check: whether it gets a check of its own, 4 bytes, by which damage is found before the section is decoded, also where it alone
                is read. The file as a whole has one in any case, which suffices for small ones.
        """
        assert 1 <= kind <= 127, f"section kind {kind}"
        head = bytes((kind | (_CHECKED if check else 0),)) + varint(len(payload))
        self._write(head)
        self._write(payload)
        if check:
            self._write(zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little"))

    def finish(self, original: Original | None = None) -> int:
        """Writes the end.

        Args:
            original: of a data file, which must have one.

        Returns:
            The number of bytes of the whole file.
        """
        assert (original is not None) == (self._kind is Kind.DATA), (
            "a data file ends with the size and hash of the original, a network without"
        )
        trailer = b"" if original is None else varint(original.size) + original.sha256
        self._write(bytes((_END,)) + varint(len(trailer)) + trailer)
        self._write(self._crc.to_bytes(4, "little"))
        return self.position

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self.position += len(data)


class ContainerReader:
    """Reads a file from front to back, without seeking, and takes nothing in it for granted.

    Args:
        file: from where, binary and buffered, at the beginning of the container.
        max_section: the most bytes that one section may have.

    Raises:
        FormatError: this is no file of this format and version.
    """

    def __init__(self, file: Source, *, max_section: int = DEFAULT_LIMIT) -> None:
        self._file = file
        self._max_section = max_section
        self._crc = 0
        self._original: Original | None = None
        self.position = 0  # the number of bytes read
        self.kind = self._header()

    def expect(self, kind: Kind) -> None:
        """Asserts what the file holds.

        Raises:
            FormatError: it holds something else; the message names the command for it.
        """
        if self.kind is not kind:
            raise FormatError(f"the file holds {self.kind.described}; expected {kind.described}")

    def sections(self, known: Collection[int]) -> Generator[Section]:
        """Reads the sections in order, then the end, after which nothing may follow.

        Args:
            known: the kinds of section that the caller understands.

        Yields:
            Each section. The check of the whole file is known only when the last has been taken: a caller that acts before must undo.

        Raises:
            FormatError: the file is truncated, damaged, has a section of another kind, or bytes after its end.
            LimitError: a section is larger than `max_section`.
        """
        while True:
            offset = self.position
            head = self._take(1)
            length, digits = self._varint()
            kind = head[0] & ~_CHECKED
            if head[0] == _END:
                return self._end(length)
            if kind not in known:
                raise FormatError(f"unknown section {kind} at byte {offset}: the file is damaged, or written by a newer ellzero: upgrade")
            if length > self._max_section:
                raise LimitError(
                    f"the section at byte {offset} has {length} bytes, more than the limit of {self._max_section}: raise the limit"
                )
            payload = self._take(length)
            if head[0] & _CHECKED and self._take(4) != zlib.crc32(payload, zlib.crc32(head + digits)).to_bytes(4, "little"):
                raise FormatError(f"the section from byte {offset} to {self.position} is damaged (its check fails): get the file again")
            yield Section(kind=kind, payload=payload, offset=offset)

    @property
    def original(self) -> Original:
        """What a data file says of the original; after `sections` has come to its end."""
        assert self._original is not None, "the end of a data file has not been read"
        return self._original

    def _header(self) -> Kind:
        start = self._file.read(len(MAGIC) + 2)
        if start[:3] + b"\r\n" == MAGIC[:3] + start[3:5]:
            raise FormatError("the file was changed by a transfer as text (line ends rewritten): transfer it as binary")
        if start[:4] != MAGIC:
            raise FormatError(f"not an ellzero file: {_describe(start)}")
        if len(start) < 6:
            raise FormatError(f"the file is truncated after {len(start)} bytes: get it again")
        self._crc = zlib.crc32(start)
        self.position = len(start)
        if start[4] > VERSION:
            raise FormatError(f"the file is of format {start[4]}, this ellzero reads up to format {VERSION}: upgrade ellzero")
        if start[5] not in tuple(Kind):
            raise FormatError(f"the file holds something of kind {start[5]}, unknown to this ellzero: it is damaged, or upgrade ellzero")
        return Kind(start[5])

    def _take(self, count: int) -> bytes:
        pieces: list[bytes] = []
        left = count
        while left:
            piece = self._file.read(min(left, _PIECE))
            if not piece:
                raise FormatError(f"the file is truncated after {self.position} bytes, {left} or more are missing: get it again")
            self._crc = zlib.crc32(piece, self._crc)
            self.position += len(piece)
            left -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _varint(self) -> tuple[int, bytes]:
        digits = self._take(1)
        while digits[-1] & 0x80 and len(digits) < 10:
            digits += self._take(1)
        return Cursor(digits, f"the section before byte {self.position}").varint(), digits

    def _end(self, length: int) -> None:
        wanted = 0 if self.kind is Kind.NETWORK else None
        if length > 42 or (wanted is not None and length != wanted):
            raise FormatError(f"the end at byte {self.position} has {length} bytes, which it cannot: the file is damaged")
        trailer = Cursor(self._take(length), "the end of the file")
        crc = self._crc
        if self._take(4) != crc.to_bytes(4, "little"):
            raise FormatError("the file is damaged (its check at the end fails): get it again")
        if self.kind is Kind.DATA:
            self._original = Original(size=trailer.varint(), sha256=trailer.take(32))
            trailer.end()
        if self._file.read(1):
            raise FormatError(f"bytes follow the end at byte {self.position}: something was appended, or files were joined; cut them off")


def _describe(start: bytes) -> str:
    if not start:
        return "it is empty"
    for magic, name in _FOREIGN.items():
        if start.startswith(magic):
            return f"it is {name}"
    return f"it starts with {start[:4].hex(' ')}, not {MAGIC.hex(' ')}"
