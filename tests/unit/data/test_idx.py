import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ellzero.data import read_idx

# Two images of 2 x 3 pixels, written out by hand.
IMAGES = bytes.fromhex("00000803 00000002 00000002 00000003  010203 040506  0708ff 000a0b")
LABELS = bytes.fromhex("00000801 00000003  090002")


def write(folder: Path, content: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_literal_bytes_are_read(tmp_path: Path, encode):
    images = read_idx(write(tmp_path, encode(IMAGES)), (None, 2, 3))
    assert images.dtype == np.uint8
    assert images.flags.writeable
    assert images.tolist() == [[[1, 2, 3], [4, 5, 6]], [[7, 8, 255], [0, 10, 11]]]
    assert read_idx(write(tmp_path, encode(LABELS)), (None,)).tolist() == [9, 0, 2]


@pytest.mark.parametrize("length", range(len(IMAGES)))
def test_every_truncation_is_refused_and_named(tmp_path: Path, length: int):
    path = write(tmp_path, IMAGES[:length])
    with pytest.raises(ValueError, match=r"file: (truncated|not an IDX file)") as error:
        read_idx(path, (None, 2, 3))
    assert str(path) in str(error.value)
    assert "expected" in str(error.value)


@pytest.mark.parametrize("length", range(2, len(gzip.compress(IMAGES))))
def test_every_truncation_of_gzip_is_refused_and_named(tmp_path: Path, length: int):
    path = write(tmp_path, gzip.compress(IMAGES)[:length])
    with pytest.raises(ValueError, match=r"file: damaged or truncated gzip data .*expected an IDX file of shape n x 2 x 3"):
        read_idx(path, (None, 2, 3))


@pytest.mark.parametrize("position", range(10, len(gzip.compress(IMAGES))))
def test_damaged_gzip_is_refused(tmp_path: Path, position: int):
    content = bytearray(gzip.compress(IMAGES))
    content[position] ^= 0x10
    with pytest.raises(ValueError, match="file: "):
        read_idx(write(tmp_path, bytes(content)), (None, 2, 3))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x01" + LABELS[1:], "not an IDX file: it begins with 01 00 08 01, expected 00 00 08 01"),
        (b"GIF89a", "not an IDX file: it begins with 47 49 46 38"),
        (b"", "not an IDX file: it begins with nothing"),
        (LABELS[:2] + b"\x0d" + LABELS[3:], r"entries are of type float32, expected uint8 \(0x08\)"),
        (LABELS[:2] + b"\x07" + LABELS[3:], r"entries are of type unknown \(0x07\), expected uint8"),
        (IMAGES, r"3 dimensions, expected 1 \(n\)"),
        (LABELS + b"\0", r"bytes follow after the 3 entries \(3\) that the header announces, expected none"),
        (bytes.fromhex("00000801 00000000"), "shape 0, expected n"),
    ],
)
@pytest.mark.parametrize("encode", [bytes, gzip.compress])
def test_wrong_labels_are_refused_with_what_was_expected(tmp_path: Path, content: bytes, message: str, encode):
    with pytest.raises(ValueError, match=f"file: {message}"):
        read_idx(write(tmp_path, encode(content)), (None,))


@pytest.mark.parametrize("shape", [(None, 2, 4), (None, 3, 2), (1, 2, 3), (3, 2, 3)])
def test_another_shape_is_refused(tmp_path: Path, shape: tuple[int | None, ...]):
    with pytest.raises(ValueError, match="shape 2 x 2 x 3, expected"):
        read_idx(write(tmp_path, IMAGES), shape)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="absent: no such file, expected an IDX file of shape n x 28 x 28"):
        read_idx(tmp_path / "absent", (None, 28, 28))


@pytest.mark.parametrize(
    "content",
    [
        # A header that announces four thousand million images, with nothing behind it.
        struct.pack(">4I", 0x803, 0xFFFFFFFF, 28, 28) + bytes(1000),
        # A small compressed file that expands a thousandfold past what its header announces.
        gzip.compress(struct.pack(">4I", 0x803, 1, 28, 28) + bytes(100 << 20), compresslevel=1),
    ],
)
def test_a_false_header_costs_no_memory(tmp_path: Path, content: bytes):
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"truncated: 1000 bytes of entries|bytes follow after the 784 entries"):
            read_idx(path, (None, 28, 28))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
