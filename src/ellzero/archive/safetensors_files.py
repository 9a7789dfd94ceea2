"""Safetensors files, read and written one tensor at a time, without torch and for every data type.

The format: 8 bytes, little-endian, the length of a header; the header, JSON, with type, shape and place of each tensor; their bytes.
"""

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.tensors import ExactTensor, Tied
from ellzero.files.streams import temporary_file

_MAX_HEADER = 100 << 20
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a tensor lies in a safetensors file.

    Attributes:
        name: of the tensor.
        dtype: data type.
        shape: sizes of the dimensions.
        start: first byte, from the beginning of the file.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int

    @property
    def num_bytes(self) -> int:
        """Bytes that the tensor takes."""
        return math.prod(self.shape) * self.dtype.num_bytes


def read_header(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[list[Place], Mapping[str, str]]:
    """Reads the header of a safetensors file and checks every place in it against the size of the file.

    Args:
        file: open, seekable.
        path: its name, for messages.

    Returns:
        The tensors in the order of their bytes, and the metadata.

    Raises:
        ValueError: this is no safetensors file, or a damaged one.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER):
        raise ValueError(f"{os.fspath(path)} is no safetensors file: expected the length of a header in its first 8 bytes")
    try:
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("not a table")
        table = cast("dict[str, Any]", header)
        metadata = {str(key): str(value) for key, value in dict(table.pop("__metadata__", None) or {}).items()}
        places = [_place(name, given, 8 + length, size) for name, given in table.items()]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is no safetensors file, or damaged: {error}") from error
    return sorted(places, key=lambda place: place.start), metadata


def _place(name: str, given: Any, base: int, size: int) -> Place:
    shape = tuple(int(number) for number in given["shape"])
    begin, end = (int(number) for number in given["data_offsets"])
    if str(given["dtype"]) not in {dtype.value for dtype in DType}:
        raise ValueError(f"{name!r} is of the type {given['dtype']}, which is not known here: convert it first")
    place = Place(name=name, dtype=DType(given["dtype"]), shape=shape, start=base + begin)
    if min(shape, default=0) < 0 or not 0 <= begin <= end <= size - base or end - begin != place.num_bytes:
        raise ValueError(f"the place of {name!r} does not fit its shape or the file")
    return place


def read_tensor(file: BinaryIO, place: Place) -> ExactTensor:
    """Reads one tensor.

    Raises:
        ValueError: the file has become shorter.
    """
    file.seek(place.start)
    data = bytearray(place.num_bytes)
    if file.readinto(data) != place.num_bytes:  # type: ignore[attr-defined]  # files and BytesIO have it, their protocol does not
        raise ValueError(f"the file ends within {place.name!r}")
    words = np.frombuffer(data, place.dtype.word_type)
    return ExactTensor(name=place.name, dtype=place.dtype, shape=place.shape, words=words)


def write_safetensors(file: BinaryIO, entries: Iterable[ExactTensor | Tied], *, folder: Path | None = None) -> int:
    """Writes a safetensors file; tied tensors are written as often as they have names, since the format knows no ties.

    The header comes first and needs all shapes: the tensors wait in a temporary file, not in memory.

    Args:
        file: where to.
        entries: the tensors.
        folder: of the temporary file; the system's where None.

    Returns:
        The number of tensors.

    Raises:
        OSError: there is no room.
    """
    table: dict[str, Any] = {}
    with temporary_file(folder) as waiting:
        end = 0
        for entry in entries:
            if isinstance(entry, Tied):
                table[entry.name] = dict(table[entry.of])
                begin, stop = table[entry.of]["data_offsets"]
                table[entry.name]["data_offsets"] = [end, end + stop - begin]
                end = _copy_within(waiting, begin, stop, end)
                continue
            waiting.seek(end)
            waiting.write(entry.words.view(np.uint8).data)
            begin, end = end, end + entry.num_bytes
            table[entry.name] = {"dtype": entry.dtype.value, "shape": list(entry.shape), "data_offsets": [begin, end]}
        header = json.dumps({"__metadata__": {"format": "pt"}, **table}, separators=(",", ":"), ensure_ascii=False).encode()
        # Tensors begin at a multiple of 8, as the library writes them, so that a map into memory is aligned.
        header += b" " * (-len(header) % 8)
        file.write(len(header).to_bytes(8, "little") + header)
        waiting.seek(0)
        shutil.copyfileobj(waiting, file, _PIECE)
    return len(table)


def _copy_within(file: BinaryIO, begin: int, stop: int, end: int) -> int:
    """Copies a range of a file to its end, a piece at a time."""
    for start in range(begin, stop, _PIECE):
        file.seek(start)
        piece = file.read(min(_PIECE, stop - start))
        file.seek(end)
        file.write(piece)
        end += len(piece)
    return end
