# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The contexts of the byte model: registers that follow what is read, and hashes of them. Written down in docs/formats/bytes-model.md."""

import numpy as np

from ellzero.codec.bytes.matches import combine, follow_matches
from ellzero.codec.bytes.pictures import set_picture_contexts
from ellzero.codec.bytes.state import (
    ABOVE,
    CAPITAL,
    COLUMN,
    CONTEXTS,
    FIRST,
    FOLDED,
    FOLDED_OLDER,
    GAP,
    HASHES,
    HISTORY_MASK,
    INDIRECT_BASE,
    LINE,
    LINE1,
    LINES,
    MARK,
    MATCH_LENGTH,
    MATCH_POINTER,
    MATCH_STATE,
    MIXER_BYTE,
    MIXER_RANK,
    NUMBER,
    OLDER,
    PLAN,
    POSITION,
    PREVIOUS,
    ROW,
    SECTION,
    SECTIONS,
    SHAPE,
    STRIDE,
    TAG_DEPTH,
    TAG_NAME,
    TAG_STATE,
    TAGS,
    VALUES,
    WIDE,
    WIDEST,
    WORD,
    WORD1,
    WORD2,
    WORD3,
    WORD_LENGTH,
    Model,
)  # fmt: skip
from ellzero.codec.bytes.tables import CLASSES, Whole
from ellzero.jit.kernels import inlined, kernel


@kernel
def note_byte(m: Model, byte: Whole) -> None:
    """Brings the registers up to date with a byte that is complete."""
    r = m.registers
    m.history[r[POSITION] & r[HISTORY_MASK]] = np.uint8(byte)
    r[POSITION] += 1
    before = r[PREVIOUS]
    if WIDE:
        for slot in (r[INDIRECT_BASE] + (before & 255), r[INDIRECT_BASE] + 256 + (before & 0xFFFF)):
            m.counters[slot] = np.uint32(((np.int64(m.counters[slot]) << 8) | byte) & 0xFFFFFF)
    r[OLDER] = ((r[OLDER] << 8) | (before >> 24)) & 0xFFFFFFFF
    r[PREVIOUS] = ((before << 8) | byte) & 0xFFFFFFFF
    kind = np.int64(CLASSES[byte])
    if kind <= 1 or byte >= 128:
        if r[WORD] == 0:
            r[CAPITAL] = kind
        r[WORD] = combine(r[WORD], byte + 32 if kind == 1 else byte)
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
    if WIDE:
        note_more(m, byte, kind)
    follow_matches(m, byte)


@inlined
def note_more(m: Model, byte: Whole, kind: Whole) -> None:
    """Brings the registers up to date that contexts from 10 on are made of."""
    r = m.registers
    r[SHAPE] = ((r[SHAPE] << 3) | kind) & 0x3FFFFFFF
    folded = byte + 32 if kind == 1 else np.int64(32) if kind == 3 or kind == 4 else byte
    if folded != 32 or r[FOLDED] & 255 != 32:
        r[FOLDED_OLDER] = ((r[FOLDED_OLDER] << 8) | (r[FOLDED] >> 24)) & 0xFFFFFFFF
        r[FOLDED] = ((r[FOLDED] << 8) | folded) & 0xFFFFFFFF
    r[NUMBER] = combine(r[NUMBER], byte) if kind == 2 else np.int64(0)
    if kind == 5:
        r[MARK] = byte
    if byte == 10:
        # A line of one byte at most ends a section: of CRLF text, or of a program whose function ends.
        if r[POSITION] - r[LINE] <= 2:
            r[SECTION] += 1
            r[LINES] = 0
        else:
            r[LINES] += 1
        r[LINE1] = r[LINE]
        r[LINE] = r[POSITION]
        r[FIRST] = 0
    elif r[POSITION] - r[LINE] <= 4:
        r[FIRST] = combine(r[FIRST], byte)
    follow_tags(m, byte)


@inlined
def follow_tags(m: Model, byte: Whole) -> None:
    """Keeps the names of the tags that are open in XML. States: 0 text, 1 after <, 2 in a name, 3 behind it, 4 closing."""
    r = m.registers
    state = r[TAG_STATE]
    if byte == 60:
        r[TAG_STATE] = 1
        r[TAG_NAME] = 0
    elif state == 1 and byte == 47:
        r[TAG_STATE] = 4
        r[TAG_DEPTH] = max(r[TAG_DEPTH] - 1, np.int64(0))
    elif state == 1 and CLASSES[byte] > 1:
        r[TAG_STATE] = 0
    elif byte == 62 and state > 0:
        if state < 4 and (r[PREVIOUS] >> 8) & 255 != 47:
            r[TAGS + min(r[TAG_DEPTH], np.int64(63))] = r[TAG_NAME]
            r[TAG_DEPTH] = min(r[TAG_DEPTH] + 1, np.int64(63))
        r[TAG_STATE] = 0
    elif state == 1 or state == 2:
        if byte == 32 or byte == 10:
            r[TAG_STATE] = 3
        else:
            r[TAG_STATE] = 2
            r[TAG_NAME] = combine(r[TAG_NAME], byte)


@inlined
def set_wide_contexts(m: Model) -> None:
    """Computes the values of contexts 10 and up, which the fastest levels do without."""
    set_word_contexts(m)
    set_column_contexts(m)
    set_folded_contexts(m)


@inlined
def set_word_contexts(m: Model) -> None:
    """Computes contexts of words, of bytes with gaps, of what followed before, and of shapes: 10 to 20, 23 to 30."""
    r = m.registers
    c4 = r[PREVIOUS]
    c1 = c4 & 255
    word = r[WORD]
    pointer = r[MATCH_STATE + MATCH_POINTER]
    length = min(r[MATCH_STATE + MATCH_LENGTH], np.int64(31))
    expected = combine(np.int64(m.history[pointer & r[HISTORY_MASK]]), length + 1) if pointer > 0 else np.int64(0)
    indirect1 = np.int64(m.counters[r[INDIRECT_BASE] + c1])
    indirect2 = np.int64(m.counters[r[INDIRECT_BASE] + 256 + (c4 & 0xFFFF)])
    r[VALUES + 10] = combine(combine(word, r[GAP]), r[WORD1])
    r[VALUES + 11] = combine(combine(combine(word, c1), r[WORD1]), r[WORD2])
    r[VALUES + 12] = combine(combine(word, c1), r[WORD2])
    r[VALUES + 13] = (c4 >> 8) & 0xFFFF
    r[VALUES + 14] = (c4 >> 16) & 0xFFFF
    r[VALUES + 15] = (c4 >> 8) & 0xFFFFFF
    r[VALUES + 16] = c4 & 0xFF00FF
    r[VALUES + 17] = c4 & 0xFFFF00FF
    r[VALUES + 18] = combine(indirect1 & 0xFFFF, c1)
    r[VALUES + 19] = combine(indirect2 & 0xFFFF, c1)
    r[VALUES + 20] = combine(indirect2 & 0xFF, c4 & 0xFFFF)
    r[VALUES + 23] = expected
    r[VALUES + 24] = combine(r[SHAPE], c1)
    r[VALUES + 25] = combine(r[SHAPE] & 0xFFF, r[GAP])
    r[VALUES + 26] = combine(combine(r[FIRST], word), c1)
    r[VALUES + 27] = combine(combine(r[GAP], word), r[WORD_LENGTH])
    r[VALUES + 28] = combine(np.int64(r[WORD1]), c1)
    r[VALUES + 29] = combine(np.int64(r[WORD3]), word)
    r[VALUES + 30] = combine(c4 & 0xF0F0F0F0, r[OLDER] & 0xF0F0)


@inlined
def set_column_contexts(m: Model) -> None:
    """Computes contexts of records and lines, of what stands above, and of the open tag: 21, 22, 31 to 40."""
    r = m.registers
    history = m.history
    mask = r[HISTORY_MASK]
    position = r[POSITION]
    c4 = r[PREVIOUS]
    c1 = c4 & 255
    # Records where a stride is given, otherwise lines.
    stride = r[STRIDE]
    if stride > 0:
        column = position % stride
        back = stride
    else:
        column = min(position - r[LINE], np.int64(255))
        back = r[LINE] - r[LINE1] if position - r[LINE] < r[LINE] - r[LINE1] else np.int64(0)
    above = np.int64(history[(position - back) & mask]) if back > 0 else np.int64(0)
    above_next = np.int64(history[(position - back + 1) & mask]) if back > 1 else np.int64(0)
    above_last = np.int64(history[(position - back - 1) & mask]) if back > 0 else np.int64(0)
    above2 = np.int64(history[(position - 2 * back) & mask]) if back > 0 else np.int64(0)
    slope = (above + c1 - above_last) & 255
    trend = (2 * above - above2) & 255
    r[COLUMN] = column
    r[ABOVE] = above
    tag = np.int64(r[TAGS + max(r[TAG_DEPTH] - 1, np.int64(0))])
    r[VALUES + 21] = combine(above, c1)
    r[VALUES + 22] = combine(above, column)
    r[VALUES + 31] = combine(combine(above, above_next), combine(c1, above2))
    r[VALUES + 32] = combine(combine(column, c1), 7)
    r[VALUES + 33] = combine(combine(above, above2), column if stride > 0 else c1)
    r[VALUES + 34] = combine(combine(slope, trend), 0)
    r[VALUES + 35] = combine(combine(tag, r[WORD]), c1)
    r[VALUES + 36] = combine(combine(above, c4 & 0xFFFF), 1)
    r[VALUES + 37] = combine(combine(above, above_next), above_last)
    r[VALUES + 38] = combine(combine(slope, column), 3)
    r[VALUES + 39] = combine(combine(tag, c4 & 0xFFFFFF), 2)
    r[VALUES + 40] = combine(combine(r[NUMBER], column), r[WORD1])


@inlined
def set_folded_contexts(m: Model) -> None:
    """Computes contexts of the text in small letters: 41 to 45."""
    r = m.registers
    folded = r[FOLDED]
    older = r[FOLDED_OLDER]
    r[VALUES + 41] = folded & 0xFFFFFF
    r[VALUES + 42] = folded
    r[VALUES + 43] = combine(folded, older & 0xFF)
    r[VALUES + 44] = combine(folded, older & 0xFFFF)
    r[VALUES + 45] = combine(folded, older & 0xFFFFFF)


@inlined
def set_section_contexts(m: Model) -> None:
    """Computes the values of contexts 46 and up: what this section said, and columns of lines that are broken where they are full."""
    r = m.registers
    c4 = r[PREVIOUS]
    c8 = r[OLDER]
    c1 = c4 & 255
    kind = np.int64(CLASSES[c1])
    word = r[WORD]
    word1 = r[WORD1]
    section = combine(r[SECTION], 0)
    column = r[COLUMN]
    start = min(r[LINES], np.int64(3))
    # What no letter of a word came behind yet: the byte before, whose kind of blank does not matter.
    begun = combine(word, np.int64(0) if word != 0 else np.int64(32) if c1 == 10 else c1)
    r[VALUES + 46] = combine(word, section)
    r[VALUES + 47] = combine(c4 & 0xFFFFFF, section)
    r[VALUES + 48] = combine(combine(begun, word1), section)
    r[VALUES + 49] = combine(c4, section)
    r[VALUES + 50] = combine(combine(word, r[LINES]), section)
    r[VALUES + 51] = combine(begun, start)
    r[VALUES + 52] = combine(combine(word, c1), combine(section, word1))
    r[VALUES + 53] = combine(combine(word, kind), section)
    r[VALUES + 54] = combine(combine(c4, c8 & 0xFF), section)
    r[VALUES + 55] = combine(combine(c4, c8 & 0xFFFF), section)
    r[VALUES + 56] = combine(combine(begun, r[CAPITAL]), combine(kind, section))
    r[VALUES + 57] = combine(combine(begun, r[MARK]), start)
    r[VALUES + 58] = combine(c4 & 0xFFFF, column)
    r[VALUES + 59] = combine(combine(column >> 2, c1), word)


@kernel
def set_contexts(m: Model) -> None:
    """Computes the hash of every context of the plan at a byte boundary."""
    r = m.registers
    c4 = r[PREVIOUS]
    c8 = r[OLDER]
    word = r[WORD]
    r[VALUES + 1] = c4 & 255
    r[VALUES + 2] = c4 & 0xFFFF
    r[VALUES + 3] = c4 & 0xFFFFFF
    r[VALUES + 4] = c4
    r[VALUES + 5] = combine(c4, c8 & 0xFF)
    r[VALUES + 6] = combine(c4, c8 & 0xFFFF)
    r[VALUES + 7] = combine(c4, c8 & 0xFFFFFF)
    r[VALUES + 8] = combine(c4, c8)
    r[VALUES + 9] = combine(word, c4 & 255 if word == 0 else np.int64(0))
    if WIDE and r[WIDEST] > 9:
        set_wide_contexts(m)
    if SECTIONS and r[WIDEST] > 45:
        set_section_contexts(m)
    r[MIXER_RANK] = min(r[WORD_LENGTH], np.int64(15))
    r[MIXER_BYTE] = r[ABOVE]
    if WIDE and r[ROW] > 0:
        set_picture_contexts(m)
    for i in range(r[CONTEXTS]):
        r[HASHES + i] = combine(np.int64(r[VALUES + r[PLAN + i]]), r[PLAN + i] + 0x10000)
