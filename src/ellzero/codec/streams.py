"""What the codec asks of files: that they can be read, or written, from front to back."""

from typing import Protocol, runtime_checkable


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
