"""What becomes zero: plain functions from weights, and where they ask for them batches and a loss, to masks."""

from ellzero.pruning._random_gradient import random_gradient
from ellzero.pruning._tamade import TamadeResult, Trial, tamade
from ellzero.pruning.accept import Accept, Better, ShortestDescription, Within
from ellzero.pruning.layer_problem import Allocation
from ellzero.pruning.layerwise import LayerwisePruning, LeftParameter, PrunedLayer, layerwise_prune_
from ellzero.pruning.magnitude import magnitude_masks
from ellzero.pruning.rules import Evidence, PruningRule, Share, Tamade

__all__ = [
    "Accept",
    "Allocation",
    "Better",
    "Evidence",
    "LayerwisePruning",
    "LeftParameter",
    "PrunedLayer",
    "PruningRule",
    "Share",
    "ShortestDescription",
    "Tamade",
    "TamadeResult",
    "Trial",
    "Within",
    "layerwise_prune_",
    "magnitude_masks",
    "random_gradient",
    "tamade",
]
