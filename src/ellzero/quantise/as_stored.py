"""A network as its file will give it back."""

import numpy as np
import torch
from torch import nn

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.stored_grids import worth
from ellzero.params import duplicate, kept_exact
from ellzero.quantise.grids import Quantiser

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@torch.no_grad()
def as_stored(model: nn.Module, quantiser: Quantiser) -> nn.Module:
    """Copies a model and moves its parameters to the grids of its file: what `save_model(quantise=...)` stores, without coding it.

    Args:
        model: any module; it is not changed.
        quantiser: moves parameters to grids.

    Raises:
        ValueError: a parameter that is to be moved is not finite, or the model cannot be copied.
    """
    stored = duplicate(model)
    exact = kept_exact(stored)
    for name, parameter in stored.named_parameters():
        if name in exact or parameter.dtype not in _FLOATS:
            continue
        numbers = parameter.detach().double().cpu().numpy()
        if not np.isfinite(numbers).all():
            raise ValueError(f"{name!r} has numbers that are not finite, which no grid holds")
        levels = quantiser.quantise(name, numbers)
        if levels is not None:
            rows = parameter.shape[0] if parameter.ndim > 1 else 1
            values = worth(levels.levels.reshape(-1), levels.grid, DType.F64, rows).view(np.float64).copy()
            parameter.copy_(torch.from_numpy(values).reshape(parameter.shape))
    return stored
