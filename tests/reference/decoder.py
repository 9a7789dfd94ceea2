"""Reads the sections of `.l0` files and messages of the range coder without any library, written from docs/formats/format.md alone."""

import zlib
from itertools import chain, repeat

DATA, NETWORK = 1, 2


class Damaged(ValueError):
    """The bytes are no file of format 0."""


def check(condition: bool, what: str) -> None:
    if not condition:
        raise Damaged(what)


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        check(count <= len(self.data) - self.at, "too short")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) >= 128:
            value |= (byte & 127) << shift
            shift += 7
        value |= byte << shift
        check(value < 2**64 and (byte > 0 or shift == 0), "a varint too large, or not the shortest")
        return value


def sections(file: bytes) -> tuple[int, list[tuple[int, bytes]], bytes]:
    """Takes a file apart: what it holds, the kind and payload of each section, the trailer."""
    source, found = Bytes(file), []
    kind = source.take(6)[5]
    check(file[:5] == b"\x89l0\n\0" and kind in (DATA, NETWORK), "magic, version or kind")
    while True:
        start, head = source.at, source.take(1)[0]
        payload = source.take(source.varint())
        crc = zlib.crc32(file[start if head else 0 : source.at]).to_bytes(4, "little")
        check(0 < head < 128 or (head != 128 and source.take(4) == crc), "the check of a section or of the file")
        if head == 0:
            check(source.at == len(file), "bytes after the end")
            return kind, found, payload
        found.append((head & 127, payload))


class Message:  # of the range coder
    def __init__(self, data: bytes) -> None:
        self.digits, self.width = chain(data[5:], repeat(0)), 2**40 - 1
        self.offset = min(int.from_bytes(data[:5].ljust(5, b"\0"), "big"), 2**40 - 2)

    def follow(self, start: int, size: int) -> None:
        self.offset, self.width = self.offset - start, size
        while self.width < 2**32:
            self.width, self.offset = 256 * self.width, 256 * self.offset + next(self.digits)

    def bit(self, p: int) -> int:
        split = self.width * p >> 16
        decision = int(self.offset < split)
        self.follow(0 if decision else split, split if decision else self.width - split)
        return decision

    def raw(self, count: int) -> int:
        if count > 16:
            return self.raw(16) << count - 16 | self.raw(count - 16)
        value = ((self.offset + 1 << count) - 1) // self.width
        start = self.width * value >> count
        self.follow(start, (self.width * (value + 1) >> count) - start)
        return value


class Cell:  # a learnt number, most often a probability
    def __init__(self, limit: int, q: int = 2**21) -> None:
        self.q, self.n, self.limit = q, 0, limit

    def learn(self, target: int) -> None:
        self.q += (target - self.q) * (131072 // (2 * self.n + 3)) >> 16
        self.n = min(self.n + 1, self.limit)

    def decide(self, message: Message) -> int:
        decision = message.bit(max(self.q >> 6, 1))
        self.learn(decision << 22)
        return decision


def integer(message: Message, cells: list[Cell]) -> int:
    """Decodes an integer with its 160 cells."""
    size, node = 0, 1
    while size < 39 and cells[size].decide(message):
        size += 1
    for _ in range(min(size, 2)):
        node = 2 * node + cells[40 + 3 * size + node - 1].decide(message)
    rest = max(size - 2, 0)
    return (node << rest | message.raw(rest)) - 1
