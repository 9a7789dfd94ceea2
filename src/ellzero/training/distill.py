"""Distillation: the dense network's soft labels, mixed with the hard labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.training.batches import Batch, Batches, LossFn
from ellzero.types import Scalar


@dataclass(frozen=True, kw_only=True)
class Distill:
    """Mixes soft labels into the loss (G. Hinton, O. Vinyals, J. Dean, Distilling the knowledge in a neural network, 2015).

    Attributes:
        weight: share of the soft loss, in [0, 1]; the hard loss has the rest.
        temperature: softens both distributions; the soft loss is scaled by its square so that gradients keep their size.
        teacher: the network that gives the soft labels; None takes the dense network at the end of the prelude.
    """

    weight: float = 0.7
    temperature: float = 2.0
    teacher: nn.Module | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight <= 1.0:
            raise ValueError(f"Distill(weight={self.weight}) must lie in [0, 1]: it is the share of the soft labels")
        if not self.temperature > 0.0:
            raise ValueError(f"Distill(temperature={self.temperature}) must be positive")


def soft_loss(logits: Float[Tensor, "*batch classes"], teacher: Float[Tensor, "*batch classes"], temperature: float) -> Scalar:
    """Computes T^2 * KL(teacher || student) at temperature T, in nats, mean over the batch."""
    student = torch.log_softmax(logits / temperature, -1).flatten(0, -2)
    target = torch.log_softmax(teacher / temperature, -1).flatten(0, -2)
    return nn.functional.kl_div(student, target, reduction="batchmean", log_target=True) * temperature**2


class Recorder(nn.Module):
    """Passes calls through to a model and keeps the last call's arguments and output.

    A user's `loss_fn(model, batch)` may call its model in any way; through the recorder the driver sees the same logits without a second
    forward pass, and can call the teacher with the same arguments.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.output: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model."""
        self.arguments = (args, kwargs)
        self.output = self.model(*args, **kwargs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)


def logits_of(output: Any) -> Tensor:
    """Returns the logits of a model's output: the output itself, its `.logits`, or its first element.

    Raises:
        TypeError: the output holds no tensor in any of those places.
    """
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, dict):
        logits = output.get("logits")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if logits is None and isinstance(output, tuple | list) and output:
        logits = output[0]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"distillation needs logits, and the model returned {type(output).__name__}: return a tensor or an object with .logits"
        )
    return logits


@runtime_checkable
class Numbered(Protocol):
    """Training data whose samples, augmented copies included, are finite and numbered (`lz.data.Resident` with `copies=`)."""

    @property
    def num_keys(self) -> int:
        """The number of different samples; 0 where it is not finite."""
        ...

    def keys(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """Yields, for every batch, the numbers of its samples."""
        ...

    def samples(self) -> Iterator[Batch]:
        """Yields batches of all samples in the order of their numbers."""
        ...


@torch.no_grad()
def soft_labels(teacher: nn.Module, loss_fn: LossFn, train: Batches) -> Tensor | None:
    """Computes the teacher's logits of every sample once, where their number is finite and the logits take at most a gigabyte.

    Returns:
        The logits by sample number, or None: then the teacher runs at every step, which costs a forward pass of the dense network.
    """
    if not isinstance(train, Numbered) or not train.num_keys:
        return None
    recorder, labels, sample_bytes = Recorder(teacher), [], 0
    for batch in train.samples():
        loss_fn(recorder, batch)
        logits = logits_of(recorder.output)
        sample_bytes = sample_bytes or logits[0].numel() * logits.element_size()
        if sample_bytes * train.num_keys > 2**30:
            return None
        labels.append(logits)
    return torch.cat(labels)


def labels_of(soft: Tensor | None, train: Batches, epoch: int, start: int) -> Iterator[Tensor | None]:
    """Yields the soft labels of an epoch's batches, or None without end where there are none."""
    if soft is None or not isinstance(train, Numbered):
        return repeat(None)
    return (soft.index_select(0, keys) for keys in train.keys(epoch, start))


def objective(
    model: nn.Module, loss_fn: LossFn, distill: Distill | None, teacher: nn.Module | None
) -> Callable[[Batch, Tensor | None], Tensor]:
    """Builds the data loss of training, a function of a batch and the teacher's logits: `loss_fn` alone, or mixed with soft labels.

    Where no logits are given the teacher computes them.
    """
    if distill is None or teacher is None or distill.weight == 0.0:
        return lambda batch, labels: loss_fn(model, batch)
    recorder = Recorder(model)

    def mixed(batch: Batch, labels: Tensor | None) -> Tensor:
        hard = loss_fn(recorder, batch)
        if recorder.output is None:
            raise ValueError("loss_fn(model, batch) did not call the model, so there is nothing to distil: call model(...) inside it")
        if labels is None:
            args, kwargs = recorder.arguments
            with torch.no_grad():
                labels = logits_of(teacher(*args, **kwargs))
        soft = soft_loss(logits_of(recorder.output), labels, distill.temperature)
        recorder.arguments, recorder.output = ((), {}), None  # no graph outlives its step
        return (1.0 - distill.weight) * hard + distill.weight * soft

    return mixed
