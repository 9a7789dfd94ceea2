# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""A binary decision seen in several contexts: the model of names, positions and values alike.

Each context owns a cell of `ellzero.codec.adaptive`. The cells' logits, weighted and summed, give the probability that is coded; the
weights follow the gradient of the coded length. A cell that was never used speaks for the first context. Logistic mixing: Mahoney, Adaptive
weighing of context models for lossless data compression, 2005.

The same kernels encode and decode. To learn without writing, encode into an empty buffer.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.adaptive import NEW
from ellzero.codec.logistic import LOGIT_LIMIT, rate_table, squash_table, stretch_table
from ellzero.codec.rangecoder import decode_bit, decode_raw, encode_bit, encode_raw
from ellzero.jit.kernels import Integer, inlined, kernel

WEIGHT_ONE = 1 << 16
MIXER_RATE = 14
"""How far weights follow a decision, as a rule."""

MAX_INPUTS = 16

_SQUASH = squash_table()
_STRETCH = stretch_table()
_RATE = rate_table()
_COUNT_BITS = np.int64(10)
_COUNT_MASK = np.int64(1023)
_PROBABILITY_MASK = np.int64(0xFFFFFC00)
_CERTAIN = np.int64(1 << 22)
_TO_16_BITS = np.int64(16)
_LOGITS = np.int64(MAX_INPUTS)


class Stream(NamedTuple):
    """A message of the range coder: the coder's state, the bytes, and whether they are read or written."""

    state: NDArray[np.uint64]
    data: NDArray[np.uint8]
    decode: bool


class MixingModel(NamedTuple):
    """What was learned: cells, and weights [mixers, inputs]. `slots` holds the contexts of the next decision, then their logits."""

    memory: NDArray[np.uint32]
    weights: NDArray[np.int64]
    slots: NDArray[np.int64]


def new_model(cells: Integer, weights: NDArray[np.int64]) -> MixingModel:
    """Makes a model that has seen nothing: every cell at 1/2.

    Args:
        cells: how many.
        weights: the first weights, [mixers, inputs], times 2^16.
    """
    return MixingModel(np.full(cells, NEW, np.uint32), weights.astype(np.int64), np.zeros(2 * MAX_INPUTS, np.int64))


@kernel
def code_raw(stream: Stream, value: Integer, count: Integer) -> np.uint64:
    """Codes `count` bits, each as likely 0 as 1. Returns them, uint64."""
    if stream.decode:
        return decode_raw(stream.state, stream.data, count)
    encode_raw(stream.state, stream.data, value, count)
    return np.uint64(value)


@inlined
def code_alone(stream: Stream, model: MixingModel, slot: Integer, bit: Integer, limit: Integer) -> np.int64:
    """Codes a decision by one cell: `code_adaptive`, pasted into the loop that calls it. Returns the decision, int64."""
    memory = model.memory
    cell = np.int64(memory[slot])
    count, p = cell & _COUNT_MASK, cell >> _COUNT_BITS
    coded = max(cell >> _TO_16_BITS, np.int64(1))
    decided = np.int64(bit)
    if stream.decode:
        decided = decode_bit(stream.state, stream.data, coded)
    else:
        encode_bit(stream.state, stream.data, decided, coded)
    p += ((_CERTAIN * decided - p) * np.int64(_RATE[count])) >> np.int64(16)
    memory[slot] = np.uint32((p << _COUNT_BITS) | min(count + np.int64(1), np.int64(limit)))
    return decided


@inlined
def mix(stream: Stream, model: MixingModel, inputs: Integer, mixer: Integer, bit: Integer, limit: Integer, rate: Integer) -> np.int64:
    """Codes a decision.

    Args:
        stream: where it is written to or read from.
        model: its cells and weights learn; its `slots` hold the contexts, as numbers of cells.
        inputs: how many contexts there are.
        mixer: the row of the weights.
        bit: the decision; anything where it is read.
        limit: how many decisions a cell remembers.
        rate: how far the weights follow the decision; `MIXER_RATE` as a rule.

    Returns:
        The decision, int64.
    """
    memory, weights, slots = model.memory, model.weights, model.slots
    first = np.int64(memory[slots[0]]) & _PROBABILITY_MASK
    dot = np.int64(WEIGHT_ONE // 2)
    for index in range(inputs):
        slot = slots[index]
        cell = np.int64(memory[slot])
        if (cell & _COUNT_MASK) == np.int64(0):
            cell = first
            memory[slot] = np.uint32(cell)
        logit = np.int64(_STRETCH[cell >> _TO_16_BITS])
        slots[_LOGITS + index] = logit
        dot += weights[mixer, index] * logit
    logit = min(max(dot >> np.int64(16), np.int64(-LOGIT_LIMIT)), np.int64(LOGIT_LIMIT))
    p = np.int64(_SQUASH[logit + np.int64(LOGIT_LIMIT)])
    decided = np.int64(bit)
    if stream.decode:
        decided = decode_bit(stream.state, stream.data, p)
    else:
        encode_bit(stream.state, stream.data, decided, p)
    error = ((decided << np.int64(16)) - p) * np.int64(rate)
    for index in range(inputs):
        weights[mixer, index] += (slots[_LOGITS + index] * error + np.int64(1 << 19)) >> np.int64(20)
        slot = slots[index]
        cell = np.int64(memory[slot])
        count = cell & _COUNT_MASK
        p = cell >> _COUNT_BITS
        p += ((_CERTAIN * decided - p) * np.int64(_RATE[count])) >> np.int64(16)
        memory[slot] = np.uint32((p << _COUNT_BITS) | min(count + np.int64(1), np.int64(limit)))
    return decided


@kernel
def code_mixed(
    stream: Stream, model: MixingModel, inputs: Integer, mixer: Integer, bit: Integer, limit: Integer, rate: Integer
) -> np.int64:
    """Codes a decision as `mix` does, as a call of its own, where decisions are few; all numbers are int64."""
    return mix(stream, model, inputs, mixer, bit, limit, rate)
