"""Pruning as plain functions, and the surgery that follows it."""

from ellzero.pruning.accept import Accept, Better, ShortestDescription, Within
from ellzero.pruning.fold import Folded, fold, fold_
from ellzero.pruning.kept import Kept, compose, slice_tensors
from ellzero.pruning.layer_problem import Allocation
from ellzero.pruning.layerwise import LayerwisePruning, PrunedLayer, layerwise_prune_
from ellzero.pruning.magnitude import magnitude_masks
from ellzero.pruning.random_gradient import random_gradient
from ellzero.pruning.rebind import rebind_
from ellzero.pruning.reorder import reorder
from ellzero.pruning.selected import SelectedLinear
from ellzero.pruning.shrink import Shrunk, expand_, shrink, shrink_to
from ellzero.pruning.tamade import TamadeResult, Trial, tamade

__all__ = [
    "Accept",
    "Allocation",
    "Better",
    "Folded",
    "Kept",
    "LayerwisePruning",
    "PrunedLayer",
    "SelectedLinear",
    "ShortestDescription",
    "Shrunk",
    "TamadeResult",
    "Trial",
    "Within",
    "compose",
    "expand_",
    "fold",
    "fold_",
    "layerwise_prune_",
    "magnitude_masks",
    "random_gradient",
    "rebind_",
    "reorder",
    "shrink",
    "shrink_to",
    "slice_tensors",
    "tamade",
]
