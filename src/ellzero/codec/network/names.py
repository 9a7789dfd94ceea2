# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Names of tensors: each bit by the bytes before it, and by what followed them the last time."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.mixing import MIXER_RATE, WEIGHT_ONE, Memory, MixingModel, Slots, Weights, code_mixed, new_model
from ellzero.codec.rangecoder import Buffer, State
from ellzero.jit.kernels import Integer, kernel

MAX_NAME = 1 << 12
HISTORY = 1 << 20

TYPICAL = (
    "layers.0.weight\0layers.0.bias\0layers.1.weight\0layers.1.bias\0conv1.weight\0conv1.bias\0conv2.weight\0fc1.weight\0fc1.bias\0fc.weight\0"
    "fc.bias\0bn1.weight\0bn1.bias\0bn1.running_mean\0bn1.running_var\0bn1.num_batches_tracked\0layer1.0.conv1.weight\0layer1.0.bn1.weight\0"
    "features.0.weight\0features.0.bias\0classifier.0.weight\0lstm.weight_ih_l0\0lstm.weight_hh_l0\0lstm.bias_ih_l0\0embedding.weight\0"
    "model.layers.0.self_attn.q_proj.weight\0model.layers.0.mlp.up_proj.weight\0norm.weight\0lm_head.weight\0"
)
"""What names are made of, learnt before the first one: so that a network of usual names spends few bytes on them."""

_CELLS = 1 << 16
_INPUTS = 6
_LIMIT = 127
_WINDOW = 1024
_MULTIPLIER = np.int64(0x1E3779B1)
_MASK = np.int64(0xFFFFFFFF)


def new_name_model() -> MixingModel:
    """Makes a model of names that has seen none."""
    return new_model(_CELLS, np.full((3, _INPUTS), round(0.3 * WEIGHT_ONE)))


@kernel
def code_name(
    state: State,
    data: Buffer,
    decode: bool,
    memory: Memory,
    weights: Weights,
    slots: Slots,
    history: NDArray[np.uint8],
    written: NDArray[np.int64],
    limit: Integer,
) -> None:
    """Codes bytes up to and with the next 0, or `limit` of them.

    The arguments from `state` to `slots` are those of `mix`.

    Args:
        history: all names so far, each ended by 0; the next from `written[0]` on, filled in where it is read.
        written: the number of bytes so far; the place where the last name like this one goes on, and for how many bytes it was.
        limit: the largest number of bytes.
    """
    zero, one = np.int64(0), np.int64(1)
    inputs, limit_of_cells = np.int64(_INPUTS), np.int64(_LIMIT)
    for _ in range(limit):
        at = written[0]
        if written[2] == zero:
            # The latest place with the same two bytes before it.
            for back in range(one, min(at - one, np.int64(_WINDOW))):
                place = at - np.int64(back)
                if history[place - one] == history[at - one] and history[place - np.int64(2)] == history[at - np.int64(2)]:
                    written[1] = place
                    written[2] = one
                    break
        guess = np.int64(history[written[1]]) | np.int64(256) if written[2] > zero else zero
        known = min(written[2], np.int64(7))
        node = one
        for index in range(8):
            shift = np.int64(7 - index)
            agrees = guess > zero and (guess >> (shift + one)) == node
            wanted = (guess >> shift) & one
            context = zero
            slots[0] = node
            for order in range(1, 5):
                if at >= np.int64(order):
                    context = (context * np.int64(257) + np.int64(history[at - np.int64(order)]) + one) & _MASK
                hashed = ((context * np.int64(8) + np.int64(order)) & _MASK) * _MULTIPLIER + node * np.int64(0x3D4D51CB)
                slots[order] = (((hashed & _MASK) * _MULTIPLIER) & _MASK) >> np.int64(16)
            slots[5] = np.int64(256) + (known * np.int64(2) + wanted if agrees else zero)
            mixer = zero if not agrees else (one if known < np.int64(3) else np.int64(2))
            bit = (np.int64(history[at]) >> shift) & one
            node = node * np.int64(2) + code_mixed(
                state, data, decode, memory, weights, slots, inputs, mixer, bit, limit_of_cells, np.int64(MIXER_RATE)
            )
        byte = np.uint8(node & np.int64(255))
        if written[2] > zero and history[written[1]] == byte:
            written[1] += one
            written[2] += one
        else:
            written[2] = zero
        history[at] = byte
        written[0] = at + one
        if byte == np.uint8(0):
            break
