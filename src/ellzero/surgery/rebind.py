"""Surgery on optimizers: after shrinking, they hold the new parameters and the moments that belong to them."""

from typing import Any

import torch
from torch import Tensor, nn

from ellzero.surgery.kept_indices import KeptIndices, slice_tensor


def rebind_(optimizer: torch.optim.Optimizer, old: nn.Module, new: nn.Module, kept: KeptIndices) -> None:
    """Replaces a model's parameters in an optimizer by those of the shrunk model, and slices their state alike.

    An optimizer that went on holding the old parameters would update tensors that no model reads. Parameter groups keep their
    options and order; parameters of other models stay. State of a parameter's shape (moments, momentum, their maxima) is sliced;
    scalars (step counts) are kept.

    Args:
        optimizer: any optimizer whose state has a parameter's shape or is scalar; changed in place.
        old: the model whose parameters it holds.
        new: the shrunk model.
        kept: what `new` kept of `old`.

    Raises:
        ValueError: a parameter has no counterpart, or its state can neither be sliced nor kept.
    """
    parameters = dict(new.named_parameters(remove_duplicate=False))
    replaced: dict[Tensor, tuple[str, nn.Parameter]] = {}
    for name, parameter in old.named_parameters():
        if name not in parameters:
            raise ValueError(f"the new model has no parameter {name!r}: it was not shrunk from the old one")
        replaced[parameter] = (name, parameters[name])
    states = {
        parameter: _slice_state(name, parameter, optimizer.state[parameter], kept)
        for parameter, (name, _) in replaced.items()
        if parameter in optimizer.state
    }
    for group in optimizer.param_groups:
        group["params"] = [replaced[parameter][1] if parameter in replaced else parameter for parameter in group["params"]]
    for parameter, state in states.items():
        del optimizer.state[parameter]
        optimizer.state[replaced[parameter][1]] = state


def _slice_state(name: str, parameter: Tensor, state: dict[str, Any], kept: KeptIndices) -> dict[str, Any]:
    if name not in kept:
        return state
    sliced: dict[str, Any] = {}
    for key, entry in state.items():
        if isinstance(entry, Tensor) and entry.shape == parameter.shape:
            sliced[key] = slice_tensor(entry, kept[name])
        elif isinstance(entry, (Tensor, list, tuple, dict)) and not (isinstance(entry, Tensor) and entry.numel() <= 1):
            raise ValueError(f"{key!r} of {name} is not shaped as the parameter, so it cannot be sliced: make a new optimizer")
        else:
            sliced[key] = entry
    return sliced
