"""A layer read as matrices, one per group of channels: one row per output channel, one column per input and tap of the kernel.

With W = `layer_matrices(layer)` and X = `layer_columns(layer, inputs)`, the products W X, with the bias added to each row, are the layer's
outputs in the order of `output_columns`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor, nn
from torch.nn import functional

from ellzero.surgery.selected_linear import SelectedLinear

MatrixLayer = nn.Linear | nn.Conv1d | nn.Conv2d
"""The layers that are read as matrices."""

Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
"""Convolutions whose weights have the input channels first."""

AnyMatrixLayer = MatrixLayer | nn.Conv3d | Transposed
"""The layers that can be read as matrices: what is done only with `MatrixLayer` knows no others."""


def bias_of(layer: AnyMatrixLayer) -> Tensor | None:
    """Returns the bias, which torch types as a tensor though it is optional."""
    return layer.bias


def groups_of(layer: AnyMatrixLayer) -> int:
    """Returns the number of groups of channels, 1 for a linear layer."""
    return 1 if isinstance(layer, nn.Linear) else layer.groups


def by_output(layer: AnyMatrixLayer, tensor: Shaped[Tensor, "..."]) -> Shaped[Tensor, "groups rows inputs ..."]:
    """Returns a view of a tensor of the weight's shape, a mask for example, with the output channels of each group before its inputs."""
    parts = tensor.unflatten(0, (groups_of(layer), -1))
    return parts.transpose(1, 2) if isinstance(layer, Transposed) else parts


def layer_matrices(layer: AnyMatrixLayer) -> Float64[Tensor, "groups rows n"]:
    """Returns the weights of each group as a matrix, without the bias, in double precision and in memory of its own."""
    # A weight in double precision would be its own double: what is written to the layer would change what was read from it.
    return by_output(layer, layer.weight.detach().to(torch.float64, copy=True)).flatten(2)


def layer_columns(layer: AnyMatrixLayer, inputs: Float[Tensor, "..."]) -> Float[Tensor, "batch groups n positions"]:
    """Returns what the weights are multiplied with at every position of the output.

    A position is a pixel of a convolution's output, or a further dimension between the batch and the features of a linear layer's input.

    Args:
        layer: the layer.
        inputs: what the layer is called with, batch first; a linear layer takes a single sample of one dimension, too.
    """
    if isinstance(layer, nn.Linear):
        if isinstance(layer, SelectedLinear):
            inputs = inputs.index_select(-1, layer.features)
        return _by_position(inputs)[:, None]
    if isinstance(layer, Transposed):
        return _transposed_columns(layer, inputs)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = functional.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    if isinstance(layer, nn.Conv3d):
        patches = _patches(padded, layer.kernel_size, layer.stride, layer.dilation).flatten(2, 4)
        return patches.reshape(len(padded), layer.groups, -1, patches.shape[3:].numel())
    if isinstance(layer, nn.Conv1d):
        padded = padded[:, :, None]
    kernel, stride, dilation = ((1,) * (2 - len(size)) + tuple(size) for size in (layer.kernel_size, layer.stride, layer.dilation))
    patches = functional.unfold(padded, kernel, dilation=dilation, stride=stride)
    return patches.reshape(len(padded), layer.groups, -1, patches.shape[2])


def _transposed_columns(layer: Transposed, inputs: Tensor) -> Tensor:
    """Reads a transposed convolution as an ordinary one of step 1, with the kernel reversed, on inputs with zeros between them."""
    dimensions = len(layer.kernel_size)
    sizes = [(length - 1) * step + 1 for length, step in zip(inputs.shape[2:], layer.stride, strict=True)]
    spread = inputs.new_zeros(*inputs.shape[:2], *sizes)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in layer.stride))] = inputs
    padding: list[int] = []
    for kernel, dilation, cut, more in zip(layer.kernel_size, layer.dilation, layer.padding, layer.output_padding, strict=True):
        reach = dilation * (kernel - 1) - int(cut)
        padding[:0] = [reach, reach + more]
    patches = _patches(functional.pad(spread, padding), layer.kernel_size, (1,) * dimensions, layer.dilation)
    patches = patches.flip(tuple(range(2, 2 + dimensions))).flatten(2, 1 + dimensions)
    return patches.reshape(len(inputs), layer.groups, -1, patches.shape[3:].numel())


def _patches(padded: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Returns a view [batch, channels, *kernel, *positions] of what each position of the output reads, in any number of dimensions."""
    count = len(kernel)
    for dimension, (size, step, spacing) in enumerate(zip(kernel, stride, dilation, strict=True), start=2):
        padded = padded.unfold(dimension, (size - 1) * spacing + 1, step)[..., ::spacing]
    return padded.permute(0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))


def output_columns(layer: AnyMatrixLayer, outputs: Float[Tensor, "..."]) -> Float[Tensor, "batch out positions"]:
    """Returns a layer's outputs in the order of `layer_columns`."""
    return _by_position(outputs) if isinstance(layer, nn.Linear) else outputs.flatten(2)


def _by_position(features: Float[Tensor, "..."]) -> Float[Tensor, "batch n positions"]:
    """Joins the dimensions between the batch and the features, which come last."""
    return features.reshape(len(features) if features.ndim > 1 else 1, -1, features.shape[-1]).mT
