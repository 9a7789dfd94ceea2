# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Decisions and integers whose probabilities are learnt while coding: kernels, one for both directions so that they cannot differ.

Each takes the state of an encoder or decoder (`ellzero.codec.rangecoder`), its bytes (writable in both directions, since one kernel serves
both), and `decode`: whether what is returned is read (the `bit` or `value` given is then ignored) or written. A cell is a uint32: a
probability of 1 times 2^22 in the high bits, and how often it was used in the low 10. New cells hold `NEW`; after n uses a cell moves by
1/(n + 1.5) of the way to what happened, and no slower than 1/(limit + 1.5).
"""

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.rangecoder import Buffer, State, decode_bit, decode_raw, encode_bit, encode_raw
from ellzero.jit.kernels import Integer, kernel

NEW = 1 << 31  # a probability of one half, not used yet
MAX_INTEGER_BITS = 40
INTEGER_CELLS = 4 * MAX_INTEGER_BITS

Cells = NDArray[np.uint32]

_ONE = np.int64(1)
_COUNT_BITS = np.int64(10)
_COUNT_MASK = np.int64(1023)
_CERTAIN = np.int64(1 << 22)
_HALF_SCALE = np.int64(1 << 16)
_RATES = 131072 // (2 * np.arange(1024, dtype=np.int64) + 3)  # 2^16 / (n + 1.5)


@kernel
def _code(state: State, data: Buffer, decode: bool, bit: Integer, p: np.int64) -> np.int64:
    """Codes a decision by a probability, which is first kept away from 0 and 1."""
    p = min(max(p, _ONE), _HALF_SCALE - _ONE)
    if decode:
        return decode_bit(state, data, p)
    encode_bit(state, data, bit, p)
    return np.int64(bit)


@kernel
def code_adaptive(state: State, data: Buffer, decode: bool, cells: Cells, index: Integer, bit: Integer, limit: Integer) -> np.int64:
    """Codes a decision by the cell at `index`, which learns from it; `limit` is 1 to 1023. Returns the decision, int64."""
    cell = np.int64(cells[index])
    p, count = cell >> _COUNT_BITS, cell & _COUNT_MASK
    decided = _code(state, data, decode, bit, p >> np.int64(6))
    p += ((_CERTAIN * decided - p) * _RATES[count]) >> np.int64(16)
    cells[index] = np.uint32((p << _COUNT_BITS) | min(count + _ONE, np.int64(limit)))
    return decided


@kernel
def code_integer(state: State, data: Buffer, decode: bool, cells: Cells, base: Integer, value: Integer, limit: Integer) -> np.int64:
    """Codes a number from 0 to 2^40 - 2, small ones in few bits: an Exp-Golomb code whose decisions are learnt.

    Of value + 1 come first the number of bits after the leading 1, in unary, then the highest two of these, each by what came before, then
    the others as they are; `INTEGER_CELLS` cells from `base` on. Returns the number, int64.
    """
    number = np.int64(value) + _ONE
    first = np.int64(base)
    size = np.int64(0)
    while size < np.int64(MAX_INTEGER_BITS - 1):
        more = np.int64(number >> (size + _ONE) > np.int64(0))
        if not code_adaptive(state, data, decode, cells, first + size, more, limit):
            break
        size += _ONE
    first += np.int64(MAX_INTEGER_BITS) + np.int64(3) * size
    node = _ONE
    left = size
    while left > np.int64(0) and node < np.int64(4):
        left -= _ONE
        node = (node << _ONE) | code_adaptive(state, data, decode, cells, first + node - _ONE, (number >> left) & _ONE, limit)
    if decode:
        number = (node << left) | np.int64(decode_raw(state, data, left))
    else:
        encode_raw(state, data, number & ((_ONE << left) - _ONE), left)
    return number - _ONE
