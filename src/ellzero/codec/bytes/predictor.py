# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The predictor of the byte model: bit histories, counters, mixers and maps, in integers. Written down in docs/formats/bytes-model.md."""

import numpy as np

from ellzero.codec.bytes.matches import combine, place_matches
from ellzero.codec.bytes.state import (
    BASES,
    BIT_COUNT,
    BUCKET_MASKS,
    BUCKET_STARTS,
    CHOICES,
    COLUMN,
    CONTEXTS,
    DIRECT_BASE,
    DIRECT_MASK,
    DIRECT_PLAN,
    DIRECTS,
    EXPECTED,
    FINAL_BASE,
    FINAL_RATE,
    FINAL_SELECTED,
    FINALS,
    HALF,
    HASHES,
    INPUTS,
    KNOWN,
    LIMITS,
    MATCH_BEST,
    MATCHES,
    MIXER_BYTE,
    MIXER_RANK,
    NODE,
    PARTIAL,
    PREVIOUS,
    RATE,
    RATE_AGE,
    RATE_EXTRA,
    REFINE_SHARE,
    REFINE_SLOTS,
    REFINES,
    SECTIONS,
    SELECTED,
    SET_PLAN,
    SET_START,
    SETS,
    SHAPE,
    SLOTS,
    VALUES,
    WORD_LENGTH,
    Model,
)  # fmt: skip
from ellzero.codec.bytes.tables import CLASSES, FOLLOWING, LOGIT_LIMIT, RECIPROCALS, SQUASH, STRETCH, Whole
from ellzero.jit.kernels import inlined

WEIGHT_LIMIT = 1 << 24


BY_PARTIAL, BY_BYTE, BY_MATCH, BY_CLASSES, BY_BYTE_2, BY_ORDER, BY_MIXER_RANK, BY_MIXER_BYTE = range(8)
BY_EXPECTED, BY_BYTE_3, BY_MATCH_AND_ORDER, BY_COLUMN, BY_SHAPE, BY_CLASS_AND_LENGTH, BY_TWO_BYTES, BY_BYTE_AND_PARTIAL = range(8, 16)
"""Selectors of weight sets, from CHOICES on, by what each one selects by."""

FINAL_BY_PARTIAL, FINAL_BY_MATCH, FINAL_BY_BYTE, FINAL_BY_ORDER = 0, 256, 512, 768
FINAL_BY_CLASSES, FINAL_BY_COLUMN, FINAL_BY_EXPECTED, FINAL_BY_BYTE_2 = 2816, 3328, 3584, 3840
"""The first weight set of each final mixer."""

REFINE_BY_TWO_BYTES, REFINE_BY_THREE_BYTES = 65536, 131072
"""The first context of the second and third map from contexts to probabilities."""

REFINE_STEP, REFINE_CELLS = 192, 33
"""Logit units between two cells of such a map, and cells per context."""


@inlined
def look_up(m: Model) -> None:
    """Finds or makes the bucket of each context, and of each direct counter, for the next four bits."""
    r = m.registers
    table = m.table
    partial = r[PARTIAL]
    contexts = r[CONTEXTS]
    for i in range(contexts):
        product = combine(r[HASHES + i], partial) * 0x2C9277B5
        index = r[BUCKET_STARTS + i] + ((product >> 20) & r[BUCKET_MASKS + i])
        check = (product >> 48) & 255
        worst = np.int64(0)
        worst_rank = np.int64(256)
        for probe in range(3):
            base = (index ^ probe) << 4
            if np.int64(table[base]) == check:
                worst = base
                worst_rank = np.int64(-1)
                break
            rank = np.int64(table[base + 1])
            if rank < worst_rank:
                worst_rank = rank
                worst = base
        if worst_rank >= 0:
            table[worst : worst + 16] = np.uint8(0)
            table[worst] = np.uint8(check)
        r[BASES + i] = worst
    for i in range(r[DIRECTS]):
        which = r[DIRECT_PLAN + i]
        group = partial if which == 0 else (combine(combine(np.int64(r[VALUES + which]), which), partial) * 0x2C9277B5) >> 20
        r[BASES + contexts + i] = r[DIRECT_BASE] + ((i * (r[DIRECT_MASK] + 1) + (group & r[DIRECT_MASK])) << 4)
    r[NODE] = 1


@inlined
def collect(m: Model) -> np.int64:
    """Sets the inputs of the mixers; returns how many contexts in a row, from the first on, have been seen before."""
    r = m.registers
    x = m.inputs
    node = r[NODE]
    contexts = r[CONTEXTS]
    directs = r[DIRECTS]
    order = np.int64(0)
    for i in range(contexts):
        state = np.int64(m.table[r[BASES + i] + node])
        r[SLOTS + i] = i * 256 + state
        r[KNOWN + i] = np.int64(state != 0)
        order += np.int64(order == i and state != 0)
    for i in range(contexts, contexts + directs):
        r[SLOTS + i] = r[BASES + i] + node
    place_matches(m, contexts + directs)
    slots = contexts + directs + r[MATCHES]
    for i in range(slots):
        p = (np.int64(m.counters[r[SLOTS + i]]) ^ HALF) >> 16
        x[2 * i] = np.int32(np.int64(STRETCH[p >> 4]) * r[KNOWN + i])
        x[2 * i + 1] = np.int32(((p - 32768) >> 7) * r[KNOWN + i])
    x[2 * slots] = np.int32(256)
    return order


@inlined
def choose_more(m: Model, order: Whole) -> None:
    """Computes the values of selectors 10 and up."""
    r = m.registers
    bit_count = r[BIT_COUNT]
    partial = r[PARTIAL]
    c1 = r[PREVIOUS] & 255
    r[CHOICES + BY_MATCH_AND_ORDER] = ((r[MATCH_BEST] >> 2) * 8 + min(order, np.int64(7))) * 8 + bit_count
    r[CHOICES + BY_COLUMN] = min(r[COLUMN], np.int64(255))
    r[CHOICES + BY_SHAPE] = (r[SHAPE] & 511) * 4 + (bit_count >> 1)
    r[CHOICES + BY_CLASS_AND_LENGTH] = (np.int64(CLASSES[c1]) * 8 + min(r[WORD_LENGTH], np.int64(7))) * 8 + bit_count
    r[CHOICES + BY_TWO_BYTES] = combine(r[PREVIOUS] & 0xFFFF, 3) & 4095
    r[CHOICES + BY_BYTE_AND_PARTIAL] = combine(c1 * 256 + partial, 5) & 4095


@inlined
def mix(m: Model, order: Whole) -> np.int64:
    """Mixes the inputs by the selected weight sets, and their outputs by the final mixers; returns the logit."""
    r = m.registers
    x = m.inputs
    bit_count = r[BIT_COUNT]
    c1 = r[PREVIOUS] & 255
    c2 = (r[PREVIOUS] >> 8) & 255
    r[CHOICES + BY_PARTIAL] = r[PARTIAL]
    r[CHOICES + BY_BYTE] = c1
    r[CHOICES + BY_MATCH] = r[MATCH_BEST] * 8 + bit_count
    r[CHOICES + BY_CLASSES] = (np.int64(CLASSES[c1]) * 8 + np.int64(CLASSES[c2])) * 8 + bit_count
    r[CHOICES + BY_BYTE_2] = c2
    r[CHOICES + BY_ORDER] = min(order, np.int64(7)) * 8 + bit_count
    r[CHOICES + BY_MIXER_RANK] = r[MIXER_RANK] * 8 + bit_count
    r[CHOICES + BY_MIXER_BYTE] = r[MIXER_BYTE]
    r[CHOICES + BY_EXPECTED] = r[EXPECTED]
    r[CHOICES + BY_BYTE_3] = (r[PREVIOUS] >> 16) & 255
    sets = r[SETS]
    if SECTIONS and sets > 10:
        choose_more(m, order)
    n = r[INPUTS]
    for k in range(sets):
        chosen = r[SET_START + k] + r[CHOICES + r[SET_PLAN + k]]
        r[SELECTED + k] = chosen
        w = m.weights[chosen * n : chosen * n + n]
        total = np.int64(0)
        for i in range(n):
            total += np.int64(w[i]) * np.int64(x[i])
        logit = min(max(total >> 20, np.int64(-LOGIT_LIMIT)), np.int64(LOGIT_LIMIT))
        x[n + k] = np.int32(logit)
        x[n + sets + k] = SQUASH[logit + LOGIT_LIMIT]
    finals = r[FINALS]
    if finals == 0:
        return np.int64(x[n])
    r[FINAL_SELECTED] = FINAL_BY_PARTIAL + r[PARTIAL]
    r[FINAL_SELECTED + 1] = FINAL_BY_MATCH + r[MATCH_BEST] * 8 + bit_count
    r[FINAL_SELECTED + 2] = FINAL_BY_BYTE + c1
    r[FINAL_SELECTED + 3] = FINAL_BY_ORDER + min(order, np.int64(7)) * 256 + r[PARTIAL]
    r[FINAL_SELECTED + 4] = FINAL_BY_CLASSES + r[CHOICES + BY_CLASSES]
    r[FINAL_SELECTED + 5] = FINAL_BY_COLUMN + min(r[COLUMN], np.int64(255))
    r[FINAL_SELECTED + 6] = FINAL_BY_EXPECTED + r[EXPECTED]
    r[FINAL_SELECTED + 7] = FINAL_BY_BYTE_2 + c2
    result = np.int64(0)
    for k in range(finals):
        base = r[FINAL_BASE] + r[FINAL_SELECTED + k] * sets
        total = np.int64(0)
        for i in range(sets):
            total += np.int64(m.weights[base + i]) * np.int64(x[n + i])
        logit = min(max(total >> 20, np.int64(-LOGIT_LIMIT)), np.int64(LOGIT_LIMIT))
        x[n + 2 * sets + k] = SQUASH[logit + LOGIT_LIMIT]
        result += logit
    return result // finals


@inlined
def predict(m: Model) -> np.int64:
    """Returns the probability that the next bit is 1, in 1/65536, within 1 and 65535."""
    r = m.registers
    logit = mix(m, collect(m))
    p = np.int64(SQUASH[logit + LOGIT_LIMIT])
    # Maps from (context, quantised logit) to probability, REFINE_STEP logit units per step.
    place = logit + LOGIT_LIMIT + 1
    low = place // REFINE_STEP
    fraction = place - low * REFINE_STEP
    previous = r[PREVIOUS]
    partial = r[PARTIAL]
    r[REFINE_SLOTS] = (previous & 255) * 256 + partial
    r[REFINE_SLOTS + 1] = REFINE_BY_TWO_BYTES + (combine(previous & 0xFFFF, partial) & 0xFFFF)
    r[REFINE_SLOTS + 2] = REFINE_BY_THREE_BYTES + (combine(previous & 0xFFFFFF, partial) & 0xFFFF)
    refined = np.int64(0)
    refines = r[REFINES]
    for k in range(refines):
        slot = r[REFINE_SLOTS + k] * REFINE_CELLS + low
        refined += (np.int64(m.refine[slot]) * (REFINE_STEP - fraction) + np.int64(m.refine[slot + 1]) * fraction) // REFINE_STEP
        r[REFINE_SLOTS + k] = slot + np.int64(fraction > REFINE_STEP // 2)
    share = r[REFINE_SHARE]
    p = ((8 - share) * p + refined * share // refines + 4) >> 3
    return min(max(p, np.int64(1)), np.int64(65535))


@inlined
def learn(m: Model, bit: Whole) -> None:
    """Adapts everything to the bit that came."""
    r = m.registers
    x = m.inputs
    n = r[INPUTS]
    sets = r[SETS]
    target = bit << 16
    for k in range(sets):
        chosen = r[SELECTED + k]
        age = np.int64(m.ages[chosen])
        m.ages[chosen] = np.int32(min(age + 1, np.int64(1 << 30)))
        rate = min(r[RATE] + r[RATE_EXTRA] * 1000 // (age + r[RATE_AGE]), np.int64(127))
        error = np.int32(((target - np.int64(x[n + sets + k])) * rate) >> 4)
        w = m.weights[chosen * n : chosen * n + n]
        for i in range(n):
            step = np.int32(np.int32(np.int32(x[i] * error) + np.int32(2048)) >> np.int32(12))
            w[i] = np.int32(min(max(np.int32(w[i] + step), np.int32(-WEIGHT_LIMIT)), np.int32(WEIGHT_LIMIT)))
    for k in range(r[FINALS]):
        error = (target - np.int64(x[n + 2 * sets + k])) * r[FINAL_RATE]
        base = r[FINAL_BASE] + r[FINAL_SELECTED + k] * sets
        for i in range(sets):
            weight = np.int64(m.weights[base + i]) + ((np.int64(x[n + i]) * error + (1 << 14)) >> 15)
            m.weights[base + i] = np.int32(min(max(weight, np.int64(-WEIGHT_LIMIT)), np.int64(WEIGHT_LIMIT)))
    for i in range(r[CONTEXTS]):
        slot = r[BASES + i] + r[NODE]
        m.table[slot] = FOLLOWING[2 * np.int64(m.table[slot]) + bit]
    for i in range(r[CONTEXTS] + r[DIRECTS] + r[MATCHES]):
        slot = r[SLOTS + i]
        value = np.int64(m.counters[slot]) ^ HALF
        count = value & 1023
        p = value >> 10
        p += (((bit << 22) - p) * np.int64(RECIPROCALS[count])) >> 16
        p = min(max(p, np.int64(64)), np.int64((1 << 22) - 64))
        m.counters[slot] = np.uint32(((p << 10) | min(count + 1, r[LIMITS + i])) ^ HALF)
    for k in range(r[REFINES]):
        slot = r[REFINE_SLOTS + k]
        value = np.int64(m.refine[slot])
        m.refine[slot] = np.uint16(value + ((target - bit - value + 32 * bit) >> 6))
    r[PARTIAL] = r[PARTIAL] * 2 + bit
    r[NODE] = r[NODE] * 2 + bit
    r[BIT_COUNT] += 1
