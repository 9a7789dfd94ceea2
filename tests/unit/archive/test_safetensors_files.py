"""Safetensors files written here are those of the library, byte for byte where both write the same tensors in the same order."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import pytest
import safetensors.numpy

from ellzero.archive.safetensors_files import read_header, read_tensor, write_safetensors
from ellzero.codec.network.tensors import ExactTensor, Tied, exact

VALUES = {"größe": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.int8)}


@contextmanager
def holding(data: bytes) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        yield file


def written(*entries: ExactTensor | Tied) -> bytes:
    with tempfile.TemporaryFile() as file:
        assert write_safetensors(file, entries) == len(entries)
        file.seek(0)
        return file.read()


def test_a_file_is_as_the_library_writes_it() -> None:
    ours = written(*(exact(name, values) for name, values in VALUES.items()))
    assert ours == safetensors.numpy.save(VALUES, metadata={"format": "pt"})
    length = int.from_bytes(ours[:8], "little")
    assert length % 8 == 0
    header = ours[8 : 8 + length].decode("utf-8")
    assert header.rstrip(" ") == json.dumps(json.loads(header), separators=(",", ":"), ensure_ascii=False)


def test_tied_tensors_are_written_as_often_as_they_have_names() -> None:
    data = written(exact("a", VALUES["b"]), exact("c", VALUES["größe"]), Tied(name="d", of="a"), Tied(name="e", of="c"))
    read = safetensors.numpy.load(data)
    assert sorted(read) == ["a", "c", "d", "e"]
    for name, source in {"a": "b", "c": "größe", "d": "b", "e": "größe"}.items():
        np.testing.assert_array_equal(read[name], VALUES[source])


def test_tensors_are_read_in_the_order_of_their_bytes_and_a_shortened_file_is_an_error() -> None:
    data = safetensors.numpy.save(VALUES, metadata={"who": "them"})
    with holding(data) as file:
        places, metadata = read_header(file, "x")
        entries = [read_tensor(file, place) for place in places]
    assert metadata == {"who": "them"}
    assert [place.start for place in places] == sorted(place.start for place in places)
    for entry in entries:
        assert entry.words.tobytes() == VALUES[entry.name].tobytes()
        assert entry.shape == VALUES[entry.name].shape
    with holding(data[:-1]) as file, pytest.raises(ValueError, match=f"the file ends within '{places[-1].name}'"):
        read_tensor(file, places[-1])


@pytest.mark.parametrize("size", [0, 7, 8, 9])
def test_what_is_too_short_for_a_header_is_no_such_file(size: int) -> None:
    data = (1).to_bytes(8, "little")[:size] + b" " * (size - 8)
    with holding(data) as file, pytest.raises(ValueError, match="x is no safetensors file: expected the length of a header"):
        read_header(file, "x")


def test_the_shortest_header_is_of_an_empty_file() -> None:
    with holding((2).to_bytes(8, "little") + b"{}") as file:
        assert read_header(file, "x") == ([], {})
    with holding((3).to_bytes(8, "little") + b"{}") as file, pytest.raises(ValueError, match="x is no safetensors file"):
        read_header(file, "x")
