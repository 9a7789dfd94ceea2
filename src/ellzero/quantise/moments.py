"""Mean and covariance of what a layer's weights are multiplied with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from ellzero.surgery.layer_matrices import MatrixLayer, layer_columns, layer_matrices

_PIECE_ENTRIES = 1 << 22
"""Entries of the unfolded inputs held at once."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Mean and covariance of the inputs of a layer's weights, over samples and positions.

    Attributes:
        mean: of each input.
        covariance: of each pair of inputs within a group.
    """

    mean: Float64[Tensor, "groups n"]
    covariance: Float64[Tensor, "groups n n"]

    @classmethod
    def of(cls, layer: MatrixLayer, inputs: Iterable[Float[Tensor, "..."]], max_positions: int = 1 << 15) -> "Moments":
        """Computes the moments of what the weights of a layer are multiplied with.

        Args:
            layer: the layer.
            inputs: batches of its inputs.
            max_positions: about so many positions are taken at most, evenly spread over those of each sample.
        """
        batches = list(inputs)
        groups, _, n = layer_matrices(layer).shape
        total = torch.zeros(groups, n, dtype=torch.float64, device=layer.weight.device)
        products = torch.zeros(groups, n, n, dtype=torch.float64, device=layer.weight.device)
        samples = sum(len(batch) if batch.ndim > 1 else 1 for batch in batches)
        count = 0
        for batch in batches:
            for piece in pieces(layer, batch):
                columns = layer_columns(layer, piece)
                # An odd distance, so that the columns of an image take turns.
                columns = columns[..., :: max(1, samples * columns.shape[3] // max_positions) | 1]
                rows = columns.permute(1, 2, 0, 3).flatten(2).double()
                total += rows.sum(2)
                products += rows @ rows.mT
                count += rows.shape[2]
        mean = total / count
        # Inputs that never change have a variance of 0 or, by rounding, less; so they get a very small one.
        small = 1e-10 * products.diagonal(dim1=1, dim2=2) / count
        return cls(mean=mean, covariance=products / count - mean[:, :, None] * mean[:, None] + small.diag_embed())


def pieces(layer: MatrixLayer, inputs: Float[Tensor, "..."]) -> Iterator[Tensor]:
    """Splits a batch so that its unfolded inputs fit into little memory."""
    if inputs.ndim < 2 or isinstance(layer, nn.Linear):
        return iter([inputs])
    entries = inputs[0].numel() * layer.weight[0, 0].numel()
    return iter(inputs.split(max(1, _PIECE_ENTRIES // max(entries, 1))))
