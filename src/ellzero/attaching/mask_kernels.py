"""Penalties and masks on a CPU in one pass over the memory of all tensors: a step spends its time on calls and on reading and writing."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.jit.intrinsics import float32_of_bits, read_byte, read_float32, write_float32
from ellzero.jit.kernels import config, inlined, kernel
from ellzero.types import Params

LARGEST = 2**20
"""Scalars of the largest tensor that the kernels are used for: for a larger one torch takes several threads, a kernel one."""

Addresses = NDArray[np.int64]


@inlined
def exponential_of_two(exponent: np.float32) -> np.float32:
    """Computes `2^exponent` for an exponent of at most 0, to a relative error of 1e-7; below -100 it is `2^-100`.

    The polynomial is the Taylor series of `2^x` on [-1/2, 1/2] to the sixth degree, the whole part of the exponent goes into the bits.
    """
    bounded = max(exponent, np.float32(-100))
    whole = np.floor(bounded + np.float32(0.5))
    x = bounded - whole
    power = np.float32(1.5353362e-4)
    power = power * x + np.float32(1.3398874e-3)
    power = power * x + np.float32(9.6184373e-3)
    power = power * x + np.float32(5.5503324e-2)
    power = power * x + np.float32(2.4022648e-1)
    power = power * x + np.float32(6.9314720e-1)
    power = power * x + np.float32(1)
    return power * float32_of_bits(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@inlined
def sign_of(value: np.float32) -> np.float32:
    """Returns -1, 0 or 1."""
    return np.float32(value > np.float32(0)) - np.float32(value < np.float32(0))


@kernel
def keep_(values: Addresses, masks: Addresses, sizes: Addresses) -> None:
    """Sets the values outside the masks to 0, NaN too.

    Args:
        values: where each tensor begins.
        masks: where its mask begins, a byte per scalar.
        sizes: its scalars.
    """
    for t in range(sizes.size):
        start, mask = values[t], masks[t]
        for i in range(sizes[t]):
            write_float32(start, i, read_float32(start, i) if read_byte(mask, i) else np.float32(0))


@kernel
def pull_and_keep_(
    gradients: Addresses, weights: Addresses, masks: Addresses, sizes: Addresses, price: np.float32, exponent: np.float32
) -> None:
    """Adds `price * sign(w) * 2^(exponent * |w|)` to the gradients inside the masks and sets the others to 0.

    Args:
        gradients: where the gradient of each tensor begins.
        weights: where its weights w begin.
        masks: where its mask begins, a byte per scalar; 0 where all scalars are kept.
        sizes: its scalars.
        price: the pull at a weight that is close to 0.
        exponent: of a magnitude of 1, at most 0; 0 pulls all weights alike.
    """
    for t in range(sizes.size):
        gradient, weight, mask = gradients[t], weights[t], masks[t]
        # A loop for each case: what is decided within a loop is decided for each scalar.
        if exponent == np.float32(0) and mask == np.int64(0):
            for i in range(sizes[t]):
                write_float32(gradient, i, read_float32(gradient, i) + price * sign_of(read_float32(weight, i)))
        elif exponent == np.float32(0):
            for i in range(sizes[t]):
                pulled = read_float32(gradient, i) + price * sign_of(read_float32(weight, i))
                write_float32(gradient, i, pulled if read_byte(mask, i) else np.float32(0))
        elif mask == np.int64(0):
            for i in range(sizes[t]):
                w = read_float32(weight, i)
                pull = price * (sign_of(w) * exponential_of_two(exponent * abs(w)))
                write_float32(gradient, i, read_float32(gradient, i) + pull)
        else:
            for i in range(sizes[t]):
                w = read_float32(weight, i)
                pull = price * (sign_of(w) * exponential_of_two(exponent * abs(w)))
                write_float32(gradient, i, read_float32(gradient, i) + pull if read_byte(mask, i) else np.float32(0))


def fits(tensor: Tensor) -> bool:
    """Tells whether the kernels take a tensor: an ordinary one, contiguous, float32, on a CPU, not large."""
    return (
        type(tensor) in (Tensor, nn.Parameter)  # a distributed tensor or another subclass may have no memory of its own
        and tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and tensor.numel() <= LARGEST
        and not config.DISABLE_JIT
    )


def is_like(gradient: Tensor | None, weight: Tensor) -> TypeGuard[Tensor]:
    """Tells whether the kernels take the gradient of a weight that they take; its device is that of the weight."""
    return (
        type(gradient) is Tensor
        and gradient.layout is torch.strided
        and gradient.dtype is torch.float32
        and gradient.is_contiguous()
        and gradient.numel() == weight.numel()  # the weight may have been given other memory since
    )


def addresses(values: Sequence[int]) -> Addresses:
    """Makes the array of addresses, or of sizes, that a kernel takes."""
    return np.array(values, dtype=np.int64)


class Places:
    """Where the weights of some parameters and their masks lie in memory: looked up once, checked at every step.

    Args:
        params: the parameters.
        masks: where masks lie that the kernels take, and how many scalars they have, by name.
        masked: names of all parameters that have a mask.
        only: names of the parameters that are asked for; None for all.

    Attributes:
        names: the parameters that the kernels take.
        weights: the same themselves.
        others: those that the kernels do not take.
        starts: the address of each weight that they take.
        masks: that of its mask, 0 where it has none.
        sizes: its scalars.
    """

    def __init__(
        self, params: Params, masks: Mapping[str, tuple[int, int]], masked: Collection[str], only: Collection[str] | None = None
    ) -> None:
        asked = params if only is None else {name: weight for name, weight in params.items() if name in only}
        taken: dict[str, Tensor] = {}
        for name, weight in asked.items():
            _, size = masks.get(name, (0, weight.numel()))
            if (name in masks or name not in masked) and size == weight.numel() and fits(weight):
                taken[name] = weight
        self._params = params
        self.names, self.weights = list(taken), list(taken.values())
        self.others = {name: weight for name, weight in asked.items() if name not in taken}
        self._known = [(weight.data_ptr(), weight.numel()) for weight in self.weights]
        self.starts = addresses([start for start, _ in self._known])
        self.masks = addresses([masks.get(name, (0, 0))[0] for name in self.names])
        self.sizes = addresses([size for _, size in self._known])

    def hold(self, params: Params) -> bool:
        """Tells whether these are the places of the parameters still: none has moved in memory, or is another part of it."""
        where = [(weight.data_ptr(), weight.numel()) for weight in self.weights]
        return params is self._params and where == self._known and all(map(Tensor.is_contiguous, self.weights))
