"""The file objects behind `ellzero.archive._compress.open`."""

import errno
import io
import os
from contextlib import ExitStack
from types import TracebackType
from typing import Any, BinaryIO

from ellzero.codec.bytes.data_file import DEFAULT_LEVEL, ByteEncoder, decode_blocks

# A union, because BytesIO has no name, which BinaryIO promises.
BinaryFile = BinaryIO | io.BufferedIOBase | io.RawIOBase


def bytes_of(data: Any) -> memoryview:
    """Views data as bytes; those of an array in the order of C.

    Args:
        data: bytes, or anything else that shows its memory, such as an array of any type and shape.

    Raises:
        TypeError: it has no bytes, as text and numbers have none.
    """
    try:
        view = memoryview(data)
    except TypeError:
        what = "text: encode it first, as by .encode()" if isinstance(data, str) else f"{type(data).__name__}"
        raise TypeError(f"expected bytes, or what has a buffer of bytes, not {what}") from None
    if view.nbytes and view.c_contiguous:
        try:
            return view.cast("B")
        except TypeError:
            pass  # Fields, or numbers of the other end, which memoryview does not look into.
    return memoryview(view.tobytes())


class _WholeReads:
    """Reads as many bytes as are asked for, unless the file ends: raw files and sockets may return fewer."""

    def __init__(self, file: BinaryFile) -> None:
        self._file: Any = file

    def read(self, size: int, /) -> bytes:
        pieces: list[bytes] = []
        while size > 0:
            piece = self._file.read(size)
            if piece is None:
                raise BlockingIOError(errno.EAGAIN, "the file has nothing to read at present: set it to block")
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _WholeWrites:
    """Writes all bytes: raw files and sockets may take fewer."""

    def __init__(self, file: BinaryFile) -> None:
        self._file: Any = file

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        rest = memoryview(data).cast("B")
        size = rest.nbytes
        while rest:
            count = self._file.write(rest)
            if count is None and isinstance(self._file, io.RawIOBase):
                raise BlockingIOError(errno.EAGAIN, "the file takes nothing at present: set it to block")
            # What is no raw file may return nothing, and has then taken everything.
            rest = rest[rest.nbytes if count is None else count :]
        return size


class DecodedBlocks(io.RawIOBase):
    """Decodes a compressed file as it is read; meant to be read through `io.BufferedReader`.

    Args:
        file: the compressed file, at its beginning.
        max_size: the most bytes to decode; None for any number.
        memory: the most bytes that the model may take; None for what any level takes.
        owned: what to close with it.
        name: of the file; empty where it has none.

    Attributes:
        mode: `rb`.
        name: as given.
    """

    mode = "rb"

    def __init__(self, file: BinaryFile, *, max_size: int | None, memory: int | None, owned: ExitStack, name: str | bytes = "") -> None:
        self._file = file
        self.name = name
        self._max_size, self._memory = max_size, memory
        self._owned = owned
        self._beginning = file.tell() if file.seekable() else 0
        self._failure: Exception | None = None
        self._start()

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Decodes some bytes; none only at the end."""
        target = memoryview(buffer).cast("B")
        taken = self._take(len(target))
        target[: len(taken)] = taken
        return len(taken)

    def seekable(self) -> bool:
        """Tells whether the compressed file can be sought."""
        return self._file.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes to a place in the original bytes, decoding all that lie before it; backwards from the beginning."""
        if not self.seekable():
            raise io.UnsupportedOperation("the compressed file cannot be sought")
        if whence == os.SEEK_END:
            while self._take(1 << 20):
                pass
        if whence != os.SEEK_SET:
            offset += self._position
        if offset < self._position:
            self._file.seek(self._beginning)
            self._start()
        while self._position < offset and self._take(offset - self._position):
            pass
        return self._position

    def tell(self) -> int:
        """Returns the number of original bytes before the present place."""
        return self._position

    def close(self) -> None:
        """Closes the compressed file, if it was opened with this one."""
        if not self.closed:
            super().close()
            self._owned.close()

    def _start(self) -> None:
        self._blocks = decode_blocks(_WholeReads(self._file), max_size=self._max_size, memory=self._memory)
        self._block = memoryview(b"")
        self._position = 0

    def _take(self, count: int) -> memoryview:
        if self._failure is not None:
            # A generator that failed has ended, which would look like the end of the file.
            raise self._failure
        while not self._block:
            try:
                block = next(self._blocks, None)
            except Exception as failure:
                self._failure = failure
                raise
            if block is None:
                break
            self._block = memoryview(block)
        taken, self._block = self._block[:count], self._block[count:]
        self._position += len(taken)
        return taken


class CompressedWriter(io.BufferedIOBase):
    """Compresses what is written to it; the file is complete when this is closed.

    Args:
        file: where to.
        level: 1 (fast) to 9 (small).
        memory: the most bytes that the model may take.
        name: of the file; empty where it has none.

    Attributes:
        owned: what to close with it.
        mode: `wb`.
        name: as given.

    Raises:
        ValueError: there is no such level, or the memory is too little for it.
    """

    mode = "wb"
    _encoder: ByteEncoder | None = None

    def __init__(self, file: BinaryFile, *, level: int = DEFAULT_LEVEL, memory: int | None = None, name: str | bytes = "") -> None:
        self.owned = ExitStack()
        self.name = name
        self._encoder = ByteEncoder(_WholeWrites(file), level=level, memory=memory)
        self._position = 0

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any, /) -> int:
        """Takes bytes, and compresses as many blocks as they fill."""
        if self._encoder is None:
            raise ValueError("the file is closed: nothing more can be written to it")
        view = bytes_of(data)
        self._encoder.write(view)
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Returns the number of bytes taken."""
        return self._position

    def seekable(self) -> bool:
        """Returns True, as a writing `gzip.GzipFile` does: without it, text in UTF-16 would begin without its mark of byte order."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes forward by writing zeros, as a writing `gzip.GzipFile` does.

        Raises:
            OSError: the place lies behind, or is counted from the end.
        """
        if whence == os.SEEK_CUR:
            offset += self._position
        if whence == os.SEEK_END or offset < self._position:
            raise io.UnsupportedOperation("what is compressed while it is written cannot be gone back in")
        while self._position < offset:
            self.write(bytes(min(1 << 20, offset - self._position)))
        return self._position

    def close(self) -> None:
        """Compresses what is left, ends the file and gives it its name."""
        encoder, self._encoder = self._encoder, None
        super().close()
        if encoder is not None:
            with self.owned:
                encoder.finish()

    def discard(self, reason: BaseException) -> None:
        """Closes without an end: a file that this one opened stays as it was before."""
        self._encoder = None
        super().close()
        self.owned.__exit__(type(reason), reason, reason.__traceback__)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not self.closed:
            self.discard(error)
        self.close()


class CompressedText(io.TextIOWrapper):
    """Text over either; one that is written is discarded by an exception, too."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and isinstance(self.buffer, CompressedWriter) and not self.closed:
            self.buffer.discard(error)
        super().__exit__(kind, error, trace)
