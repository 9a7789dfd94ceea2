"""Hyperparameters that move: functions of progress in [0, 1]."""

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Protocol, runtime_checkable

from ellzero.types import At


@runtime_checkable
class Schedule(Protocol):
    """A hyperparameter as a function of progress."""

    @property
    def moving(self) -> bool:
        """Whether the value depends on progress at all."""
        ...

    def __call__(self, progress: float) -> float:
        """Returns the value at `progress` in [0, 1]."""
        ...


Hyperparameter = float | Schedule
"""A number, or a function of progress."""


def _fraction(progress: float, start: float, end: float) -> float:
    """Returns the fraction of [start, end] that lies before `progress`; a step function where both are equal."""
    if progress >= end:
        return 1.0
    if progress <= start:
        return 0.0
    return (progress - start) / (end - start)


@dataclass(frozen=True)
class Ramp:
    """Goes linearly from one value to another while progress goes from `start` to `end`, and is constant outside.

    Attributes:
        first: the value up to `start`.
        last: the value from `end` on.
        start: the progress at which the value begins to move.
        end: the progress at which the value has arrived; a step function where it equals `start`.
    """

    first: float
    last: float
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        _check_interval(self.start, self.end)
        if not (math.isfinite(self.first) and math.isfinite(self.last)):
            raise ValueError(f"a ramp needs finite values, got {self.first} and {self.last}")

    @property
    def moving(self) -> bool:
        """Whether both values differ."""
        return self.first != self.last

    def __call__(self, progress: float) -> float:
        """Returns the value at `progress`."""
        fraction = _fraction(progress, self.start, self.end)
        # The weighted form meets both ends exactly, which start + fraction * difference does not.
        return (1.0 - fraction) * self.first + fraction * self.last


@dataclass(frozen=True)
class Geometric:
    """Goes from one positive value to another by equal factors over equal stretches of progress.

    Attributes:
        first: the value up to `start`, positive.
        last: the value from `end` on, positive.
        start: the progress at which the value begins to move.
        end: the progress at which the value has arrived; a step function where it equals `start`.
    """

    first: float
    last: float
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        _check_interval(self.start, self.end)
        for value in (self.first, self.last):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"a geometric schedule needs positive finite values, got {value}: use lz.ramp to start from or end at 0")

    @property
    def moving(self) -> bool:
        """Whether both values differ."""
        return self.first != self.last

    def __call__(self, progress: float) -> float:
        """Returns the value at `progress`."""
        fraction = _fraction(progress, self.start, self.end)
        return self.first ** (1.0 - fraction) * self.last**fraction


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Falls, or rises, from one value to another along half a cosine while progress goes from `start` to `end`.

    Attributes:
        first: the value up to `start`.
        last: the value from `end` on.
        start: the progress at which the value begins to move.
        end: the progress at which the value has arrived; a step function where it equals `start`.
    """

    first: float
    last: float = 0.0
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        _check_interval(self.start, self.end)
        if not (math.isfinite(self.first) and math.isfinite(self.last)):
            raise ValueError(f"a cosine needs finite values, got {self.first} and {self.last}")

    @property
    def moving(self) -> bool:
        """Whether both values differ."""
        return self.first != self.last

    def __call__(self, progress: float) -> float:
        """Returns the value at `progress`."""
        return self.last + 0.5 * (self.first - self.last) * (1.0 + math.cos(math.pi * _fraction(progress, self.start, self.end)))


def ramp(first: float, last: float, start: float = 0.0, end: float = 1.0) -> Ramp:
    """Makes a linear schedule that is constant before `start` and after `end`.

    Args:
        first: the value up to `start`.
        last: the value from `end` on.
        start: progress in [0, 1].
        end: progress in [0, 1], at least `start`.

    Raises:
        ValueError: the interval is not within [0, 1] or in order, or a value is not finite.
    """
    return Ramp(first, last, start, end)


def geometric(first: float, last: float, start: float = 0.0, end: float = 1.0) -> Geometric:
    """Makes a schedule from `first` to `last` by equal factors, constant before `start` and after `end`.

    Args:
        first: the positive value up to `start`.
        last: the positive value from `end` on.
        start: progress in [0, 1].
        end: progress in [0, 1], at least `start`.

    Raises:
        ValueError: the interval is not within [0, 1] or in order, or a value is not positive and finite.
    """
    return Geometric(first, last, start, end)


def value_at(hyperparameter: Hyperparameter, at: At) -> float:
    """Returns the value of a hyperparameter at a point of training."""
    # Asked at every step, and a check against a protocol takes a hundred times as long as one against numbers.
    return hyperparameter if isinstance(hyperparameter, float | int) else hyperparameter(at.progress)


def moves(method: object) -> bool:
    """Tells whether any field of a method is a schedule whose value depends on progress."""
    if not is_dataclass(method):
        return False
    values = (getattr(method, field.name) for field in fields(method))
    return any(isinstance(value, Schedule) and value.moving for value in values)


def check_hyperparameter(name: str, hyperparameter: Hyperparameter, *, zero: bool = True) -> None:
    """Checks that a hyperparameter is finite and not negative at the start, the middle and the end of training.

    Args:
        name: how the message calls it.
        hyperparameter: the number or schedule.
        zero: whether 0 is allowed.

    Raises:
        ValueError: a value is negative, NaN or infinite, or 0 where that is not allowed.
    """
    for progress in (0.0, 0.5, 1.0):
        value = value_at(hyperparameter, At(progress=progress))
        if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
            where = f" at progress {progress}" if isinstance(hyperparameter, Schedule) else ""
            raise ValueError(f"{name} must be finite and {'at least' if zero else 'above'} 0, got {value}{where}")


def _check_interval(start: float, end: float) -> None:
    if not 0 <= start <= end <= 1:
        raise ValueError(f"a schedule moves within progress 0 <= start <= end <= 1, got start={start}, end={end}")
