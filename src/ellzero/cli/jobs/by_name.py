"""Networks and data by name, or from the user's own module."""

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ellzero.data import Dataset, Images, Part, Resident, load_held_out, load_images, split
from ellzero.models import VGG16, DigitsMLP, LeNet5Caffe, LeNet300, MLP3x512
from ellzero.training.batches import Batches
from ellzero.training.presets import DataTreatment
from ellzero.training.problem import Problem

NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "lenet-300-100": lambda seed: LeNet300(seed=seed),
    "lenet-5-caffe": lambda seed: LeNet5Caffe(seed=seed),
    "vgg-16-512": lambda seed: VGG16(seed=seed),
    "mlp-3x512": lambda seed: MLP3x512(seed=seed),
    "digits-mlp": lambda seed: DigitsMLP(seed=seed),
}

_CIFAR10_NETWORKS = frozenset({"vgg-16-512", "mlp-3x512"})


def network(name: str, seed: int) -> nn.Module:
    """Builds a network from its name or from `module:factory`; the factory takes no argument, or a keyword `seed`.

    Raises:
        ValueError: no such name, module or factory, or the factory returns something else.
    """
    if name in NETWORKS:
        return NETWORKS[name](seed)
    if ":" not in name:
        raise ValueError(f"no network is named {name!r}: expected {', '.join(NETWORKS)}, or module:factory")
    factory = imported(name)
    model = factory(seed=seed) if _takes_seed(factory) else factory()
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name} returned {type(model).__name__}, expected a torch.nn.Module")
    return model


def _takes_seed(factory: Callable[..., Any]) -> bool:
    try:
        inspect.signature(factory).bind(seed=0)
    except (TypeError, ValueError):  # another signature, or none that Python knows
        return False
    return True


def wants_channels(model: nn.Module) -> bool:
    """Tells whether a network reads images with a dimension of channels: it holds a convolution over two dimensions."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def imported(reference: str) -> Any:
    """Imports `module:name`; the working directory is looked in first, as `python -m` does.

    Raises:
        ValueError: no such module or name.
    """
    module, _, name = reference.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"cannot import {module!r} for {reference!r}: {error}") from error
    except AttributeError as error:
        raise ValueError(f"module {module!r} has no {name!r}") from error


def dataset_for(model_name: str, data: str | None) -> tuple[Dataset, str | None]:
    """Chooses the data set of a network and the directory of its files.

    `digits-mlp` reads the digits, and the networks for CIFAR-10 read that. For any other network `data` decides: a data set's name, or a
    directory, in which Fashion-MNIST is expected if its name contains "fashion", and CIFAR-10 if it contains "cifar".
    """
    if model_name == "digits-mlp":
        return Dataset.DIGITS, data
    for dataset in (Dataset.FASHION_MNIST, Dataset.MNIST, Dataset.CIFAR10):
        if data == dataset.value:
            return dataset, None
    if model_name in _CIFAR10_NETWORKS or (data is not None and "cifar" in Path(data).name.lower()):
        return Dataset.CIFAR10, data
    if data is None:
        return Dataset.MNIST, None
    fashion = "fashion" in Path(data).name.lower()
    return (Dataset.FASHION_MNIST if fashion else Dataset.MNIST), data


def image_problem(
    dataset: Dataset,
    directory: str | None,
    *,
    seed: int,
    treatment: DataTreatment,
    channels: bool = False,
) -> Problem:
    """Builds the problem of classifying one of the image sets known by name.

    Args:
        dataset: which set.
        directory: where its files are; None for ELLZERO_DATA.
        seed: order and augmentation of the training images; the split is always the same.
        treatment: batches, held-out images and augmentation; CIFAR-10 holds out its file 5 whatever is said here.
        channels: whether grey images are given one channel, as convolutions want them.
    """

    def shaped(images: Images) -> Images:
        return replace(images, inputs=images.inputs[:, None]) if channels and images.inputs.ndim == 3 else images

    images, valid = shaped(load_images(dataset, directory)), load_held_out(dataset, directory)
    if valid is None:
        parts = split(len(images), treatment.validation, seed=123)
        images, valid = images.take(parts.train), images.take(parts.validation)
    train = images if treatment.train_size is None else images.take(torch.arange(min(treatment.train_size, len(images))))

    def test() -> Batches:
        return resident(shaped(load_images(dataset, directory, Part.TEST)))

    return Problem(
        train=Resident(
            train.inputs,
            train.labels,
            batch_size=treatment.batch_size,
            seed=seed,
            augment=treatment.augment,
            copies=treatment.copies,
            white=train.white,
        ),
        valid=resident(valid),
        test=test,
        samples=len(train),
        name=dataset.value,
    )


def resident(images: Images) -> Resident:
    """Makes batches of images in their order, for measuring."""
    return Resident(images.inputs, images.labels, batch_size=min(2000, len(images)), seed=0, shuffle=False, white=images.white)
