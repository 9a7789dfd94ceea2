"""No penalty: the baseline, and the phases in which only masks are in force."""

from dataclasses import dataclass

import torch
from torch import nn

from ellzero.methods.protocol import Laws, no_after_step_, no_gradient_, no_masks_, no_state
from ellzero.types import At, Params, Scalar


@dataclass(frozen=True, kw_only=True)
class Unregularised:
    """Adds nothing to the data loss."""

    @property
    def laws(self) -> Laws:
        """The laws that the penalty obeys: all of them, being 0."""
        return Laws()

    @property
    def proximal(self) -> bool:
        """Whether the penalty acts after the step: there is none."""
        return False

    @property
    def silent(self) -> bool:
        """Whether there is no penalty by intention: always."""
        return True

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        """Returns 0, connected to the parameters so that it can be differentiated like any other penalty."""
        return torch.stack([(parameter * 0.0).sum() for parameter in params.values()]).sum()

    init = no_state
    add_gradient_ = no_gradient_
    after_step_ = no_after_step_
    masks_ = no_masks_
