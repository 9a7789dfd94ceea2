"""The three phases of a run in a loop that somebody else writes: what the callbacks of all frameworks have in common."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ellzero.attaching.sparsifier import Sparsifier
from ellzero.types import Masks, Phase


@dataclass(frozen=True, kw_only=True)
class Phases:
    """When the phases of a run begin, as shares of its optimizer steps: dense, then regularised, then under masks (section 2.2).

    Attributes:
        masks: finds the masks when the regularised phase ends: model -> name -> tensor, True where a weight is kept;
            `lambda model: lz.magnitude_masks(model, keep=20_000)`, or a search by `lz.tamade`.
        regularise: share of the steps after which the penalty begins.
        freeze: share of the steps after which masks are in force.
        penalty: whether the survivors are regularised further under the masks.
    """

    masks: Callable[[nn.Module], Masks]
    regularise: float = 0.0
    freeze: float = 0.7
    penalty: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.regularise < self.freeze <= 1:
            raise ValueError(
                f"Phases(regularise={self.regularise}, freeze={self.freeze}): expected shares of the steps, 0 <= regularise < freeze <= 1"
            )


class Conductor:
    """Moves a sparsifier from phase to phase.

    Args:
        sparsifier: that `attach` has returned; one that is restored from a checkpoint goes on where it was.
        phases: when the phases begin.
        total_steps: optimizer steps of the run.
    """

    def __init__(self, sparsifier: Sparsifier, phases: Phases, total_steps: int) -> None:
        self.sparsifier, self._masks, self._penalty = sparsifier, phases.masks, phases.penalty
        self._regularise_at = round(phases.regularise * total_steps)
        # At least one step is regularised, and at least one is done under the masks.
        self._freeze_at = min(max(round(phases.freeze * total_steps), self._regularise_at + 1), max(total_steps - 1, 1))
        if sparsifier.step == 0 and self._regularise_at > 0:
            sparsifier.set_phase(Phase.PRELUDE)

    @property
    def frozen(self) -> bool:
        """Whether masks are in force."""
        return self.sparsifier.masks is not None

    def stepped(self, model: nn.Module) -> bool:
        """Enters the phase that is due after an optimizer step.

        Args:
            model: the model, in the mode in which masks are to be found.

        Returns:
            Whether masks have come into force just now.
        """
        sparsifier = self.sparsifier
        if not self.frozen and sparsifier.step >= self._freeze_at:
            with sparsifier.dense():
                masks = self._masks(model)
            sparsifier.freeze(masks, penalty=self._penalty)
            return True
        if sparsifier.phase is Phase.PRELUDE and sparsifier.step >= self._regularise_at:
            sparsifier.set_phase(Phase.REGULARISE)
        return False

    def require_frozen(self) -> None:
        """Checks at the end of a run that its network is sparse.

        Raises:
            RuntimeError: the run ended before masks were in force.
            AssertionError: pruned weights are not 0.
        """
        if not self.frozen:
            raise RuntimeError(
                f"the run ended after {self.sparsifier.step} optimizer steps, before masks were in force (step {self._freeze_at}): its"
                " network is dense. Train on from its last checkpoint, or freeze earlier (Phases(freeze=...))"
            )
        self.sparsifier.assert_sparse()


def scalars(sparsifier: Sparsifier) -> dict[str, float]:
    """Lists what a logger shows of a sparsifier.

    Returns:
        The penalty, the share of regularised scalars that are not 0, and the gradient norms of penalty and data at the last check, by
        names that begin with `ellzero/`.
    """
    total = sum(parameter.numel() for parameter in sparsifier.params.values())
    nonzeros = sum(int(parameter.detach().count_nonzero()) for parameter in sparsifier.params.values())
    values = {"penalty": sparsifier.penalty(), "nonzeros": float(nonzeros), "density": nonzeros / max(total, 1)}
    if sparsifier.last is not None:
        values |= {"gradient_norm_penalty": float(sparsifier.last.penalty), "gradient_norm_data": float(sparsifier.last.data)}
    return {f"ellzero/{name}": value for name, value in values.items() if math.isfinite(value)}
