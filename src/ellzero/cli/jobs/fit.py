"""Checks before a run begins, on two samples, whether a network can read the data."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ellzero.data import Dataset
from ellzero.surgery.calls import evaluating
from ellzero.training import classification_loss
from ellzero.training.batches import HasPlain, plain_batches
from ellzero.training.problem import Problem

_READERS: dict[str, tuple[str, ...]] = {
    Dataset.MNIST.value: ("lenet-300-100", "lenet-5-caffe"),
    Dataset.FASHION_MNIST.value: ("lenet-300-100", "lenet-5-caffe"),
    Dataset.CIFAR10.value: ("vgg-16-512", "mlp-3x512"),
    Dataset.DIGITS.value: ("digits-mlp",),
}
"""The networks known by name that read a data set known by name."""


def require_fit(model: nn.Module, problem: Problem, name: str) -> None:
    """Runs a classifier on two samples, in eval mode; a problem with a loss of its own is left to that.

    Args:
        model: the network.
        problem: the data that it is to be trained on.
        name: the network's name on the command line.

    Raises:
        ValueError: the network cannot read the inputs, or has no output for some class.
    """
    batches = plain_batches(problem.train) if isinstance(problem.train, HasPlain) else problem.valid
    if problem.loss_fn is not classification_loss or batches is None:
        return
    # A loader of the user's, and dropout in eval mode by mistake, may draw from the global generator: the run is not to notice.
    with torch.random.fork_rng(devices=[]), evaluating(model):
        pair = _pair(next(iter(batches), None))
        if pair is None:
            return
        inputs, labels = pair
        try:
            outputs = model(inputs[:2])
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ValueError(_misfit(name, problem.name, inputs, str(error).splitlines()[0])) from error
    classes = int(labels.max()) + 1
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < classes:
        shape = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(
            _misfit(name, problem.name, inputs, f"of 2 samples it makes {shape}, expected [2, {classes}], a score for each class")
        )


def _pair(batch: Any) -> tuple[Tensor, Tensor] | None:
    """Returns inputs and labels where a batch consists of these and is not empty."""
    if not isinstance(batch, (tuple, list)):
        return None
    parts = cast("Sequence[Any]", batch)
    if len(parts) != 2 or not all(isinstance(part, Tensor) and len(part) for part in parts) or parts[1].is_floating_point():
        return None
    return parts[0], parts[1]


def _misfit(name: str, data: str, inputs: Tensor, why: str) -> str:
    text = f"{name} does not fit {data}, whose inputs are {'x'.join(map(str, inputs.shape[1:]))}"
    own = [dataset for dataset, readers in _READERS.items() if name in readers]
    if own and data in _READERS:
        return f"{text}: it reads {' and '.join(own)}; {' and '.join(_READERS[data])} read {data}"
    return f"{text}: {why}"
