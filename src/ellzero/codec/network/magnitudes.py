# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
# Numba's numbers are numpy scalars whose operators pyright types as unions, and integers of any width.
"""How large a level is, its sign, and the bits that follow it."""

import numpy as np

from ellzero.codec.adaptive import code_adaptive
from ellzero.codec.network.layout import (
    ESCAPE_SLOTS,
    EXTRA_SLOTS,
    MAGNITUDE,
    MAGNITUDE_SIZE,
    MAGNITUDE_SLOTS,
    OF_EXPECTED,
    OF_LINES,
    OF_NEAR,
    OF_PAIR,
    OF_TAP,
    OWN_SLOTS,
    SIGN_BEFORE,
    SIGN_BESIDE,
    SIGN_SLOTS,
    SIGN_WINDOW,
    UNARY,
)
from ellzero.codec.network.means import Expected
from ellzero.codec.network.mixing import MIXER_RATE, MixingModel, Stream, code_alone, code_mixed, code_raw, mix
from ellzero.codec.network.window import Cell
from ellzero.jit.kernels import Integer, inlined, kernel

LIMIT = 255
MAX_LEVEL_BITS = 29
_MODELLED = np.int64(3)
"""Bits behind a magnitude that are modelled."""

# Contexts of a magnitude: none, what is expected, the neighbours' sum, the tensor, left and over, place in the kernel, row and channel.
_BIAS, _EXPECTED, _NEAR, _OWN, _PAIR, _TAP, _LINES = range(7)
FEW_INPUTS, ALL_INPUTS = 3, 7

# Contexts of a sign: none, the levels left and above, those a channel and a row before, the window.
_BESIDE, _BEFORE, _WINDOW = 1, 2, 3
_SIGN_INPUTS = 4


@inlined
def code_magnitude(stream: Stream, model: MixingModel, cell: Cell, expected: Expected, size: Integer, inputs: Integer) -> np.int64:
    """Codes a magnitude, at least 1. Returns it, int64.

    Args:
        stream: as in `mix`.
        model: as in `mix`.
        cell: its neighbours.
        expected: what is expected of it.
        size: the magnitude; anything where the stream is read.
        inputs: how many of the contexts are used: `FEW_INPUTS` or `ALL_INPUTS`.
    """
    slots = model.slots
    one = np.int64(1)
    pair = min(abs(cell.left), np.int64(7)) + np.int64(8) * min(abs(cell.over), np.int64(7))
    magnitude = one
    while magnitude <= np.int64(UNARY):
        base = MAGNITUDE_SLOTS + (magnitude - one) * np.int64(MAGNITUDE_SIZE)
        slots[_BIAS] = base
        slots[_EXPECTED] = base + OF_EXPECTED + expected.together
        slots[_NEAR] = base + OF_NEAR + expected.near
        slots[_OWN] = OWN_SLOTS + magnitude
        slots[_PAIR] = base + OF_PAIR + pair
        slots[_TAP] = base + OF_TAP + min(cell.tap, np.int64(30))
        slots[_LINES] = base + OF_LINES + expected.lines
        more = np.int64(size > magnitude)
        if not mix(stream, model, inputs, MAGNITUDE - 1 + magnitude, more, LIMIT, MIXER_RATE):
            return magnitude
        magnitude += one
    rest = np.int64(size) - np.int64(UNARY)
    bits = np.int64(0)
    while bits < np.int64(MAX_LEVEL_BITS) and code_adaptive(
        stream.state, stream.data, stream.decode, model.memory, ESCAPE_SLOTS + bits, np.int64((rest >> (bits + one)) > np.int64(0)), LIMIT
    ):
        bits += one
    low = code_raw(stream, np.uint64(rest) & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)), bits)
    return np.int64(UNARY) + ((one << bits) | np.int64(low))


@kernel
def _ternary(level: Integer) -> np.int64:
    return np.int64(1) + np.int64(level > 0) - np.int64(level < 0)


@inlined
def code_sign(stream: Stream, model: MixingModel, cell: Cell, negative: Integer, window: Integer, mixer: Integer) -> np.int64:
    """Codes whether a level is negative, seeing the levels around it. Returns 1 where it is, int64."""
    slots = model.slots
    slots[_BIAS] = SIGN_SLOTS
    slots[_BESIDE] = SIGN_BESIDE + _ternary(cell.left) * np.int64(3) + _ternary(cell.up)
    slots[_BEFORE] = SIGN_BEFORE + _ternary(cell.block) * np.int64(3) + _ternary(cell.over)
    slots[_WINDOW] = SIGN_WINDOW + np.int64(window)
    inputs, limit, rate = np.int64(_SIGN_INPUTS), np.int64(LIMIT), np.int64(MIXER_RATE)
    return code_mixed(stream, model, inputs, np.int64(mixer), negative, limit, rate)


@inlined
def code_extra(stream: Stream, model: MixingModel, extra: Integer, bits: Integer, size: Integer) -> np.uint64:
    """Codes the bits that follow a level of a float or an integer: the first three by those before them, the rest as they are.

    Returns:
        The bits, uint64.
    """
    one = np.int64(1)
    base = EXTRA_SLOTS + min(np.int64(size) - one, np.int64(31)) * np.int64(8)
    left = np.int64(bits)
    node = one
    while left > np.int64(0) and node < (one << _MODELLED):
        left -= one
        bit = np.int64((np.uint64(extra) >> np.uint64(left)) & np.uint64(1))
        node = node * np.int64(2) + code_alone(stream, model, base + node, bit, 1023)
    high = np.uint64(node)
    low = code_raw(stream, np.uint64(extra) & ((np.uint64(1) << np.uint64(left)) - np.uint64(1)), left)
    # The node carries a 1 in front of the bits.
    modelled = np.int64(bits) - left
    return ((high - (np.uint64(1) << np.uint64(modelled))) << np.uint64(left)) | np.uint64(low)
