"""Measures what starting costs: seconds of `ellzero compress` and `decompress` for small texts, when machine code is compiled already.

Compression decompresses again, as it does by default. Each command runs several times in a process of its own, in turn with the others,
and the least counts; the last column is processor seconds over those of `python -c 'import numba'`. The system must tell the seconds of a
process that has ended, which Windows does not.

    python benchmarks/startup.py --repetitions 7
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SIZES = (1_000, 100_000)
LEVELS = (1, 5, 9)
DOCS = Path(__file__).parents[1] / "docs"


class Seconds(NamedTuple):
    processor: float
    wall: float


def text(size: int) -> bytes:
    """The beginning of the documentation."""
    return b"".join(path.read_bytes() for path in sorted(DOCS.rglob("*.md")))[:size]


def run(command: list[str]) -> Seconds:
    """Runs a command once."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
    return Seconds(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands to measure, by name; `folder` holds what they read and write."""
    found = {f"python -c {code!r}": [sys.executable, "-c", code] for code in ("import numba", "import numpy", "")}
    for size in SIZES:
        original = folder / f"{size}.txt"
        original.write_bytes(text(size))
        for level in LEVELS:
            packed = folder / f"{size}.{level}.l0"
            ellzero = [sys.executable, "-m", "ellzero.cli"]
            found[f"compress -{level}, {size} bytes"] = [*ellzero, "compress", f"-{level}fq", str(original), "-o", str(packed)]
            found[f"decompress -{level}, {size} bytes"] = [*ellzero, "decompress", "-fq", str(packed), "-o", str(folder / "copy")]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7, help="runs of each command, the least of which counts")
    repetitions = parser.parse_args().repetitions
    with tempfile.TemporaryDirectory() as folder:
        measured = commands(Path(folder))
        # The first round compiles what is not compiled yet, and is not counted.
        rounds = [[run(command) for command in measured.values()] for _ in range(repetitions + 1)][1:]
    least = [Seconds(min(one.processor for one in each), min(one.wall for one in each)) for each in zip(*rounds, strict=True)]
    print(f"{'':32}{'processor':>10}{'wall':>8}{'/ numba':>9}")
    for name, seconds in zip(measured, least, strict=True):
        print(f"{name:32}{seconds.processor:10.3f}{seconds.wall:8.3f}{seconds.processor / least[0].processor:9.2f}")


if __name__ == "__main__":
    main()
