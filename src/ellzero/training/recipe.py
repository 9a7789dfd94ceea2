"""What a run consists of, as one value: `Recipe`, and the parts that it is made of.

A recipe holds no data, no network and no seed. `ellzero.training.plan` turns it into stages, which the driver executes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ellzero.data import Augmentation
from ellzero.methods import Cosine, Hyperparameter, Method
from ellzero.params import Selector, weights
from ellzero.pruning import Accept, PruningRule, Within
from ellzero.quantise.grids import LogGrid
from ellzero.records import settings_of
from ellzero.training.batches import ErrorFn
from ellzero.training.distill import Distill

LearningRate = Hyperparameter
"""A number, or a schedule over the stage that it belongs to, such as `lz.Cosine(first=1e-3)`."""

OptimizerFactory = Callable[[Sequence[Tensor]], torch.optim.Optimizer]
"""Parameters -> optimizer; its learning rate is set from the recipe."""


def adam(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Creates the optimizer of all the paper's experiments: Adam with PyTorch's defaults, fused."""
    return torch.optim.Adam(params, fused=True)


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """Passes over the training data in each phase (section 2.2.2: alpha = 0, alpha != 0, fine-tuning under masks)."""

    prelude: int = 10
    regularise: int = 20
    fine_tune: int = 10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0:
                raise ValueError(f"Epochs({name}={value}) must not be negative")


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """Ends a phase when its loss has stopped falling, noise considered (appendix G).

    The phase runs at least its planned epochs; from then on the validation losses of the phase are tested every `every` epochs.

    Attributes:
        window: number of latest epochs that are tested (w of appendix G).
        every: epochs between two tests (k of appendix G).
        max_regularise: epochs after which regularised training ends all the same.
        max_fine_tune: epochs after which fine-tuning ends all the same.
    """

    window: int = 30
    every: int = 10
    max_regularise: int = 5000
    max_fine_tune: int = 1000

    def __post_init__(self) -> None:
        if self.window < 6 or self.window % 2:
            raise ValueError(f"Saturation(window={self.window}): expected an even number of epochs, at least 6")
        if self.every < 1:
            raise ValueError(f"Saturation(every={self.every}): expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Warm:
    """A first regularised stretch with another method, R-L1 as a rule: it clears away most weights before DRR chooses."""

    method: Method
    epochs: int = 8
    lr: LearningRate = 2e-3


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """Prunes by truncations along a geometric sequence of counts; regularised training follows every truncation.

    Attributes:
        start: non-zeros kept by the first truncation.
        count: number of truncations; the last keeps the target, and the final mask is taken after its passes.
        epochs: passes after each truncation.
        lr: learning rate over all cycles; constant within a cycle.
        regrow: what may grow again until the next truncation. None: everything that was cut. A fraction of the weights kept: so many
            more may grow, those with the largest gradients (U. Evci and others, Rigging the lottery, 2020); with 0 every mask is a
            subset of the previous mask.
        method: what regularises during the cycles; None for the method of the run. A schedule moves over all cycles.
        restarts: whether a schedule of the method moves within every cycle instead, and begins anew in the next.
        power: weights are ranked by |w| * v^power, v Adam's second moment of the gradient. 0 is magnitude; 0.5 is the saliency of
            Optimal brain damage (LeCun, Denker, Solla, 1990) with v for the curvature; 0.25 lies between.
        priced: whether weights are ranked by what they are worth per bit of the file: weights in rows and columns with many others cost
            less.
    """

    start: int = 7000
    count: int = 10
    epochs: int = 2
    lr: LearningRate = 2e-3
    regrow: float | None = None
    method: Method | None = None
    power: float = 0.0
    priced: bool = False
    restarts: bool = False

    def __post_init__(self) -> None:
        if self.start < 1 or self.count < 1 or self.epochs < 0:
            raise ValueError(f"Cycles(start={self.start}, count={self.count}, epochs={self.epochs}): expected at least 1, 1 and 0")
        if self.regrow is not None and self.regrow < 0:
            raise ValueError(f"Cycles(regrow={self.regrow}) is a fraction of the weights kept: expected at least 0, or None for all")

    def counts(self, target: int) -> list[int]:
        """Lists the non-zeros kept, falling geometrically from `start` to `target`."""
        start = max(self.start, target)
        if self.count < 2:
            return [target]
        ratio = target / start
        return [round(start * ratio ** (i / (self.count - 1))) for i in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class Anneal:
    """Training under the final masks with a falling learning rate and the penalty on, then a few passes without it.

    Without the penalty the validation loss grows during this phase; the last passes only undo the shrinkage.

    Attributes:
        epochs: passes with the penalty on.
        lr: learning rate of those passes.
        method: what regularises in these passes; None for the previous stage's method, as its schedules left it.
        finish_epochs: passes without the penalty.
        finish_lr: learning rate of the passes without the penalty.
    """

    epochs: int = 16
    lr: LearningRate = Cosine(first=2e-3, last=2e-5)  # noqa: RUF009  # frozen
    method: Method | None = None
    finish_epochs: int = 2
    finish_lr: LearningRate = 2e-4


@dataclass(frozen=True, kw_only=True)
class GridTraining:
    """The last passes, in which the survivors are trained on a grid of few values; see `OnGrid`.

    Attributes:
        grid: the values.
        epochs: passes over the training data.
        lr: learning rate.
        bit_price: price of a bit of the file, in units of the data loss.
        saves: the share of the file that the price is expected to save. For a target in bytes the mask may take so much more before; what
            the price does not save is pruned.
    """

    grid: LogGrid = field(default_factory=LogGrid)
    epochs: int = 4
    lr: LearningRate = Cosine(first=5e-4, last=2e-5)  # noqa: RUF009  # frozen
    bit_price: float = 0.0
    saves: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"GridTraining(epochs={self.epochs}): weights are moved to the grid by training, for at least 1")
        if not 0 <= self.saves < 1:
            raise ValueError(f"GridTraining(saves={self.saves}) is a share of the file: expected at least 0 and below 1")

    def before_saving(self, limit: int) -> int:
        """Computes how many bytes the mask may take for a file of `limit` bytes."""
        return round(limit / (1 - self.saves))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a run beside network, data, losses, method, target and seed; the defaults are a short run with R-L1's phases.

    The command line's presets, the records of runs and the experiments use the same object.

    Attributes:
        select: the rule for what is regularised and pruned; `lz.everything` is the paper's setting.
        optimizer: parameters -> optimizer.
        epochs: passes over the training data in each phase.
        prelude_lr: learning rate of the dense phase.
        lr: learning rate of the regularised phase.
        fine_tune_lr: learning rate of fine-tuning.
        warm: a first regularised stretch with another method.
        cycles: truncations along a geometric sequence, with or without regrowth; needs a target that gives a number.
        anneal: how to train under the final masks; plain fine-tuning without the penalty where None.
        saturation: ends phases by appendix G instead of by the number of epochs.
        grid_training: last passes with the weights on a grid; `GridTraining()` where None and the target is `lz.Bytes`.
        accept: what TAMADE tolerates where no number of non-zeros is asked for.
        accept_on_train: whether TAMADE measures on the training data, without augmentation where they offer that, instead of `valid`.
        rule: what chooses the final masks instead of magnitude and TAMADE.
        augment: changes a batch's inputs.
        distill: soft labels of the dense network, or of another teacher.
        compact: remove dead units and inputs physically while training, which is faster and changes no function.
        error_fn: (model, batch) -> (errors, decisions) for the history; None leaves errors out, unless the target measures them.
    """

    select: Selector = weights
    optimizer: OptimizerFactory = adam
    epochs: Epochs = Epochs()  # frozen
    prelude_lr: LearningRate = 1e-3
    lr: LearningRate = 1e-3
    fine_tune_lr: LearningRate = 1e-3
    warm: Warm | None = None
    cycles: Cycles | None = None
    anneal: Anneal | None = None
    saturation: Saturation | None = None
    grid_training: GridTraining | None = None
    accept: Accept = Within(relative=0.01)  # noqa: RUF009  # frozen
    accept_on_train: bool = False
    rule: PruningRule | None = None
    augment: Augmentation | None = None
    distill: Distill | None = None
    compact: bool = True
    error_fn: ErrorFn | None = None

    def settings(self) -> dict[str, Any]:
        """Lists the recipe as plain JSON for a record: parts by their fields, callables and classes as `module:name`."""
        return settings_of(self)
