"""Pruning as plain functions, and the surgery that follows it."""

from ellzero.pruning.fold import Folded, fold, fold_
from ellzero.pruning.kept import Kept, compose, slice_tensors
from ellzero.pruning.rebind import rebind_
from ellzero.pruning.selected import SelectedLinear
from ellzero.pruning.shrink import Shrunk, expand_, shrink, shrink_to

__all__ = [
    "Folded",
    "Kept",
    "SelectedLinear",
    "Shrunk",
    "compose",
    "expand_",
    "fold",
    "fold_",
    "rebind_",
    "shrink",
    "shrink_to",
    "slice_tensors",
]
