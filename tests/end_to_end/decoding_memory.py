"""Decodes two archives, and prints as JSON how much more memory the second took than the process had after the first.

The first is a small one of the same level: it loads what decoding any file takes beside the memory that is stated.
"""

import json
import sys
from pathlib import Path

from ellzero.archive._compress import open as open_l0


def resident(what: str) -> int:
    """Bytes that the process holds (VmRSS), or that it held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def decode(path: str) -> None:
    """Reads a file through, as the command does, and keeps nothing."""
    with open_l0(path) as file:
        while file.read(1 << 16):
            pass


if __name__ == "__main__":
    small, large = sys.argv[1:]
    decode(small)
    before = resident("VmRSS")
    decode(large)
    print(json.dumps(resident("VmHWM") - before))
