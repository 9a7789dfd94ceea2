"""Masks on a CPU in one pass over memory: what a step spends on masks is the reading and writing, not the arithmetic."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.jit.kernels import config, kernel

SMALLEST, LARGEST = 2**12, 2**20
"""Scalars of the tensors that the kernels are used for. Smaller ones are cheaper together in one foreach operation, unless there are few
tensors in all; for a larger one torch takes several threads, a kernel one."""

FEW = 16
"""Tensors of a network up to which the kernels are used for small ones, too."""

Floats = NDArray[np.float32]


@kernel
def keep_(values: Floats, mask: NDArray[np.bool_]) -> None:
    """Sets the values outside the mask to 0, NaN too."""
    for i in range(values.size):
        values[i] = values[i] if mask[i] else np.float32(0)


@kernel
def add_sign_and_keep_(gradients: Floats, weights: Floats, mask: NDArray[np.bool_], alpha: np.float32) -> None:
    """Adds `alpha * sign(weight)` to the gradients inside the mask and sets the others to 0."""
    for i in range(gradients.size):
        sign = np.float32(weights[i] > np.float32(0)) - np.float32(weights[i] < np.float32(0))
        pulled = gradients[i] + alpha * sign
        gradients[i] = pulled if mask[i] else np.float32(0)


def fits(tensor: Tensor, smallest: int = SMALLEST) -> bool:
    """Tells whether the kernels take a tensor: an ordinary one, contiguous, float32, on a CPU, neither small nor large."""
    return (
        type(tensor) in (Tensor, nn.Parameter)  # a distributed tensor or another subclass may have no memory of its own
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and smallest <= tensor.numel() <= LARGEST
        and not config.DISABLE_JIT
    )


class Rows:
    """Weights as one-dimensional arrays for the kernels; an array is made anew where a weight has moved in memory.

    Args:
        smallest: the fewest scalars of a tensor that gets an array.
    """

    def __init__(self, smallest: int = SMALLEST) -> None:
        self._smallest = smallest
        self._rows: dict[str, tuple[int, Floats | None]] = {}

    def of(self, name: str, weight: Tensor) -> Floats | None:
        """Returns the memory of a weight as a one-dimensional array; None where the kernels cannot take it."""
        if weight.layout is not torch.strided:
            return None
        address, row = self._rows.get(name, (-1, None))
        # The array holds a reference to the old memory, so that no other tensor takes its address.
        if address != weight.data_ptr() or row is None:
            row = row_of(weight) if fits(weight, self._smallest) else None
            self._rows[name] = (weight.data_ptr(), row)
        return row


def row_of(tensor: Tensor) -> Floats:
    """Returns a tensor's memory as a one-dimensional array."""
    return tensor.detach().numpy().reshape(-1)
