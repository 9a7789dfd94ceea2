"""Loads a data set by its name."""

import os

from ellzero.data.cifar import HELD_OUT_BATCHES, load_cifar10
from ellzero.data.digits import load_digits
from ellzero.data.images import Dataset, Images, Part
from ellzero.data.mnist import load_fashion_mnist, load_mnist


def load_images(dataset: Dataset, directory: str | os.PathLike[str] | None = None, part: Part = Part.TRAIN) -> Images:
    """Loads one part of a data set.

    Args:
        dataset: which one.
        directory: where its files are, see `find_data`; the digits, which come with the package, take none.
        part: which part; the other's files are not opened.

    Returns:
        The images and labels; for CIFAR-10's training part, those of the files 1 to 3 (see `load_held_out`).

    Raises:
        FileNotFoundError: the files are not there.
        ValueError: a file is not what it should be, or a directory is given for the digits.
    """
    match dataset:
        case Dataset.MNIST:
            return load_mnist(directory, part)
        case Dataset.FASHION_MNIST:
            return load_fashion_mnist(directory, part)
        case Dataset.CIFAR10:
            return load_cifar10(directory, part)
        case Dataset.DIGITS:
            if directory is not None:
                raise ValueError(f"the digits come with ellzero: expected no directory, got {directory}")
            return load_digits(part)


def load_held_out(dataset: Dataset, directory: str | os.PathLike[str] | None = None) -> Images | None:
    """Loads the images that a data set holds out by itself: file 5 of CIFAR-10, whose files 1 to 3 are trained on; None for the others.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is not what it should be.
    """
    return load_cifar10(directory, batches=HELD_OUT_BATCHES) if dataset is Dataset.CIFAR10 else None
