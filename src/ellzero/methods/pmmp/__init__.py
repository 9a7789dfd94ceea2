"""PMMP: the probabilistic minimax objective (section 2.2.1, eq. 9 and 10; appendix C.3)."""

from ellzero.methods.pmmp.formulas import constraint, exact_gamma
from ellzero.methods.pmmp.masks import pmmp_masks, undecided
from ellzero.methods.pmmp.method import PMMP
from ellzero.methods.pmmp.updates import Alternating, ExactGates, Simultaneous

__all__ = ["PMMP", "Alternating", "ExactGates", "Simultaneous", "constraint", "exact_gamma", "pmmp_masks", "undecided"]
