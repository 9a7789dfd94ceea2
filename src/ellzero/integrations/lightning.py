"""The callback for Lightning's trainer: `lightning.Trainer(callbacks=[LightningSparsifier(...)])`."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ellzero.attaching._attach import attach
from ellzero.attaching.sparsifier import Sparsifier
from ellzero.distributed import known_name
from ellzero.integrations.phases import Conductor, Phases, scalars
from ellzero.methods.protocol import Method
from ellzero.params import Selector, weights

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint
except ImportError as error:
    raise ImportError(f"{error}: ellzero.integrations.lightning needs Lightning, `pip install 'ellzero[lightning]'`") from error


class LightningSparsifier(Callback):
    """Regularises, prunes and fine-tunes in Lightning's loop.

    The penalty goes into every optimizer step, after Lightning's gradient clipping, with automatic and manual optimisation and with
    gradient accumulation; the weights are those of a plain loop, bit for bit. Checkpoints carry the state, so that a run resumed from
    the end of an epoch ends with the same bits.

    A dense network has less loss than a sparse one, so what looks for the best network would return a dense one: until masks are in
    force `EarlyStopping` waits, and what `ModelCheckpoint` has found best until then is forgotten. Averages of weights
    (`StochasticWeightAveraging`, `WeightAveraging`) are masked in the model that the run ends with and in its checkpoints.

    Args:
        method: the penalty, such as `lz.DRR(alpha=1e-5)`.
        phases: when the phases begin, and how masks are found.
        select: the rule for what is regularised.
        total_steps: optimizer steps of the run; by default what Lightning estimates.
        seed: seeds what methods draw.
        log: whether the penalty and the number of non-zeros are logged, every `log_every_n_steps` of the trainer.

    Attributes:
        sparsifier: the handle that `attach` returned; None before the run begins.

    Raises:
        ValueError: when the run begins: Lightning knows no number of steps and none was given; and what `attach` raises.
        RuntimeError: when it ends: masks were never in force.
    """

    def __init__(
        self,
        method: Method,
        phases: Phases,
        *,
        select: Selector = weights,
        total_steps: int | None = None,
        seed: int = 0,
        log: bool = True,
    ) -> None:
        self.method, self.phases = method, phases
        self.sparsifier: Sparsifier | None = None
        self._select, self._total_steps, self._seed, self._log = select, total_steps, seed, log
        self._conductor: Conductor | None = None
        self._restored: Mapping[str, Any] | None = None
        self._thresholds: dict[EarlyStopping, float | None] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Goes behind the other callbacks, but for those that write checkpoints: an average of weights is to be there to be masked."""
        callbacks: list[Callback] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]  # set by the trainer's connector
        others = [callback for callback in callbacks if callback is not self]
        writers = [callback for callback in others if isinstance(callback, Checkpoint)]
        trainer.callbacks = [*(callback for callback in others if callback not in writers), self, *writers]  # pyright: ignore[reportAttributeAccessIssue]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attaches to the optimizers of the run."""
        steps = self._total_steps or trainer.estimated_stepping_batches
        if not math.isfinite(steps) or steps < 1:
            raise ValueError("Lightning knows no number of steps for this run: set max_steps or max_epochs, or pass total_steps=")
        self.sparsifier = attach(trainer.optimizers, pl_module, self.method, select=self._select, total_steps=int(steps), seed=self._seed)
        if self._restored is not None:
            self.sparsifier.load_state_dict(self._restored)
        self._conductor = Conductor(self.sparsifier, self.phases, int(steps))
        if not self._conductor.frozen:
            for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]  # set by the trainer's connector
                if isinstance(callback, EarlyStopping):
                    self._thresholds[callback] = callback.stopping_threshold
                    callback.stopping_threshold = None
            self._forget_losses()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Enters the phase that is due."""
        assert self.sparsifier is not None
        assert self._conductor is not None
        if self._conductor.stepped(pl_module):
            self._forget(trainer)
        if self._log and trainer.global_step % trainer.log_every_n_steps == 0:  # pyright: ignore[reportAttributeAccessIssue]
            for logger in trainer.loggers:
                logger.log_metrics(scalars(self.sparsifier), step=trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keeps `EarlyStopping`, which has just looked, from counting what a dense network loses."""
        self._forget_losses()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Does so where it looks at the end of an epoch."""
        self._forget_losses()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Masks what a checkpoint holds in place of the model's own weights, such as an average."""
        masks = None if self.sparsifier is None else self.sparsifier.masks
        for key in ("state_dict", "current_model_state"):
            if masks and key in checkpoint:
                checkpoint[key] = _masked(checkpoint[key], masks)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Masks the model that the run ends with, which another callback may have replaced by an average, and checks it."""
        if self.sparsifier is None or self._conductor is None:
            return
        try:
            if self._conductor.frozen:
                self.sparsifier.apply_masks_(pl_module)
            if not trainer.interrupted and not trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
                self._conductor.require_frozen()
        finally:
            self.sparsifier.detach()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leaves the other callbacks as they were, also after an error."""
        self._give_back()

    def state_dict(self) -> dict[str, Any]:
        """Returns the sparsifier's state, for a checkpoint."""
        return {} if self.sparsifier is None else {"sparsifier": self.sparsifier.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` returned; the run that begins next goes on from it."""
        self._restored = state_dict.get("sparsifier")

    def _forget_losses(self) -> None:
        """Lets `EarlyStopping` begin anew, while masks are not in force."""
        for callback in self._thresholds:
            callback.wait_count = 0
            callback.best_score = callback.best_score.new_tensor(math.inf if callback.monitor_op.__name__ == "lt" else -math.inf)

    def _forget(self, trainer: Trainer) -> None:
        """Lets the search for the best network begin anew, among sparse ones."""
        self._forget_losses()
        self._give_back()
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.best_model_score, callback.best_model_path = None, ""
                callback.best_k_models, callback.kth_best_model_path = {}, ""
                callback.current_score = None
                callback.kth_value = torch.tensor(math.inf if callback.mode == "min" else -math.inf)

    def _give_back(self) -> None:
        """Gives `EarlyStopping` its thresholds back."""
        for callback, threshold in self._thresholds.items():
            callback.stopping_threshold = threshold
        self._thresholds.clear()


def _masked(state: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a state_dict whose pruned weights are 0; tensors without a mask are the same objects."""
    masked = dict(state)
    for name in state:
        own = known_name(name, masks)
        if own in masks and state[name].shape == masks[own].shape:
            masked[name] = state[name].masked_fill(~masks[own].to(state[name].device), 0)
    return masked
