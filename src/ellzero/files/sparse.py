"""Leaves holes in files where long runs of zeros would be written, which take no room on disk."""

import io
import os
import stat
import sys
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

# What file systems give out room by, or a multiple of it.
BLOCK = 4096
_ZEROS = bytes(BLOCK)


class SparseFile:
    """Writes to a file whatever is not zeros, and goes over blocks of zeros; to be ended by `finish`.

    Args:
        file: of which `takes_holes` is true.
    """

    def __init__(self, file: BinaryIO | io.BufferedIOBase) -> None:
        self._file = file
        self._position = 0
        self._hole = 0

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Takes bytes, and writes those that lie in no block of zeros."""
        piece = bytes(data)
        start = 0
        for place in range(-self._position % BLOCK, len(piece) - BLOCK + 1, BLOCK):
            if piece[place : place + BLOCK] == _ZEROS:
                self._put(piece[start:place])
                self._hole += BLOCK
                start = place + BLOCK
        self._put(piece[start:])
        self._position += len(piece)
        return len(piece)

    def finish(self) -> None:
        """Gives the file its length, where it ends in zeros."""
        if self._hole:
            self._file.truncate(self._file.seek(self._hole, os.SEEK_CUR))
            self._hole = 0

    def _put(self, piece: bytes) -> None:
        if piece:
            if self._hole:
                self._file.seek(self._hole, os.SEEK_CUR)
                self._hole = 0
            self._file.write(piece)


def takes_holes(file: BinaryIO | io.BufferedIOBase) -> bool:
    """Tells whether zeros may be left out of a file: a regular one that is written at its end, and not by appending, which goes nowhere.

    Args:
        file: open for writing.
    """
    try:
        descriptor = file.fileno()
        file.flush()
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or os.lseek(descriptor, 0, os.SEEK_CUR) != status.st_size:
            return False
        return sys.platform == "win32" or not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    except (OSError, ValueError):
        return False
