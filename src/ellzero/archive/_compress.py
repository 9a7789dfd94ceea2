"""Compresses bytes and files as the standard library's gzip and lzma do: `compress`, `decompress`, `open`. Imports no torch."""

import builtins
import errno
import io
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, cast, overload

from ellzero.archive.compressed_file import BinaryFile, CompressedText, CompressedWriter, DecodedBlocks, bytes_of
from ellzero.codec.bytes.data_file import DEFAULT_LEVEL, compress_bytes, decompress_bytes
from ellzero.codec.container import DEFAULT_LIMIT
from ellzero.files.whole import replacing

BinaryMode = Literal["r", "rb", "w", "wb", "x", "xb"]
TextMode = Literal["rt", "wt", "xt"]
_MODES = ("r", "rb", "rt", "w", "wb", "wt", "x", "xb", "xt")


def compress(data: bytes | bytearray | memoryview, *, level: int = DEFAULT_LEVEL, memory: int | None = None) -> bytes:
    """Compresses bytes.

    Args:
        data: any bytes, or what has a buffer of them, such as an array.
        level: 1 (fast) to 9 (small); both directions take about the same time and memory.
        memory: the most bytes that the model may take, in either direction.

    Returns:
        A `.l0` file, with a hash of the data.

    Raises:
        ValueError: there is no such level, or the memory is too little for it.
        TypeError: the data are no bytes.
    """
    return compress_bytes(bytes_of(data), level=level, memory=memory)


def decompress(data: bytes | bytearray | memoryview, *, max_size: int | None = DEFAULT_LIMIT, memory: int | None = None) -> bytes:
    """Gives back what `compress` was given, after its hash has been compared.

    Args:
        data: a `.l0` file.
        max_size: the most bytes to give back, so that a small file cannot fill the memory; None for any number.
        memory: the most bytes that the model may take; None for what any level takes.

    Returns:
        The original bytes.

    Raises:
        FormatError: the file is damaged, or no compressed data (a ValueError).
        LimitError: it needs more than allowed (a FormatError).
        TypeError: the data are no bytes.
    """
    return decompress_bytes(bytes(bytes_of(data)), max_size=max_size, memory=memory)


@overload
def open(  # noqa: A001
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes] | BinaryFile,
    mode: BinaryMode = "rb",
    *,
    level: int = ...,
    max_size: int | None = ...,
    memory: int | None = ...,
) -> io.BufferedIOBase: ...


@overload
def open(  # noqa: A001
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes] | BinaryFile,
    mode: TextMode,
    *,
    level: int = ...,
    max_size: int | None = ...,
    memory: int | None = ...,
    encoding: str | None = ...,
    errors: str | None = ...,
    newline: str | None = ...,
) -> io.TextIOWrapper: ...


def open(  # noqa: A001  # named as in gzip, bz2 and lzma
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes] | BinaryFile,
    mode: str = "rb",
    *,
    level: int = DEFAULT_LEVEL,
    max_size: int | None = None,
    memory: int | None = None,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> io.BufferedIOBase | io.TextIOWrapper:
    """Opens a compressed file, as `gzip.open` and `lzma.open` do.

    A file that is written appears under its name when it is closed, whole; an exception within `with` leaves what was there before. One
    that is read is decoded block by block, so the memory that it takes does not grow with its size; its hash is compared at its end.

    Args:
        file: a path, or a binary file object, which stays open and may be raw, so that it reads or takes less than it is asked to.
        mode: r, w (replace) or x (a new file), with b (the default) or t for text.
        level: for writing, 1 (fast) to 9 (small).
        max_size: for reading, the most bytes to decode.
        memory: the most bytes that the model may take.
        encoding: of text, as in `io.TextIOWrapper`.
        errors: of text, likewise.
        newline: of text, likewise.

    Returns:
        A file object with a `name` and a `mode`. One that is read can be sought where the compressed file can; going back decodes anew
        from the beginning.

    Raises:
        ValueError: the mode or level does not exist.
        TypeError: the file is neither a path nor a binary file object.
        OSError: the file is missing, in the way, or cannot be written.
        FormatError: while reading, the file is damaged (a ValueError).
    """
    if mode not in _MODES:
        raise ValueError(f"mode {mode!r}: expected one of {', '.join(_MODES)}")
    text = mode.endswith("t")
    if not text and (encoding, errors, newline) != (None, None, None):
        raise ValueError(f"encoding, errors and newline are of text: give mode {mode[0]}t, not {mode}")
    name = _name_of(file)
    with ExitStack() as stack:
        if not isinstance(file, str | bytes | os.PathLike):
            opened = _binary(file, "read" if mode[0] == "r" else "write")
        elif not (path := os.fsdecode(file)):
            raise FileNotFoundError(errno.ENOENT, "the name of the file is empty")
        elif mode[0] == "r":
            opened = stack.enter_context(builtins.open(path, "rb"))
        else:
            if mode[0] == "x" and os.path.exists(path):
                raise FileExistsError(f"{path} exists: open it with mode w to replace it")
            opened = stack.enter_context(replacing(Path(path), overwrite=mode[0] == "w"))
        if mode[0] == "r":
            binary = io.BufferedReader(DecodedBlocks(opened, max_size=max_size, memory=memory, owned=stack.pop_all(), name=name))
        else:
            binary = CompressedWriter(opened, level=level, memory=memory, name=name)
            binary.owned = stack.pop_all()
    if not text:
        return binary
    try:
        # The stubs ask for a name as well, which is used for nothing.
        wrapped = CompressedText(cast(Any, binary), encoding=encoding, errors=errors, newline=newline)
    except BaseException as error:
        if isinstance(binary, CompressedWriter):
            binary.discard(error)
        raise
    vars(wrapped)["mode"] = mode  # as that of a text file of Python
    return wrapped


def _name_of(file: object) -> str | bytes:
    """Returns a path, or the name of a file object, as it is; it is empty where there is none, as for what lies in memory."""
    name = os.fspath(file) if isinstance(file, str | bytes | os.PathLike) else getattr(file, "name", "")
    return name if isinstance(name, str | bytes) else ""


def _binary(file: BinaryFile, method: str) -> BinaryFile:
    """Returns a file object that bytes are read from or written to.

    Raises:
        TypeError: it is none.
    """
    if isinstance(file, io.TextIOBase):
        raise TypeError("expected a path or a binary file object, not one of text: open it with mode rb or wb")
    if not hasattr(file, method):
        raise TypeError(f"expected a path or a binary file object, not {type(file).__name__}")
    return file
