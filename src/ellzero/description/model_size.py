"""Sizes of a sparse network by every rule in use, in bits.

Each rule counts one tensor; a network is the sum over its tensors. They differ in what the positions of the non-zeros cost, which at
high sparsity is most of a file, and in nothing else: each value takes `value_bits`, 32 unless quantised.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from ellzero.description.code_length import nats_to_bits


@dataclass(frozen=True, kw_only=True)
class TensorCount:
    """A tensor as the rules see it.

    Attributes:
        shape: the tensor's shape; () for a scalar.
        nonzeros: how many of its entries are not 0.

    Raises:
        ValueError: `nonzeros` is negative or more than the shape holds.
    """

    shape: tuple[int, ...]
    nonzeros: int

    def __post_init__(self) -> None:
        if not 0 <= self.nonzeros <= self.size:
            raise ValueError(f"{self.nonzeros} non-zeros do not fit the shape {self.shape}, which holds {self.size}")

    @property
    def size(self) -> int:
        """How many entries the shape holds."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Rows as a matrix: the first dimension, output units of a layer; 1 for vectors and scalars."""
        return self.shape[0] if len(self.shape) >= 2 else 1

    @property
    def columns(self) -> int:
        """Columns as a matrix: all dimensions but the first, flattened."""
        return math.prod(self.shape[1:]) if len(self.shape) >= 2 else self.size


def count_mask(mask: Bool[np.ndarray, "..."]) -> TensorCount:
    """Counts the kept entries of a mask."""
    return TensorCount(shape=mask.shape, nonzeros=int(np.count_nonzero(mask)))


def stored_scalars(sparse: Iterable[TensorCount], dense: Iterable[TensorCount] = ()) -> int:
    """Counts the scalars whose value a file has to hold.

    Args:
        sparse: tensors of which only the non-zeros are stored.
        dense: tensors stored whole, zeros too: biases, normalisation and its running statistics, where those are not pruned.

    Returns:
        Non-zeros of the sparse tensors plus all entries of the dense ones.
    """
    return sum(tensor.nonzeros for tensor in sparse) + sum(tensor.size for tensor in dense)


def dense_bits(tensor: TensorCount, *, value_bits: int = 32) -> int:
    """Counts every entry, zero or not."""
    return tensor.size * value_bits


def nonzeros_times_four_bytes(tensor: TensorCount) -> int:
    """Counts as the paper counts ("model byte size"): 32 bits per non-zero, positions free. No file of this size can be decoded."""
    return tensor.nonzeros * 32


def coo_bits(tensor: TensorCount, *, index_bits: int = 32, value_bits: int = 32) -> int:
    """Counts coordinate lists: each non-zero with one index of `index_bits` bits per dimension."""
    return tensor.nonzeros * (len(tensor.shape) * index_bits + value_bits)


def csr_bits(tensor: TensorCount, *, index_bits: int = 32, value_bits: int = 32) -> int:
    """Counts compressed sparse rows: each non-zero with its column, and rows + 1 offsets, all of `index_bits` bits."""
    return tensor.nonzeros * (index_bits + value_bits) + (tensor.rows + 1) * index_bits


def csc_bits(tensor: TensorCount, *, index_bits: int = 32, value_bits: int = 32) -> int:
    """Counts compressed sparse columns: each non-zero with its row, and columns + 1 offsets, all of `index_bits` bits."""
    return tensor.nonzeros * (index_bits + value_bits) + (tensor.columns + 1) * index_bits


def bitmap_bits(tensor: TensorCount, *, value_bits: int = 32) -> int:
    """Counts a bitmap: one bit per entry says whether it is stored."""
    return tensor.size + tensor.nonzeros * value_bits


def position_entropy_bits(tensor: TensorCount) -> float:
    """Computes log2 C(size, nonzeros): what the positions cost if all placements of so many non-zeros are equally likely.

    A bound for coders that know the count and nothing else; one that knows structure (dead units, dense regions) goes below.
    """
    n, k = tensor.size, tensor.nonzeros
    return nats_to_bits(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1))


def entropy_bits(tensors: Iterable[TensorCount], *, value_bits: int = 32) -> float:
    """Computes the entropy bound of a network: sum over its tensors of `position_entropy_bits` plus the values.

    Args:
        tensors: the tensors of the network.
        value_bits: bits per value.

    Returns:
        The bound in bits; the counts themselves, a few bytes per tensor, are not in it.
    """
    return sum(position_entropy_bits(tensor) + tensor.nonzeros * value_bits for tensor in tensors)
