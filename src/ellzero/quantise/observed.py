"""The layers of a network that calibration knows, what comes to them, and where their constant is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from ellzero.surgery.calls import Forward, watch_layers
from ellzero.surgery.known_modules import known, shared_parameters
from ellzero.surgery.layer_matrices import MatrixLayer, output_columns


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
        """Returns the tensor that adds `shift` more to each output channel, except where it is fixed."""
        return self.tensor.detach().double() + self.sign * shift.masked_fill(self.fixed, 0.0)


@dataclass(frozen=True, kw_only=True)
class ObservedLayer:
    """A layer that is called once per batch.

    Attributes:
        name: of the layer.
        layer: the layer.
        constant: what can bring its mean output back after its weights have changed, if anything.
        mean_output: over all samples and positions, [out].
    """

    name: str
    layer: MatrixLayer
    constant: Constant | None
    mean_output: Float64[Tensor, " out"]


def observe_layers(
    model: nn.Module, batches: Sequence[Any], norms: Mapping[str, str], *, folded: bool, forward: Forward
) -> list[ObservedLayer]:
    """Runs a model and finds its layers, in the order of their calls.

    Args:
        model: in eval mode.
        batches: its inputs.
        norms: layer -> normalisation after it.
        folded: whether those normalisations add their bias and do nothing else.
        forward: how to call the model on a batch.

    Returns:
        Linear layers and convolutions with parameters of their own that are called once per batch; not those within modules that compute
        with their weights by themselves, such as attention.
    """
    shared = shared_parameters(model)
    candidates = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MatrixLayer) and known(module) and name not in shared and "weight" in module._parameters
    }
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def watch(name: str, _call: int, _inputs: Tensor, outputs: Tensor) -> None:
        columns = output_columns(candidates[name], outputs).double()
        total = columns.sum((0, 2))
        sums[name] = sums[name] + total if name in sums else total
        counts[name] = counts.get(name, 0) + columns.shape[0] * columns.shape[2]

    calls = watch_layers(model, batches, candidates, watch, forward=forward)
    return [
        ObservedLayer(
            name=name,
            layer=candidates[name],
            constant=_constant(name, candidates[name], norms.get(name), model, folded),
            mean_output=sums[name] / counts[name],
        )
        for name, count in calls.items()
        if count == len(batches)
    ]


def _constant(name: str, layer: MatrixLayer, norm: str | None, model: nn.Module, folded: bool) -> Constant | None:
    module = None if norm is None else model.get_submodule(norm)
    if isinstance(layer.bias, nn.Parameter):
        bias_name, bias = f"{name}.bias", layer.bias
    elif module is not None and folded and isinstance(module.bias, nn.Parameter):
        bias_name, bias = f"{norm}.bias", module.bias
    elif module is not None:
        assert isinstance(module.running_mean, Tensor)
        none_fixed = torch.zeros_like(module.running_mean, dtype=torch.bool)
        return Constant(name=None, tensor=module.running_mean, fixed=none_fixed, sign=-1)
    else:
        return None
    # Among weights that are pruned, biases of zero are pruned, too; elsewhere they may not have been trained.
    fixed = (bias.detach() == 0) & (layer.weight.detach() == 0).any()
    return None if bool(fixed.all()) else Constant(name=bias_name, tensor=bias, fixed=fixed)


@torch.no_grad()
def mean_output(layer: MatrixLayer, inputs: Sequence[Tensor]) -> Float64[Tensor, " out"]:
    """Computes the mean of a layer's outputs over samples and positions."""
    total = torch.zeros(layer.weight.shape[0], dtype=torch.float64, device=layer.weight.device)
    count = 0
    for batch in inputs:
        columns = output_columns(layer, layer(batch)).double()
        total += columns.sum((0, 2))
        count += columns.shape[0] * columns.shape[2]
    return total / count
