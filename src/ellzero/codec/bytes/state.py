"""The state of the byte model: few arrays, so that kernels take it as one argument and compile soon."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ellzero.codec.bytes import tables
from ellzero.codec.bytes.presets import Preset

# Registers: numbers about what was read.
POSITION, PARTIAL, NODE, BIT_COUNT, PREVIOUS, OLDER, MATCH_BEST, STRIDE, WORD, WORD1, WORD2, WORD3, WORD_LENGTH, GAP = range(14)
LINE, LINE1, FIRST, SHAPE, TAG_STATE, TAG_NAME, TAG_DEPTH, NUMBER, COLUMN, ABOVE = range(14, 24)
# Registers: sizes and places, set once; then more of what was read.
CONTEXTS, DIRECTS, MATCHES, SETS, FINALS, REFINES, INPUTS, HISTORY_MASK, HEAD_MASK, MATCH_BASE, DIRECT_BASE, DIRECT_MASK = range(24, 36)
INDIRECT_BASE, FINAL_BASE, RATE, RATE_EXTRA, RATE_AGE, FINAL_RATE, REFINE_SHARE, EXPECTED, WIDEST, FOLDED, FOLDED_OLDER, ROW = range(36, 48)
MIXER_RANK, MIXER_BYTE, SECTION, LINES, CAPITAL, MARK = range(48, 54)
# Registers: arrays of at most 128 entries, and the start of each.
TAGS, MATCH_STATE, VALUES, PLAN, HASHES, BASES, SLOTS, KNOWN, LIMITS, DIRECT_PLAN, MATCH_LENGTHS, CHOICES, SET_PLAN, SET_START, SELECTED = (
    range(64, 64 + 128 * 15, 128)
)
FINAL_SELECTED, REFINE_SLOTS, BUCKET_MASKS, BUCKET_STARTS = range(64 + 128 * 15, 64 + 128 * 19, 128)

MATCH_POINTER, MATCH_LENGTH, MATCH_MISSES, MATCH_SLOTS = 0, 1, 2, 4
"""Of each match model, from MATCH_STATE on: the place in the history that is followed, 0 for none; how many bytes have matched; which of
the last eight bytes were surprises, a bit each; and how many slots a model has."""
REGISTERS = 64 + 128 * 19

CHOICE_SIZES = (256, 256, 256, 512, 256, 64, 128, 256, 256, 256, 512, 256, 2048, 512, 4096, 4096)
"""How many weight sets each selector chooses from."""

FINAL_SIZES = (256, 256, 256, 2048, 512, 256, 256, 256)
"""How many weight sets each final mixer chooses from."""

REFINE_CONTEXTS = 65536
REFINE_STEPS = 32
MATCH_COUNTERS = 513
RECENT = frozenset({46, 47, 48, 49, 50, 52, 53, 54, 55, 56})
"""The contexts of the section, whose buckets are apart: they would drive out others and are soon of no use."""

WIDE, SECTIONS = True, True
"""Whether there may be contexts from 10 on, and from 46 on; both where a coder is not compiled for less."""

HALF = 1 << 31
FIRST_COUNT = 6
"""How much the first probabilities of states and matches are trusted: as if so many bits had been seen."""


class Model(NamedTuple):
    """Everything that the predictor changes.

    Attributes:
        registers: numbers and short arrays, at the places named above.
        coder: the state of the range coder within a message.
        history: the bytes read, a ring.
        table: buckets of 16 bytes: a check, then the states of the 15 nodes of four bits.
        counters: probability (22 bits) less 1/2, modulo 1, and count (10 bits) for each context and state, each match state, each
            direct node, so that zeros are a start; then the indirect bytes.
        heads: for each match model, where a hash of the last bytes was seen last.
        inputs: the logits to be mixed; then the outputs of the sets and of the final mixers, as logits and as probabilities.
        weights: of each weight set, then of the final mixers; 1 is 2^20.
        ages: how often each weight set was used.
        refine: probabilities for (context, quantised logit).
    """

    registers: npt.NDArray[np.int64]
    coder: npt.NDArray[np.uint64]
    history: npt.NDArray[np.uint8]
    table: npt.NDArray[np.uint8]
    counters: npt.NDArray[np.uint32]
    heads: npt.NDArray[np.uint32]
    inputs: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32]
    ages: npt.NDArray[np.int32]
    refine: npt.NDArray[np.uint16]


def _first_of_matches() -> npt.NDArray[np.int64]:
    """Returns the first probabilities of the counters of a match model: the longer the match, the surer, for either bit."""
    values = [32768]
    for bucket in range(32):
        sure = 32768 - 32768 // (bucket + 2)
        values += [32768 - sure, 32768 + sure] * 8
    return np.array(values, dtype=np.int64)


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    """Returns zeros that start at a cache line, so that a bucket never lies across two."""
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def new_model(preset: Preset, table_bits: int, history_bits: int) -> Model:
    """Allocates a model that has seen nothing.

    Args:
        preset: the parts of the model.
        table_bits: log2 of the number of buckets, each of 16 bytes.
        history_bits: log2 of the number of bytes that matches can reach back.
    """
    contexts, directs, matches = len(preset.contexts), len(preset.directs), len(preset.matches)
    slots = contexts + directs + matches
    inputs = -(-(2 * slots + 1) // 8) * 8
    sets, finals = len(preset.sets), finals_of(preset)
    rows = sum(CHOICE_SIZES[choice] for choice in preset.sets)
    head_bits = min(history_bits, preset.head_bits)
    direct_bits = direct_bits_of(preset, table_bits, history_bits)

    # Everything large is made once and filled in place: nothing beside it is needed for a moment that `num_bytes_of_model` did not state.
    match_base, direct_base = 256 * contexts, 256 * contexts + MATCH_COUNTERS * matches
    indirect_base = direct_base + (directs << (direct_bits + 4))
    counters = np.zeros(indirect_base + 256 + 65536, dtype=np.uint32)
    counters[:match_base] = np.tile(tables.history_tables().initial << 16 | FIRST_COUNT, contexts)
    counters[match_base:direct_base] = np.tile(_first_of_matches() << 16 | FIRST_COUNT, matches)
    counters[:direct_base] ^= HALF
    weights = np.zeros(rows * inputs + sum(FINAL_SIZES[:finals]) * sets, dtype=np.int32)
    rows_of_sets = weights[: rows * inputs].reshape(rows, inputs)
    rows_of_sets[:, 0 : 2 * slots : 2] = preset.first_weight << 4
    rows_of_sets[:, 2 * (slots - matches) : 2 * slots : 2] = (1 << 20) // 4
    weights[rows * inputs :] = (1 << 20) // sets

    r = np.zeros(REGISTERS, dtype=np.int64)
    r[[CONTEXTS, DIRECTS, MATCHES, SETS, REFINES, INPUTS]] = contexts, directs, matches, sets, preset.refines, inputs
    r[FINALS] = finals
    r[[HISTORY_MASK, HEAD_MASK]] = (1 << history_bits) - 1, (1 << head_bits) - 1
    r[WIDEST] = max(preset.contexts + preset.directs)
    r[[MATCH_BASE, DIRECT_BASE, INDIRECT_BASE, FINAL_BASE]] = match_base, direct_base, indirect_base, rows * inputs
    r[DIRECT_MASK] = (1 << direct_bits) - 1
    r[[RATE, RATE_EXTRA, RATE_AGE, FINAL_RATE, REFINE_SHARE]] = preset.rate, preset.rate_extra, preset.rate_age, 4, preset.refine_share
    for start, values in (
        (PLAN, preset.contexts),
        (BUCKET_MASKS, [(1 << recent_bits_of(table_bits) if number in RECENT else 1 << table_bits) - 1 for number in preset.contexts]),
        (BUCKET_STARTS, [1 << table_bits if number in RECENT else 0 for number in preset.contexts]),
        (DIRECT_PLAN, preset.directs),
        (MATCH_LENGTHS, preset.matches),
        (LIMITS, [preset.limit] * (contexts + directs) + [1023] * matches),
        (SET_PLAN, preset.sets),
        (SET_START, [sum(CHOICE_SIZES[choice] for choice in preset.sets[:k]) for k in range(sets)]),
        (KNOWN, [1] * slots),
    ):
        r[start : start + len(values)] = values
    squash = tables.SQUASH
    line = [squash[max(0, min(squash.size - 1, 6144 * k // REFINE_STEPS - 1))] for k in range(REFINE_STEPS + 1)]
    return Model(
        registers=r,
        coder=np.zeros(3, dtype=np.uint64),
        history=np.zeros(1 << history_bits, dtype=np.uint8),
        table=_aligned(num_bytes_of_table(preset, table_bits)),
        counters=counters,
        heads=np.zeros(matches << head_bits, dtype=np.uint32),
        inputs=np.zeros(inputs + 2 * sets + 2 * finals, dtype=np.int32),
        weights=weights,
        ages=np.zeros(rows, dtype=np.int32),
        refine=np.tile(np.array(line, dtype=np.uint16), preset.refines * REFINE_CONTEXTS),
    )


def recent_bits_of(table_bits: int) -> int:
    """Returns log2 of the buckets for contexts of the section, of which only those of this one and the last matter."""
    return min(20, table_bits - 2)


def num_bytes_of_table(preset: Preset, table_bits: int) -> int:
    """Returns how many bytes the buckets take."""
    return 16 * ((1 << table_bits) + (1 << recent_bits_of(table_bits)) * (not RECENT.isdisjoint(preset.contexts)))


def finals_of(preset: Preset) -> int:
    """Returns the number of final mixers: none where there is only one set of weights."""
    return preset.finals if len(preset.sets) > 1 else 0


def direct_bits_of(preset: Preset, table_bits: int, history_bits: int) -> int:
    """Returns log2 of the groups of direct counters of a context: no more than a small file, or a little memory, warrants."""
    return min(preset.direct_bits, history_bits, max(table_bits - 6, 16))


def num_bytes_of_model(preset: Preset, table_bits: int, history_bits: int) -> int:
    """Returns how many bytes `new_model` allocates, within a few thousand."""
    slots = len(preset.contexts) + len(preset.directs) + len(preset.matches)
    rows = sum(CHOICE_SIZES[choice] for choice in preset.sets)
    counters = 256 * len(preset.contexts) + (len(preset.directs) << (direct_bits_of(preset, table_bits, history_bits) + 4)) + 65536 + 256
    heads = len(preset.matches) << min(history_bits, preset.head_bits)
    weights = rows * (2 * slots + 9) + sum(FINAL_SIZES[: finals_of(preset)]) * len(preset.sets)
    return (
        num_bytes_of_table(preset, table_bits)
        + (1 << history_bits)
        + 4 * (counters + heads + weights)
        + 66 * preset.refines * REFINE_CONTEXTS
    )
