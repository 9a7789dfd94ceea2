"""One line in a training loop that exists: what happens around every optimizer step, and the masks in force."""

from ellzero.attaching._attach import attach
from ellzero.attaching.active_set import ActiveSet
from ellzero.attaching.convergence import saturated
from ellzero.attaching.sparsifier import Sparsifier

__all__ = ["ActiveSet", "Sparsifier", "attach", "saturated"]
