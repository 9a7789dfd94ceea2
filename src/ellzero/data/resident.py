"""Batches cut from data that lie whole in memory, with no Python per sample and no state beside the seed and the epoch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from ellzero.data.augment import Augmentation


class Batch(NamedTuple):
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
        batch_size: samples a batch; the last of an epoch may hold fewer.
        seed: decides the order and the augmentation of every epoch; not negative.
        augment: changes each batch of inputs, anew in each epoch; None for no change.
        shuffle: whether every epoch has its own order; otherwise all have that of `inputs`.
        drop_last: whether a last batch with fewer samples is left out.
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
        white: int = 255,
    ) -> None:
        if len(inputs) != len(targets) or not len(inputs):
            raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets: expected as many of both, and at least one")
        if batch_size < 1 or (drop_last and batch_size > len(inputs)):
            raise ValueError(f"batch_size={batch_size} with {len(inputs)} samples leaves no batch: expected 1 to {len(inputs)}")
        if seed < 0 or white < 1:
            raise ValueError(f"seed={seed}, white={white}: expected a seed of at least 0 and white of at least 1")
        self.inputs = inputs
        self.targets = targets if targets.is_floating_point() else targets.long()
        self.batch_size = batch_size
        self.seed = seed
        self.augment = augment
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.white = white
        self._next_epoch = 0

    def __len__(self) -> int:
        """Counts the batches of an epoch."""
        return len(self.inputs) // self.batch_size if self.drop_last else -(-len(self.inputs) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        epoch = self._next_epoch
        self._next_epoch += 1
        return self.epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets which epoch the next `iter()` is."""
        self._next_epoch = epoch

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
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

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        n, device = len(self.inputs), self.inputs.device
        # Drawn on the CPU on every device, so that a run does not depend on where it is.
        generator = torch.Generator().manual_seed(int(np.random.SeedSequence(self.seed, spawn_key=(epoch,)).generate_state(1)[0]))
        order = torch.randperm(n, generator=generator).to(device) if self.shuffle else None
        draws = torch.rand(n, self.augment.num_draws, generator=generator).to(device) if self.augment else None
        for first in range(start * self.batch_size, len(self) * self.batch_size, self.batch_size):
            rows = slice(first, first + self.batch_size)
            if order is None:
                inputs, targets = self.inputs[rows], self.targets[rows]
            else:
                inputs, targets = self.inputs.index_select(0, order[rows]), self.targets.index_select(0, order[rows])
            if self.augment is not None and draws is not None:
                inputs = self.augment.apply(inputs, draws[rows])
            if self.inputs.dtype == torch.uint8:
                inputs = inputs.float().div_(self.white)
            yield Batch(inputs, targets)
