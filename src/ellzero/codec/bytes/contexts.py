# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The contexts of the byte model, as hashes of what was read before."""

import numpy as np

from ellzero.codec.bytes.state import (
    FIRST,
    GAP,
    INDIRECT1,
    LINE,
    LINE1,
    MATCH_STATE,
    OLDER,
    POSITION,
    PREVIOUS,
    SHAPE,
    WORD,
    WORD1,
    WORD2,
    WORD3,
    WORD_LENGTH,
    Model,
)
from ellzero.codec.jit import kernel


@kernel
def combine(value: int, more: int) -> int:
    """Hashes two numbers below 2^32 into one."""
    return (((value + more + 1) * 0x1E35A7BD) >> 16) & 0xFFFFFFFF


@kernel
def note_byte(m: Model, byte: int) -> None:
    """Brings the registers up to date with a byte that is complete."""
    r = m.registers
    position = r[POSITION]
    m.history[position & m.history_mask] = np.uint8(byte)
    position += 1
    r[POSITION] = position
    before = r[PREVIOUS]
    c1 = before & 255
    m.indirect[c1] = np.uint32(((np.int64(m.indirect[c1]) << 8) | byte) & 0xFFFFFF)
    pair = before & 0xFFFF
    m.indirect[256 + pair] = np.uint32(((np.int64(m.indirect[256 + pair]) << 8) | byte) & 0xFFFFFF)
    r[OLDER] = ((r[OLDER] << 8) | (before >> 24)) & 0xFFFFFFFF
    previous = ((before << 8) | byte) & 0xFFFFFFFF
    r[PREVIOUS] = previous
    kind = np.int64(m.classes[byte])
    r[SHAPE] = ((r[SHAPE] << 3) | kind) & 0x3FFFFFFF
    folded = byte + 32 if kind == 1 else byte
    if kind <= 1 or byte >= 128:
        r[WORD] = combine(r[WORD], folded)
        r[WORD_LENGTH] += 1
    elif r[WORD] != 0:
        r[WORD3] = r[WORD2]
        r[WORD2] = r[WORD1]
        r[WORD1] = r[WORD]
        r[WORD] = 0
        r[WORD_LENGTH] = 0
        r[GAP] = byte
    else:
        r[GAP] = combine(r[GAP], byte)
    if byte == 10:
        r[LINE1] = r[LINE]
        r[LINE] = position
        r[FIRST] = 0
    elif position - r[LINE] <= 4:
        r[FIRST] = combine(r[FIRST], byte)
    follow_matches(m, byte)


@kernel
def follow_matches(m: Model, byte: int) -> None:
    """Moves the match models on, and looks for a match where there is none."""
    r = m.registers
    position = r[POSITION]
    mask = m.history_mask
    for j in range(m.match_lengths.size):
        k = MATCH_STATE + 4 * j
        least = m.match_lengths[j]
        if r[k] > 0:
            if np.int64(m.history[r[k] & mask]) == byte:
                r[k + 1] = min(r[k + 1] + 1, np.int64(65535))
                r[k + 2] = (r[k + 2] << 1) & 255
            else:
                r[k + 1] = 0
                r[k + 2] = ((r[k + 2] << 1) | 1) & 255
                if r[k + 2] == 255:
                    r[k] = -1
            r[k] += 1
        h = np.int64(0)
        if position >= least:
            for i in range(1, least + 1):
                h = combine(h, np.int64(m.history[(position - i) & mask]))
        head = j * (m.match_heads.size // m.match_lengths.size) + (h & (m.match_heads.size // m.match_lengths.size - 1))
        if r[k] == 0 or r[k + 1] < least:
            candidate = np.int64(m.match_heads[head])
            if candidate > 0 and position - candidate <= mask:
                length = np.int64(0)
                while (
                    length < 32
                    and length < candidate
                    and m.history[(candidate - 1 - length) & mask] == m.history[(position - 1 - length) & mask]
                ):
                    length += 1
                if length >= least and length > r[k + 1]:
                    r[k] = candidate
                    r[k + 1] = length
                    r[k + 2] = 0
        m.match_heads[head] = np.int32(position)


@kernel
def set_contexts(m: Model) -> None:
    """Computes the hash of every context of the plan at a byte boundary."""
    r = m.registers
    v = m.values
    mask = m.history_mask
    position = r[POSITION]
    c4 = r[PREVIOUS]
    c8 = r[OLDER]
    c1 = c4 & 255
    word = r[WORD]
    column = position - r[LINE]
    above = np.int64(m.history[(r[LINE1] + column) & mask]) if r[LINE1] + column < r[LINE] else np.int64(0)
    v[0] = 0
    v[1] = c1
    v[2] = c4 & 0xFFFF
    v[3] = c4 & 0xFFFFFF
    v[4] = c4
    v[5] = combine(c4, c8 & 0xFF)
    v[6] = combine(c4, c8 & 0xFFFF)
    v[7] = combine(c4, c8 & 0xFFFFFF)
    v[8] = combine(c4, c8)
    v[9] = combine(word, c1 if word == 0 else np.int64(0))
    v[10] = combine(combine(word, r[GAP]), r[WORD1])
    v[11] = combine(combine(combine(word, c1), r[WORD1]), r[WORD2])
    v[12] = combine(combine(word, c1), r[WORD2])
    v[13] = (c4 >> 8) & 0xFFFF
    v[14] = (c4 >> 16) & 0xFFFF
    v[15] = (c4 >> 8) & 0xFFFFFF
    v[16] = c4 & 0xFF00FF
    v[17] = c4 & 0xFFFF00FF
    ind1 = np.int64(m.indirect[c1])
    ind2 = np.int64(m.indirect[256 + (c4 & 0xFFFF)])
    v[18] = combine(ind1 & 0xFFFF, c1)
    v[19] = combine(ind2 & 0xFFFF, c1)
    v[20] = combine(ind2 & 0xFF, c4 & 0xFFFF)
    v[21] = combine(above, c1)
    v[22] = combine(above, min(column, np.int64(255)))
    pointer = r[MATCH_STATE]
    v[23] = combine(np.int64(m.history[pointer & mask]), min(r[MATCH_STATE + 1], np.int64(31)) + 1) if pointer > 0 else np.int64(0)
    v[24] = combine(r[SHAPE], c1)
    v[25] = combine(r[SHAPE] & 0xFFF, r[GAP])
    v[26] = combine(combine(r[FIRST], word), c1)
    v[27] = combine(combine(r[GAP], word), r[WORD_LENGTH])
    v[28] = combine(r[WORD1], c1)
    v[29] = combine(r[WORD3], word)
    v[30] = combine(c4 & 0xF0F0F0F0, c8 & 0xF0F0)
    v[31] = combine(word, r[INDIRECT1])
    for i in range(m.plan.size):
        m.hashes[i] = combine(v[m.plan[i]], m.plan[i] + 0x10000)


@kernel
def set_direct(m: Model, partial: int) -> None:
    """Points the direct counters to the next four bits."""
    size = m.direct.size // 3
    c4 = m.registers[PREVIOUS]
    slots = size >> 4
    for i in range(3):
        h = partial if i == 0 else combine(c4 & ((1 << (8 * i)) - 1), partial) * 0x2C9277B5 >> 20
        m.direct_bases[i] = i * size + ((h & (slots - 1)) << 4)
