"""MNIST and Fashion-MNIST, which share their file names and their format.

MNIST: LeCun, Cortes, Burges, The MNIST database of handwritten digits, 1998. Fashion-MNIST: Xiao, Rasul, Vollgraf, Fashion-MNIST: a
novel image dataset for benchmarking machine learning algorithms, 2017.
"""

import os
import zlib

import torch

from ellzero.data.find import find_data, find_file, images_file, labels_file
from ellzero.data.idx import read_idx
from ellzero.data.images import Dataset, Images, Part

_PUBLISHED_LABELS = {
    0xBA07E8EF: (Dataset.MNIST, Part.TRAIN),
    0xEE8604D9: (Dataset.MNIST, Part.TEST),
    0x2ED6E46A: (Dataset.FASHION_MNIST, Part.TRAIN),
    0x242BC73F: (Dataset.FASHION_MNIST, Part.TEST),
}
"""CRC-32 of the published labels: the files of all four have the same names, so only their contents tell them apart."""


def load_mnist(directory: str | os.PathLike[str] | None = None, part: Part = Part.TRAIN) -> Images:
    """Loads one part of MNIST: 60,000 training or 10,000 test images of 28x28 pixels; the other part's files are not opened.

    Args:
        directory: where its IDX files are, see `find_data`; None for the folder named by ELLZERO_DATA.
        part: which part.

    Returns:
        The images and labels in the files' order.

    Raises:
        FileNotFoundError: the files are not there.
        ValueError: a file is not what it should be (see `read_idx`), or its labels are those of another set or part.
    """
    return _load(Dataset.MNIST, directory, part)


def load_fashion_mnist(directory: str | os.PathLike[str] | None = None, part: Part = Part.TRAIN) -> Images:
    """Loads one part of Fashion-MNIST: 60,000 training or 10,000 test images of 28x28 pixels; the other part's files are not opened.

    Args:
        directory: where its IDX files are, see `find_data`; None for the folder named by ELLZERO_DATA.
        part: which part.

    Returns:
        The images and labels in the files' order.

    Raises:
        FileNotFoundError: the files are not there.
        ValueError: a file is not what it should be (see `read_idx`), or its labels are those of another set or part.
    """
    return _load(Dataset.FASHION_MNIST, directory, part)


def _load(dataset: Dataset, directory: str | os.PathLike[str] | None, part: Part) -> Images:
    folder = find_data(dataset, directory)
    paths = [find_file(folder, name) or folder / f"{name}.gz" for name in (labels_file(part), images_file(part))]
    labels = read_idx(paths[0], (None,))
    # A set loaded under the wrong name would pass every other check and make a record that is false.
    actual = _PUBLISHED_LABELS.get(zlib.crc32(labels.tobytes()), (dataset, part))
    if actual != (dataset, part):
        raise ValueError(f"{paths[0]}: holds {actual[0].value}'s {actual[1].value} labels, expected {dataset.value}'s {part.value} labels")
    if labels.max() > 9:
        where = int((labels > 9).argmax())
        raise ValueError(f"{paths[0]}: label {labels[where]} at position {where}, expected 0 to 9")
    inputs = read_idx(paths[1], (len(labels), 28, 28))
    return Images(inputs=torch.from_numpy(inputs), labels=torch.from_numpy(labels).long(), name=dataset.value, part=part)
