"""How TAMADE decides: the loss may grow by so much, or the whole description shall be shortest."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

GOLDEN = (math.sqrt(5) - 1) / 2


class Better(enum.Enum):
    """Which direction of an evaluation is the better one."""

    LOWER = "lower"
    HIGHER = "higher"


@runtime_checkable
class Accept(Protocol):
    """A rule that chooses how many weights to keep."""

    def search(self, evaluate: Callable[[int], float], reference: float, fewest: int, most: int, slack: float) -> int:
        """Chooses a count among those it evaluated.

        Args:
            evaluate: the evaluation with so many weights kept; asked for the same count twice, it answers from memory.
            reference: the evaluation with all `most` weights.
            fewest: the smallest count allowed.
            most: the number of non-zero weights.
            slack: how many weights more than necessary may be kept for the sake of fewer evaluations.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Within:
    """Accepts as long as the evaluation gets worse by no more than a given amount: the delta of section 2.2.4.

    Attributes:
        relative: the loss may grow by this fraction of the reference (0.01 is the paper's one percent); lower is better.
        absolute: the evaluation may get worse by this much; needs `better`.
        better: with `absolute`, whether lower (a loss, an error) or higher (an accuracy) is better. It has no default: the wrong
            direction would accept everything.
    """

    relative: float | None = None
    absolute: float | None = None
    better: Better | None = None

    def __post_init__(self) -> None:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError(f"pass exactly one of relative= and absolute=, got relative={self.relative} and absolute={self.absolute}")
        if self.absolute is not None and self.better is None:
            raise ValueError("absolute= needs better=Better.LOWER (a loss, an error) or better=Better.HIGHER (an accuracy)")
        if self.relative is not None and self.better is Better.HIGHER:
            raise ValueError("relative= is for losses, where lower is better: use absolute= with better=Better.HIGHER")
        amount = self.absolute if self.relative is None else self.relative
        if amount is None or not 0 <= amount < math.inf:
            raise ValueError(f"the tolerated change must be finite and not negative, got {amount}")

    def accepts(self, value: float, reference: float) -> bool:
        """Decides about one evaluation; NaN and infinities are never accepted."""
        if not math.isfinite(value):
            return False
        if self.relative is not None:
            return value <= (1 + self.relative) * reference
        assert self.absolute is not None
        return value >= reference - self.absolute if self.better is Better.HIGHER else value <= reference + self.absolute

    def search(self, evaluate: Callable[[int], float], reference: float, fewest: int, most: int, slack: float) -> int:
        """Bisects over the count: `kept` always passed, `failed` is a count that did not, or one below the fewest allowed.

        Raises:
            ValueError: `relative` was given and the reference is not positive.
        """
        if self.relative is not None and not reference > 0:
            raise ValueError(
                f"the reference evaluates to {reference}, of which no fraction can be tolerated: use Within(absolute=..., better=...)"
            )
        kept, failed = most, fewest - 1
        while kept - failed - 1 > slack:
            middle = (kept + failed) // 2
            if self.accepts(evaluate(middle), reference):
                kept = middle
            else:
                failed = middle
        return kept


@dataclass(frozen=True, kw_only=True)
class ShortestDescription:
    """Minimises the description length of model and data together (eq. 2): bits_per_weight * non-zeros + samples * loss / ln 2.

    The counts are searched on a grid that halves them, then by golden section between the neighbours of its best point
    (J. Kiefer, Sequential minimax search for a maximum, 1953).

    Attributes:
        bits_per_weight: bits that a kept weight costs, its position included.
        samples: number of samples that the description encodes; the evaluation is their mean loss in nats.
    """

    bits_per_weight: float
    samples: float

    def __post_init__(self) -> None:
        for name, value in (("bits_per_weight", self.bits_per_weight), ("samples", self.samples)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")

    def total_bits(self, kept: int, mean_nats: float) -> float:
        """Computes the length of model and data in bits; infinite where the loss is not finite."""
        return self.bits_per_weight * kept + self.samples * mean_nats / math.log(2) if math.isfinite(mean_nats) else math.inf

    def search(self, evaluate: Callable[[int], float], reference: float, fewest: int, most: int, slack: float) -> int:
        """Halves the count down to the fewest allowed, then refines around the best; fewer weights win a draw."""
        bits = {most: self.total_bits(most, reference)}

        def cost(kept: int) -> float:
            if kept not in bits:
                bits[kept] = self.total_bits(kept, evaluate(kept))
            return bits[kept]

        grid = sorted({max(most >> shift, fewest) for shift in range(most.bit_length())})
        best = min(range(len(grid)), key=lambda i: (cost(grid[i]), grid[i]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        while high - low > max(2.0, slack):
            right = low + round(GOLDEN * (high - low))
            left = min(high - round(GOLDEN * (high - low)), right - 1)
            if cost(left) <= cost(right):
                high = right
            else:
                low = left
        cost((low + high) // 2)
        return min(bits, key=lambda kept: (bits[kept], kept))
