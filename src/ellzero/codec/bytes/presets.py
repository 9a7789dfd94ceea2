"""The levels of the byte coder, as plain data."""

from dataclasses import dataclass, replace

_TEXT = (1, 2, 3, 4, 5, 6, 9, 10)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a level mixes, and how much memory it may take.

    Args:
        contexts: of bit histories; the numbers are those of docs/formats/bytes-model.md.
        directs: contexts of direct counters.
        matches: the shortest match of each match model, in bytes.
        sets: the selectors of weight sets.
        finals: how many final mixers there are, where there is more than one weight set.
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
    finals: int = 3
    refines: int = 3
    table_bits: int = 22
    history_bits: int = 24
    head_bits: int = 22
    direct_bits: int = 16
    limit: int = 1023
    rate: int = 6
    rate_extra: int = 40
    rate_age: int = 500
    first_weight: int = 8000
    refine_share: int = 5
    microseconds: float = 20.0


_MIDDLE = (*_TEXT, 11, 12, 13, 15, 18, 19, 21, 22, 23, 24, 31, 33, 34, 35)
_FULL = (*range(1, 20), *range(20, 41))
_DIRECTS = (0, 1, 2, 3, 9)
_FOLDED = tuple(range(1, 46))
_EVERY = tuple(range(1, 60))
_MORE_DIRECTS = (0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 18, 28)
_SETS = (0, 1, 2, 3, 4, 5, 6, 7, 8)

PRESETS = {
    1: Preset(
        contexts=(1, 2, 3, 4), directs=(0,), matches=(6,), sets=(0,), refines=1,
        table_bits=20, history_bits=22, head_bits=18, first_weight=20000, microseconds=1.6,
    ),
    2: Preset(
        contexts=(1, 2, 3, 4, 6, 9), directs=(0, 1), matches=(6,), sets=(0, 2), refines=2,
        table_bits=22, history_bits=23, head_bits=20, first_weight=20000, microseconds=3.0,
    ),
    3: Preset(
        contexts=_TEXT, directs=(0, 1), matches=(6,), sets=(0, 1, 2), refines=2, table_bits=23, first_weight=16000, microseconds=4.0,
    ),
    4: Preset(contexts=(*_TEXT, 13, 18, 21, 31), directs=(0, 1, 2), matches=(6, 16), sets=(0, 1, 2, 5), table_bits=23, microseconds=5.5),
    5: Preset(contexts=_MIDDLE, directs=(0, 1, 2), matches=(6, 20), sets=(0, 1, 2, 3, 5), table_bits=24, microseconds=8.0),
    6: Preset(contexts=_MIDDLE, directs=(0, 1, 2, 3), matches=(5, 8, 20), sets=_SETS, table_bits=24, microseconds=11.0),
    7: Preset(contexts=_FULL, directs=_DIRECTS, matches=(5, 8, 20), sets=(*_SETS, 9), table_bits=25, microseconds=15.0),
    8: Preset(
        contexts=_FOLDED, directs=_MORE_DIRECTS, matches=(5, 8, 20), sets=(*_SETS, 9), table_bits=25, history_bits=25, direct_bits=19,
        rate=2, microseconds=20.0,
    ),
    9: Preset(
        contexts=_FOLDED, directs=_MORE_DIRECTS, matches=(5, 8, 20), sets=(*_SETS, 9), table_bits=26, history_bits=26, direct_bits=20,
        rate=2, microseconds=20.0,
    ),
}  # fmt: skip

PICTURED = (3, 4, 5, 6, 7, 8, 9)
"""The levels with contexts for which rows are looked for."""

WIDENED = (5, 6)
"""The levels that take the parts of level 7 for what does not look like text: lower ones have fewer, higher ones all of them."""

SECTIONED = {
    level: replace(PRESETS[level], contexts=_EVERY, sets=tuple(range(16)), finals=8, first_weight=6000, microseconds=30.0)
    for level in (8, 9)
}
"""Levels 8 and 9 as they are written: with contexts of sections. Those without, and wide ones, are read."""


def preset_for(level: int, *, wide: bool = False, sections: bool = False) -> Preset:
    """Returns the preset of a level, that of level 7 with the sizes of the level, or that with contexts of sections."""
    if sections:
        return SECTIONED[level]
    preset = PRESETS[level]
    if not wide:
        return preset
    return replace(PRESETS[7], table_bits=preset.table_bits, history_bits=preset.history_bits, head_bits=preset.head_bits)
