"""Rescaling: hidden units at the scale that a coder of magnitudes likes, the same function."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.codec.network.stored_grids import Logarithmic
from ellzero.quantise.grids import LogGrid
from ellzero.surgery._fold import check_equal, named_tensors, outputs
from ellzero.surgery.analysis import Analysis
from ellzero.surgery.known_modules import AVG_POOLS, CONVOLUTIONS, DROPOUTS, MAX_POOLS, copied, name_of
from ellzero.surgery.layer_operations import Dense
from ellzero.surgery.operations import Through
from ellzero.surgery.trace import RefusedError

_MODULES = (nn.Linear, *CONVOLUTIONS, *MAX_POOLS, *AVG_POOLS, *DROPOUTS, nn.Flatten, nn.ReLU, nn.LeakyReLU)
_FUNCTIONS = ("relu", "leaky_relu", "flatten", "reshape", "view", "contiguous", "max_pool", "avg_pool", "adaptive_", "dropout")
_REACH = 6
_ROUNDS = 6
_LEVELS = 256


@torch.no_grad()
def rescale(model: nn.Module, example: Tensor, grid: LogGrid) -> nn.Module:
    """Copies a model with each hidden unit at another scale: what it reads times a power of the grid's ratio, what reads it over it.

    Where everything between two layers is positively homogeneous (ReLU, pooling), the function stays the same (B. Neyshabur and others,
    Path-SGD, 2015). The powers are those with which the magnitudes on a logarithmic grid have the least entropy, chosen unit by unit. It
    makes the files of pruned networks smaller. Do it before `OnGrid` begins.

    Args:
        model: a traceable model of linear layers and convolutions in sequence, without normalisation; it is not changed.
        example: a batch of inputs, floating point; two are enough.
        grid: the grid that the weights are to be moved to.

    Returns:
        The copy, of the same class, shapes and keys.

    Raises:
        ValueError: the model cannot be traced, or holds something that is not homogeneous; the message names it.
        RuntimeError: the copy answers differently on `example`.
    """
    result = copied(model)
    expected = outputs(model, example)
    analysis = Analysis(result, example)
    _require_homogeneous(analysis)
    tensors = named_tensors(result)
    fixed = torch.zeros(analysis.units, dtype=torch.bool)
    for ids in analysis.fixed:
        fixed[analysis.labels[ids]] = True
    parts = [
        _Part.of(tensors[name], _classes(analysis, fixed, units[0]), _classes(analysis, fixed, units[1] if units[1:] else None), grid)
        for operation in analysis.operations
        for name, units in operation.axes().items()
    ]
    if sum(len(part.places) for part in parts) == 0:
        return result
    powers = _least_entropy(parts, analysis.units)
    for part in parts:
        shift = torch.from_numpy(part.shift(powers)).to(part.tensor)
        part.tensor[part.tensor != 0] *= grid.rounded_ratio**shift
    check_equal(outputs(result, example), expected)
    return result


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A tensor's non-zeros: their places on its grid, and the classes of units that write and read them, -1 for none that may move."""

    tensor: Tensor
    places: NDArray[np.int64]
    written: NDArray[np.int64]
    read: NDArray[np.int64]

    @classmethod
    def of(cls, tensor: Tensor, written: Tensor, read: Tensor, grid: LogGrid) -> "_Part":
        values = tensor.detach().double().cpu()
        alive = values != 0
        quantised = grid.quantise("", values.numpy())
        assert quantised is not None
        assert isinstance(quantised.grid, Logarithmic)
        places = torch.log(values[alive].abs() / quantised.grid.smallest) / math.log(quantised.grid.ratio)
        rows, columns = (written.view(-1, *[1] * (tensor.ndim - 1)), read.view(1, -1, *[1] * max(tensor.ndim - 2, 0)))
        return cls(
            tensor=tensor,
            places=places.round().long().numpy(),
            written=rows.expand(tensor.shape)[alive].numpy(),
            read=(columns if tensor.ndim > 1 else read[:1]).expand(tensor.shape)[alive].numpy(),
        )

    def shift(self, powers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Powers of the ratio that each non-zero is multiplied by; the last of `powers`, that of class -1, is 0."""
        return powers[self.written] - powers[self.read]


def _classes(analysis: Analysis, fixed: Tensor, units: Tensor | None) -> Tensor:
    """Finds the classes of units that may move, -1 for those that may not."""
    if units is None:
        return torch.full((1,), -1)
    labels = analysis.labels[units]
    return labels.masked_fill(fixed[labels], -1)


def _require_homogeneous(analysis: Analysis) -> None:
    """Raises RefusedError for what a positive factor does not pass through."""
    for node in analysis.environment:
        if node.op == "call_module":
            module = analysis.root.get_submodule(str(node.target))
            if not isinstance(module, _MODULES) or isinstance(module, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
                raise RefusedError(f"{node.target} ({type(module).__name__}) lets no factor pass: its units have to keep their scale")
        elif node.op in ("call_function", "call_method"):
            name = name_of(node)
            if not name.startswith(_FUNCTIONS) or "alpha" in name:
                raise RefusedError(f"{name} lets no factor pass, or is not known to: its units have to keep their scale")
    for operation in analysis.operations:
        if not isinstance(operation, (Dense, Through)):
            raise RefusedError(f"{type(operation).__name__} lets no factor pass: its units have to keep their scale")


def _least_entropy(parts: list[_Part], classes: int) -> NDArray[np.int64]:
    """Descends in the power of one class after the other; returns them, [classes + 1], the last 0.

    Each matrix has magnitudes of its own; vectors share theirs, as in a file.
    """
    group = np.concatenate([np.full(len(part.places), 0 if part.tensor.ndim < 2 else 1 + index) for index, part in enumerate(parts)])
    places = np.concatenate([part.places for part in parts]) + _LEVELS // 2
    written, read = (np.concatenate(lines) for lines in zip(*[(part.written, part.read) for part in parts], strict=True))
    counts = np.zeros((len(parts) + 1, _LEVELS))
    np.add.at(counts, (group, places), 1)
    powers = np.zeros(classes + 1, np.int64)
    movable = np.intersect1d(written, read)
    for _ in range(_ROUNDS):
        before = powers.copy()
        for unit in movable[movable >= 0]:
            own = np.flatnonzero((written == unit) | (read == unit))
            sign = np.where(written[own] == unit, 1, -1)
            rows, levels = group[own], places[own]
            np.subtract.at(counts, (rows, levels), 1)
            bits = [_with(counts, rows, levels + power * sign) for power in range(-_REACH, _REACH + 1)]
            power = min(range(-_REACH, _REACH + 1), key=lambda power, bits=bits: (bits[power + _REACH], abs(power)))
            places[own] = np.clip(levels + power * sign, 0, _LEVELS - 1)
            np.add.at(counts, (rows, places[own]), 1)
            powers[unit] += power
        if (powers == before).all():
            break
    return powers


def _with(counts: NDArray[np.float64], rows: NDArray[np.int64], levels: NDArray[np.int64]) -> float:
    """Computes the bits of all magnitudes together with some more."""
    touched = np.unique(rows)
    histograms = counts[touched].copy()
    np.add.at(histograms, (np.searchsorted(touched, rows), np.clip(levels, 0, _LEVELS - 1)), 1)
    total = histograms.sum(1, keepdims=True)
    return float((histograms * (np.log2(total) - np.log2(np.maximum(histograms, 1)))).sum())
