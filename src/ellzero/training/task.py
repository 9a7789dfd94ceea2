"""What a run is given and what it reports: the task, the callbacks, the state of its search, and the entries of its history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ellzero.training.batches import Batch, Batches, ErrorFn, LossFn
from ellzero.training.plan import Stage
from ellzero.training.recipe import Recipe
from ellzero.training.search import Try


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One entry of a run's history.

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
    """The inputs of a run, which do not change while it goes on.

    Attributes:
        loss_fn: (model, batch) -> mean loss in nats.
        train: training batches.
        valid: held-out batches, or None.
        accept_on: the batches on which TAMADE measures.
        error_fn: (model, batch) -> (errors, decisions), or None where errors are not counted.
        recipe: how the network is trained.
        seed: seeds augmentation and what methods draw.
    """

    loss_fn: LossFn
    train: Batches
    valid: Batches | None
    accept_on: Batches
    error_fn: ErrorFn | None
    recipe: Recipe
    seed: int


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The callbacks of a run: at the end of an epoch and of a batch."""

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


@dataclass(kw_only=True)
class Position:
    """How far a run has come.

    Attributes:
        attempt: number of the try, where a target is searched for; 0 otherwise.
        stage: index of the stage, the prelude being 0.
        epoch: epochs done in the stage.
        batch: batches done in the epoch.
        begun: whether what precedes the stage's training has been done.
        total_epochs: epochs done in the run.
        total_steps: optimizer steps done in the run.
    """

    attempt: int = 0
    stage: int = 0
    epoch: int = 0
    batch: int = 0
    begun: bool = False
    total_epochs: int = 0
    total_steps: int = 0

    def begin_stage(self, stage: int) -> None:
        """Moves to the beginning of a stage."""
        self.stage, self.epoch, self.batch, self.begun = stage, 0, 0, False


@dataclass(kw_only=True)
class Search:
    """The state of a search for a target.

    Attributes:
        dense_error: validation error of the dense network, as a fraction; None before it is measured.
        tries: the tries made so far.
        start: weights from which the next try starts.
        start_alpha: alpha of the try that they come from; None for the dense network.
        best: weights of the best try.
        best_pruning: the networks around its final pruning.
    """

    dense_error: float | None = None
    tries: list[Try] = field(default_factory=list[Try])
    start: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    start_alpha: float | None = None
    best: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    best_pruning: Pruning = Pruning()  # noqa: RUF009  # a tuple

    def state(self) -> dict[str, Any]:
        """Returns plain values and tensors, for a checkpoint."""
        return {**vars(self), "tries": [vars(attempt) for attempt in self.tries], "best_pruning": list(self.best_pruning)}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "Search":
        """Makes a search from what `state` returned."""
        values = dict(state)
        values["tries"] = [Try(**attempt) for attempt in state["tries"]]
        values["best_pruning"] = Pruning(*state["best_pruning"])
        return cls(**values)


def augmented(task: Task, batch: Batch, epoch: int, number: int) -> Batch:
    """Augments a batch's inputs, seeded by its position alone, so that a resumed run draws what an uninterrupted run draws.

    Raises:
        TypeError: the batch is not a tuple that begins with a tensor.
    """
    augment = task.recipe.augment
    if augment is None:
        return batch
    if not (isinstance(batch, tuple | list) and batch and isinstance(batch[0], Tensor)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("augment= needs batches that are tuples whose first element is the input tensor")
    seed = (task.seed * 1_000_003 + epoch) * 1_000_003 + number
    draws = torch.rand(len(batch[0]), augment.num_draws, generator=torch.Generator().manual_seed(seed % 2**63))
    return (augment.apply(batch[0], draws), *batch[1:])
