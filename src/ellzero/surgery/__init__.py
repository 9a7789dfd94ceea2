"""What the graph of a network allows: which units can go, be folded, be reordered, and the smaller network without them."""

from ellzero.surgery._fold import Folded, fold, fold_
from ellzero.surgery._reorder import reorder
from ellzero.surgery._shrink import Shrunk, expand_, shrink, shrink_to
from ellzero.surgery.kept_indices import KeptIndices, compose, slice_tensors
from ellzero.surgery.rebind import rebind_
from ellzero.surgery.selected_linear import SelectedLinear

__all__ = [
    "Folded",
    "KeptIndices",
    "SelectedLinear",
    "Shrunk",
    "compose",
    "expand_",
    "fold",
    "fold_",
    "rebind_",
    "reorder",
    "shrink",
    "shrink_to",
    "slice_tensors",
]
