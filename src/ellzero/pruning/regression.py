"""What comes to a layer and what leaves it, as the matrices of a linear regression: a row of inputs a position, a column a weight."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional

from ellzero.surgery.selected_linear import SelectedLinear

Forward = Callable[[nn.Module, Any], Any]
Layer = nn.Linear | nn.Conv1d | nn.Conv2d

_PIECE_ENTRIES = 1 << 23
"""Entries of an unfolded piece of a batch."""


class _Reached(Exception):  # noqa: N818  # no error: it leaves the network once the layer in question has been reached
    pass


@dataclass(eq=False)
class Regression:
    """A layer as a linear regression.

    Attributes:
        name: the layer's name.
        layer: the layer.
        gram: X X^T over all positions taken, in double precision.
        cross: Y X^T likewise, where the targets Y come from another network.
        targets: the layer's outputs at the positions taken, one tensor [out, positions] a call.
        positions: which positions of each image were taken, one tensor a call.
    """

    name: str
    layer: Layer
    gram: Float64[Tensor, "n n"]
    cross: Float64[Tensor, "out n"]
    targets: list[Tensor] = field(default_factory=list)
    positions: list[Tensor] = field(default_factory=list)

    @classmethod
    def empty(cls, name: str, layer: Layer) -> "Regression":
        """Starts from nothing."""
        rows, n = matrix(layer).shape
        gram = torch.zeros(n, n, dtype=torch.float64, device=layer.weight.device)
        return cls(name, layer, gram, gram.new_zeros(rows, n))


def matrix(layer: Layer) -> Float64[Tensor, "out n"]:
    """Returns the weights with a row an output and the bias, where there is one, as the last column."""
    weight = layer.weight.detach().flatten(1).double()
    bias = _bias(layer)
    return weight if bias is None else torch.cat((weight, bias.detach().double()[:, None]), 1)


@torch.no_grad()
def write_matrix_(layer: Layer, weights: Float64[Tensor, "out n"]) -> None:
    """Writes what `matrix` returns back into a layer."""
    bias = _bias(layer)
    if bias is not None:
        bias.copy_(weights[:, -1])
        weights = weights[:, :-1]
    layer.weight.copy_(weights.reshape(layer.weight.shape))


def _bias(layer: Layer) -> Tensor | None:
    return layer.bias  # torch types an optional bias as a tensor


def unfolded(layer: Layer, inputs: Float[Tensor, "..."]) -> Float[Tensor, "batch positions n"]:
    """Returns what every weight is multiplied with at every position of the output; 1 for the bias.

    A position is a pixel of a convolution's output, or a further dimension between the batch and the features of a linear layer's input.
    """
    if isinstance(layer, nn.Linear):
        if isinstance(layer, SelectedLinear):
            inputs = inputs.index_select(-1, layer.features)
        columns = inputs.reshape(len(inputs), -1, inputs.shape[-1]) if inputs.ndim > 1 else inputs[None, None]
    else:
        columns = _patches(layer, inputs)
    return columns if _bias(layer) is None else functional.pad(columns, (0, 1), value=1.0)


def _patches(layer: nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Tensor:
    padding = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    inputs = functional.pad(inputs, padding, mode=mode)
    if isinstance(layer, nn.Conv1d):
        inputs = inputs[:, :, None]
    kernel, stride, dilation = ((1,) * (2 - len(size)) + tuple(size) for size in (layer.kernel_size, layer.stride, layer.dilation))
    return functional.unfold(inputs, kernel, dilation=dilation, stride=stride).mT


def outputs_by_position(layer: Layer, outputs: Float[Tensor, "..."]) -> Float[Tensor, "batch positions out"]:
    """Returns a layer's outputs in the order of `unfolded`."""
    if isinstance(layer, nn.Linear):
        return outputs.reshape(len(outputs), -1, outputs.shape[-1]) if outputs.ndim > 1 else outputs[None, None]
    return outputs.flatten(2).mT


def observe(
    model: nn.Module,
    batches: Sequence[Any],
    regressions: Sequence[Regression],
    *,
    forward: Forward,
    targets: Sequence[Regression] | None = None,
    per_feature: int | None = None,
    samples: int = 0,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Runs a model and adds up the Gram matrices of some of its layers.

    Args:
        model: the model, in eval mode.
        batches: the inputs.
        regressions: the layers, their matrices still empty.
        forward: how to call the model on a batch.
        targets: the same layers as seen in another network: their positions are taken again and their outputs are the targets. Without,
            positions are drawn and outputs are kept.
        per_feature: takes about so many positions for each weight of a row, the same of every sample in a batch; None takes all.
        samples: how many samples there are in all batches.
        generator: draws positions.

    Returns:
        The names of the layers in the order in which they were first called.
    """
    calls: dict[str, int] = {}

    def hook(regression: Regression, target: Regression | None) -> Callable[[nn.Module, Any, Tensor], None]:
        def see(_module: nn.Module, arguments: Any, outputs: Tensor) -> None:
            call = calls.get(regression.name, 0)
            calls[regression.name] = call + 1
            seen = outputs_by_position(regression.layer, outputs.detach())
            if target is None:
                chosen = _choose(seen.shape[1], regression, per_feature, samples, generator)
                regression.positions.append(chosen)
                regression.targets.append(seen[:, chosen].flatten(0, 1).T.contiguous())
            _add_(regression, arguments[0].detach(), target, call, seen.shape[1])
            if target is not None and len(regressions) == 1 and len(target.positions) == len(batches):
                raise _Reached  # called once a batch: what comes after it is of no interest

        return see

    with ExitStack() as stack, torch.no_grad():
        for index, regression in enumerate(regressions):
            handle = regression.layer.register_forward_hook(hook(regression, None if targets is None else targets[index]))
            stack.callback(handle.remove)
        for inputs in batches:
            with suppress(_Reached):
                forward(model, inputs)
    return list(calls)


def _choose(count: int, regression: Regression, per_feature: int | None, samples: int, generator: torch.Generator | None) -> Tensor:
    """Draws which positions of a call are taken."""
    wanted = count if per_feature is None else math.ceil(per_feature * len(regression.gram) / max(1, samples))
    chosen = torch.arange(count) if wanted >= count else torch.randperm(count, generator=generator)[:wanted].sort().values
    return chosen.to(regression.gram.device)


def _add_(regression: Regression, inputs: Tensor, target: Regression | None, call: int, count: int) -> None:
    """Adds a call's products; they are formed in the network's own precision and added up in double.

    Where only some positions are taken, each stands for as many as there are for one taken, so that layers can be compared.
    """
    source = target or regression
    positions, wanted = source.positions[call], source.targets[call]
    weight = count / len(positions)
    done = 0
    for part in inputs.split(max(1, _PIECE_ENTRIES // (len(regression.gram) * count))) if inputs.ndim > 1 else [inputs]:
        rows = unfolded(regression.layer, part)[:, positions].flatten(0, 1)
        regression.gram += weight * (rows.T @ rows).double()
        if target is not None:
            regression.cross += weight * (wanted[:, done : done + len(rows)] @ rows).double()
            done += len(rows)
