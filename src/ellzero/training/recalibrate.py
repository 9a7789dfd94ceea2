"""Recalibration: the running statistics of batch normalisation, estimated anew for the present weights of a network."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ellzero.params import require_module
from ellzero.surgery.calls import Forward, call_model
from ellzero.training.batches import Batches


@torch.no_grad()
def recalibrate_batchnorm(model: nn.Module, batches: Batches, forward: Forward | None = None) -> None:
    """Estimates the running means and variances of batch normalisation anew: pruning changes the outputs of the layers before it.

    The statistics become the plain averages, over the batches, of each batch's mean and unbiased variance, whatever the momentum
    (cumulative averaging; Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018, section 3.2). All
    other modules are in eval mode for that time, so that dropout draws nothing. Nothing else changes: neither weights, gradients, momentum
    nor modes; a layer that no batch reaches keeps its statistics, and all do if anything is raised.

    Args:
        model: a network in any mode, with at least one batch normalisation that keeps running statistics.
        batches: training inputs, read once: tensors, tuples of positional arguments, or mappings of keyword arguments.
        forward: how to call the model on a batch, such as `lz.classification_loss` or `lambda model, batch: model(batch[0])` for
            pairs with labels.

    Raises:
        TypeError: `model` is not a module.
        ValueError: there is no such layer, no batch, or a batch with one value per channel, which has no variance.
    """
    require_module(model)
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and isinstance(module.running_mean, Tensor)]
    if not norms:
        raise ValueError(f"{type(model).__name__} has no batch normalisation with running statistics: there is nothing to recalibrate")
    modes = {module: module.training for module in model.modules()}
    momenta = [norm.momentum for norm in norms]
    before = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    finished = False
    try:
        model.eval()
        for norm in norms:
            norm.train()
            norm.reset_running_stats()
            norm.momentum = None  # PyTorch then averages cumulatively, by its count of batches
        empty = True
        for batch in batches:
            empty = False
            (forward or call_model)(model, batch)
        if empty:
            raise ValueError("there is no batch to recalibrate on: an iterator that was used up?")
        finished = True
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, momentum, buffers in zip(norms, momenta, before, strict=True):
            norm.momentum = momentum
            if not finished or not norm.num_batches_tracked:
                for name, buffer in norm.named_buffers():
                    buffer.copy_(buffers[name])
