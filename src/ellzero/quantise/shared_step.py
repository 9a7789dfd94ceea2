"""One step for all tensors of a network: the fewest bits at a given error of all weights together. Needs no torch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ellzero.codec.network.stored_grids import Uniform, roundable
from ellzero.codec.network.tensors import Entry, ExactTensor, values_of
from ellzero.quantise.grids import Levels, UniformGrid, rounded_up

_MOST_LEVELS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SharedStep:
    """Uniform grids whose step is the same in all matrices.

    One more bit per weight quarters its squared error, which is the step's square over 12 in every tensor: so the sum of all squared errors
    is the smallest for its bits where all steps are equal. Use it where nothing is known of a network but its weights, and their error is
    what counts; `SharedStep.at_error` chooses the step.

    Args:
        step: of tensors of two or more dimensions.
        vectors: root mean square of the change of each other tensor (biases, normalisation) over that of its numbers: they are few, matter
            more, and may be of another scale; 0 stores them exactly.

    Raises:
        ValueError: a step that is not positive, or an error out of range.
    """

    step: float
    vectors: float = 0.003

    def __post_init__(self) -> None:
        if not 0 < self.step < math.inf or not 0 <= self.vectors < 1:
            raise ValueError(f"SharedStep(step={self.step}, vectors={self.vectors}): expected a positive step, and an error below 1")

    @classmethod
    def at_error(cls, tensors: Iterable[Entry], error: float = 0.03) -> "SharedStep":
        """Chooses the step at which a network's matrices have a given error; vectors get a tenth of it.

        Args:
            tensors: the network's, read once, in any order.
            error: root mean square of the change of all weights in matrices over that of the weights; the change is a little smaller where
                many of them are below half a step.

        Raises:
            ValueError: an error out of range, or a tensor with numbers that are not finite.
        """
        if not 0 < error < 1:
            raise ValueError(f"error={error}: expected a number between 0 and 1")
        total, count = 0.0, 0
        for entry in tensors:
            if not isinstance(entry, ExactTensor) or not roundable(entry.dtype) or len(entry.shape) < 2:
                continue
            values = values_of(entry)
            squares = float(np.square(values).sum())
            if not math.isfinite(squares):
                raise ValueError(f"{entry.name!r} has numbers that are not finite, or huge ones: pack the network without quantising")
            total += squares
            # Weights that are zero stay so without error.
            count += int(np.count_nonzero(values))
        return cls(step=error * math.sqrt(12 * total / count) if total > 0 else 1.0, vectors=error / 10)

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Rounds each weight to the nearest multiple of the step; a tensor that would take too many levels stays exact."""
        if values.ndim < 2:
            return UniformGrid(vectors=self.vectors).quantise(name, values)
        step = rounded_up(self.step)
        levels = np.round(values / step)
        if not np.abs(levels).max(initial=0) < _MOST_LEVELS:
            return None
        return Levels(levels=levels.astype(np.int32), grid=Uniform(steps=(step,)))
