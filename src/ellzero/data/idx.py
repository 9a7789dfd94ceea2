"""The IDX format of MNIST and Fashion-MNIST, read strictly.

A file is: two zero bytes, one byte for the type of the entries, one byte for the number of dimensions, each dimension as a big-endian
32-bit number, then the entries in row-major order and nothing after them. It may be compressed with gzip.
"""

import gzip
import io
import math
import os
import struct
import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTE = 0x08
_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_CHUNK_BYTES = 1 << 20


def read_idx(path: str | os.PathLike[str], shape: tuple[int | None, ...]) -> NDArray[np.uint8]:
    """Reads an IDX file of unsigned bytes, raw or compressed with gzip (told apart by its first bytes, not by its name).

    The header is checked before anything else is read, and memory grows only with the bytes that are really there, so that neither a
    false header nor a compressed bomb can exhaust it.

    Args:
        path: the file.
        shape: the shape expected, None where any positive size is right: `(None, 28, 28)` for images, `(None,)` for labels.

    Returns:
        The entries, writable, of a shape that agrees with `shape`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no IDX file, or of another type or shape, or truncated, or goes on after its end, or its gzip is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, expected an IDX file of shape {_shape_text(shape)}")
    with path.open("rb") as raw:
        compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            with gzip.open(raw) if compressed else nullcontext(raw) as stream:
                return _read(stream, path, shape)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}: damaged or truncated gzip data ({error}), expected an IDX file of shape {_shape_text(shape)}"
            ) from error


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return " x ".join("n" if size is None else str(size) for size in shape)


def _read(stream: io.BufferedIOBase, path: Path, expected: tuple[int | None, ...]) -> NDArray[np.uint8]:
    header_bytes = 4 + 4 * len(expected)
    header = stream.read(header_bytes)
    if len(header) < 4 or header[:2] != b"\0\0":
        raise ValueError(
            f"{path}: not an IDX file: it begins with {header[:4].hex(' ') or 'nothing'}, expected 00 00 08 {len(expected):02x}"
        )
    if header[2] != _UNSIGNED_BYTE:
        kind = _TYPES.get(header[2], f"unknown (0x{header[2]:02x})")
        raise ValueError(f"{path}: entries are of type {kind}, expected uint8 (0x08)")
    if header[3] != len(expected):
        raise ValueError(f"{path}: {header[3]} dimensions, expected {len(expected)} ({_shape_text(expected)})")
    if len(header) < header_bytes:
        raise ValueError(f"{path}: truncated in its header after {len(header)} bytes, expected {header_bytes}")
    shape: tuple[int, ...] = struct.unpack(f">{len(expected)}I", header[4:])
    if any(size == 0 or size != (wanted or size) for size, wanted in zip(shape, expected, strict=True)):
        raise ValueError(f"{path}: shape {_shape_text(shape)}, expected {_shape_text(expected)}")
    size = math.prod(shape)
    entries = bytearray()
    while len(entries) < size:
        chunk = stream.read(min(_CHUNK_BYTES, size - len(entries)))
        if not chunk:
            raise ValueError(f"{path}: truncated: {len(entries)} bytes of entries, expected {size} ({_shape_text(shape)})")
        entries += chunk
    if stream.read(1):
        raise ValueError(f"{path}: bytes follow after the {size} entries ({_shape_text(shape)}) that the header announces, expected none")
    return np.frombuffer(entries, dtype=np.uint8).reshape(shape)
