"""Folding of batch normalisation into the layer before it, for inference; the architecture stays as it is."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.surgery.calls import Forward
from ellzero.surgery.known_modules import known, shared_parameters
from ellzero.surgery.layer_matrices import MatrixLayer

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def normalisations(model: nn.Module, batch: Any, forward: Forward) -> dict[str, str]:
    """Finds by a run which batch normalisation takes the output of which layer, where each is called once and shares no parameter.

    Returns:
        Name of the layer -> name of its normalisation.
    """
    outputs: dict[int, tuple[str, Tensor]] = {}
    normalised: list[tuple[str, Any]] = []
    calls: dict[str, int] = {}

    def after(name: str, _module: nn.Module, _arguments: Any, output: Any) -> None:
        calls[name] = calls.get(name, 0) + 1
        outputs[id(output)] = (name, output)  # held, so that no other tensor gets its id

    def before(name: str, _module: nn.Module, arguments: Any) -> None:
        calls[name] = calls.get(name, 0) + 1
        normalised.append((name, arguments[0]))

    with ExitStack() as stack, torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, MatrixLayer) and known(module):
                stack.callback(module.register_forward_hook(partial(after, name)).remove)
            elif isinstance(module, _NORMS) and known(module) and module.running_mean is not None:
                stack.callback(module.register_forward_pre_hook(partial(before, name)).remove)
        forward(model, batch)
    shared = shared_parameters(model)
    norm_after: dict[str, str] = {}
    for norm, argument in normalised:
        layer, output = outputs.get(id(argument), ("", None))
        if output is argument and calls[layer] == calls[norm] == 1 and not {layer, norm} & shared and layer not in norm_after:
            norm_after[layer] = norm
    return norm_after


@torch.no_grad()
def fold_batchnorm_(pairs: Sequence[tuple[nn.Module, nn.Module]]) -> None:
    """Folds batch normalisation into the layers before, in place: the same function in eval mode.

    A normalisation comes out with weight 1, mean 0 and variance 1 - eps, so that it adds its bias and nothing else. That bias is 0 where
    the layer has one, which then says it all; without weights of its own it says through its mean what a layer without bias cannot.

    Args:
        pairs: layers with their normalisations, as `normalisations` finds them.
    """
    for layer, norm in pairs:
        assert isinstance(layer, MatrixLayer)
        assert isinstance(norm, _NORMS)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        if norm.affine:
            scale = scale * norm.weight.double()
        bias: Tensor | None = layer.bias
        offset = -norm.running_mean.double() * scale
        if bias is not None:
            offset = offset + bias.double() * scale
        if norm.affine:
            offset = offset + norm.bias.double()
        layer.weight.copy_(layer.weight.double() * scale.view(-1, *[1] * (layer.weight.ndim - 1)))
        norm.running_mean.zero_()
        norm.running_var.fill_(1 - norm.eps)
        if norm.affine:
            norm.weight.fill_(1)
            norm.bias.zero_()
        if bias is not None:
            bias.copy_(offset)
        elif norm.affine:
            norm.bias.copy_(offset)
        else:
            norm.running_mean.copy_(-offset)
