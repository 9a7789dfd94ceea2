# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""Match models: what followed the last time that the same bytes were read."""

import numpy as np

from ellzero.codec.bytes.state import (
    BIT_COUNT,
    EXPECTED,
    HEAD_MASK,
    HISTORY_MASK,
    KNOWN,
    MATCH_BASE,
    MATCH_BEST,
    MATCH_COUNTERS,
    MATCH_LENGTH,
    MATCH_LENGTHS,
    MATCH_MISSES,
    MATCH_POINTER,
    MATCH_SLOTS,
    MATCH_STATE,
    MATCHES,
    PARTIAL,
    POSITION,
    SLOTS,
    Model,
)
from ellzero.codec.bytes.tables import Whole
from ellzero.jit.kernels import inlined, kernel


@kernel
def combine(value: Whole, more: Whole) -> np.int64:
    """Hashes two numbers below 2^32 into one."""
    return np.int64((((value + more + 1) * 0x1E35A7BD) >> 16) & 0xFFFFFFFF)


@inlined
def follow_matches(m: Model, byte: Whole) -> None:
    """Moves the match models past a byte, and looks for a match where the last one broke."""
    r = m.registers
    history = m.history
    position = r[POSITION]
    mask = r[HISTORY_MASK]
    h = np.int64(0)
    hashed = np.int64(0)
    for j in range(r[MATCHES]):
        k = MATCH_STATE + MATCH_SLOTS * j
        least = r[MATCH_LENGTHS + j]
        if r[k + MATCH_POINTER] > 0:
            if np.int64(history[r[k + MATCH_POINTER] & mask]) == byte:
                r[k + MATCH_LENGTH] = min(r[k + MATCH_LENGTH] + 1, np.int64(65535))
                r[k + MATCH_MISSES] = (r[k + MATCH_MISSES] << 1) & 255
            else:
                r[k + MATCH_LENGTH] = 0
                r[k + MATCH_MISSES] = ((r[k + MATCH_MISSES] << 1) | 1) & 255
            # Eight surprises in a row: this is no match any more.
            r[k + MATCH_POINTER] = r[k + MATCH_POINTER] + 1 if r[k + MATCH_MISSES] < 255 else 0
        while hashed < least:
            hashed += 1
            h = combine(h, np.int64(history[(position - hashed) & mask]))
        head = j * (r[HEAD_MASK] + 1) + ((h >> 4) & r[HEAD_MASK])
        if r[k + MATCH_POINTER] == 0 or r[k + MATCH_LENGTH] < least:
            # Positions are kept modulo 2^32; 0 says that there is none.
            distance = (position - np.int64(m.heads[head])) & 0xFFFFFFFF
            candidate = position - distance
            if m.heads[head] != 0 and 0 < distance < mask - 64:
                length = np.int64(0)
                while (
                    length < 40
                    and length < candidate
                    and history[(candidate - 1 - length) & mask] == history[(position - 1 - length) & mask]
                ):
                    length += 1
                if length >= least and length > r[k + MATCH_LENGTH]:
                    r[k + MATCH_POINTER] = candidate
                    r[k + MATCH_LENGTH] = length
                    r[k + MATCH_MISSES] = 0
        m.heads[head] = np.uint32(position & 0xFFFFFFFF)


@inlined
def place_matches(m: Model, first: Whole) -> None:
    """Points the counters of the match models, the first of which is number `first`, to what the next bit should be."""
    r = m.registers
    shift = 8 - r[BIT_COUNT]
    best = np.int64(0)
    likely = np.int64(0)
    for j in range(r[MATCHES]):
        k = MATCH_STATE + MATCH_SLOTS * j
        expected = np.int64(m.history[r[k + MATCH_POINTER] & r[HISTORY_MASK]]) | 256
        base = r[MATCH_BASE] + j * MATCH_COUNTERS
        slot = base
        if r[k + MATCH_POINTER] > 0 and (expected >> shift) == r[PARTIAL]:
            bit = (expected >> (shift - 1)) & 1
            length = r[k + MATCH_LENGTH]
            bucket = length if length < 16 else min(np.int64(16) + ((length - 16) >> 3), np.int64(31))
            misses = r[k + MATCH_MISSES]
            slot = base + 1 + (bucket * 8 + (misses & 3) * 2 + np.int64((misses >> 2) != 0)) * 2 + bit
            if bucket >= best:
                best = bucket
                likely = expected
        r[SLOTS + first + j] = slot
        r[KNOWN + first + j] = np.int64(slot != base)
    r[MATCH_BEST] = best
    r[EXPECTED] = likely & 255
