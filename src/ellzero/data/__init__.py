"""Images by path or by name, held whole in memory and batched without Python per sample. Nothing is ever downloaded."""

from ellzero.data.augment import Affine, Augmentation, Chain, Elastic, Shifts
from ellzero.data.digits import load_digits
from ellzero.data.find import find_data
from ellzero.data.idx import read_idx
from ellzero.data.images import Dataset, Half, Images, Split, split
from ellzero.data.load import load_images
from ellzero.data.mnist import load_fashion_mnist, load_mnist
from ellzero.data.resident import Batch, Resident

__all__ = [
    "Affine",
    "Augmentation",
    "Batch",
    "Chain",
    "Dataset",
    "Elastic",
    "Half",
    "Images",
    "Resident",
    "Shifts",
    "Split",
    "find_data",
    "load_digits",
    "load_fashion_mnist",
    "load_images",
    "load_mnist",
    "read_idx",
    "split",
]
