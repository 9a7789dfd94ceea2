"""Methods that make parameters sparse, and the schedules of their hyperparameters."""

from ellzero.methods.admm import ADMM, MeanOverWorkers
from ellzero.methods.admm_masks import admm_masks, admm_residual
from ellzero.methods.admm_z_step import ZStep, z_step, z_targets
from ellzero.methods.drr import DRR
from ellzero.methods.lasso import RelaxedLasso, lasso, relaxed_lasso
from ellzero.methods.linear_l0 import LinearL0, linear_l0
from ellzero.methods.linear_operator import IDENTITY, LinearOperator, dense_operator
from ellzero.methods.none import Unregularised
from ellzero.methods.normalisation import Normalisation, PerModule, PerStage
from ellzero.methods.pmmp import PMMP
from ellzero.methods.pmmp_formulas import constraint, exact_gamma
from ellzero.methods.pmmp_masks import pmmp_masks, undecided
from ellzero.methods.pmmp_updates import Alternating, Exact, Simultaneous
from ellzero.methods.protocol import Laws, Method
from ellzero.methods.relaxation import Exponential, Gaussian, Rational, Relaxation
from ellzero.methods.rl1 import RL1
from ellzero.methods.schedule import Geometric, Hyperparameter, Ramp, Schedule, geometric, moves, ramp, value_at

__all__ = [
    "ADMM",
    "DRR",
    "IDENTITY",
    "PMMP",
    "RL1",
    "Alternating",
    "Exact",
    "Exponential",
    "Gaussian",
    "Geometric",
    "Hyperparameter",
    "Laws",
    "LinearL0",
    "LinearOperator",
    "MeanOverWorkers",
    "Method",
    "Normalisation",
    "PerModule",
    "PerStage",
    "Ramp",
    "Rational",
    "Relaxation",
    "RelaxedLasso",
    "Schedule",
    "Simultaneous",
    "Unregularised",
    "ZStep",
    "admm_masks",
    "admm_residual",
    "constraint",
    "dense_operator",
    "exact_gamma",
    "geometric",
    "lasso",
    "linear_l0",
    "moves",
    "pmmp_masks",
    "ramp",
    "relaxed_lasso",
    "undecided",
    "value_at",
    "z_step",
    "z_targets",
]
