"""What a set of labelled images is, and how training images are held out for validation."""

import enum
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


class Part(enum.Enum):
    """The part of a data set: test images are read from disk only where the test part is asked for."""

    TRAIN = "train"
    TEST = "test"


class Dataset(enum.Enum):
    """The data sets known by name; the value is also the name of the folder that holds one."""

    MNIST = "mnist"
    FASHION_MNIST = "fashion-mnist"
    DIGITS = "digits"
    CIFAR10 = "cifar10"


@dataclass(frozen=True, kw_only=True)
class Images:
    """One part of a set of labelled images.

    Attributes:
        inputs: pixels from 0 (background) to `white`, as stored; colours are channels, and grey images have none.
        labels: the class of each image (m = n), from 0 to num_classes - 1.
        name: the data set's name.
        part: which part this is.
        num_classes: the number of classes.
        white: the pixel value that becomes 1.0: 255 for MNIST and Fashion-MNIST, 16 for the digits.
    """

    inputs: UInt8[Tensor, "n *channels height width"]
    labels: Int64[Tensor, " m"]
    name: str
    part: Part
    num_classes: int = 10
    white: int = 255

    def __post_init__(self) -> None:
        what = f"{self.name}, {self.part.value} part"
        if len(self.inputs) != len(self.labels):
            raise ValueError(f"{what}: {len(self.inputs)} images but {len(self.labels)} labels, expected as many")
        wrong = torch.nonzero((self.labels < 0) | (self.labels >= self.num_classes)).flatten()
        if len(wrong):
            where = int(wrong[0])
            raise ValueError(f"{what}: label {int(self.labels[where])} at position {where}, expected 0 to {self.num_classes - 1}")

    def __len__(self) -> int:
        """Counts the images."""
        return len(self.labels)

    def take(self, indices: Int64[Tensor, " k"]) -> "Images":
        """Selects images by position, in the order given."""
        return Images(
            inputs=self.inputs[indices],
            labels=self.labels[indices],
            name=self.name,
            part=self.part,
            num_classes=self.num_classes,
            white=self.white,
        )


class Split(NamedTuple):
    """Positions of the images to train on and of those held out, without an overlap."""

    train: Int64[Tensor, " train"]
    validation: Int64[Tensor, " validation"]


def split(n: int, validation: int, seed: int) -> Split:
    """Draws which of n images are held out for validation, each subset of that size equally likely.

    Args:
        n: the number of images.
        validation: how many to hold out, from 0 to n - 1.
        seed: decides the draw.

    Returns:
        Both sets of positions, each in ascending order.

    Raises:
        ValueError: `validation` leaves no image to train on, or is negative.
    """
    if not 0 <= validation < n:
        raise ValueError(
            f"validation={validation} of {n} images: expected at least 0 and at most {n - 1}, so that some are left to train on"
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return Split(train=order[validation:].sort().values, validation=order[:validation].sort().values)
