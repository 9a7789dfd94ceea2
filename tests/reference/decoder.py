"""Decodes `.l0` files in Python without any library but zlib's and hashlib's checks: docs/format.md in code, written from it alone."""

import hashlib
import sys
import zlib
from itertools import chain, repeat

DATA, NETWORK = 1, 2
Sections = list[tuple[int, bytes]]


class Damaged(ValueError):
    """The bytes are no file of format 0."""


def check(condition: bool, what: str) -> None:
    if not condition:
        raise Damaged(what)


class Bytes:
    """Reads bytes from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        check(count <= len(self.data) - self.at, "too short")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = index = 0
        while (byte := self.take(1)[0]) >= 128:
            value |= (byte & 127) << 7 * index
            index += 1
            check(index < 10, "a varint of more than 10 bytes")
        value |= byte << 7 * index
        check(value < 2**64 and (byte > 0 or index == 0), "a varint that is not the shortest")
        return value


def crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "little")


def sections(file: bytes) -> tuple[int, Sections, bytes]:
    """Takes a file apart: what it holds, the kind and payload of each section, the trailer."""
    source, found = Bytes(file), []
    check(source.take(5) == b"\x89l0\n\0", "magic or version")
    kind = source.take(1)[0]
    check(kind in (DATA, NETWORK), "kind")
    while True:
        start = source.at
        head = source.take(1)[0]
        payload = source.take(source.varint())
        section = file[start : source.at]
        if head == 0:
            check(source.take(4) == crc(file[: source.at - 4]), "the check of the file")
            check(source.at == len(file), "bytes after the end")
            return kind, found, payload
        check(head & 127 > 0, "a section of kind 0 with a check")
        check(head < 128 or source.take(4) == crc(section), "the check of a section")
        found.append((head & 127, payload))


class Message:
    """Decodes a message of the range coder."""

    def __init__(self, data: bytes) -> None:
        self.digits = chain(data, repeat(0))
        self.width, self.offset = 2**40 - 1, 0
        for _ in range(5):
            self.offset = 256 * self.offset + next(self.digits)
        self.offset = min(self.offset, 2**40 - 2)

    def follow(self, start: int, size: int) -> None:
        self.offset, self.width = self.offset - start, size
        while self.width < 2**32:
            self.width, self.offset = 256 * self.width, 256 * self.offset + next(self.digits)

    def bit(self, p: int) -> int:
        split = self.width * p >> 16
        decision = int(self.offset < split)
        self.follow(*((0, split) if decision else (split, self.width - split)))
        return decision

    def slot(self, bits: int) -> int:
        return (((self.offset + 1) << bits) - 1) // self.width

    def take(self, cumulative: int, frequency: int, bits: int) -> None:
        start = self.width * cumulative >> bits
        self.follow(start, (self.width * (cumulative + frequency) >> bits) - start)

    def symbol(self, frequencies: list[int]) -> int:
        bits = sum(frequencies).bit_length() - 1
        slot, symbol, cumulative = self.slot(bits), 0, 0
        while slot >= cumulative + frequencies[symbol]:
            cumulative, symbol = cumulative + frequencies[symbol], symbol + 1
        self.take(cumulative, frequencies[symbol], bits)
        return symbol

    def raw(self, count: int) -> int:
        value = 0
        while count:
            bits = min(16, count)
            slot = self.slot(bits)
            self.take(slot, 1, bits)
            value, count = value << bits | slot, count - bits
        return value


class Cell:
    """A learnt probability."""

    def __init__(self, limit: int) -> None:
        self.q, self.n, self.limit = 2**21, 0, limit

    def decide(self, message: Message) -> int:
        decision = message.bit(max(self.q >> 6, 1))
        self.q += (2**22 * decision - self.q) * (131072 // (2 * self.n + 3)) >> 16
        self.n = min(self.n + 1, self.limit)
        return decision


def integer(message: Message, cells: list[Cell]) -> int:
    """Decodes an integer with its 160 cells."""
    size, node = 0, 1
    while size < 39 and cells[size].decide(message):
        size += 1
    for _ in range(min(size, 2)):
        node = 2 * node + cells[40 + 3 * size + node - 1].decide(message)
    left = max(size - 2, 0)
    return (node << left | message.raw(left)) - 1


def decode_data(parts: Sections, trailer: Bytes) -> bytes:
    """Decodes compressed data and compares them with the size and hash at the end."""
    data = b"".join(decode_block(kind, payload) for kind, payload in parts)
    check(trailer.varint() == len(data), "the size of the original")
    check(trailer.take(32) == hashlib.sha256(data).digest(), "the hash of the original")
    check(trailer.at == len(trailer.data), "a trailer too long")
    return data


def decode_block(kind: int, payload: bytes) -> bytes:
    raise Damaged(f"a section of kind {kind}, {len(payload)} bytes: none is listed for data")


def decode_network(parts: Sections) -> dict[str, object]:
    """Decodes the tensors of a network by name."""
    check(not parts, "no sections are listed for networks")
    return {}


def decode(file: bytes) -> bytes | dict[str, object]:
    kind, parts, trailer = sections(file)
    if kind == DATA:
        return decode_data(parts, Bytes(trailer))
    check(trailer == b"", "the trailer of a network")
    return decode_network(parts)


if __name__ == "__main__":
    decoded = decode(sys.stdin.buffer.read())
    sys.stdout.buffer.write(decoded if isinstance(decoded, bytes) else repr(decoded).encode())
