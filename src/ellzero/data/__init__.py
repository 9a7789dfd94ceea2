"""Images by path or by name, held whole in memory and batched without Python per sample. Only `load_from_hub` downloads."""

from ellzero.data.augment import Affine, Augmentation, Chain, Elastic, Shifts
from ellzero.data.cifar import load_cifar10, standardised
from ellzero.data.digits import load_digits
from ellzero.data.find import find_data
from ellzero.data.hub import HUB_SOURCES, HubSource, load_from_hub
from ellzero.data.idx import read_idx
from ellzero.data.images import Dataset, Images, Part, Split, split
from ellzero.data.load import load_held_out, load_images
from ellzero.data.mnist import load_fashion_mnist, load_mnist
from ellzero.data.resident import Resident, Samples
from ellzero.data.teacher import teacher_samples

__all__ = [
    "HUB_SOURCES",
    "Affine",
    "Augmentation",
    "Chain",
    "Dataset",
    "Elastic",
    "HubSource",
    "Images",
    "Part",
    "Resident",
    "Samples",
    "Shifts",
    "Split",
    "find_data",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_from_hub",
    "load_held_out",
    "load_images",
    "load_mnist",
    "read_idx",
    "split",
    "standardised",
    "teacher_samples",
]
