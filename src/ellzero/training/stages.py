"""What a run consists of: stages, each a stretch of training with something done to the network before it.

`ellzero.training.plan` makes them of `sparsify`'s arguments; the driver only executes them.
"""

import math
from dataclasses import dataclass, field

from ellzero.methods import Method, Unregularised
from ellzero.pruning import Accept
from ellzero.quantise.grids import LogGrid
from ellzero.types import Phase


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
class Cosine:
    """A learning rate that falls from `first` to `last` along half a cosine over its stage."""

    first: float
    last: float = 0.0

    def at(self, progress: float) -> float:
        """Computes the learning rate at a stage's progress in [0, 1]."""
        return self.last + 0.5 * (self.first - self.last) * (1.0 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))


LearningRate = float | Cosine


def rate_at(lr: LearningRate, progress: float) -> float:
    """Computes a learning rate, constant or moving, at a stage's progress in [0, 1]."""
    return lr.at(progress) if isinstance(lr, Cosine) else lr


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """Ends a phase when its loss has stopped falling, noise considered (appendix G).

    The phase runs at least its planned epochs; from then on every `every` epochs the validation losses of the phase are tested.

    Attributes:
        window: number of latest epochs looked at (w of appendix G).
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
    """Prunes by truncations along a geometric sequence of counts, each followed by regularised training.

    Attributes:
        start: non-zeros kept by the first truncation.
        count: number of truncations; the last keeps the target, and the final mask is taken after its passes.
        epochs: passes after each truncation.
        lr: learning rate over all cycles; constant within each.
        regrow: what may grow again until the next truncation. None: everything that was cut. A fraction: that many weights more than are
            kept, those with the largest gradients (U. Evci and others, Rigging the lottery, 2020); 0 keeps each mask within the one
            before.
        method: what regularises during the cycles; None for the method of the run. A schedule moves over all cycles.
        restarts: a schedule of the method moves within each cycle instead, and begins anew in the next.
        power: weights are ranked by |w| * v^power, v Adam's second moment of the gradient. 0 is magnitude; 0.5 is the saliency of
            Optimal brain damage (LeCun, Denker, Solla, 1990) with v for the curvature; 0.25 lies between.
        priced: weights are ranked by what they are worth for a bit of the file: those in rows and columns with many others cost less.
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
    """Training under the final masks with a falling learning rate, the penalty kept on, then a few passes without it.

    Without the penalty the validation loss grows during this phase; the last passes only undo the shrinkage.

    Attributes:
        epochs: passes with the penalty on.
        lr: learning rate of those passes.
        method: what regularises meanwhile; None for what did before, as its schedules left it.
        finish_epochs: passes without the penalty.
        finish_lr: learning rate of those.
    """

    epochs: int = 16
    lr: LearningRate = Cosine(first=2e-3, last=2e-5)
    method: Method | None = None
    finish_epochs: int = 2
    finish_lr: LearningRate = 2e-4


@dataclass(frozen=True, kw_only=True)
class GridTraining:
    """Last passes, in which the weights that are left learn on a grid of few values; see `OnGrid`.

    Attributes:
        grid: the values.
        epochs: passes over the training data.
        lr: learning rate.
        bit_price: price of a bit of the file in units of the data loss.
        saves: the share of the file that the price is to save. For a target in bytes the mask takes so much more before; what is not saved
            after all is pruned.
    """

    grid: LogGrid = field(default_factory=LogGrid)
    epochs: int = 4
    lr: LearningRate = Cosine(first=5e-4, last=2e-5)
    bit_price: float = 0.0
    saves: float = 0.0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"GridTraining(epochs={self.epochs}): weights are moved to the grid by training, for at least 1")
        if not 0 <= self.saves < 1:
            raise ValueError(f"GridTraining(saves={self.saves}) is a share of the file: expected at least 0 and below 1")

    def before_saving(self, limit: int) -> int:
        """Computes how many bytes the mask may take for a file of `limit`."""
        return round(limit / (1 - self.saves))


@dataclass(frozen=True, kw_only=True)
class Truncate:
    """Keeps the `keep` weights with the largest score |w| * v^power, for each bit that they cost where they are `priced`."""

    keep: int
    power: float = 0.0
    priced: bool = False


@dataclass(frozen=True, kw_only=True)
class FinalPrune:
    """Random gradient pruning, a mask, random gradient pruning, fold.

    The mask keeps the largest `keep`, or what fits into a file of `limit` bytes, or what TAMADE finds where both are None.
    """

    accept: Accept
    keep: int | None = None
    power: float = 0.0
    priced: bool = False
    limit: int | None = None
    grid: LogGrid = field(default_factory=LogGrid)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stretch of training.

    Attributes:
        name: what logs call it.
        phase: the phase it belongs to.
        epochs: passes over the training data; 0 does only what comes before.
        lr: learning rate over the stage.
        method: what regularises.
        before: what is done to the network first.
        frozen: train under the mask of what is non-zero when the stage starts.
        regrow: with `frozen`, how many more weights the mask admits, as a fraction of the non-zeros.
        distilled: mix in the teacher's labels, where there is a teacher.
        compact: remove dead units and inputs physically while the stage runs.
        saturation: end by appendix G instead of after `epochs`.
        max_epochs: the end where it never saturates.
    """

    name: str
    phase: Phase
    epochs: int
    lr: LearningRate
    method: Method = field(default_factory=Unregularised)
    before: Truncate | FinalPrune | None = None
    frozen: bool = False
    regrow: float = 0.0
    distilled: bool = True
    compact: bool = True
    saturation: Saturation | None = None
    max_epochs: int = 0
