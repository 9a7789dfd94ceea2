"""Targets of a run or of a packed network: a number of non-zeros, of bytes, or an error."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NonZeros:
    """Asks for at most `count` non-zero regularised scalars, every one of which matters to the output."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"NonZeros({self.count}): at least one weight has to stay")


@dataclass(frozen=True)
class ErrorIncrease:
    """Asks for the sparsest network whose validation error exceeds the dense one's by at most `fraction`.

    Attributes:
        fraction: tolerated increase of the error rate: 0.002 is 0.2 percentage points.
        error_fn: (model, batch) -> (number of errors, number of decisions) on validation batches; None counts wrong classes of batches of
            (inputs, integer labels).
        tries: the largest number of values of alpha that are tried; every try is a regularised training of its own from a warm start.
            Ten close the bracket where the first alpha is within a factor of some hundred of the answer.
        resolution: the search ends when accepted and refused alpha are closer than this factor.
    """

    fraction: float
    error_fn: Callable[[Any, Any], tuple[Any, int]] | None = None
    tries: int = 10
    resolution: float = 1.15

    def __post_init__(self) -> None:
        if not (math.isfinite(self.fraction) and abs(self.fraction) < 1):
            raise ValueError(f"ErrorIncrease({self.fraction}) is a fraction of all decisions: 0.002 for 0.2 percentage points")
        if self.tries < 1:
            raise ValueError(f"ErrorIncrease(tries={self.tries}): at least one try is needed")
        if self.resolution <= 1:
            raise ValueError(f"ErrorIncrease(resolution={self.resolution}) is a factor above 1")


@dataclass(frozen=True)
class Bytes:
    """Asks for a network whose file takes at most `count` bytes, everything counted, its weights on a grid.

    The network is pruned to what fits and then trained on the grid (`GridTraining`); save it with `quantise=result.quantiser`.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"Bytes({self.count}): a file has at least a byte")
