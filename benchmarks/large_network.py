"""Packs and unpacks a large network by the command, and says how much memory each took: one tensor is held at a time, not the file.

A safetensors file of single-precision matrices, 2 % of their weights not zero, is packed without loss and unpacked in processes of their
own, whose peaks of resident memory the system reports (Linux and macOS). Both files are compared byte by byte.

    python benchmarks/large_network.py --mebibytes 2048 --tensor 32
"""

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MEBIBYTE = 1 << 20
DENSITY = 0.02


def write_network(path: Path, mebibytes: int, tensor: int) -> None:
    """Writes a safetensors file of `mebibytes` in matrices of `tensor` mebibytes each."""
    count, size = mebibytes // tensor, tensor * MEBIBYTE
    places = {f"layer{i}.weight": [i * size, (i + 1) * size] for i in range(count)}
    table = {name: {"dtype": "F32", "shape": [size // 4096, 1024], "data_offsets": place} for name, place in places.items()}
    # Read back, a network has its tensors in the order of the file and the header that the library writes.
    header = json.dumps({"__metadata__": {"format": "pt"}, **table}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    generator = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(count):
            weights = np.zeros(size // 4, np.float32)
            places = generator.integers(weights.size, size=int(DENSITY * weights.size))
            weights[places] = generator.normal(size=places.size)
            file.write(weights.tobytes())


def peak(*words: str) -> tuple[float, float]:
    """Runs the command and returns its peak of resident memory in mebibytes and the seconds of processor time it took."""
    code = f"import sys; from ellzero.cli.main import main; sys.exit(main({list(words)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"ellzero {' '.join(words)} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    return used.ru_maxrss * unit / MEBIBYTE, used.ru_utime + used.ru_stime


def measure(folder: Path, mebibytes: int, tensor: int) -> dict[str, float]:
    """Packs and unpacks a network in a folder.

    Returns:
        Peaks in mebibytes, also that of packing a network of next to nothing, seconds, and the sizes of both files in mebibytes.
    """
    write_network(folder / "small.safetensors", 1, 1)
    write_network(folder / "net.safetensors", mebibytes, tensor)
    start, _ = peak("pack", str(folder / "small.safetensors"), "-q")
    packed, pack_seconds = peak("pack", str(folder / "net.safetensors"), "-q")
    unpacked, unpack_seconds = peak("unpack", str(folder / "net.l0"), "-q", "-o", str(folder / "back.safetensors"))
    if not filecmp.cmp(folder / "net.safetensors", folder / "back.safetensors", shallow=False):
        raise SystemExit("the network did not come back")
    return {
        "source_mebibytes": (folder / "net.safetensors").stat().st_size / MEBIBYTE,
        "file_mebibytes": (folder / "net.l0").stat().st_size / MEBIBYTE,
        "start_mebibytes": start,
        "pack_mebibytes": packed,
        "unpack_mebibytes": unpacked,
        "pack_seconds": pack_seconds,
        "unpack_seconds": unpack_seconds,
    }


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mebibytes", type=int, default=2048)
    parser.add_argument("--tensor", type=int, default=32, help="mebibytes of each tensor")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in measure(Path(folder), given.mebibytes, given.tensor).items():
            print(f"{name:>20} {value:10.1f}")


if __name__ == "__main__":
    main()
