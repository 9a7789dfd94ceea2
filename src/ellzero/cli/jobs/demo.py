"""What `ellzero demo` does: the whole job on a small network, then a book compressed and restored, beside xz."""

import lzma
import os
import shutil
import time
from importlib.resources import files
from pathlib import Path

from ellzero.archive._compress import compress, decompress
from ellzero.cli.jobs.outcome import Outcome
from ellzero.cli.jobs.sparsify import run_and_measure
from ellzero.cli.options.demo import Demo
from ellzero.cli.options.sparsify import Sparsify

_LEVEL = 1


def run_demo(options: Demo) -> None:
    """Runs the command.

    Raises:
        OSError: the folder holds something else than a demo, or cannot be written.
    """
    sparsify_demo(options.output, options.seed, has_data=bool(os.environ.get("ELLZERO_DATA")))
    compress_demo()


def sparsify_demo(folder: Path, seed: int, *, has_data: bool) -> Outcome:
    """Runs the first half of the demo: LeNet-300-100 on MNIST where there are data, else a smoke test on the digits.

    Raises:
        FileExistsError: the folder holds something else than an earlier demo.
        OSError: data are missing, or the folder cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "options.json").is_file():
            raise FileExistsError(f"{folder} holds something else than an earlier demo: choose another folder with -o")
        shutil.rmtree(folder)
    if has_data:
        print("Sparsifying LeNet-300-100 on MNIST, recipe fast.")
        return run_and_measure(Sparsify(model="lenet-300-100", output=folder, seed=seed))
    print("ELLZERO_DATA is not set, so this is a smoke test on 8x8 digits; set it to a folder that holds mnist/ for the real thing.")
    return run_and_measure(Sparsify(model="digits-mlp", output=folder, seed=seed))


def compress_demo() -> None:
    """Compresses Alice's Adventures in Wonderland, restores it, compares, and prints the sizes."""
    packed = files("ellzero.data").joinpath("alice29.txt.xz").read_bytes()
    text = lzma.decompress(packed)
    print(f"\nCompressing Alice's Adventures in Wonderland, {len(text):,} bytes, at the fastest level.")
    start = time.perf_counter()
    ours = compress(text, level=_LEVEL)
    middle = time.perf_counter()
    if decompress(ours) != text:
        raise ValueError("the text did not come back as it was: memory may be faulty")
    end = time.perf_counter()
    theirs = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
    for name, size in (("xz -9e", len(theirs)), (f"ellzero -{_LEVEL}", len(ours))):
        print(f"  {name:<12}{size:>10,} bytes  {8 * size / len(text):.3f} bits per byte")
    print(f"  {100 * (1 - len(ours) / len(theirs)):.1f} % smaller; restored bit for bit; {middle - start:.1f} s and {end - middle:.1f} s.")
