"""Varints, and a cursor that reads the payload of a section and trusts no number in it."""

from ellzero.codec.errors import FormatError

MAX_VARINT = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Encodes a number in as many bytes as it needs: 7 bits each, low ones first, the high bit set in all but the last (LEB128).

    Args:
        value: 0 to 2^64 - 1.
    """
    assert 0 <= value <= MAX_VARINT, f"{value} is no varint"
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


class Cursor:
    """Reads the payload of a section from its beginning to its end.

    Args:
        payload: the bytes.
        what: what they are, for messages.
    """

    def __init__(self, payload: bytes, what: str) -> None:
        self._payload = memoryview(payload)
        self._what = what
        self.position = 0

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
        return len(self._payload) - self.position

    def take(self, count: int) -> bytes:
        """Reads `count` bytes.

        Raises:
            FormatError: fewer are left.
        """
        if count > self.left:
            raise FormatError(f"{self._what} needs {count} bytes at byte {self.position} and has {self.left}: the file is damaged")
        self.position += count
        return bytes(self._payload[self.position - count : self.position])

    def byte(self) -> int:
        """Reads a byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """Reads a number.

        Raises:
            FormatError: it ends too early, is longer than need be, or is larger than 2^64 - 1.
        """
        value = 0
        for index in range(10):
            group = self.byte()
            value |= (group & 0x7F) << (7 * index)
            if group < 0x80:
                if (group == 0 and index) or value > MAX_VARINT:
                    break
                return value
        raise FormatError(f"{self._what} has a number that is not written as it must be before byte {self.position}: the file is damaged")

    def count(self, limit: int, of: str) -> int:
        """Reads a number that says how much follows, before anything is allocated for it.

        Args:
            limit: the largest that can be true, such as 8 for each byte left where each takes a bit.
            of: what is counted, for messages.

        Raises:
            FormatError: the number is larger.
        """
        value = self.varint()
        if value > limit:
            raise FormatError(f"{self._what} claims {value} {of} where at most {limit} fit: the file is damaged")
        return value

    def text(self) -> str:
        """Reads a string: its length in bytes, and UTF-8.

        Raises:
            FormatError: it is no UTF-8.
        """
        data = self.take(self.varint())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._what} has a name that is no UTF-8 ({error.reason}): the file is damaged") from error

    def rest(self) -> bytes:
        """Reads what is left."""
        return self.take(self.left)

    def end(self) -> None:
        """Asserts that nothing is left.

        Raises:
            FormatError: there are more bytes.
        """
        if self.left:
            raise FormatError(f"{self._what} has {self.left} bytes too many: the file is damaged")
