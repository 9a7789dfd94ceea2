"""The callback for the trainer of transformers: `transformers.Trainer(callbacks=[TrainerSparsifier(...)])`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ellzero.attaching._attach import attach
from ellzero.attaching.sparsifier import Sparsifier
from ellzero.files.whole import replacing
from ellzero.integrations.phases import Conductor, Phases, scalars
from ellzero.methods.protocol import Method
from ellzero.params import Selector, weights

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError(f"{error}: ellzero.integrations.transformers needs transformers, `pip install 'ellzero[transformers]'`") from error

STATE = "sparsifier.pt"
"""The file of the sparsifier's state in a checkpoint's folder."""


class TrainerSparsifier(TrainerCallback):
    """Regularises, prunes and fine-tunes in the loop of `transformers.Trainer`.

    The penalty goes into every optimizer step, after gradient clipping; the weights are those of a plain loop, bit for bit. Alpha is in
    units of the loss that is differentiated: a trainer that divides by the number of labels of all accumulated batches
    (`num_items_in_batch`) has a mean per label, in nats, and so has alpha. Checkpoints get a file `sparsifier.pt`, from which a run that
    is resumed goes on.

    A dense network has less loss than a sparse one, so what looks for the best network would return a dense one: until masks are in
    force no best metric is kept, for `load_best_model_at_end` and for early stopping.

    Args:
        method: the penalty, such as `lz.DRR(alpha=1e-5)`.
        phases: when the phases begin, and how masks are found.
        select: the rule for what is regularised.
        seed: seeds what methods draw.

    Attributes:
        sparsifier: the handle that `attach` returned; None before the run begins.

    Raises:
        ValueError: when the run begins: what `attach` raises.
        RuntimeError: when it ends: masks were never in force.
    """

    def __init__(self, method: Method, phases: Phases, *, select: Selector = weights, seed: int = 0) -> None:
        self.method, self.phases = method, phases
        self.sparsifier: Sparsifier | None = None
        self._select, self._seed = select, seed
        self._conductor: Conductor | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Attaches to the optimizer of the run, and goes on from a checkpoint where the trainer does."""
        model: nn.Module = given["model"]
        self.sparsifier = attach(given["optimizer"], model, self.method, select=self._select, total_steps=state.max_steps, seed=self._seed)
        if state.global_step > 0:
            path = _checkpoint(args, state) / STATE
            if not path.exists():
                raise ValueError(f"{path} is missing: the checkpoint was written without this callback, and the masks are not known")
            self.sparsifier.load_state_dict(torch.load(path, weights_only=True))
        self._conductor = Conductor(self.sparsifier, self.phases, state.max_steps)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Enters the phase that is due."""
        assert self._conductor is not None
        if self._conductor.stepped(given["model"]) or not self._conductor.frozen:
            _forget(state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Keeps dense networks from being the best."""
        if self._conductor is not None and not self._conductor.frozen:
            _forget(state)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Adds the penalty and the number of non-zeros to what is logged."""
        if self.sparsifier is not None and "loss" in (logs := given.get("logs") or {}):
            logs.update(scalars(self.sparsifier))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Writes the sparsifier's state beside the checkpoint's other files."""
        folder = _checkpoint(args, state)
        if self.sparsifier is not None and state.is_world_process_zero and folder.is_dir():
            with replacing(folder / STATE) as file:
                torch.save(self.sparsifier.state_dict(), file)
        if self._conductor is not None and not self._conductor.frozen:
            _forget(state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Checks the network that the run ends with."""
        assert self.sparsifier is not None
        assert self._conductor is not None
        try:
            self._conductor.require_frozen()
        finally:
            self.sparsifier.detach()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    given = args.resume_from_checkpoint
    if given is not None and Path(given).is_dir() and Path(given).name.endswith(f"-{state.global_step}"):
        return Path(given)
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def _forget(state: TrainerState) -> None:
    state.best_metric = state.best_model_checkpoint = state.best_global_step = None
