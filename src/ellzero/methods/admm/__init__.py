"""ADMM on the l0 objective (eq. 24 to 37): data step, z-step, multipliers."""

from ellzero.methods.admm._z_step import ZStep, z_step, z_targets
from ellzero.methods.admm.masks import admm_masks, admm_residual
from ellzero.methods.admm.method import ADMM, MeanOverWorkers

__all__ = ["ADMM", "MeanOverWorkers", "ZStep", "admm_masks", "admm_residual", "z_step", "z_targets"]
