"""Sizes beyond 4 GiB: numbers of files and places in them have 64 bits."""

import hashlib
import io

import numpy as np
import pytest

from ellzero.codec.bytes.data_file import DataSection, decode_blocks
from ellzero.codec.bytes.transforms import change_x86_calls
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind, Original
from ellzero.codec.errors import FormatError

DATA = b"a few bytes"


def archive(size: int) -> bytes:
    """An archive of a few stored bytes whose end says that they are `size`."""
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.DATA)
    writer.section(DataSection.STORED, DATA, check=True)
    writer.finish(Original(size=size, sha256=hashlib.sha256(DATA).digest()))
    return file.getvalue()


@pytest.mark.parametrize("size", [len(DATA) + (1 << 32), 4_200_000_000, (1 << 64) - 1])
def test_files_story_14_a_size_beyond_4_gib_is_itself_and_not_its_low_bits(size: int):
    reader = ContainerReader(io.BytesIO(archive(size)))
    assert [section.kind for section in reader.sections(tuple(DataSection))] == [DataSection.STORED]
    assert reader.original.size == size
    with pytest.raises(FormatError):
        list(decode_blocks(io.BytesIO(archive(size)), max_size=None))
    assert b"".join(decode_blocks(io.BytesIO(archive(len(DATA))), max_size=None)) == DATA


@pytest.mark.parametrize("start", [0, (1 << 32) - 64, (1 << 32) + 1, 5 << 40])
def test_files_story_14_calls_are_changed_back_wherever_a_block_stands(start: int):
    code = b"".join(b"\x55\xe8" + (70_000 * n).to_bytes(4, "little") + b"\xc3" for n in range(50))
    block = np.frombuffer(code, np.uint8).copy()
    change_x86_calls(block, np.int64(start), False)
    # The place counts modulo 2^24, as the format says.
    low = np.frombuffer(code, np.uint8).copy()
    change_x86_calls(low, np.int64(start % (1 << 24)), False)
    assert block.tobytes() == low.tobytes() != code
    change_x86_calls(block, np.int64(start), True)
    assert block.tobytes() == code
