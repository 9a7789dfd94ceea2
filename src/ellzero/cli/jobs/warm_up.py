"""What `ellzero warm-up` does: it compiles in processes of their own, as one process compiles one thing at a time."""

import importlib.util
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from ellzero.cli.jobs.progress import say
from ellzero.cli.options.arguments import levels_of
from ellzero.cli.options.warm_up import WarmUp
from ellzero.files.errors import FileError
from ellzero.jit.kernels import cache_folder, usable_folder

_SAMPLE_BYTES = 40_000
"""Enough for the search for long repeats, which small files do without."""


def run_warm_up(options: WarmUp) -> None:
    """Runs the command.

    Raises:
        UsageError: there is no such level.
        FileError: what is compiled cannot be kept.
    """
    levels = levels_of(options.level)
    if usable_folder(cache_folder()) is None:
        raise FileError(f"{cache_folder()} cannot be written, so nothing can be kept: name another in NUMBA_CACHE_DIR")
    tasks: dict[str, Callable[[], None]] = {f"level {level}": partial(warm_level, int(level)) for level in dict.fromkeys(levels)}
    if options.networks and importlib.util.find_spec("torch") is not None:
        tasks["networks"] = warm_networks
    workers = max(1, min(len(tasks), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        started = time.monotonic()
        running = {pool.submit(task): name for name, task in tasks.items()}
        for done in as_completed(running):
            done.result()
            if not options.quiet:
                say(f"ellzero: {running[done]} is ready, after {time.monotonic() - started:.1f} s")


def warm_level(level: int) -> None:
    """Compresses and restores a text, which compiles what the level needs for it."""
    from ellzero.archive._compress import compress, decompress

    text = _text()
    assert decompress(compress(text, level=level)) == text


def warm_networks() -> None:
    """Packs and unpacks a small network, without loss and on a grid."""
    import torch

    from ellzero.archive.load import load_model
    from ellzero.archive.save import save_model
    from ellzero.quantise.grids import LogGrid

    model = torch.nn.Linear(40, 30)
    for grid in (None, LogGrid()):
        with TemporaryDirectory() as folder:
            save_model(model, Path(folder) / "network.l0", quantise=grid)
            load_model(torch.nn.Linear(40, 30), Path(folder) / "network.l0")


def _text() -> bytes:
    """Makes a text without long repeats: words in an order that a small generator draws."""
    words = ("the", "of", "one", "shortest", "description", "is", "model", "and", "data", "together", "12", "1990")
    state, text = 1, bytearray()
    while len(text) < _SAMPLE_BYTES:
        state = (1_103_515_245 * state + 12_345) % 2**31
        text += words[(state >> 16) % len(words)].encode() + (b".\n" if state % 11 == 0 else b" ")
    return bytes(text)
