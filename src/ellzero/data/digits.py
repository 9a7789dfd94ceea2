"""The 8x8 digits, which come with the package: Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI repository, 1998."""

from importlib.resources import files

import numpy as np
import torch

from ellzero.data.images import Dataset, Images, Part


def load_digits(part: Part = Part.TRAIN) -> Images:
    """Loads one part of the digits: 1,437 training or 360 test images of 8x8 pixels from 0 to 16.

    The parts follow the order in which scikit-learn lists the images: the first 1,437 and the last 360. Neighbours in it were written by
    the same person, so most writers of the test part wrote nothing in the training part.

    Args:
        part: which part.

    Returns:
        The images and labels.
    """
    with files("ellzero.data").joinpath("digits.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        inputs, labels = arrays[f"{part.value}_inputs"], arrays[f"{part.value}_labels"]
    return Images(inputs=torch.from_numpy(inputs), labels=torch.from_numpy(labels).long(), name=Dataset.DIGITS.value, part=part, white=16)
