"""A layer read as matrices, one per group of channels: one row per output channel, one column per input and tap of the kernel.

With W = `layer_matrices(layer)` and X = `layer_columns(layer, inputs)`, the products W X, with the bias added to each row, are the layer's
outputs in the order of `output_columns`.
"""

from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional

from ellzero.surgery.selected_linear import SelectedLinear

MatrixLayer = nn.Linear | nn.Conv1d | nn.Conv2d
"""The layers that are read as matrices."""


def bias_of(layer: MatrixLayer) -> Tensor | None:
    """Returns the bias, which torch types as a tensor though it is optional."""
    return layer.bias


def groups_of(layer: MatrixLayer) -> int:
    """Returns the number of groups of channels, 1 for a linear layer."""
    return 1 if isinstance(layer, nn.Linear) else layer.groups


def layer_matrices(layer: MatrixLayer) -> Float64[Tensor, "groups rows n"]:
    """Returns the weights of each group as a matrix, without the bias, in double precision."""
    weight = layer.weight.detach().double()
    return weight.reshape(groups_of(layer), weight.shape[0] // groups_of(layer), -1)


def layer_columns(layer: MatrixLayer, inputs: Float[Tensor, "..."]) -> Float[Tensor, "batch groups n positions"]:
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
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = functional.pad(inputs, layer._reversed_padding_repeated_twice, mode=mode)
    if isinstance(layer, nn.Conv1d):
        padded = padded[:, :, None]
    kernel, stride, dilation = ((1,) * (2 - len(size)) + tuple(size) for size in (layer.kernel_size, layer.stride, layer.dilation))
    patches = functional.unfold(padded, kernel, dilation=dilation, stride=stride)
    return patches.reshape(len(padded), layer.groups, -1, patches.shape[2])


def output_columns(layer: MatrixLayer, outputs: Float[Tensor, "..."]) -> Float[Tensor, "batch out positions"]:
    """Returns a layer's outputs in the order of `layer_columns`."""
    return _by_position(outputs) if isinstance(layer, nn.Linear) else outputs.flatten(2)


def _by_position(features: Float[Tensor, "..."]) -> Float[Tensor, "batch n positions"]:
    """Joins the dimensions between the batch and the features, which come last."""
    return features.reshape(len(features) if features.ndim > 1 else 1, -1, features.shape[-1]).mT
