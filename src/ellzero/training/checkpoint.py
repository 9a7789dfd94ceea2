"""Checkpoints of a run: written whole or not at all, read without unpickling anything but tensors and plain values."""

import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ellzero.archive.torch_checkpoints import save_state
from ellzero.files.whole import replacing


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where and how often a run is saved.

    Attributes:
        path: the file; its folder must exist.
        seconds: least time between two saves; 0 saves after every batch.
        resume: whether to go on from the file, where it exists.
    """

    path: Path
    seconds: float = 60.0
    resume: bool = False


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a checkpoint: a killed process leaves the old file or the new file, never a part."""
    with replacing(path) as file:
        save_state(state, file)


def load(path: Path, fingerprint: str) -> dict[str, Any]:
    """Reads a checkpoint.

    Raises:
        ValueError: the file is not a checkpoint, or belongs to a run with other arguments.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        saved_fingerprint = state["fingerprint"]
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path} is not a checkpoint of ellzero, or is damaged: delete it and start anew") from error
    if saved_fingerprint != fingerprint:
        raise ValueError(f"{path} belongs to a run with other arguments: pass the same ones to resume, or delete it and start anew")
    return state


class Clock:
    """Measures when a checkpoint is due, and for how long training has run, resumed stretches included."""

    def __init__(self, interval: float, seconds: float = 0.0) -> None:
        self.interval = interval
        self.before = seconds
        self.start = self.last = time.monotonic()

    def due(self) -> bool:
        """Tells whether the interval has passed since the last `mark`."""
        return time.monotonic() - self.last >= self.interval

    def mark(self) -> None:
        """Starts a new interval."""
        self.last = time.monotonic()

    def seconds(self) -> float:
        """Computes the seconds that the run has taken so far."""
        return self.before + time.monotonic() - self.start
