# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""Names of tensors: each bit by the bytes before it, and by what followed them the last time."""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.mixing import MIXER_RATE, WEIGHT_ONE, MixingModel, Stream, code_mixed, new_model
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

WRITTEN, PLACE, LENGTH = range(3)
"""What runs along while names are coded."""

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
def code_name(stream: Stream, model: MixingModel, history: NDArray[np.uint8], progress: NDArray[np.int64], limit: Integer) -> None:
    """Codes bytes up to and with the next 0, or `limit` of them.

    Args:
        stream: as in `mix`.
        model: as in `mix`.
        history: all names so far, each ended by 0; the next from `progress[WRITTEN]` on, filled in where it is read.
        progress: how many bytes were written, where an earlier name like this one goes on, and for how many bytes it was like it.
        limit: the largest number of bytes.
    """
    slots = model.slots
    zero, one = np.int64(0), np.int64(1)
    inputs, limit_of_cells = np.int64(_INPUTS), np.int64(_LIMIT)
    for _ in range(limit):
        at = progress[WRITTEN]
        if progress[LENGTH] == zero:
            # The latest place with the same two bytes before it.
            for back in range(one, min(at - one, np.int64(_WINDOW))):
                place = at - np.int64(back)
                if history[place - one] == history[at - one] and history[place - np.int64(2)] == history[at - np.int64(2)]:
                    progress[PLACE] = place
                    progress[LENGTH] = one
                    break
        guess = np.int64(history[progress[PLACE]]) | np.int64(256) if progress[LENGTH] > zero else zero
        known = min(progress[LENGTH], np.int64(7))
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
            node = node * np.int64(2) + code_mixed(stream, model, inputs, mixer, bit, limit_of_cells, np.int64(MIXER_RATE))
        byte = np.uint8(node & np.int64(255))
        if progress[LENGTH] > zero and history[progress[PLACE]] == byte:
            progress[PLACE] += one
            progress[LENGTH] += one
        else:
            progress[LENGTH] = zero
        history[at] = byte
        progress[WRITTEN] = at + one
        if byte == np.uint8(0):
            break
