"""What a run is given and what it says: the task, its reports, and the lines of its history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ellzero.data import Augmentation
from ellzero.params import Selector
from ellzero.training.batches import Batch, Batches, ErrorFn, LossFn
from ellzero.training.distill import Distill
from ellzero.training.stages import Stage

OptimizerFactory = Callable[[Sequence[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One line of a run's history.

    Attributes:
        attempt: number of the try, where a target is searched for; 0 otherwise.
        stage: the stage's name.
        phase: the phase's name.
        epoch: epochs done in the run, all stages counted.
        step: optimizer steps done in the run.
        lr: learning rate at the end of the epoch.
        alpha: the penalty's strength at the end of the epoch, None where there is none.
        train_loss: mean of the training objective over the epoch, in nats, without the penalty.
        valid_loss: mean loss on the validation data in nats, None without such data.
        valid_error: fraction of errors on the validation data, None without an error function.
        nonzeros: non-zero trainable scalars of the whole network.
        live_parameters: scalars that still exist physically, after compaction.
        seconds: seconds since the run began.
    """

    attempt: int
    stage: str
    phase: str
    epoch: int
    step: int
    lr: float
    alpha: float | None
    train_loss: float
    valid_loss: float | None
    valid_error: float | None
    nonzeros: int
    live_parameters: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """What does not change over a run: the data, the losses, and how steps are made."""

    loss_fn: LossFn
    train: Batches
    valid: Batches | None
    judge: Batches
    error_fn: ErrorFn | None
    select: Selector
    optimizer: OptimizerFactory
    augment: Augmentation | None
    distill: Distill | None
    compact: bool
    seed: int


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Whom a run tells how far it is."""

    epoch: Callable[[Epoch], None]
    batch: Callable[[Stage, int, int], None]


class Stopped(KeyboardInterrupt):
    """The run was interrupted and has saved a checkpoint."""


class Pruning(NamedTuple):
    """state_dicts in the full shape around the final pruning; empty before it.

    Attributes:
        regularised: before anything was pruned.
        masked: after the mask was applied, before random gradient pruning (the left half of figure 3).
        pruned: after random gradient pruning (the right half).
    """

    regularised: dict[str, Tensor] = {}  # noqa: RUF012  # read only
    masked: dict[str, Tensor] = {}  # noqa: RUF012
    pruned: dict[str, Tensor] = {}  # noqa: RUF012


def augmented(task: Task, batch: Batch, epoch: int, number: int) -> Batch:
    """Augments a batch's inputs, seeded by its position alone, so that a resumed run draws what an uninterrupted one draws.

    Raises:
        TypeError: the batch is no tuple that begins with a tensor.
    """
    if task.augment is None:
        return batch
    if not (isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("augment= needs batches that are tuples whose first element is the input tensor")
    seed = (task.seed * 1_000_003 + epoch) * 1_000_003 + number
    draws = torch.rand(len(batch[0]), task.augment.num_draws, generator=torch.Generator().manual_seed(seed % 2**63))
    return (task.augment.apply(batch[0], draws), *batch[1:])
