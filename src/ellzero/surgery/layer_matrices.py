"""Layers as products of matrices: what every weight is multiplied with, group by group of channels."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional

Layer = nn.Linear | nn.Conv1d | nn.Conv2d

_PIECE_ENTRIES = 1 << 22
"""Entries of the unfolded inputs held at once."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and covariance of the inputs of a layer's weights, over samples and positions.

    Attributes:
        mean: of each input.
        covariance: of each pair within a group.
    """

    mean: Float64[Tensor, "groups n"]
    covariance: Float64[Tensor, "groups n n"]


def groups_of(layer: Layer) -> int:
    """Returns the number of groups of channels."""
    return 1 if isinstance(layer, nn.Linear) else layer.groups


def matrices(layer: Layer) -> Float64[Tensor, "groups rows n"]:
    """Returns the weights, group by group."""
    weight = layer.weight.detach().double()
    return weight.reshape(groups_of(layer), weight.shape[0] // groups_of(layer), -1)


def columns(layer: Layer, inputs: Float[Tensor, "..."]) -> Float[Tensor, "batch groups n positions"]:
    """Returns what the weights are multiplied with at every position of the output."""
    if isinstance(layer, nn.Linear):
        flat = inputs.reshape(len(inputs) if inputs.ndim > 1 else 1, -1, inputs.shape[-1])
        return flat.mT[:, None]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = functional.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    if isinstance(layer, nn.Conv1d):
        padded = padded[:, :, None]
    kernel, stride, dilation = ((1,) * (2 - len(size)) + tuple(size) for size in (layer.kernel_size, layer.stride, layer.dilation))
    unfolded = functional.unfold(padded, kernel, dilation=dilation, stride=stride)
    return unfolded.reshape(len(padded), layer.groups, -1, unfolded.shape[2])


def outputs_by_position(layer: Layer, outputs: Float[Tensor, "..."]) -> Float[Tensor, "batch out positions"]:
    """Returns a layer's outputs in the order of `columns`."""
    if isinstance(layer, nn.Linear):
        return outputs.reshape(len(outputs) if outputs.ndim > 1 else 1, -1, outputs.shape[-1]).mT
    return outputs.flatten(2)


def pieces(layer: Layer, inputs: Float[Tensor, "..."]) -> Iterator[Tensor]:
    """Splits a batch so that its unfolded inputs fit into little memory."""
    if inputs.ndim < 2 or isinstance(layer, nn.Linear):
        return iter([inputs])
    entries = inputs[0].numel() * layer.weight[0, 0].numel()
    return iter(inputs.split(max(1, _PIECE_ENTRIES // max(entries, 1))))


def moments(layer: Layer, inputs: Iterable[Float[Tensor, "..."]], most: int = 1 << 15) -> Moments:
    """Adds up mean and covariance of what the weights are multiplied with.

    Args:
        layer: the layer.
        inputs: batches of its inputs.
        most: about so many positions are taken at most, evenly spread over each sample's.
    """
    batches = list(inputs)
    groups, _, n = matrices(layer).shape
    total = torch.zeros(groups, n, dtype=torch.float64, device=layer.weight.device)
    products = torch.zeros(groups, n, n, dtype=torch.float64, device=layer.weight.device)
    samples = sum(len(batch) if batch.ndim > 1 else 1 for batch in batches)
    count = 0
    for batch in batches:
        for piece in pieces(layer, batch):
            found = columns(layer, piece)
            # An odd distance, so that the columns of an image take turns.
            found = found[..., :: max(1, samples * found.shape[3] // most) | 1]
            rows = found.permute(1, 2, 0, 3).flatten(2).double()
            total += rows.sum(2)
            products += rows @ rows.mT
            count += rows.shape[2]
    mean = total / count
    # Inputs that never change have a variance of 0 or, by rounding, less; so they get a very small one.
    small = 1e-10 * products.diagonal(dim1=1, dim2=2) / count
    return Moments(mean=mean, covariance=products / count - mean[:, :, None] * mean[:, None] + small.diag_embed())
