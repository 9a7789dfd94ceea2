"""Finds the folder of a data set."""

import os
from pathlib import Path

from ellzero.data.images import Dataset, Part

ENVIRONMENT_VARIABLE = "ELLZERO_DATA"

_PREFIXES = {Part.TRAIN: "train", Part.TEST: "t10k"}


def images_file(part: Part) -> str:
    """Names the IDX file of the images of one part, without `.gz`."""
    return f"{_PREFIXES[part]}-images-idx3-ubyte"


def labels_file(part: Part) -> str:
    """Names the IDX file of the labels of one part, without `.gz`."""
    return f"{_PREFIXES[part]}-labels-idx1-ubyte"


CIFAR10_TEST = "test_batch.bin"
CIFAR10_FIRST_TEST = "test_batch_first1000.bin"
"""The first 1,000 images of the file before, in circulation where the whole is not."""


def cifar10_batch(number: int) -> str:
    """Names a training file of CIFAR-10, from 1 to 5."""
    return f"data_batch_{number}.bin"


def files_of(dataset: Dataset) -> list[str]:
    """Names the files of a data set, without the ending of a compressed one."""
    if dataset is Dataset.CIFAR10:
        return [*map(cifar10_batch, range(1, 6)), CIFAR10_TEST, CIFAR10_FIRST_TEST]
    return [name(part) for part in Part for name in (images_file, labels_file)]


def find_file(directory: Path, name: str) -> Path | None:
    """Finds a file, raw or compressed, under its usual name or with a dot before `idx` (both are in circulation)."""
    ending = ".xz" if name.endswith(".bin") else ".gz"
    for variant in dict.fromkeys((name, name.replace("-idx", ".idx"))):
        for path in (directory / variant, directory / f"{variant}{ending}"):
            if path.is_file():
                return path
    return None


def find_data(dataset: Dataset, directory: str | os.PathLike[str] | None = None) -> Path:
    """Finds the folder that holds the files of a data set.

    Looks in `directory` or, where that is None, in the folder that the environment variable ELLZERO_DATA names; in either, first for a
    folder of the data set's name (`mnist`, `fashion-mnist`, `cifar10`), then for the files themselves. A directory that is given and
    wrong is an error: another copy is never used in its place.

    Args:
        dataset: which data set; the digits come with the package and need no folder.
        directory: where to look.

    Returns:
        The folder; at least one of its files lies in it.

    Raises:
        FileNotFoundError: no such files are there; the message says where it looked and for what.
        ValueError: the digits were asked for.
    """
    if dataset is Dataset.DIGITS:
        raise ValueError("the digits come with ellzero and lie in no folder: call load_digits(), without a directory")
    names = files_of(dataset)
    expected = f"expected {', '.join(names)}, each raw or with {'.xz' if dataset is Dataset.CIFAR10 else '.gz'}"
    root = directory if directory is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    if not root:
        raise FileNotFoundError(
            f"{dataset.value} is not at hand: pass its directory or set {ENVIRONMENT_VARIABLE} to a folder "
            f"that holds {dataset.value}/; {expected}"
        )
    places = [Path(root) / dataset.value, Path(root)]
    for place in places:
        if any(find_file(place, name) for name in names):
            return place
    source = "the directory given" if directory is not None else f"the environment variable {ENVIRONMENT_VARIABLE}"
    looked = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"{dataset.value} is not at hand: looked in {looked} ({source}); {expected}")
