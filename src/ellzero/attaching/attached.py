"""What the sparsifier keeps for each optimizer that it is attached to."""

from dataclasses import dataclass, field

import torch

from ellzero.attaching.flat import FlatProximal
from ellzero.attaching.inertia import Watch
from ellzero.types import Params


@dataclass(kw_only=True)
class Attached:
    """One optimizer, and what it owns.

    Attributes:
        optimizer: whose steps are hooked.
        params: the regularised parameters it owns, by canonical name.
        trainable: all parameters of the model that it owns: masks may name any of them.
        watch: notices a penalty without effect.
        step: steps it has done, skipped ones not counted.
        flat: does the proximal step on all parameters at once, where they are few enough.
    """

    optimizer: torch.optim.Optimizer
    params: Params
    trainable: Params
    watch: Watch
    step: int = 0
    flat: FlatProximal = field(default_factory=FlatProximal)
