"""The whole job: a recipe of stages, run by one driver to a target."""

from ellzero.training._sparsify import SparsifyResult, Target, sparsify
from ellzero.training.batches import (
    Batches,
    ErrorFn,
    LossFn,
    classification_error,
    classification_loss,
    error_rate,
    mean_loss,
)
from ellzero.training.checkpoint import Checkpoint
from ellzero.training.distill import Distill
from ellzero.training.final_prune import CollapseError
from ellzero.training.gaussian_loss import GaussianLoss, gaussian_nats, solved_gaussian_nats, solved_sigma
from ellzero.training.problem import Problem
from ellzero.training.progress import Progress
from ellzero.training.recalibrate import recalibrate_batchnorm
from ellzero.training.recipe import Anneal, Cycles, Epochs, GridTraining, Recipe, Saturation, Warm, adam
from ellzero.training.search import Try
from ellzero.training.task import Epoch, Stopped

__all__ = [
    "Anneal",
    "Batches",
    "Checkpoint",
    "CollapseError",
    "Cycles",
    "Distill",
    "Epoch",
    "Epochs",
    "ErrorFn",
    "GaussianLoss",
    "GridTraining",
    "LossFn",
    "Problem",
    "Progress",
    "Recipe",
    "Saturation",
    "SparsifyResult",
    "Stopped",
    "Target",
    "Try",
    "Warm",
    "adam",
    "classification_error",
    "classification_loss",
    "error_rate",
    "gaussian_nats",
    "mean_loss",
    "recalibrate_batchnorm",
    "solved_gaussian_nats",
    "solved_sigma",
    "sparsify",
]
