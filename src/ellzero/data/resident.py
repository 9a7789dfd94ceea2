"""Batches cut from data that lie whole in memory, with no Python per sample and no state beside the seed and the epoch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from ellzero.data.augment import Augmentation


class Samples(NamedTuple):
    """Inputs with their targets; unpacks as a pair."""

    inputs: Shaped[Tensor, "batch ..."]
    targets: Shaped[Tensor, "batch ..."]


class Resident:
    """Holds a whole data set in one tensor and cuts it into batches.

    What epoch e holds follows from the seed and e alone: `epoch(e, start=k)` repeats the batches from the k-th on exactly, whatever was
    read before, so that a run resumes bit for bit. Each `iter()` is the next epoch, beginning with epoch 0.

    Args:
        inputs: bytes, which become float32 from 0 to 1, or floating point numbers, which are passed on as they are.
        targets: one for each input (m = n): whole numbers, which become int64, or floating point numbers, passed on as they are.
        batch_size: samples per batch; the last of an epoch may hold fewer.
        seed: decides the order and the augmentation of every epoch; not negative.
        augment: changes each batch of inputs, anew in each epoch; None for no change.
        shuffle: whether every epoch has its own order; otherwise all have that of `inputs`.
        drop_last: whether a last batch with fewer samples is left out.
        copies: how many augmented copies of the data are made, once, and drawn from in every epoch; None augments anew in each. With
            copies, every sample that is ever seen has a number (`keys`), so that what a teacher says of it is computed once.
        white: the byte that becomes 1.0.

    Raises:
        ValueError: no samples, unequal lengths, `batch_size` below 1, no batch left by `drop_last`, a negative seed, or `white` below 1.
    """

    def __init__(
        self,
        inputs: Shaped[Tensor, "n ..."],
        targets: Shaped[Tensor, "m ..."],
        *,
        batch_size: int,
        seed: int,
        augment: Augmentation | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        copies: int | None = None,
        white: int = 255,
    ) -> None:
        if len(inputs) != len(targets) or not len(inputs):
            raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets: expected as many of both, and at least one")
        if batch_size < 1 or (drop_last and batch_size > len(inputs)):
            raise ValueError(f"batch_size={batch_size} with {len(inputs)} samples leaves no batch: expected 1 to {len(inputs)}")
        if copies is not None and (copies < 1 or augment is None):
            raise ValueError(f"copies={copies} with augment={augment}: expected at least 1, and an augmentation to make copies by")
        if seed < 0 or white < 1:
            raise ValueError(f"seed={seed}, white={white}: expected a seed of at least 0 and white of at least 1")
        self.inputs = inputs
        self.targets = targets if targets.is_floating_point() else targets.long()
        self.batch_size = batch_size
        self.seed = seed
        self.augment = augment
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.copies = copies
        self.white = white
        self._next_epoch = 0
        self._pool: Tensor | None = None

    def __len__(self) -> int:
        """Counts the batches of an epoch."""
        return len(self.inputs) // self.batch_size if self.drop_last else -(-len(self.inputs) // self.batch_size)

    def __iter__(self) -> Iterator[Samples]:
        epoch = self._next_epoch
        self._next_epoch += 1
        return self.epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets which epoch the next `iter()` is."""
        self._next_epoch = epoch

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Samples]:
        """Yields the batches of an epoch; does not change which epoch the next `iter()` is.

        Args:
            epoch: the epoch, from 0.
            start: the first batch to yield, from 0; the ones before cost nothing.

        Raises:
            ValueError: a negative epoch, or `start` past the end of the epoch.
        """
        if epoch < 0 or not 0 <= start <= len(self):
            raise ValueError(f"epoch={epoch}, start={start}: expected an epoch of at least 0 and a start of 0 to {len(self)}")
        return self._batches(epoch, start)

    def plain(self) -> "Resident":
        """Returns the same samples in their order and without augmentation, in large batches, for measuring."""
        size = min(2000, len(self.inputs))
        return Resident(self.inputs, self.targets, batch_size=size, seed=0, shuffle=False, white=self.white)

    @property
    def num_keys(self) -> int:
        """How many samples `keys` tells apart: copies times samples; 0 where every epoch augments anew."""
        if self.augment is None:
            return len(self.inputs)
        return 0 if self.copies is None else self.copies * len(self.inputs)

    def keys(self, epoch: int, start: int = 0) -> Iterator[Int64[Tensor, " batch"]]:
        """Yields the numbers of the samples of each batch of an epoch: equal numbers are equal inputs, in any epoch.

        Raises:
            ValueError: there are no numbers (`num_keys` is 0).
        """
        if not self.num_keys:
            raise ValueError("every epoch augments anew, so that no sample comes twice: pass copies= to Resident")
        order, copy = self._order(epoch)
        numbers = order if copy is None else order + copy * len(self.inputs)
        return (numbers[rows] for rows in self._rows(start))

    def samples(self) -> Iterator[Samples]:
        """Yields every sample once, augmented copies included, in the order of their numbers."""
        source = self._copies() if self.copies is not None else self.inputs
        for first in range(0, self.num_keys, 1000):
            numbers = torch.arange(first, min(first + 1000, self.num_keys), device=source.device)
            yield self._batch(source, numbers)

    def _batch(self, source: Tensor, numbers: Int64[Tensor, " batch"]) -> Samples:
        inputs = source.index_select(0, numbers)
        if inputs.dtype == torch.uint8:
            inputs = inputs.float().div_(self.white)
        return Samples(inputs, self.targets.index_select(0, numbers % len(self.inputs)))

    def _rows(self, start: int) -> Iterator[slice]:
        size = self.batch_size
        return (slice(first, first + size) for first in range(start * size, len(self) * size, size))

    def _generator(self, *key: int) -> torch.Generator:
        # Drawn on the CPU on every device, so that a run does not depend on where it is.
        return torch.Generator().manual_seed(int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0]))

    def _order(self, epoch: int) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"] | None]:
        """Draws the order of an epoch and, with copies, which copy of each sample is taken."""
        n, generator = len(self.inputs), self._generator(epoch)
        order = torch.randperm(n, generator=generator) if self.shuffle else torch.arange(n)
        copy = None if self.copies is None else torch.randint(self.copies, (n,), generator=generator)
        return order.to(self.inputs.device), None if copy is None else copy.to(self.inputs.device)

    def _copies(self) -> Tensor:
        """Makes the augmented copies, one after the other in one tensor."""
        if self._pool is None:
            assert self.augment is not None
            assert self.copies is not None
            n = len(self.inputs)
            self._pool = self.inputs.new_empty((self.copies * n, *self.inputs.shape[1:]))
            for copy in range(self.copies):
                draws = torch.rand(n, self.augment.num_draws, generator=self._generator(copy, 1)).to(self.inputs.device)
                for first in range(0, n, 10_000):
                    rows = slice(first, min(first + 10_000, n))
                    augmented = self.augment.apply(self.inputs[rows], draws[rows])
                    if augmented.dtype != self._pool.dtype:
                        augmented = augmented.round()
                    self._pool[copy * n + rows.start : copy * n + rows.stop] = augmented
        return self._pool

    def _batches(self, epoch: int, start: int) -> Iterator[Samples]:
        if self.augment is None or self.copies is not None:
            source = self.inputs if self.copies is None else self._copies()
            for numbers in self.keys(epoch, start):
                yield self._batch(source, numbers)
            return
        n, generator = len(self.inputs), self._generator(epoch)
        # The order is drawn first, then the augmentation, from one stream.
        order = torch.randperm(n, generator=generator) if self.shuffle else torch.arange(n)
        order, draws = (drawn.to(self.inputs.device) for drawn in (order, torch.rand(n, self.augment.num_draws, generator=generator)))
        for rows in self._rows(start):
            inputs = self.augment.apply(self.inputs.index_select(0, order[rows]), draws[rows])
            if self.inputs.dtype == torch.uint8:
                inputs = inputs.float().div_(self.white)
            yield Samples(inputs, self.targets.index_select(0, order[rows]))
