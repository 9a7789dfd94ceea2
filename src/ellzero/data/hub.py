"""Image sets by name from the Hugging Face hub, each at a fixed revision. This is the one place that downloads, and only when called."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ellzero.data.images import Dataset, Images, Part


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Where a data set lies on the hub.

    Attributes:
        repository: the repository, owner first.
        revision: the commit, so that the data cannot change under a recipe.
        image: the column of images.
        label: the column of labels.
        sizes: images of the training and of the test part.
        shape: of one image as it is stored, channels last.
    """

    repository: str
    revision: str
    image: str = "image"
    label: str = "label"
    sizes: tuple[int, int]
    shape: tuple[int, ...]


HUB_SOURCES = {
    Dataset.MNIST: HubSource(
        repository="ylecun/mnist", revision="77f3279092a1c1579b2250db8eafed0ad422088c", sizes=(60_000, 10_000), shape=(28, 28)
    ),
    Dataset.FASHION_MNIST: HubSource(
        repository="zalando-datasets/fashion_mnist",
        revision="531be5e2ccc9dba0c201ad3ae567a4f3d16ecdd2",
        sizes=(60_000, 10_000),
        shape=(28, 28),
    ),
    Dataset.CIFAR10: HubSource(
        repository="uoft-cs/cifar10",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        image="img",
        sizes=(50_000, 10_000),
        shape=(32, 32, 3),
    ),
}
"""The sets that can be had by name, and the revision of each."""


def load_from_hub(dataset: Dataset, part: Part = Part.TRAIN, source: HubSource | None = None) -> Images:
    """Loads one part of a data set from the Hugging Face hub, downloading it the first time.

    Args:
        dataset: which one; the digits come with the package and are not there.
        part: which part.
        source: where it lies, in place of the one in `HUB_SOURCES`.

    Returns:
        The images and labels in the repository's order; CIFAR-10 whole (50,000 training images), channels first.

    Raises:
        ImportError: the package `datasets` is not installed.
        ValueError: there is no such set on the hub, or what came is not what the source announces.
    """
    source = source or HUB_SOURCES.get(dataset)
    if source is None:
        raise ValueError(f"{dataset.value} is not on the hub: expected one of {', '.join(known.value for known in HUB_SOURCES)}")
    try:
        import datasets  # pyright: ignore[reportMissingImports]  # an extra, which the type checker's environment lacks
    except ImportError as error:
        raise ImportError("data sets by name need the package `datasets`: pip install 'ellzero[data]'") from error
    rows: Any = datasets.load_dataset(source.repository, split=part.value, revision=source.revision)
    inputs = np.stack([np.asarray(image, dtype=np.uint8) for image in rows[source.image]])
    labels = np.asarray(list(rows[source.label]), dtype=np.int64)
    expected = (source.sizes[part is Part.TEST], *source.shape)
    if inputs.shape != expected or len(labels) != expected[0]:
        where = f"{source.repository} at {source.revision}"
        raise ValueError(f"{where}: images {inputs.shape} and {len(labels)} labels, expected {expected} and {expected[0]}")
    pixels = torch.from_numpy(inputs)
    if len(source.shape) == 3:
        pixels = pixels.permute(0, 3, 1, 2).contiguous()
    return Images(inputs=pixels, labels=torch.from_numpy(labels), name=dataset.value, part=part)
