"""Which channels of a network are needed, and which are constant: the analysis behind `fold` and `shrink`.

Every tensor between two operations is a `Value`. It knows, per channel, the unit it carries (`ids`; units that are added to each
other form one class), its constant (nan where it depends on the input) and whether anything reads it (`need`). Constants are computed
in one pass forwards: a unit is constant if everything with a non-zero weight into it is. Needs are computed in one pass backwards: a
unit is needed if a needed unit reads it with a non-zero weight and cannot absorb its constant into a bias. The order of the two
passes makes the result a fixed point: no need influences a constant.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

NAN = float("nan")


@dataclass(eq=False)
class Value:
    """A tensor between two operations.

    Attributes:
        shape: its shape on the example, batch first.
        ids: number of the unit that each element carries; broadcasts to `shape[1:]`.
        constant: the constant that each element equals for every input, nan where there is none, float64, shaped as `ids`.
        raw: no parameter lies between the model's input and this tensor.
        need: whether the output depends on each element, shaped as `ids`; filled backwards.
    """

    shape: torch.Size
    ids: Tensor
    constant: Tensor
    raw: bool = False
    need: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.constant = torch.where(self.constant.isfinite(), self.constant, NAN)
        self.need = torch.zeros(self.ids.shape, dtype=torch.bool)

    def varies_along(self, dim: int) -> bool:
        """Whether elements differ in nothing but their place along `dim` (1 is the channel of an image, -1 the last)."""
        dim = dim - 1 if dim > 0 else dim
        return self.ids.ndim == len(self.shape) - 1 and self.ids.numel() == self.ids.shape[dim] == self.shape[1:][dim]

    def demand(self, need: Tensor) -> None:
        """Marks elements as needed; `need` broadcasts to the shape without the batch."""
        self.need |= reduce_any(need, self.ids.shape)


def reduce_any(need: Tensor, shape: torch.Size) -> Tensor:
    """Reduces a boolean tensor to a shape that broadcasts to its own."""
    dims = [dim for dim, size in enumerate(shape) if size == 1 and need.shape[dim] != 1]
    return (need.any(dim=dims, keepdim=True) if dims else need).expand(shape)


class Operation(ABC):
    """What a network does between values: says what is needed, what folding changes, and which tensors have channels."""

    result: Value

    @abstractmethod
    def demand(self) -> None:
        """Marks what this operation reads for the needed part of its result."""

    def folded(self) -> Mapping[str, Tensor]:
        """Computes the new values of the parameters and buffers that folding changes, by name."""
        return {}

    def axes(self) -> Mapping[str, tuple[Tensor | None, ...]]:
        """Lists, for each parameter and buffer, the unit numbers along each of its dimensions (None where it has none)."""
        return {}


@dataclass(eq=False)
class Through(Operation):
    """Passes values on: activations, pooling, sums, reshapes. `backward` maps the need of the result to that of one source."""

    result: Value
    sources: Sequence[Value]
    backward: Callable[[Tensor], Tensor] = lambda need: need

    def demand(self) -> None:
        """Needs each source where the result is needed."""
        for source in self.sources:
            source.demand(self.backward(self.result.need))


@dataclass(eq=False)
class Mixer(Operation):
    """Reads everything for anything, and is left as it is: grouped convolutions, layer norms, softmax, tied layers."""

    result: Value
    source: Value

    def demand(self) -> None:
        """Needs all of the source if any of the result is needed."""
        self.source.need |= self.result.need.any()
