"""Measures one coder on one file, in a process of its own: `python -m ellzero.cli.jobs.bench_run CODER FILE` prints a line of JSON."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ellzero.cli.jobs.bench_coders import coder
from ellzero.files.streams import open_input


@dataclass(frozen=True, kw_only=True)
class Result:
    """The measurements of a coder on a file, or on several.

    Attributes:
        file: the name of the file.
        coder: the name of the coder, with its level.
        original_bytes: size of the file.
        compressed_bytes: size of the compressed file, headers included.
        compress_seconds: wall time of compression.
        decompress_seconds: wall time of decompression.
        memory_bytes: peak of both directions, beyond the interpreter, its modules and the file; None where the system does not tell,
            and of programs of their own.
    """

    file: str
    coder: str
    original_bytes: int
    compressed_bytes: int
    compress_seconds: float
    decompress_seconds: float
    memory_bytes: int | None

    @property
    def bits_per_byte(self) -> float:
        """Bits of the compressed file per byte of the original."""
        return 8 * self.compressed_bytes / self.original_bytes

    @property
    def compress_rate(self) -> float:
        """Speed in kB/s of the original."""
        return self.original_bytes / max(self.compress_seconds, 1e-9) / 1000

    @property
    def decompress_rate(self) -> float:
        """Speed in kB/s of the original."""
        return self.original_bytes / max(self.decompress_seconds, 1e-9) / 1000


def measure(name: str, file: Path) -> Result:
    """Compresses and restores a file in another process.

    Args:
        name: the name of the coder.
        file: the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the coder failed, or returned other bytes.
    """
    with open_input(file):
        pass
    # What takes part is this very package, wherever it was imported from.
    source = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        [sys.executable, "-m", "ellzero.cli.jobs.bench_run", name, str(file)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise ValueError(f"{name} failed on {file}: {last}")
    return Result(**json.loads(done.stdout))


def _measure_here(name: str, file: str) -> dict[str, object]:
    data = Path(file).read_bytes()
    chosen = coder(name)
    before = _memory(peak=False)
    start = time.perf_counter()
    compressed = chosen.compress(data)
    compress_seconds = time.perf_counter() - start
    peaks = [_growth(before)]
    # What the allocator keeps of the first direction is not counted again in the second.
    before = _memory(peak=False)
    start = time.perf_counter()
    restored = chosen.decompress(compressed)
    decompress_seconds = time.perf_counter() - start
    peaks.append(_growth(before))
    if restored != data:
        raise ValueError("other bytes came back")
    return {
        "file": file,
        "coder": name,
        "original_bytes": len(data),
        "compressed_bytes": len(compressed),
        "compress_seconds": compress_seconds,
        "decompress_seconds": decompress_seconds,
        "memory_bytes": None if chosen.is_program else max((peak for peak in peaks if peak is not None), default=None),
    }


def _growth(before: int | None) -> int | None:
    peak = _memory(peak=True)
    return None if before is None or peak is None else max(peak - before, 0)


def _memory(*, peak: bool) -> int | None:
    """Returns the bytes of memory in use, or the most since this was last asked for those in use; None where the system does not tell."""
    try:
        if not peak:
            Path("/proc/self/clear_refs").write_text("5")  # The peak starts anew.
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    wanted = "VmHWM:" if peak else "VmRSS:"
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(wanted)), None)


if __name__ == "__main__":
    print(json.dumps(_measure_here(*sys.argv[1:])))
