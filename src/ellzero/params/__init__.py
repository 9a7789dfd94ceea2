"""What is regularised: selects parameters by role, names them canonically, counts tied tensors once, finds what shares memory."""

from ellzero.params.memory import Place, kept_exact, overlapping, same_numbers, without_own_memory
from ellzero.params.parametrizations import WeightNorm, rescaled, weight_norms
from ellzero.params.roles import Selector, everything, weights
from ellzero.params.selection import (
    aliases,
    apply_masks_,
    count_nonzeros,
    count_parameters,
    duplicate,
    masks_from_zeros,
    named_parameters,
    require_module,
    select_parameters,
)

__all__ = [
    "Place",
    "Selector",
    "WeightNorm",
    "aliases",
    "apply_masks_",
    "count_nonzeros",
    "count_parameters",
    "duplicate",
    "everything",
    "kept_exact",
    "masks_from_zeros",
    "named_parameters",
    "overlapping",
    "require_module",
    "rescaled",
    "same_numbers",
    "select_parameters",
    "weight_norms",
    "weights",
    "without_own_memory",
]
