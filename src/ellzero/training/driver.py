"""Executes a plan: the one place where network, optimizer, sparsifier, data and checkpoints meet."""

import math
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.attaching.convergence import saturated
from ellzero.attaching.sparsifier import Sparsifier
from ellzero.methods import value_at
from ellzero.methods.protocol import EndsOnGrid, ForwardWeights, HasStrength
from ellzero.params import count_nonzeros, masks_from_zeros, named_parameters, select_parameters
from ellzero.training.batches import Batch, batch_size, count_batches, epoch_batches, error_rate, mean_loss
from ellzero.training.checkpoint import Checkpoint, Clock, load, save
from ellzero.training.compact import Compact
from ellzero.training.distill import labels_of, objective, soft_labels
from ellzero.training.file_size import Named, coded_bytes, reordered
from ellzero.training.final_prune import (
    cut_,
    drop_silent_,
    drop_spurious_,
    example_input,
    fold_constants_,
    grown_masks,
    require_alive,
    truncate_,
)
from ellzero.training.plan import FinalPrune, Stage, Truncate, value_of
from ellzero.training.task import Epoch, Position, Pruning, Reports, Search, Stopped, Task, augmented
from ellzero.types import At, Phase


class Driver:
    """Runs stages in order; its state is what a checkpoint holds.

    Attributes:
        task: the data, the losses, and how steps are made.
        compact: the network, and the smaller one that trains in its place.
        position: how far the run has come.
        history: the figures measured, one entry per epoch.
        pruning: the networks around the last final pruning.
        dense: state_dict of the dense network, empty before the prelude has ended.
        search: the state of a search for a target; unused where there is none.
        grids: smallest magnitude and ratio by parameter, where the weights were trained on grids.
    """

    def __init__(self, model: nn.Module, task: Task, reports: Reports, checkpoint: Checkpoint | None, fingerprint: str) -> None:
        self.task, self.reports, self.checkpoint, self.fingerprint = task, reports, checkpoint, fingerprint
        self.per_epoch = count_batches(task.train)
        self.full = model
        self.compact = Compact(model)
        self.optimizer = task.recipe.optimizer(list(model.parameters()))
        self.teacher = task.recipe.distill.teacher if task.recipe.distill else None
        self.soft_labels: Tensor | None = None
        self.position = Position()
        self.history: list[Epoch] = []
        self.loss_sum, self.loss_count = torch.zeros((), dtype=torch.float64), 0
        self.pruning = Pruning()
        self.dense: dict[str, Tensor] = {}
        self.search = Search()
        self.grids: dict[str, tuple[float, float]] | None = None
        self.sparsifier_state: dict[str, Any] | None = None
        self.clock = Clock(checkpoint.seconds if checkpoint else math.inf)
        self._interrupted = False
        if checkpoint is not None and checkpoint.resume and checkpoint.path.exists():
            self._restore(load(checkpoint.path, fingerprint))
        else:
            self.compact.example = example_input(model, task.loss_fn, task.train)

    def run(self, stages: Sequence[Stage], prefix: int = 0) -> None:
        """Runs the stages that the state says are left; their numbers begin at `prefix`, after the stages of earlier calls."""
        with self._signals():
            for index, stage in enumerate(stages, start=prefix):
                if index < self.position.stage:
                    continue
                self._stage(stage)
                self.position.begin_stage(index + 1)
                self.sparsifier_state = None
                self._save_if_due()

    def begin(self, attempt: int, weights: dict[str, Tensor]) -> None:
        """Begins a try of the search: the stages after the prelude, from the given weights."""
        self.position.attempt = attempt
        self.position.begin_stage(1)
        self.restart(weights)

    def restart(self, weights: dict[str, Tensor]) -> None:
        """Starts another try from the given weights, with a fresh optimizer."""
        self.compact = Compact(self.full)
        self.full.load_state_dict(weights)
        self.optimizer = self.task.recipe.optimizer(list(self.full.parameters()))

    def finish(self) -> nn.Module:
        """Returns the network in its full shape."""
        self.compact.expand_()
        return self.full

    @property
    def model(self) -> nn.Module:
        """The network that trains: the full one, or what compaction has left of it."""
        return self.compact.model

    def _stage(self, stage: Stage) -> None:
        position = self.position
        if not position.begun:
            self._prepare(stage)
            position.begun = True
        if self.teacher is not None and self.soft_labels is None and stage.phase is not Phase.PRELUDE:
            self.soft_labels = soft_labels(self.teacher, self.task.loss_fn, self.task.train) if self.task.recipe.augment is None else None
        epochs = max(stage.epochs, stage.max_epochs)
        if epochs == 0:
            return
        sparsifier = self._attach(stage)
        self.model.train()
        while position.epoch < epochs:
            self._epoch(stage)
            position.epoch, position.batch = position.epoch + 1, 0
            if position.epoch >= stage.epochs and self._saturated(stage):
                break
            if position.epoch < epochs and self._may_shrink(stage) and self.compact.worthwhile(sparsifier.state):
                sparsifier.detach()
                state = sparsifier.state_dict()
                self.compact.shrink_(self.optimizer, state)
                sparsifier = self._attach(stage, state)
        if stage.frozen:
            sparsifier.assert_sparse()
        sparsifier.detach()
        if isinstance(stage.method, EndsOnGrid):
            self.grids = dict(stage.method.grids(sparsifier.state))

    def _prepare(self, stage: Stage) -> None:
        """Executes what precedes the training of a stage: pruning, the teacher of a distillation, compaction."""
        self._before(stage)
        # Before compaction: `finish` would bring back the full network, whose parameters the optimizer does not hold then.
        if self.task.recipe.distill and self.teacher is None and stage.phase is not Phase.PRELUDE:
            self.teacher = deepcopy(self.finish()).eval().requires_grad_(False)
        if self._may_shrink(stage) and self.compact.worthwhile():
            self.compact.shrink_(self.optimizer, {})

    def _may_shrink(self, stage: Stage) -> bool:
        # Under forward weights a parameter does not hold what is trained.
        return self.task.recipe.compact and stage.compact and not isinstance(stage.method, ForwardWeights)

    def _before(self, stage: Stage) -> None:
        if self.position.stage == 1 and stage.method.proximal:
            drop_silent_(self.model, self.task.loss_fn, self.task.train)
        if isinstance(stage.before, Truncate):
            truncate_(select_parameters(self.model, self.task.recipe.select), stage.before, self.optimizer)
        elif isinstance(stage.before, FinalPrune):
            self.pruning = self._final_prune(stage.before)

    def _final_prune(self, rule: FinalPrune) -> Pruning:
        task, states = self.task, [self.compact.state()]
        require_alive(select_parameters(self.model, task.recipe.select))
        drop_spurious_(self.model, task.loss_fn, task.train)
        named = Named(names=select_parameters(self.full, task.recipe.select), grid=rule.grid)
        cut_(self.model, rule, self.optimizer, task, lambda: coded_bytes(reordered(self.compact.whole(), self.compact.example), named))
        states.append(self.compact.state())
        drop_spurious_(self.model, task.loss_fn, task.train)
        states.append(self.compact.state())
        require_alive(select_parameters(self.model, task.recipe.select))
        fold_constants_(self.model, self.compact.example)
        return Pruning(*states)

    def _attach(self, stage: Stage, state: dict[str, Any] | None = None) -> Sparsifier:
        sparsifier = attach(
            self.optimizer,
            self.model,
            stage.method,
            select=self.task.recipe.select,
            total_steps=max(stage.epochs * self.per_epoch, 1),
            seed=self.task.seed,
        )
        sparsifier.set_phase(stage.phase)
        state = state or self.sparsifier_state
        if state is not None:
            sparsifier.load_state_dict(state)
        elif stage.frozen:
            sparsifier.freeze(self._masks(stage), penalty=stage.phase is Phase.REGULARISE)
        self.sparsifier_state = None
        self.sparsifier = sparsifier
        return sparsifier

    def _data_loss(self, stage: Stage) -> Callable[[Batch, Tensor | None], Tensor]:
        return objective(self.model, self.task.loss_fn, self.task.recipe.distill if stage.distilled else None, self.teacher)

    def _masks(self, stage: Stage) -> dict[str, Tensor]:
        params = select_parameters(self.model, self.task.recipe.select)
        if stage.regrow == 0:
            return masks_from_zeros(params)
        data_loss = self._data_loss(stage)
        # About as many batches as the order of the gradients' sizes needs.
        batches = list(islice(epoch_batches(self.task.train, self.position.total_epochs), 40))
        labels = list(islice(labels_of(self.soft_labels, self.task.train, self.position.total_epochs, 0), len(batches)))
        self.model.train()
        return grown_masks(params, lambda number: data_loss(batches[number], labels[number]), range(len(batches)), stage.regrow)

    def _epoch(self, stage: Stage) -> None:
        data_loss, position = self._data_loss(stage), self.position
        total, epoch = max(stage.epochs * self.per_epoch, 1), position.total_epochs
        batches = epoch_batches(self.task.train, epoch, position.batch)
        for batch, labels in zip(batches, labels_of(self.soft_labels, self.task.train, epoch, position.batch)):  # noqa: B905
            for group in self.optimizer.param_groups:
                group["lr"] = value_of(stage.lr, (position.epoch * self.per_epoch + position.batch) / total)
            self.optimizer.zero_grad(set_to_none=True)
            loss = data_loss(augmented(self.task, batch, epoch, position.batch), labels)
            loss.backward()
            self.optimizer.step()
            number = batch_size(batch)
            self.loss_sum += loss.detach() * number
            self.loss_count += number
            position.batch, position.total_steps = position.batch + 1, position.total_steps + 1
            done = position.epoch * self.per_epoch + position.batch
            self.reports.batch(stage, done, max(stage.epochs, position.epoch + 1) * self.per_epoch)
            self._save_if_due()
        if position.batch == 0:
            raise ValueError("the training data gave no batch in this epoch: an iterable of batches must start anew each time it is read")
        self._log(stage)

    def _log(self, stage: Stage) -> None:
        task, position, method = self.task, self.position, stage.method
        train_loss = float(self.loss_sum) / self.loss_count
        if not math.isfinite(train_loss):
            raise ValueError(
                f"the training loss became {train_loss} in stage {stage.name!r}, epoch {position.epoch + 1}:"
                " lower the learning rate or alpha"
            )
        at = At(progress=min(1.0, (position.epoch + 1) / max(stage.epochs, 1)), phase=stage.phase)
        entry = Epoch(
            attempt=position.attempt,
            stage=stage.name,
            phase=stage.phase.value,
            epoch=self.position.total_epochs + 1,
            step=self.position.total_steps,
            lr=float(self.optimizer.param_groups[0]["lr"]),
            alpha=value_at(method.alpha, at) if isinstance(method, HasStrength) else None,
            train_loss=train_loss,
            valid_loss=None if task.valid is None else mean_loss(self.model, task.loss_fn, task.valid),
            valid_error=None if task.valid is None or task.error_fn is None else error_rate(self.model, task.error_fn, task.valid),
            nonzeros=count_nonzeros(self.model),
            live_parameters=sum(parameter.numel() for _, parameter in named_parameters(self.model).values()),
            seconds=round(self.clock.seconds(), 3),
        )
        self.loss_sum, self.loss_count = torch.zeros((), dtype=torch.float64), 0
        self.position.total_epochs += 1
        self.history.append(entry)
        self.reports.epoch(entry)

    def _saturated(self, stage: Stage) -> bool:
        rule = stage.saturation
        if rule is None:
            return True
        if self.position.epoch % rule.every:
            return False
        losses = [entry.train_loss if entry.valid_loss is None else entry.valid_loss for entry in self.history[-self.position.epoch :]]
        return saturated(losses, rule.window)

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        """Lets the current step finish after Ctrl-C or SIGTERM: an optimizer stopped half-way could not be saved."""
        if self.checkpoint is None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def remember(number: int, frame: object) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True

        previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _save_if_due(self) -> None:
        if self.checkpoint is None:
            return
        if self._interrupted or self.clock.due():
            save(self.checkpoint.path, self._state())
            self.clock.mark()
        if self._interrupted:
            raise Stopped(f"interrupted; the checkpoint is {self.checkpoint.path}")

    def _state(self) -> dict[str, Any]:
        own_teacher = self.teacher is not None and self.task.recipe.distill and not self.task.recipe.distill.teacher
        return {
            "fingerprint": self.fingerprint,
            "compact": self.compact.checkpoint(),
            "optimizer": self.optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict() if self.position.begun else None,
            "teacher": self.teacher.state_dict() if self.teacher is not None and own_teacher else None,
            "history": [asdict(entry) for entry in self.history],
            "position": asdict(self.position),
            "loss": (self.loss_sum, self.loss_count),
            "pruning": list(self.pruning),
            "dense": self.dense,
            "search": self.search.state(),
            "grids": self.grids,
            "random": torch.get_rng_state(),
            "seconds": self.clock.seconds(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.compact.restore_(state["compact"])
        self.optimizer = self.task.recipe.optimizer(list(self.model.parameters()))
        self.optimizer.load_state_dict(state["optimizer"])
        self.sparsifier_state = state["sparsifier"]
        if state["teacher"] is not None:
            self.teacher = deepcopy(self.full).eval().requires_grad_(False)
            self.teacher.load_state_dict(state["teacher"])
        self.history = [Epoch(**entry) for entry in state["history"]]
        self.position = Position(**state["position"])
        self.loss_sum, self.loss_count = state["loss"]
        self.pruning = Pruning(*state["pruning"])
        self.dense, self.search, self.grids = state["dense"], Search.restored(state["search"]), state["grids"]
        # Models draw dropout from the global generator, so an exact resume has to put it back.
        torch.set_rng_state(state["random"])
        self.clock = Clock(self.clock.interval, state["seconds"])
