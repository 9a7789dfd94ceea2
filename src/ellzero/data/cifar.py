"""CIFAR-10 in its binary version: Krizhevsky, Learning multiple layers of features from tiny images, 2009.

A file holds records of 3,073 bytes: the label, then 1,024 red, 1,024 green and 1,024 blue pixels in row-major order. It may be compressed
with xz.
"""

import lzma
import os
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from ellzero.data.find import CIFAR10_FIRST_TEST, CIFAR10_TEST, cifar10_batch, find_data, find_file
from ellzero.data.images import Dataset, Images, Part

_RECORD_BYTES = 1 + 3 * 32 * 32
_XZ = b"\xfd7zXZ\0"

_PUBLISHED_LABELS = {
    0x5D9D9F38: cifar10_batch(1),
    0xE2C44314: cifar10_batch(2),
    0x9A1788FB: cifar10_batch(3),
    0xC6E28B99: cifar10_batch(5),
    0xFBF5F6E0: CIFAR10_TEST,
}
"""CRC-32 of the first 1,000 labels of published files: all have one format, so only their contents tell them apart."""

TRAIN_BATCHES = (1, 2, 3)
"""The files trained on."""

HELD_OUT_BATCHES = (5,)
"""The file held out to choose by."""


def load_cifar10(
    directory: str | os.PathLike[str] | None = None, part: Part = Part.TRAIN, *, batches: Sequence[int] = TRAIN_BATCHES
) -> Images:
    """Loads training or test images of CIFAR-10, 3x32x32 pixels; files that are not asked for are not opened.

    Args:
        directory: where its files are, see `find_data`; None for the folder named by ELLZERO_DATA.
        part: which part. Where `test_batch.bin` is not there but its first 1,000 images are (`test_batch_first1000.bin`), those are loaded.
        batches: which files of the training part, from 1 to 5, 10,000 images each: 1 to 3 to train on, 5 to hold out.

    Returns:
        The images and labels in the files' order.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: `batches` is empty or names no file; a file is of another size, damaged, or holds labels above 9 or those of another.
    """
    if not batches or not set(batches) <= set(range(1, 6)):
        raise ValueError(f"batches={tuple(batches)}: expected at least one of 1 to 5")
    folder = find_data(Dataset.CIFAR10, directory)
    if part is Part.TRAIN:
        parts = [_read(folder, cifar10_batch(number), 10_000) for number in batches]
    elif find_file(folder, CIFAR10_TEST) is None and find_file(folder, CIFAR10_FIRST_TEST) is not None:
        parts = [_read(folder, CIFAR10_FIRST_TEST, 1000)]
    else:
        parts = [_read(folder, CIFAR10_TEST, 10_000)]
    records = torch.from_numpy(np.concatenate(parts))
    inputs = records[:, 1:].reshape(-1, 3, 32, 32)
    return Images(inputs=inputs, labels=records[:, 0].long(), name=Dataset.CIFAR10.value, part=part)


def standardised(inputs: UInt8[Tensor, "n 3 height width"]) -> Float[Tensor, "n 3 height width"]:
    """Scales pixels to [0, 1], subtracts each colour's mean and divides by its standard deviation, as networks trained elsewhere expect.

    The figures are those of ImageNet (0.485, 0.456, 0.406 and 0.229, 0.224, 0.225), which the CIFAR-10 ResNets in circulation were
    trained with.
    """
    mean, deviation = torch.tensor(((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), device=inputs.device).view(2, 3, 1, 1)
    return inputs.float().div_(255).sub_(mean).div_(deviation)


def _read(folder: Path, name: str, records: int) -> NDArray[np.uint8]:
    """Reads a file of so many records; memory grows only with the bytes that are there, whatever the file claims."""
    path = find_file(folder, name)
    expected = records * _RECORD_BYTES
    what = f"expected {records:,} records of {_RECORD_BYTES:,} bytes, {expected:,} in all"
    if path is None:
        raise FileNotFoundError(f"{folder / name}: no such file, raw or with .xz; {what}")
    with path.open("rb") as raw:
        compressed = raw.read(len(_XZ)) == _XZ
        raw.seek(0)
        try:
            with lzma.open(raw) if compressed else nullcontext(raw) as stream:
                data = stream.read(expected + 1)
        except (EOFError, lzma.LZMAError) as error:
            raise ValueError(f"{path}: damaged or truncated xz data ({error}), {what}") from error
    if len(data) != expected:
        raise ValueError(f"{path}: {'truncated: ' if len(data) < expected else 'more than '}{min(len(data), expected):,} bytes, {what}")
    rows = np.frombuffer(bytearray(data), dtype=np.uint8).reshape(records, _RECORD_BYTES)
    labels = rows[:, 0]
    if labels.max() > 9:
        where = int((labels > 9).argmax())
        raise ValueError(f"{path}: label {labels[where]} at position {where}, expected 0 to 9: not a file of CIFAR-10")
    wanted = CIFAR10_TEST if name == CIFAR10_FIRST_TEST else name
    actual = _PUBLISHED_LABELS.get(zlib.crc32(labels[:1000].tobytes()), wanted)
    if actual != wanted:
        raise ValueError(f"{path}: holds the labels of {actual}, expected those of {name}")
    return rows
