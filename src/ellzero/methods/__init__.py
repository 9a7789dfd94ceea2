"""Methods that make parameters sparse, and the schedules of their hyperparameters."""

from ellzero.methods.admm import ADMM, MeanOverWorkers, ZStep, admm_masks, admm_residual, z_step, z_targets
from ellzero.methods.drr import DRR
from ellzero.methods.linear import IDENTITY, LinearL0, LinearOperator, RelaxedLasso, dense_operator, lasso, linear_l0, relaxed_lasso
from ellzero.methods.none import Unregularised
from ellzero.methods.normalisation import Normalisation, PerModule, PerStage
from ellzero.methods.pmmp import PMMP, Alternating, ExactGates, Simultaneous, constraint, exact_gamma, pmmp_masks, undecided
from ellzero.methods.protocol import Laws, Method
from ellzero.methods.relaxation import Exponential, Gaussian, Rational, Relaxation
from ellzero.methods.rl1 import RL1
from ellzero.methods.schedule import Cosine, Geometric, Hyperparameter, Ramp, Schedule, geometric, moves, ramp, value_at

__all__ = [
    "ADMM",
    "DRR",
    "IDENTITY",
    "PMMP",
    "RL1",
    "Alternating",
    "Cosine",
    "ExactGates",
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
