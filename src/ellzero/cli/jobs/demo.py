"""The second half of `ellzero demo`: a book is compressed and restored, beside xz."""

import lzma
import time
from importlib.resources import files

from ellzero.archive._compress import compress, decompress

_LEVEL = 1


def run_demo_text() -> None:
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
        print(f"  {name:<12}{size:>10,} bytes  {8 * size / len(text):.3f} bits a byte")
    print(f"  {100 * (1 - len(ours) / len(theirs)):.1f} % smaller; restored bit for bit; {middle - start:.1f} s and {end - middle:.1f} s.")
