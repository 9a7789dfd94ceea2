"""Standard streams that are closed (`<&-`, `>&-`, `2>&-`), or whose reader has gone."""

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from ellzero.files.errors import FileError
from ellzero.files.streams import reader_of_output


class _Closed(io.RawIOBase):
    """Stands where a stream would: a command that does not use it works, another says what is wrong."""

    def __init__(self, name: str) -> None:
        self._name = name

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, _buffer: Any, /) -> int:
        raise FileError(f"{self._name} is closed: redirect it, or name a file")

    def write(self, _data: Any, /) -> int:
        raise FileError(f"{self._name} is closed: redirect it, or name a file with -o")


def prepare_streams() -> None:
    """Lets standard output print any name of a file, and puts something where standard streams are closed.

    So no file is opened under their numbers; messages go nowhere.
    """
    # Python leaves None where a stream is closed.
    streams = cast(list[Any], [sys.stdin, sys.stdout, sys.stderr])
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            if os.open(os.devnull, os.O_RDWR) != number:
                return  # The numbers are not free in order: somebody else arranged them.
    if streams[0] is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("standard input")))
    if streams[1] is None:
        sys.stdout = io.TextIOWrapper(cast(Any, _Closed("standard output")), write_through=True)
    if isinstance(streams[1], io.TextIOWrapper) and streams[1].errors == "strict":
        # A name that is no UTF-8 is printed as it is on disk.
        streams[1].reconfigure(errors="surrogateescape")
    if streams[2] is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as long as the process


@contextmanager
def flushed() -> Generator[None, None, None]:
    """Writes at the end what standard output still holds.

    Raises:
        FileError: nobody reads it any more.
    """
    with reader_of_output():
        try:
            yield
        finally:
            sys.stdout.flush()
