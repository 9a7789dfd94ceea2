"""The state of the byte model: arrays only, so that kernels take it as one argument."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ellzero.codec.bytes import tables

POSITION, PARTIAL, NODE, BIT_COUNT, PREVIOUS, OLDER, MATCH_BEST, ERROR_RATE = range(8)
WORD, WORD1, WORD2, WORD3, LINE, LINE1, SHAPE, WORD_LENGTH, INDIRECT1, INDIRECT2, GAP, FIRST = range(8, 20)
MATCH_STATE = 32
REGISTERS = 64


class Model(NamedTuple):
    """Everything that the predictor reads or changes."""

    registers: npt.NDArray[np.int64]
    history: npt.NDArray[np.uint8]
    history_mask: int
    plan: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    table: npt.NDArray[np.uint8]
    bucket_mask: int
    counters: npt.NDArray[np.uint32]
    following: npt.NDArray[np.uint8]
    direct: npt.NDArray[np.uint32]
    direct_bases: npt.NDArray[np.int64]
    indirect: npt.NDArray[np.uint32]
    match_lengths: npt.NDArray[np.int64]
    match_heads: npt.NDArray[np.int32]
    match_slots: npt.NDArray[np.int64]
    match_counters: npt.NDArray[np.uint32]
    inputs: npt.NDArray[np.int32]
    selected: npt.NDArray[np.int64]
    weights: npt.NDArray[np.int32]
    logits: npt.NDArray[np.int32]
    outputs: npt.NDArray[np.int32]
    final_selected: npt.NDArray[np.int64]
    final_weights: npt.NDArray[np.int32]
    final_outputs: npt.NDArray[np.int32]
    refine: npt.NDArray[np.uint16]
    refine_slots: npt.NDArray[np.int64]
    classes: npt.NDArray[np.uint8]
    stretch: npt.NDArray[np.int32]
    squash: npt.NDArray[np.int32]
    reciprocals: npt.NDArray[np.int32]


def byte_classes() -> npt.NDArray[np.uint8]:
    """Returns the class of each byte: 0 lower case, 1 upper case, 2 digit, 3 space, 4 line end, 5 sentence mark, 6 other sign, 7 control or high."""
    kinds = np.full(256, 7, dtype=np.uint8)
    kinds[33:127] = 6
    kinds[97:123] = 0
    kinds[65:91] = 1
    kinds[48:58] = 2
    kinds[[9, 32]] = 3
    kinds[[10, 13]] = 4
    kinds[[ord(c) for c in ".,;:!?'\"()"]] = 5
    return kinds


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Returns zeros that start at a cache line, so that a bucket never lies across two."""
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def new_model(plan: tuple[int, ...], match_lengths: tuple[int, ...], table_bits: int, history_bits: int, direct_bits: int = 20) -> Model:
    """Allocates a model that has seen nothing."""
    count = len(plan)
    matches = len(match_lengths)
    n = 2 * count + 2 * 3 + 2 * matches + 1
    n = -(-n // 8) * 8
    sets = 6
    histories = tables.history_tables()
    first = (histories.initial.clip(64, 65472).astype(np.uint32) << 16).astype(np.uint32)
    weights = np.zeros((1536 + 256, n), dtype=np.int32)
    weights[:, 0 : 2 * count : 2] = int(65536 * 0.25)
    weights[:, 2 * count + 6 : 2 * count + 6 + 2 * matches : 2] = int(65536 * 0.25)
    squash = tables.squash_table()
    line = np.array([squash[max(-3071, min(3071, -3072 + 192 * k)) + 3071] for k in range(33)], dtype=np.uint16)
    registers = np.zeros(REGISTERS, dtype=np.int64)
    registers[PARTIAL] = 1
    registers[NODE] = 1
    m = np.array(
        [
            [[[max(1, min(65535, 32768 + (2 * e - 1) * (32768 - 32768 // (b + 2))))] for e in range(2)] for _ in range(8)]
            for _ in range(matches)
            for b in range(32)
        ]
    )
    return Model(
        registers=registers,
        history=np.zeros(1 << history_bits, dtype=np.uint8),
        history_mask=(1 << history_bits) - 1,
        plan=np.array(plan, dtype=np.int64),
        values=np.zeros(64, dtype=np.int64),
        hashes=np.zeros(count, dtype=np.int64),
        bases=np.zeros(count, dtype=np.int64),
        table=aligned(16 << table_bits),
        bucket_mask=(1 << table_bits) - 1,
        counters=np.tile(first, count),
        following=histories.following,
        direct=np.full((3 << direct_bits), 1 << 31, dtype=np.uint32),
        direct_bases=np.zeros(3, dtype=np.int64),
        indirect=np.zeros(256 + 65536, dtype=np.uint32),
        match_lengths=np.array(match_lengths, dtype=np.int64),
        match_heads=np.zeros(matches << 20, dtype=np.int32),
        match_slots=np.zeros(matches, dtype=np.int64),
        match_counters=(m.reshape(-1).astype(np.uint32) << 16).astype(np.uint32),
        inputs=np.zeros(n, dtype=np.int32),
        selected=np.zeros(sets, dtype=np.int64),
        weights=weights.reshape(-1),
        logits=np.zeros(sets, dtype=np.int32),
        outputs=np.zeros(sets, dtype=np.int32),
        final_selected=np.zeros(3, dtype=np.int64),
        final_weights=np.full(768 * sets, 65536 // sets, dtype=np.int32),
        final_outputs=np.zeros(3, dtype=np.int32),
        refine=np.tile(line, 3 * 65536),
        refine_slots=np.zeros(3, dtype=np.int64),
        classes=byte_classes(),
        stretch=tables.stretch_table(),
        squash=squash,
        reciprocals=tables.reciprocal_table(),
    )
