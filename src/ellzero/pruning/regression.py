"""A layer as a linear regression: one row of inputs per position, one column per weight, and the sums of products over all rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional

from ellzero.surgery.calls import Forward, LayerReached, watch_layers
from ellzero.surgery.layer_matrices import AnyMatrixLayer, bias_of, by_output, groups_of, layer_columns, layer_matrices, output_columns

_PIECE_ENTRIES = 1 << 23
"""Entries of an unfolded piece of a batch."""


@dataclass(eq=False)
class Regression:
    """A layer as a linear regression.

    Attributes:
        name: the layer's name.
        layer: the layer.
        gram: X X^T of each group of channels over all positions taken, in double precision.
        cross: Y X^T likewise, where the targets Y come from another network.
        targets: the layer's outputs at the positions taken, one tensor [out, positions] per call.
        positions: which positions of each sample were taken, one tensor per call.
    """

    name: str
    layer: AnyMatrixLayer
    gram: Float64[Tensor, "groups n n"]
    cross: Float64[Tensor, "out n"]
    targets: list[Tensor] = field(default_factory=list)
    positions: list[Tensor] = field(default_factory=list)

    @classmethod
    def empty(cls, name: str, layer: AnyMatrixLayer) -> "Regression":
        """Creates a regression that has seen no inputs."""
        rows, n = weights_and_bias(layer).shape
        gram = torch.zeros(groups_of(layer), n, n, dtype=torch.float64, device=layer.weight.device)
        return cls(name, layer, gram, gram.new_zeros(rows, n))


def weights_and_bias(layer: AnyMatrixLayer) -> Float64[Tensor, "out n"]:
    """Returns the matrices of all groups below one another, with the bias, where there is one, as the last column."""
    weight = layer_matrices(layer).flatten(0, 1)
    bias = bias_of(layer)
    return weight if bias is None else torch.cat((weight, bias.detach().double()[:, None]), 1)


@torch.no_grad()
def write_weights_and_bias_(layer: AnyMatrixLayer, weights: Float64[Tensor, "out n"]) -> None:
    """Writes what `weights_and_bias` returns back into a layer."""
    bias = bias_of(layer)
    if bias is not None:
        bias.copy_(weights[:, -1])
        weights = weights[:, :-1]
    view = by_output(layer, layer.weight)
    view.copy_(weights.reshape(view.shape))


def regressors(layer: AnyMatrixLayer, inputs: Float[Tensor, "..."]) -> Float[Tensor, "batch groups positions n"]:
    """Returns what the columns of `weights_and_bias` are multiplied with at every position of the output: 1 for the bias."""
    rows = layer_columns(layer, inputs).mT
    return rows if bias_of(layer) is None else functional.pad(rows, (0, 1), value=1.0)


def add_up_(
    regressions: Sequence[Regression],
    model: nn.Module,
    batches: Sequence[Any],
    *,
    forward: Forward,
    targets: Sequence[Regression] | None = None,
    per_feature: int | None = None,
    num_samples: int = 0,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Runs a model and adds up the products of some of its layers, in place.

    Args:
        regressions: the layers, their sums still empty.
        model: the model, in eval mode.
        batches: the inputs.
        forward: how to call the model on a batch.
        targets: the regressions of the same layers in another network: their positions are taken again and their outputs are the targets.
            Without, positions are drawn and the outputs are stored.
        per_feature: takes about so many positions per weight of a row, the same of every sample in a batch; None takes all.
        num_samples: how many samples there are in all batches.
        generator: draws positions.

    Returns:
        The names of the layers in the order in which they were first called.
    """
    by_name = {regression.name: index for index, regression in enumerate(regressions)}

    def watch(name: str, call: int, inputs: Tensor, outputs: Tensor) -> None:
        regression = regressions[by_name[name]]
        target = None if targets is None else targets[by_name[name]]
        columns = output_columns(regression.layer, outputs)
        count = columns.shape[2]
        if target is None:
            positions = _draw_positions(count, regression, per_feature, num_samples, generator)
            regression.positions.append(positions)
            regression.targets.append(columns.mT[:, positions].flatten(0, 1).T.contiguous())
        _add_call_(regression, inputs, target, call, count)
        if target is not None and len(regressions) == 1 and len(target.positions) == len(batches):
            raise LayerReached  # called once per batch: what comes after it is of no interest

    layers = {regression.name: regression.layer for regression in regressions}
    return list(watch_layers(model, batches, layers, watch, forward=forward))


def _draw_positions(
    count: int, regression: Regression, per_feature: int | None, num_samples: int, generator: torch.Generator | None
) -> Int64[Tensor, " positions"]:
    """Draws which of the `count` positions of a call are taken."""
    wanted = count if per_feature is None else math.ceil(per_feature * regression.gram.shape[-1] / max(1, num_samples))
    drawn = torch.arange(count) if wanted >= count else torch.randperm(count, generator=generator)[:wanted].sort().values
    return drawn.to(regression.gram.device)


def _add_call_(regression: Regression, inputs: Tensor, target: Regression | None, call: int, count: int) -> None:
    """Adds the products of one call; they are formed in the network's own precision and added up in double.

    Where only some positions are taken, each of them stands for as many as there are per position taken, so that layers can be compared.
    """
    source = target or regression
    positions, outputs = source.positions[call], source.targets[call]
    weight = count / len(positions)
    done = 0
    groups, n, _ = regression.gram.shape
    for piece in inputs.split(max(1, _PIECE_ENTRIES // (groups * n * count))) if inputs.ndim > 1 else [inputs]:
        rows = regressors(regression.layer, piece)
        if rows.shape[2] != count:
            raise ValueError(f"{regression.name} was called with output_size=, which this method does not know: exclude it with select=")
        rows = rows[:, :, positions].transpose(0, 1).flatten(1, 2)
        regression.gram += weight * (rows.mT @ rows).double()
        if target is not None:
            part = outputs[:, done : done + rows.shape[1]].unflatten(0, (groups, -1))
            regression.cross += weight * (part @ rows).double().flatten(0, 1)
            done += rows.shape[1]
