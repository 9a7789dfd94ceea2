"""The options of methods on the command line: names and numbers alone, so that parsing needs no torch."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro


class MethodName(enum.Enum):
    """Methods by the names that the command line knows."""

    NONE = "none"
    RL1 = "rl1"
    DRR = "drr"
    PMMP = "pmmp"
    ADMM = "admm"


class UpdatesName(enum.Enum):
    """How PMMP's variables move."""

    SIMULTANEOUS = "simultaneous"
    ALTERNATING = "alternating"
    EXACT = "exact"


@dataclass(frozen=True, kw_only=True)
class PMMPOptions:
    """PMMP: what its variables begin with and how they move; each in place of the method's default."""

    p_init: float | None = None
    """Probability at which every gate begins, 0 to 1."""
    multiplier: float | None = None
    """A factor of u."""
    u_init: float | None = None
    """The multiplier u at the beginning."""
    u: Annotated[tuple[float, float] | None, tyro.conf.arg(metavar="START END")] = None
    """Sets u, rising by equal factors from START to END, instead of ascending it."""
    updates: UpdatesName | None = None
    """simultaneous and alternating move gates by Adam; exact sets them to their minimum, and needs --u or --u-init."""


@dataclass(frozen=True, kw_only=True)
class ADMMOptions:
    """ADMM: the threshold of its gates and when they move; each in place of the method's default."""

    tau: Annotated[tuple[float, float] | None, tyro.conf.arg(metavar="START END")] = None
    """The magnitude above which a weight lives, falling by equal factors from START to END."""
    every: int | None = None
    """Optimizer steps between two decisions."""
    settle: float | None = None
    """The progress of the regularised phase, 0 to 1, from which the gates are masks and the penalty is off."""


def given(*groups: object) -> Iterator[tuple[str, Any]]:
    """Lists the options that were given, by name: those that are not None."""
    for group in groups:
        for field in fields(group):  # pyright: ignore[reportArgumentType]  # every group is a dataclass
            value = getattr(group, field.name)
            if value is not None:
                yield field.name, value


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turns options into plain JSON: enums into their values, groups into their own options."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        match value:
            case enum.Enum():
                found[name] = value.value
            case PMMPOptions() | ADMMOptions():
                found.update(plain(vars(value)))
            case tuple():
                found[name] = list(value)  # pyright: ignore[reportUnknownArgumentType]  # of numbers
            case _:
                found[name] = value
    return found
