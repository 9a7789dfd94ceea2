"""The levels of the byte coder, as plain data."""

from dataclasses import dataclass

_TEXT = (1, 2, 3, 4, 5, 6, 9, 10)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a level mixes, and how much memory it may take.

    Args:
        contexts: of bit histories; the numbers are those of docs/bytes-model.md.
        directs: contexts of direct counters.
        matches: the shortest match of each match model, in bytes.
        sets: the selectors of weight sets.
        refines: how many maps refine the mixed probability.
        table_bits: log2 of the most buckets of 16 bytes.
        history_bits: log2 of the most bytes kept.
        head_bits: log2 of the most places that a match model remembers.
        direct_bits: log2 of the groups of 15 direct counters for each of their contexts.
        limit: the largest count of a counter; 1 / (limit + 1.5) is its slowest step.
        rate: the step of the mixers for ever, in 1/2^20.
        rate_extra: what is added to it at first, in 1000 / (uses + rate_age).
        rate_age: see rate_extra.
        first_weight: of each context at the start; 65536 is 1.
        microseconds: what a byte roughly costs in either direction.
        refine_share: of the maps in the final probability, in eighths.
    """

    contexts: tuple[int, ...]
    directs: tuple[int, ...]
    matches: tuple[int, ...]
    sets: tuple[int, ...]
    refines: int = 3
    table_bits: int = 22
    history_bits: int = 24
    head_bits: int = 22
    direct_bits: int = 16
    limit: int = 1023
    rate: int = 2
    rate_extra: int = 20
    rate_age: int = 1000
    first_weight: int = 12000
    refine_share: int = 5
    microseconds: float = 20.0


_FULL = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 31, 32, 33, 34, 35)

PRESETS = {
    1: Preset(contexts=(1, 2, 3, 4, 6), directs=(0,), matches=(6,), sets=(0,), refines=1, table_bits=20, history_bits=22, head_bits=18, first_weight=20000),
    2: Preset(contexts=(1, 2, 3, 4, 6, 9), directs=(0, 1), matches=(6,), sets=(0, 2), refines=2, table_bits=22, first_weight=20000),
    3: Preset(contexts=_TEXT, directs=(0, 1), matches=(6,), sets=(0, 2, 1), refines=2, table_bits=23, first_weight=16000),
    4: Preset(contexts=(*_TEXT, 13, 18, 21), directs=(0, 1, 2), matches=(6, 16), sets=(0, 1, 2, 5), table_bits=24),
    5: Preset(contexts=(*_TEXT, 11, 12, 13, 15, 18, 19, 21, 23, 24, 31), directs=(0, 1, 2), matches=(6, 20), sets=(0, 1, 2, 3, 5), table_bits=24),
    6: Preset(contexts=(*_TEXT, 11, 12, 13, 15, 18, 19, 21, 22, 23, 24, 27, 31, 32), directs=(0, 1, 2), matches=(6, 20), sets=(0, 1, 2, 3, 4, 5), table_bits=24),
    7: Preset(contexts=_FULL, directs=(0, 1, 2), matches=(5, 8, 20), sets=(0, 1, 2, 3, 4, 5, 6, 7), table_bits=25),
    8: Preset(contexts=_FULL, directs=(0, 1, 2), matches=(5, 8, 20), sets=(0, 1, 2, 3, 4, 5, 6, 7), table_bits=26, history_bits=25),
    9: Preset(contexts=_FULL, directs=(0, 1, 2), matches=(5, 8, 20), sets=(0, 1, 2, 3, 4, 5, 6, 7), table_bits=27, history_bits=26),
}  # fmt: skip
