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
from ellzero.codec.network.mixing import MIXER_RATE, Memory, Slots, Weights, code_alone, code_mixed, code_raw, mix
from ellzero.codec.rangecoder import Buffer, State
from ellzero.jit.kernels import Integer, inlined, kernel

LIMIT = 255
MAX_LEVEL_BITS = 29
_MODELLED = np.int64(3)


@inlined
def code_magnitude(
    state: State,
    data: Buffer,
    decode: bool,
    memory: Memory,
    weights: Weights,
    slots: Slots,
    size: Integer,
    expected: Integer,
    near: Integer,
    left: Integer,
    over: Integer,
    tap: Integer,
    lines: Integer,
    inputs: Integer,
) -> np.int64:
    """Codes a magnitude, at least 1. Returns it, int64.

    The arguments from `state` to `slots` are those of `mix`.

    Args:
        size: the magnitude; anything where the stream is read.
        expected: class of what row, channel and tap together let one expect.
        near: class of the neighbours' magnitudes.
        left: the magnitude before it.
        over: the magnitude in the row before.
        tap: its place in the kernel of a convolution.
        lines: class of the row's mean and of the channel's.
        inputs: how many of the contexts are used: 3 or all 7.
    """
    one = np.int64(1)
    pair = min(np.int64(left), np.int64(7)) + np.int64(8) * min(np.int64(over), np.int64(7))
    magnitude = one
    while magnitude <= np.int64(UNARY):
        base = MAGNITUDE_SLOTS + (magnitude - one) * np.int64(MAGNITUDE_SIZE)
        slots[0] = base
        slots[1] = base + OF_EXPECTED + expected
        slots[2] = base + OF_NEAR + near
        slots[3] = OWN_SLOTS + magnitude
        slots[4] = base + OF_PAIR + pair
        slots[5] = base + OF_TAP + min(np.int64(tap), np.int64(30))
        slots[6] = base + OF_LINES + lines
        more = np.int64(size > magnitude)
        if not mix(state, data, decode, memory, weights, slots, inputs, MAGNITUDE - 1 + magnitude, more, LIMIT, MIXER_RATE):
            return magnitude
        magnitude += one
    rest = np.int64(size) - np.int64(UNARY)
    bits = np.int64(0)
    while bits < np.int64(MAX_LEVEL_BITS) and code_adaptive(
        state, data, decode, memory, ESCAPE_SLOTS + bits, np.int64((rest >> (bits + one)) > np.int64(0)), LIMIT
    ):
        bits += one
    low = code_raw(state, data, decode, np.uint64(rest) & ((np.uint64(1) << np.uint64(bits)) - np.uint64(1)), bits)
    return np.int64(UNARY) + ((one << bits) | np.int64(low))


@kernel
def _ternary(level: Integer) -> np.int64:
    return np.int64(1) + np.int64(level > 0) - np.int64(level < 0)


@inlined
def code_sign(
    state: State,
    data: Buffer,
    decode: bool,
    memory: Memory,
    weights: Weights,
    slots: Slots,
    negative: Integer,
    left: Integer,
    up: Integer,
    block: Integer,
    over: Integer,
    window: Integer,
    mixer: Integer,
) -> np.int64:
    """Codes whether a level is negative, seeing the levels around it. Returns 1 where it is, int64."""
    slots[0] = SIGN_SLOTS
    slots[1] = SIGN_BESIDE + _ternary(left) * np.int64(3) + _ternary(up)
    slots[2] = SIGN_BEFORE + _ternary(block) * np.int64(3) + _ternary(over)
    slots[3] = SIGN_WINDOW + np.int64(window)
    inputs, limit, rate = np.int64(4), np.int64(LIMIT), np.int64(MIXER_RATE)
    return code_mixed(state, data, decode, memory, weights, slots, inputs, np.int64(mixer), negative, limit, rate)


@inlined
def code_extra(
    state: State, data: Buffer, decode: bool, memory: Memory, weights: Weights, slots: Slots, extra: Integer, bits: Integer, size: Integer
) -> np.uint64:
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
        node = node * np.int64(2) + code_alone(state, data, decode, memory, base + node, bit, 1023)
    high = np.uint64(node)
    low = code_raw(state, data, decode, np.uint64(extra) & ((np.uint64(1) << np.uint64(left)) - np.uint64(1)), left)
    # The node carries a 1 in front of the bits.
    modelled = np.int64(bits) - left
    return ((high - (np.uint64(1) << np.uint64(modelled))) << np.uint64(left)) | np.uint64(low)
