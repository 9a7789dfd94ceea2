"""Training: one line in a loop that exists, or the whole job."""

from ellzero.training.active_set import ActiveSet
from ellzero.training.attach import attach
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
from ellzero.training.convergence import saturated
from ellzero.training.distill import Distill
from ellzero.training.distributed import WorkerMean, assert_same_masks, masks_hash, mean_evaluation
from ellzero.training.file_size import Bytes
from ellzero.training.final_prune import CollapseError
from ellzero.training.gaussian_loss import GaussianLoss, gaussian_nats, solved_gaussian_nats, solved_sigma
from ellzero.training.recalibrate import recalibrate_batchnorm
from ellzero.training.search import ErrorIncrease, NonZeros, Try
from ellzero.training.sparsifier import Sparsifier
from ellzero.training.sparsify import Sparse, Target, sparsify
from ellzero.training.stages import Anneal, Cosine, Cycles, Epochs, OnGridPasses, Saturation, Warm
from ellzero.training.task import Epoch

__all__ = [
    "ActiveSet",
    "Anneal",
    "Batches",
    "Bytes",
    "Checkpoint",
    "CollapseError",
    "Cosine",
    "Cycles",
    "Distill",
    "Epoch",
    "Epochs",
    "ErrorFn",
    "ErrorIncrease",
    "GaussianLoss",
    "LossFn",
    "NonZeros",
    "OnGridPasses",
    "Saturation",
    "Sparse",
    "Sparsifier",
    "Target",
    "Try",
    "Warm",
    "WorkerMean",
    "assert_same_masks",
    "attach",
    "classification_error",
    "classification_loss",
    "error_rate",
    "gaussian_nats",
    "masks_hash",
    "mean_evaluation",
    "mean_loss",
    "recalibrate_batchnorm",
    "saturated",
    "solved_gaussian_nats",
    "solved_sigma",
    "sparsify",
]
