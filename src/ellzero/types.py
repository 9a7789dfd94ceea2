"""Names for the shapes and mappings that every part of ellzero passes around.

Only the torch half imports this module; the file half knows nothing of it.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["At", "Mask", "Masks", "Params", "Phase", "Scalar"]

Params = Mapping[str, Tensor]
"""Canonical name -> parameter, each tensor once (ties are counted once)."""

Masks = Mapping[str, Tensor]
"""Canonical name -> boolean tensor of the parameter's shape, True where the weight is kept."""

Scalar = Float[Tensor, ""]
Mask = Bool[Tensor, "..."]


class Phase(enum.Enum):
    """The phases of training, in their order (section 2.2.2 of the paper)."""

    PRELUDE = "prelude"
    REGULARISE = "regularise"
    FINE_TUNE = "fine_tune"


@dataclass(frozen=True, kw_only=True)
class At:
    """Where training stands, as a method's formulas see it.

    Attributes:
        progress: fraction of the planned optimizer steps done, in [0, 1]; 0 where no total is known.
        step: optimizer steps done so far.
        phase: the phase of training.
    """

    progress: float = 0.0
    step: int = 0
    phase: Phase = Phase.REGULARISE
