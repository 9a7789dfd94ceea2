"""What training reads: batches that can be read again, and what is measured on them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

Batch = Any
"""Anything that `loss_fn` understands: a tuple of tensors, a dictionary, an object."""

LossFn = Callable[[nn.Module, Batch], Tensor]
"""(model, batch) -> mean loss in nats, a scalar tensor."""

ErrorFn = Callable[[nn.Module, Batch], tuple[Tensor, int]]
"""(model, batch) -> (number of errors, number of decisions)."""

Batches = Iterable[Batch]


@runtime_checkable
class EpochBatches(Protocol):
    """Batches that are a function of the epoch's number, so that a resumed run sees what an uninterrupted run sees."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yields the batches of an epoch from batch number `start` on."""
        ...


@runtime_checkable
class HasPlain(Protocol):
    """Training data that can be read unshuffled and without augmentation."""

    def plain(self) -> Iterable[Batch]:
        """Returns every sample once, unchanged and in its order."""
        ...


def plain_batches(batches: Batches) -> Batches:
    """Returns batches to measure on: unshuffled and without augmentation where the data offer that, else the batches themselves."""
    return batches.plain() if isinstance(batches, HasPlain) else batches


def require_reiterable(batches: object, name: str) -> None:
    """Checks that batches are no iterator: training reads its data many times, and a generator is empty after the first.

    Raises:
        TypeError: `batches` can be read only once.
    """
    if not isinstance(batches, Iterable):
        raise TypeError(f"{name}= takes an iterable of batches, got {type(batches).__name__}")
    if isinstance(batches, Iterator):
        kind = type(batches).__name__  # pyright: ignore[reportUnknownArgumentType]
        raise TypeError(
            f"{name}= is a {kind}, which is empty after one pass, and training makes many: "
            "pass a list, a DataLoader, lz.data.Resident, or an object whose __iter__ starts anew"
        )


def epoch_batches(batches: Batches, epoch: int, start: int = 0) -> Iterator[Batch]:
    """Yields the batches of an epoch from batch `start` on, the same at every call where the data allow it."""
    # A number called `epoch` is common, so that having the attribute is not enough.
    if isinstance(batches, EpochBatches) and callable(batches.epoch):
        return batches.epoch(epoch, start)
    set_epoch = getattr(batches, "set_epoch", None) or getattr(getattr(batches, "sampler", None), "set_epoch", None)
    if set_epoch is not None:
        set_epoch(epoch)
    return islice(iter(batches), start, None)


def count_batches(batches: Batches) -> int:
    """Counts the batches of an epoch, by `len` where there is one.

    Raises:
        ValueError: there is no batch.
    """
    try:
        count = len(batches)  # pyright: ignore[reportArgumentType]
    except TypeError:
        count = sum(1 for _ in batches)
    if count == 0:
        raise ValueError("there is no batch to train on: the data are empty, or smaller than one batch with drop_last=True")
    return count


def batch_size(batch: Batch) -> int:
    """Counts the samples of a batch: the first dimension of its first tensor."""
    for tensor in tensors_in(batch):
        if tensor.ndim:
            return tensor.shape[0]
    return 1


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yields the tensors of a nest of mappings and sequences, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from tensors_in(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from tensors_in(inner)


@torch.no_grad()
def mean_loss(model: nn.Module, loss_fn: LossFn, batches: Batches) -> float:
    """Computes the mean loss over all samples in eval mode (batches weighted by their size); the model's mode is put back."""
    return _over_batches(model, batches, lambda batch: (loss_fn(model, batch) * batch_size(batch), batch_size(batch)))


@torch.no_grad()
def error_rate(model: nn.Module, error_fn: ErrorFn, batches: Batches) -> float:
    """Computes the fraction of errors over all batches in eval mode; the model's mode is put back."""
    return _over_batches(model, batches, lambda batch: error_fn(model, batch))


@torch.no_grad()
def count_errors(model: nn.Module, error_fn: ErrorFn, batches: Batches) -> tuple[float, int]:
    """Counts errors and decisions over all batches in eval mode; the model's mode is put back."""
    return _sums(model, batches, lambda batch: error_fn(model, batch))


def _over_batches(model: nn.Module, batches: Batches, measure: Callable[[Batch], tuple[Tensor, int]]) -> float:
    total, count = _sums(model, batches, measure)
    return total / count if count else math.nan


def _sums(model: nn.Module, batches: Batches, measure: Callable[[Batch], tuple[Tensor, int]]) -> tuple[float, int]:
    training = model.training
    model.eval()
    total, count = 0.0, 0
    try:
        for batch in batches:
            value, number = measure(batch)
            total, count = total + float(value), count + number
    finally:
        model.train(training)
    return total, count


def classification_error(model: nn.Module, batch: Batch) -> tuple[Tensor, int]:
    """Counts wrong classes for batches of (inputs, integer labels) and a model that returns logits, class dimension last."""
    inputs, labels = batch
    logits = model(inputs)
    return (logits.argmax(-1) != labels).sum(), labels.numel()


def classification_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Computes the mean cross-entropy in nats for batches of (inputs, integer labels) and a model that returns logits."""
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)
