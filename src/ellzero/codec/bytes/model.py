# pyright: basic
# Basic, because numba's numbers are numpy scalars whose operators pyright types as unions.
"""The predictor of the byte model: context slots, match models, mixers and probability maps, in integers. Written down in docs/bytes-model.md."""

import numpy as np

from ellzero.codec.bytes.contexts import combine
from ellzero.codec.bytes.state import (
    BIT_COUNT,
    ERROR_RATE,
    MATCH_BEST,
    MATCH_STATE,
    NODE,
    PARTIAL,
    PREVIOUS,
    Model,
)
from ellzero.codec.jit import kernel

LOGIT_LIMIT = 3071
WEIGHT_LIMIT = 1 << 20


@kernel
def look_up(m: Model, partial: int) -> None:
    """Finds or makes the bucket of each context for the next four bits."""
    table = m.table
    mask = m.bucket_mask
    for i in range(m.plan.size):
        product = combine(m.hashes[i], partial) * 0x2C9277B5
        index = (product >> 20) & mask
        check = (product >> 48) & 255
        found = np.int64(-1)
        worst = np.int64(-1)
        worst_rank = np.int64(256)
        for probe in range(3):
            base = (index ^ probe) << 4
            if np.int64(table[base]) == check:
                found = base
                break
            rank = np.int64(table[base + 1])
            if rank < worst_rank:
                worst_rank = rank
                worst = base
        if found < 0:
            found = worst
            for k in range(1, 16):
                table[found + k] = np.uint8(0)
            table[found] = np.uint8(check)
        m.bases[i] = found


@kernel
def predict_matches(m: Model, at: int) -> int:
    """Sets the inputs of the match models from input `at` on; returns the first input behind them."""
    r = m.registers
    partial = r[PARTIAL]
    shift = 8 - r[BIT_COUNT]
    best = np.int64(0)
    for j in range(m.match_lengths.size):
        k = MATCH_STATE + 4 * j
        expected = np.int64(m.history[r[k] & m.history_mask]) | 256
        st = np.int64(0)
        linear = np.int64(0)
        m.match_slots[j] = np.int64(-1)
        if r[k] > 0 and (expected >> shift) == partial:
            bit = (expected >> (shift - 1)) & 1
            length = r[k + 1]
            bucket = length if length < 16 else min(np.int64(16) + ((length - 16) >> 3), np.int64(31))
            misses = r[k + 2]
            slot = (
                (j * 32 + bucket) * 8 + min(misses & 1, np.int64(1)) * 4 + ((misses >> 1) & 1) * 2 + np.int64((misses >> 2) != 0)
            ) * 2 + bit
            m.match_slots[j] = slot
            p = np.int64(m.match_counters[slot]) >> 16
            st = np.int64(m.stretch[p >> 4])
            linear = (p - 32768) >> 4
            if bucket > best:
                best = bucket
        m.inputs[at] = np.int32(st)
        m.inputs[at + 1] = np.int32(linear)
        at += 2
    r[MATCH_BEST] = best
    return at


@kernel
def predict(m: Model) -> int:
    """Returns the probability that the next bit is 1, in 1/65536, within 1 and 65535."""
    r = m.registers
    node = r[NODE]
    x = m.inputs
    stretch = m.stretch
    confident = np.int64(0)
    count = m.plan.size
    for i in range(count):
        slot = m.bases[i] + node
        state = np.int64(m.table[slot])
        counter = i * 256 + state
        p = np.int64(m.counters[counter]) >> 16
        st = np.int64(stretch[p >> 4])
        known = np.int64(state != 0)
        confident += known
        x[2 * i] = np.int32(st * known)
        x[2 * i + 1] = np.int32(((p - 32768) >> 4) * known)
    at = 2 * count
    partial = r[PARTIAL]
    # Direct counters: order 0, 1 and 2.
    for i in range(m.direct_bases.size):
        p = np.int64(m.direct[m.direct_bases[i] + node]) >> 16
        x[at] = np.int32(stretch[p >> 4])
        x[at + 1] = np.int32((p - 32768) >> 4)
        at += 2
    at = predict_matches(m, at)
    x[at] = np.int32(256)
    # Selected weight sets.
    previous = r[PREVIOUS]
    bit_count = r[BIT_COUNT]
    c1 = previous & 255
    c2 = (previous >> 8) & 255
    s = m.selected
    n = x.size
    s[0] = partial
    s[1] = 256 + c1
    s[2] = 512 + r[MATCH_BEST] * 8 + bit_count
    s[3] = 768 + (np.int64(m.classes[c1]) * 8 + np.int64(m.classes[c2])) * 8 + bit_count
    s[4] = 1280 + c2
    s[5] = 1536 + min(confident, np.int64(31)) * 8 + bit_count
    sets = s.size
    squash = m.squash
    for k in range(sets):
        w = m.weights[s[k] * n : s[k] * n + n]
        total = np.int64(0)
        for i in range(n):
            total += np.int64(w[i]) * np.int64(x[i])
        logit = min(max(total >> 16, np.int64(-LOGIT_LIMIT)), np.int64(LOGIT_LIMIT))
        m.logits[k] = np.int32(logit)
        m.outputs[k] = squash[logit + LOGIT_LIMIT]
    # The final mixers.
    logit = np.int64(0)
    s2 = m.final_selected
    s2[0] = partial
    s2[1] = 256 + r[MATCH_BEST] * 8 + bit_count
    s2[2] = 512 + c1
    for k in range(3):
        total = np.int64(0)
        for i in range(sets):
            total += np.int64(m.final_weights[s2[k] * sets + i]) * np.int64(m.logits[i])
        final = min(max(total >> 16, np.int64(-LOGIT_LIMIT)), np.int64(LOGIT_LIMIT))
        m.final_outputs[k] = squash[final + LOGIT_LIMIT]
        logit += final
    logit = logit // 3
    p = np.int64(squash[logit + LOGIT_LIMIT])
    # Maps from (context, quantised logit) to probability.
    position = (logit + 3072) * 32
    low = position // 6144 if position < 6144 * 32 else np.int64(31)
    fraction = position - low * 6144
    a = m.refine_slots
    a[0] = (c1 * 256 + partial) * 33 + low
    a[1] = (65536 + (combine(previous & 0xFFFF, partial) & 0xFFFF)) * 33 + low
    a[2] = (131072 + (combine(previous & 0xFFFFFF, partial) & 0xFFFF)) * 33 + low
    refined = np.int64(0)
    for k in range(3):
        left = np.int64(m.refine[a[k]])
        right = np.int64(m.refine[a[k] + 1])
        refined += (left * (6144 - fraction) + right * fraction) // 6144
        if fraction > 3072:
            a[k] += 1
    p = (2 * p + refined * 2 // 3 + 2) >> 2
    return min(max(p, np.int64(1)), np.int64(65535))


@kernel
def learn(m: Model, bit: int) -> None:
    """Adapts everything to the bit that came."""
    r = m.registers
    node = r[NODE]
    x = m.inputs
    n = x.size
    target = bit << 16
    rate = r[ERROR_RATE]
    for k in range(m.selected.size):
        error = np.int32(((target - np.int64(m.outputs[k])) * rate) >> 4)
        w = m.weights[m.selected[k] * n : m.selected[k] * n + n]
        for i in range(n):
            step = np.int32(np.int32(np.int32(x[i] * error) + np.int32(8192)) >> np.int32(14))
            w[i] = np.int32(min(max(np.int32(w[i] + step), np.int32(-WEIGHT_LIMIT)), np.int32(WEIGHT_LIMIT)))
    sets = m.selected.size
    for k in range(3):
        error = ((target - np.int64(m.final_outputs[k])) * 2) >> 1
        base = m.final_selected[k] * sets
        for i in range(sets):
            step = (np.int64(m.logits[i]) * error + (1 << 16)) >> 17
            m.final_weights[base + i] = np.int32(
                min(max(np.int64(m.final_weights[base + i]) + step, np.int64(-WEIGHT_LIMIT)), np.int64(WEIGHT_LIMIT))
            )
    for i in range(m.plan.size):
        slot = m.bases[i] + node
        state = np.int64(m.table[slot])
        adapt(m, m.counters, i * 256 + state, bit, 255)
        m.table[slot] = m.following[2 * state + bit]
    for i in range(m.direct_bases.size):
        adapt(m, m.direct, m.direct_bases[i] + node, bit, 255)
    for j in range(m.match_lengths.size):
        if m.match_slots[j] >= 0:
            adapt(m, m.match_counters, m.match_slots[j], bit, 1023)
    for k in range(3):
        value = np.int64(m.refine[m.refine_slots[k]])
        m.refine[m.refine_slots[k]] = np.uint16(value + ((target - bit - value + 32 * bit) >> 6))
    r[PARTIAL] = r[PARTIAL] * 2 + bit
    r[NODE] = node * 2 + bit
    r[BIT_COUNT] += 1


@kernel
def adapt(m: Model, counters: np.ndarray, index: int, bit: int, limit: int) -> None:
    """Moves a probability of 22 bits, above a count of 10, towards the bit."""
    value = np.int64(counters[index])
    count = value & 1023
    p = value >> 10
    p += (((bit << 22) - p) * np.int64(m.reciprocals[count])) >> 16
    p = min(max(p, np.int64(64)), np.int64((1 << 22) - 64))
    counters[index] = np.uint32((p << 10) | min(count + 1, np.int64(limit)))
