"""The layers of a network that calibration knows, what comes to them, and where their constant is stored."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from ellzero.pruning.regression import Forward
from ellzero.quantise.fold_batchnorm import shared_parameters
from ellzero.surgery.known_modules import known
from ellzero.surgery.layer_matrices import Layer, outputs_by_position

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)


class _Reached(Exception):  # noqa: N818  # no error: it leaves the network once the layer in question has been reached
    pass


@dataclass(frozen=True, kw_only=True)
class Constant:
    """What adds a constant to each output channel of a layer.

    Attributes:
        name: of the parameter; None for a buffer, which no grid holds.
        tensor: [out].
        sign: -1 where it is subtracted.
        fixed: where it stays as it is, [out]: pruned biases stay zero.
    """

    name: str | None
    tensor: Tensor
    fixed: Tensor
    sign: int = 1

    def plus(self, shift: Float64[Tensor, " out"]) -> Float64[Tensor, " out"]:
        """Returns the tensor that adds so much more, where it may."""
        return self.tensor.detach().double() + self.sign * shift.masked_fill(self.fixed, 0.0)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A layer that is called once a batch.

    Attributes:
        name: of the layer.
        layer: the layer.
        constant: what can bring its mean output back after its weights have changed, if anything.
        mean_output: over all samples and positions, [out].
    """

    name: str
    layer: Layer
    constant: Constant | None
    mean_output: Float64[Tensor, " out"]


def observe(model: nn.Module, batches: Sequence[Any], norms: Mapping[str, str], *, folded: bool, forward: Forward) -> list[Observed]:
    """Runs a model and finds its layers, in the order of their calls.

    Args:
        model: in eval mode.
        batches: its inputs.
        norms: layer -> normalisation after it.
        folded: whether those normalisations add their bias and do nothing else.
        forward: how to call the model on a batch.

    Returns:
        Linear layers and convolutions with parameters of their own that are called once a batch; not those within modules that compute
        with their weights by themselves, such as attention.
    """
    shared = shared_parameters(model)
    candidates = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _LAYERS) and known(module) and name not in shared and "weight" in module._parameters
    }
    calls: dict[str, int] = {}
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def see(name: str, _module: nn.Module, _arguments: Any, output: Tensor) -> None:
        calls[name] = calls.get(name, 0) + 1
        found = outputs_by_position(candidates[name], output.detach()).double()
        total = found.sum((0, 2))
        sums[name] = sums[name] + total if name in sums else total
        counts[name] = counts.get(name, 0) + found.shape[0] * found.shape[2]

    with ExitStack() as stack, torch.no_grad():
        for name, layer in candidates.items():
            stack.callback(layer.register_forward_hook(partial(see, name)).remove)
        for batch in batches:
            forward(model, batch)
    return [
        Observed(
            name=name,
            layer=candidates[name],
            constant=_constant(name, candidates[name], norms.get(name), model, folded),
            mean_output=sums[name] / counts[name],
        )
        for name, count in calls.items()
        if count == len(batches)
    ]


def _constant(name: str, layer: Layer, norm: str | None, model: nn.Module, folded: bool) -> Constant | None:
    module = None if norm is None else model.get_submodule(norm)
    if isinstance(layer.bias, nn.Parameter):
        found, bias = f"{name}.bias", layer.bias
    elif module is not None and folded and isinstance(module.bias, nn.Parameter):
        found, bias = f"{norm}.bias", module.bias
    elif module is not None:
        assert isinstance(module.running_mean, Tensor)
        nothing = torch.zeros_like(module.running_mean, dtype=torch.bool)
        return Constant(name=None, tensor=module.running_mean, fixed=nothing, sign=-1)
    else:
        return None
    # Among weights that are pruned, biases of zero are pruned, too; elsewhere they may not have been trained.
    fixed = (bias.detach() == 0) & (layer.weight.detach() == 0).any()
    return None if bool(fixed.all()) else Constant(name=found, tensor=bias, fixed=fixed)


@torch.no_grad()
def inputs_of(model: nn.Module, layer: nn.Module, batches: Sequence[Any], forward: Forward) -> list[Tensor]:
    """Returns what comes to a layer, running the model no further than it."""
    found: list[Tensor] = []

    def see(_module: nn.Module, arguments: Any) -> None:
        found.append(arguments[0].detach())
        raise _Reached

    handle = layer.register_forward_pre_hook(see)
    try:
        for batch in batches:
            with suppress(_Reached):
                forward(model, batch)
    finally:
        handle.remove()
    return found


@torch.no_grad()
def mean_output(layer: Layer, inputs: Sequence[Tensor]) -> Float64[Tensor, " out"]:
    """Computes the mean over samples and positions of what a layer makes of its inputs."""
    total = torch.zeros(layer.weight.shape[0], dtype=torch.float64, device=layer.weight.device)
    count = 0
    for batch in inputs:
        found = outputs_by_position(layer, layer(batch)).double()
        total += found.sum((0, 2))
        count += found.shape[0] * found.shape[2]
    return total / count
