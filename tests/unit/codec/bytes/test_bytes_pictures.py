"""The rows of pictures are found, and what is coded with them is smaller than without."""

import hashlib
import io
import lzma

import numpy as np
import pytest
from numpy.typing import NDArray

from ellzero.codec.bytes import data_file
from ellzero.codec.bytes.data_file import DataSection, compress_bytes, decompress_bytes
from ellzero.codec.bytes.pictures import LONGEST_ROW, find_picture
from ellzero.codec.container import ContainerWriter, Kind, Original
from ellzero.codec.errors import FormatError


def picture(height: int, width: int, channels: int, seed: int = 0, grain: float = 0.0, tint: float = 10.0) -> NDArray[np.uint8]:
    """Blobs of light with the noise of a camera; `grain` is the deviation of a texture, `tint` how much the colours differ."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    levels = np.zeros((height, width, channels))
    for _ in range(height * width // 50):
        cy, cx, size = rng.uniform(0, height), rng.uniform(0, width), rng.uniform(2, 12)
        levels += np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / size**2)[..., None] * (
            rng.uniform(-60, 60) + rng.uniform(-tint, tint, channels)
        )
    levels += rng.normal(0, 1, (height, width, 1)) * grain
    return np.clip(128 + levels + rng.normal(0, 1.5, levels.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(("width", "channels"), [(64, 1), (100, 3), (64, 4), (700, 3)])
def test_the_pixel_and_the_row_of_a_picture_are_found(width: int, channels: int):
    block = picture(64, width, channels).reshape(-1)
    assert find_picture(block) == (channels, width * channels)
    # A header in front, or rows that are filled up, change nothing but the row.
    assert find_picture(np.concatenate((np.arange(54, dtype=np.uint8), block))) == (channels, width * channels)
    filled = np.pad(block.reshape(64, -1), ((0, 0), (0, 3)))
    assert find_picture(filled.reshape(-1)) == (channels, width * channels + 3)


def test_of_planes_the_row_and_the_plane_are_found():
    planes = np.concatenate([picture(32, 32, 3, seed, grain=8, tint=60).transpose(2, 0, 1).reshape(-1) for seed in range(12)])
    assert find_picture(planes) == (32, 1024)


def test_noise_constants_words_and_little_have_no_rows():
    rng = np.random.default_rng(1)
    assert find_picture(rng.integers(0, 256, 50_000, dtype=np.uint8)) == (0, 0)
    assert find_picture(np.zeros(50_000, np.uint8)) == (0, 0)
    assert find_picture(np.zeros(9, np.uint8)) == (0, 0)
    words = rng.integers(97, 123, (400, 6), dtype=np.uint8)
    assert find_picture(words[rng.integers(0, 400, 8000)].reshape(-1)) == (0, 0)
    # Numbers that follow each other smoothly, but in one dimension.
    walk = rng.normal(0, 3, 50_000).cumsum()
    assert find_picture((walk % 256).astype(np.uint8)) == (0, 0)


def test_a_picture_is_smaller_with_its_rows_than_without_and_than_by_xz():
    data = picture(120, 160, 3).tobytes()
    archive = compress_bytes(data, level=5)
    assert decompress_bytes(archive) == data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "PICTURED", ())
        without = compress_bytes(data, level=5)
    assert len(archive) < 0.95 * len(without)
    assert len(archive) < 0.8 * len(lzma.compress(data, preset=9))


@pytest.mark.parametrize(("stride", "row"), [(0, 9), (3, 0), (3, 3), (4, 3), (3, LONGEST_ROW + 1)])
def test_rows_that_cannot_be_are_refused(stride: int, row: int):
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.DATA)
    writer.section(DataSection.MODEL, bytes((5, 10, 10)), check=True)
    low, high = row & 127 | 128, row >> 7
    writer.section(DataSection.STORED_AND_LEARNT, bytes((2, stride, low, high) if high else (2, stride, row)) + b"abc", check=True)
    writer.finish(Original(size=3, sha256=hashlib.sha256(b"abc").digest()))
    with pytest.raises(FormatError, match="row"):
        decompress_bytes(file.getvalue())
