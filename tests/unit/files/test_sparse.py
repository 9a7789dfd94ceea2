"""Holes stand for zeros: a file reads the same, whatever it was written in."""

import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from ellzero.files.sparse import BLOCK, SparseFile, takes_holes
from ellzero.files.whole import replacing

RUNS = st.lists(
    st.one_of(
        st.integers(0, 3 * BLOCK).map(bytes),
        st.integers(0, 4).map(lambda count: bytes(count * BLOCK)),
        st.binary(max_size=50),
        st.integers(1, BLOCK + 1).map(lambda count: b"\x01" * count),
    ),
    max_size=8,
)


@given(RUNS)
@settings(max_examples=60)
def test_whatever_is_written_is_read_back(pieces: list[bytes]):
    file = io.BytesIO(b"")
    sparse = SparseFile(file)
    for piece in pieces:
        assert sparse.write(memoryview(piece)) == len(piece)
    sparse.finish()
    sparse.finish()
    content = file.getvalue()
    # BytesIO, unlike a file, does not grow by truncation.
    assert content + bytes(file.tell() - len(content)) == b"".join(pieces)


@pytest.mark.parametrize("end", [b"", b"end", bytes(BLOCK - 1), bytes(1)])
@pytest.mark.parametrize("begin", [b"", b"begin"])
def test_blocks_of_zeros_take_no_room(begin: bytes, end: bytes, tmp_path: Path):
    data = begin + bytes(1 << 22) + end
    with replacing(tmp_path / "a") as file:
        assert takes_holes(file)
        sparse = SparseFile(file)
        for place in range(0, len(data), 1 << 15):
            sparse.write(data[place : place + (1 << 15)])
        sparse.finish()
    assert (tmp_path / "a").read_bytes() == data
    if sys.platform == "linux":
        assert (tmp_path / "a").stat().st_blocks * 512 <= 1 << 16


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such descriptors")
def test_only_a_regular_file_at_its_end_takes_holes(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"what was there")
    with open(tmp_path / "a", "r+b") as file:
        assert not takes_holes(file)  # zeros must replace what was there
        file.seek(0, os.SEEK_END)
        assert takes_holes(file)
    with open(tmp_path / "a", "ab") as file:
        assert not takes_holes(file)  # whatever is gone over would be missing
    read, write = os.pipe()
    with open(read, "rb"), open(write, "wb") as file:
        assert not takes_holes(file)
    with open(os.devnull, "wb") as file:
        assert not takes_holes(file)
    assert not takes_holes(io.BytesIO())
