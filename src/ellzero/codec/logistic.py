"""The tables of logistic mixing, made with Python integers: the same on every machine. Written down in docs/formats/format.md."""

import numpy as np
from numpy.typing import NDArray

LOGIT_LIMIT = 3071
"""Largest logit, in 1/256 nat."""

COUNT_LIMIT = 1023
"""Decisions that a slot remembers at most: afterwards it forgets old ones."""

_GUARD_BITS = 96


def squash_table() -> NDArray[np.int32]:
    """Returns 65536 / (1 + exp(-x / 256)) for x from -`LOGIT_LIMIT` to `LOGIT_LIMIT`, rounded, within 1..65535."""
    one = 1 << _GUARD_BITS
    # exp(1/256) by its series, which 20 terms exhaust at this precision.
    step, term = one, one
    for k in range(1, 20):
        term //= 256 * k
        step += term
    upper: list[int] = []
    power = one
    for _ in range(LOGIT_LIMIT + 1):
        upper.append(min((65536 * power + (one + power) // 2) // (one + power), 65535))
        power = power * step >> _GUARD_BITS
    return np.array([65536 - value for value in upper[:0:-1]] + upper, dtype=np.int32)


def stretch_table() -> NDArray[np.int16]:
    """Returns, for each probability in 1/65536, the smallest logit that `squash_table` maps to it or above."""
    logits = np.searchsorted(squash_table(), np.arange(65536)) - LOGIT_LIMIT
    return np.minimum(logits, LOGIT_LIMIT).astype(np.int16)


def rate_table() -> NDArray[np.int32]:
    """Returns 65536 / (n + 1.5), rounded down: how far a slot that has seen n decisions moves towards the next one."""
    return np.array([131072 // (2 * n + 3) for n in range(COUNT_LIMIT + 1)], dtype=np.int32)
