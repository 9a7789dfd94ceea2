"""Writes tensors to a network file, moved to a grid on the way, and counts them, in either direction. Needs no torch."""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ellzero.codec.container import Sink
from ellzero.codec.errors import LimitError
from ellzero.codec.network.dtypes import Reading
from ellzero.codec.network.group import Accept
from ellzero.codec.network.network_file import accept_all, write_network
from ellzero.codec.network.stored_grids import roundable
from ellzero.codec.network.tensors import Description, Entry, ExactTensor, QuantisedTensor, Tied, values_of
from ellzero.quantise.grids import Quantiser


@dataclass(frozen=True, kw_only=True)
class SaveReport:
    """What became of a network in a file.

    Attributes:
        tensors: names in the file, tied ones too.
        scalars: numbers in it, of tied tensors once.
        nonzeros: how many of them are not zero, as stored.
        dense_bytes: what the tensors take in memory, tied ones once.
        sparse_bytes: 4 bytes per number that is not zero, positions free: the paper's "model byte size", which no file has.
        file_bytes: the file, everything counted.
    """

    tensors: int
    scalars: int
    nonzeros: int
    dense_bytes: int
    sparse_bytes: int
    file_bytes: int


def write_entries(file: Sink, entries: Iterable[Entry], quantise: Quantiser | None = None, kept: Collection[str] = ()) -> SaveReport:
    """Writes a network file.

    Args:
        file: where to.
        entries: the tensors, taken one by one.
        quantise: moves floating-point tensors to a grid; None keeps every bit.
        kept: names of those that stay exact in any case.

    Returns:
        Sizes.

    Raises:
        ValueError: an entry that does not fit, or one that is to be quantised and not finite.
    """
    counts = {"tensors": 0, "scalars": 0, "nonzeros": 0, "dense_bytes": 0}

    def counted() -> Iterator[Entry]:
        for entry in entries:
            counts["tensors"] += 1
            if isinstance(entry, Tied):
                yield entry
                continue
            stored = entry
            if quantise is not None and isinstance(entry, ExactTensor) and entry.name not in kept:
                stored = quantised(entry, quantise)
            numbers = math.prod(entry.shape)
            counts["scalars"] += numbers
            counts["nonzeros"] += nonzeros(stored)
            counts["dense_bytes"] += numbers * entry.dtype.num_bytes
            yield stored

    size = write_network(file, counted())
    return SaveReport(**counts, sparse_bytes=4 * counts["nonzeros"], file_bytes=size)


class Budget:
    """Accepts tensors that are read as long as all of them together take no more bytes than they may.

    Args:
        max_size: those bytes.
        refusal: what to say of more.
        accept: is asked first.
    """

    def __init__(self, max_size: int, refusal: str, accept: Accept = accept_all) -> None:
        self._left, self._refusal, self._accept = max_size, refusal, accept

    def __call__(self, description: Description) -> None:
        """Takes a tensor's bytes off what is left.

        Raises:
            LimitError: there are too few.
        """
        self._accept(description)
        self._left -= math.prod(description.shape) * description.dtype.num_bytes
        if self._left < 0:
            raise LimitError(self._refusal)


def quantised(entry: ExactTensor, quantiser: Quantiser) -> ExactTensor | QuantisedTensor:
    """Moves a tensor to a grid where it has numbers with fractions and the quantiser wants it.

    Raises:
        ValueError: it has a number that is not finite.
    """
    if not roundable(entry.dtype) or entry.words.size == 0:
        return entry
    values = values_of(entry)
    if not np.isfinite(values).all():
        raise ValueError(f"{entry.name!r} has numbers that are not finite, which no grid holds: pack it without quantising, or repair it")
    levels = quantiser.quantise(entry.name, values)
    if levels is None:
        return entry
    return QuantisedTensor(
        name=entry.name, dtype=entry.dtype, shape=entry.shape, levels=levels.levels, grid=levels.grid, image_width=entry.image_width
    )


def nonzeros(entry: ExactTensor | QuantisedTensor) -> int:
    """Counts the numbers of a tensor that are not zero."""
    if isinstance(entry, QuantisedTensor):
        return int(np.count_nonzero(entry.levels))
    if entry.dtype.reading is Reading.FLOAT:
        # The sign of a zero is a bit, too, but no number.
        sign = np.array(1 << (entry.dtype.word_bits - 1), entry.words.dtype)
        halves = (entry.words & ~sign).reshape(-1, entry.dtype.words)
        return int(np.count_nonzero(halves.any(axis=1)))
    return int(np.count_nonzero(entry.words))
