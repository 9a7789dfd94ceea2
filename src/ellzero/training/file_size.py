"""A network of a given size on disk: how many weights fit into a file of so many bytes."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.description import TensorCount, position_entropy_bits
from ellzero.params import Selector, apply_masks_, duplicate, select_parameters
from ellzero.pruning import magnitude_masks
from ellzero.quantise.as_stored import as_stored
from ellzero.quantise.grids import Levels, LogGrid, Quantiser
from ellzero.surgery import reorder
from ellzero.targets import Bytes
from ellzero.training.batches import Batches, ErrorFn, count_errors
from ellzero.types import Masks, Params

_POSITIONS = 0.75
"""Coded bits of the positions over log2 C(n, k), for trained networks: a first guess, corrected by coding."""

_VALUE_BITS = 4.0
"""Bits of a sign and a magnitude, likewise a first guess."""

_SPARE = 1.1
"""Training keeps this many times the weights that are expected to fit; coding decides how many do."""


MAX_PACKING_POINTS = 0.5
"""Percentage points of error on validation data that packing may add before there is a warning."""

_CHANCE = 3
"""So many further errors at least are no chance of a small validation set."""

_FINER = (1.15, 1.07, 1.03)
"""Ratios of finer grids, of which a warning names the coarsest that is good enough."""


@dataclass(frozen=True, kw_only=True)
class PackingCost:
    """What a packed network loses on validation data.

    Attributes:
        error: of the network, as a fraction.
        packed_error: of what its file gives back.
        errors: further errors, as a number.
    """

    error: float
    packed_error: float
    errors: float

    @property
    def points(self) -> float:
        """The difference in percentage points."""
        return 100 * (self.packed_error - self.error)

    @property
    def too_high(self) -> bool:
        """Whether it is more than `MAX_PACKING_POINTS`, and no chance."""
        return self.points > MAX_PACKING_POINTS and self.errors >= _CHANCE


def packing_cost(model: nn.Module, packed: nn.Module, error_fn: ErrorFn, batches: Batches) -> PackingCost:
    """Measures what a packed network loses.

    Args:
        model: the network.
        packed: what its file gives back.
        error_fn: (model, batch) -> (errors, decisions).
        batches: validation data.
    """
    errors, count = count_errors(model, error_fn, batches)
    packed_errors, _ = count_errors(packed, error_fn, batches)
    return PackingCost(error=errors / max(count, 1), packed_error=packed_errors / max(count, 1), errors=packed_errors - errors)


def good_ratio(model: nn.Module, error_fn: ErrorFn, batches: Batches) -> float | None:
    """Finds the ratio of a logarithmic grid that is fine enough for a network; None where none of a few is.

    Args:
        model: the network; it is not changed.
        error_fn: (model, batch) -> (errors, decisions).
        batches: validation data.
    """
    for ratio in _FINER:
        if not packing_cost(model, as_stored(model, LogGrid(ratio)), error_fn, batches).too_high:
            return ratio
    return None


@dataclass(frozen=True, kw_only=True)
class Named:
    """Moves tensors of some names to a grid and keeps the others exactly."""

    names: Collection[str]
    grid: Quantiser = field(default_factory=LogGrid)

    def quantise(self, name: str, values: NDArray[np.float64]) -> Levels | None:
        """Quantises a tensor whose name is listed; returns None for the others."""
        return self.grid.quantise(name, values) if name in self.names else None


def coded_bytes(model: nn.Module, quantiser: Quantiser | None) -> int:
    """Codes a network and returns the size of its file, in bytes.

    Args:
        model: any module; it is not changed.
        quantiser: as for `save_model`.

    Raises:
        ValueError: a weight is not finite.
    """
    # Importing the coder compiles it; a run that counts no bytes does without.
    from ellzero.archive.save import model_bytes

    return len(model_bytes(model, quantise=quantiser))


@torch.no_grad()
def weight_bits(alive: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Estimates how many bits each weight of a tensor adds to the file if it is not zero.

    Its place costs log2((1 - p) / p) more than a zero there, with p = row * column / all: shares of non-zeros in its row, in its column
    and in the tensor, each drawn towards the whole as the coder's counts are; sign and magnitude cost the same everywhere.

    Args:
        alive: where the weight is not zero; the first dimension are rows, every combination of the others is a column.

    Returns:
        Bits, at least those of sign and magnitude.
    """
    p = cell_shares(alive.reshape(alive.shape[0] if alive.ndim >= 2 else 1, -1)).clamp(1e-6, 0.5)
    return (_VALUE_BITS + torch.log2((1 - p) / p)).float().reshape(alive.shape)


def cell_shares(alive: Bool[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Estimates the probability that each cell is not zero as row * column / all: shares of non-zeros, each drawn towards the whole.

    Returns:
        float64, above 0; it can exceed 1 where a full row crosses a full column.
    """
    matrix = alive.double()
    share = (matrix.sum() + 0.5) / (matrix.numel() + 1)
    rows = (matrix.sum(1, keepdim=True) + share) / (matrix.shape[1] + 1)
    columns = (matrix.sum(0, keepdim=True) + share) / (matrix.shape[0] + 1)
    return rows * columns / share


def reordered(model: nn.Module, example: Tensor | None) -> nn.Module:
    """Copies a network with its hidden units in an order that takes fewer bytes; a network that cannot be traced is returned unchanged."""
    if example is None:
        return model
    try:
        return reorder(model, example)
    except (ValueError, RuntimeError):
        # Any order gives the same function, only a larger file.
        return model


def expected_nonzeros(limit: int, shapes: Iterable[tuple[int, ...]]) -> int:
    """Estimates how many weights a file of a given size holds, with a margin; at least 1.

    Args:
        limit: the size in bytes.
        shapes: shapes of the tensors that are pruned.
    """
    size = sum(TensorCount(shape=shape, nonzeros=0).size for shape in shapes)

    def bits(count: int) -> float:
        return _POSITIONS * position_entropy_bits(TensorCount(shape=(size,), nonzeros=count)) + _VALUE_BITS * count

    low, high = 0, size // 2
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bits(middle) <= 8 * limit else (low, middle - 1)
    return max(1, round(_SPARE * low))


@torch.no_grad()
def require_possible(model: nn.Module, target: Bytes, select: Selector) -> None:
    """Checks, before anything is trained, that a file without any weight is small enough.

    Raises:
        ValueError: it is too large; the message names its size.
    """
    empty = duplicate(model)
    chosen = select_parameters(empty, select)
    for parameter in chosen.values():
        parameter.zero_()
    if (size := coded_bytes(empty, Named(names=list(chosen)))) > target.count:
        raise ValueError(_too_small(target.count, size))


def _too_small(limit: int, size: int) -> str:
    return f"a file of at most {limit} bytes was asked for, but without any weight it takes {size}: ask for more"


@torch.no_grad()
def prune_to_fit_(params: Params, masks: Callable[[int], Masks], most: int, size: Callable[[], int], limit: int) -> int:
    """Prunes weights until a file is small enough.

    Args:
        params: the parameters that may be pruned.
        masks: number of weights -> the masks that keep so many; called with the present weights.
        most: the largest number of weights that the masks can keep.
        size: codes the network in its present state and returns the number of bytes.
        limit: the largest number of bytes.

    Returns:
        The number of weights that are left.

    Raises:
        ValueError: the file is too large even without them; nothing is pruned then.
    """
    original = {name: parameter.detach().clone() for name, parameter in params.items()}

    def keep_(count: int) -> None:
        for name, parameter in params.items():
            parameter.copy_(original[name])
        apply_masks_(params, masks(count))

    if size() <= limit:
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        keep_(middle)
        low, high = (middle, high) if size() <= limit else (low, middle - 1)
    keep_(low)
    if (smallest := size()) > limit:
        for name, parameter in params.items():
            parameter.copy_(original[name])
        raise ValueError(_too_small(limit, smallest))
    return low


def prune_smallest_to_fit_(params: Params, scores: Params, size: Callable[[], int], limit: int) -> int:
    """Prunes the weights of the smallest scores until a file is small enough; see `prune_to_fit_`.

    Args:
        params: the parameters that may be pruned.
        scores: name -> the score by which weights are ranked, 0 where the weight is 0.
        size: codes the network in its present state and returns the number of bytes.
        limit: the largest number of bytes.
    """
    most = sum(int(torch.count_nonzero(score)) for score in scores.values())
    return prune_to_fit_(params, lambda count: magnitude_masks(scores, keep=count), most, size, limit)


def magnitudes_of(params: Params) -> dict[str, Tensor]:
    """Returns the magnitudes |w| by name."""
    return {name: parameter.detach().abs() for name, parameter in params.items()}
