"""Measures how fast networks are coded: cells and values a second, each direction, on one core, without the time to compile.

A matrix of levels on a grid, of which a part is not zero, is encoded and decoded several times, and the least processor time counts. The
last column is that time over the time that 30 million cells of a mask and 2 million values a second would take: 1 or less is as fast.

    python benchmarks/network_coder.py --repetitions 5
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.network_file import decode_network, encode_network
from ellzero.codec.network.stored_grids import Uniform
from ellzero.codec.network.tensors import QuantisedTensor

DENSITIES = (0.005, 0.05, 0.5)
ROWS, COLUMNS = 2000, 2000
CELLS_A_SECOND, VALUES_A_SECOND = 30e6, 2e6


def matrix(density: float, seed: int = 0) -> QuantisedTensor:
    """A matrix of normal weights on a uniform grid, of which those of least magnitude are zero."""
    source = np.random.default_rng(seed)
    levels = np.rint(source.normal(scale=3, size=(ROWS, COLUMNS))) * (source.random((ROWS, COLUMNS)) < density)
    return QuantisedTensor(name="weight", dtype=DType.F32, shape=levels.shape, levels=levels.astype(np.int32), grid=Uniform(steps=(0.125,)))


def least_seconds(work: Callable[[], object], repetitions: int) -> float:
    """Returns the least processor time that some work takes; once is for compiling."""
    work()
    found: list[float] = []
    for _ in range(repetitions):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    print(f"{'density':>8} {'':6} {'bytes':>9} {'Mcells/s':>9} {'Mvalues/s':>9} {'of the goal':>11}")
    for density in DENSITIES:
        entry = matrix(density)
        cells, values = entry.levels.size, int(np.count_nonzero(entry.levels))
        message = b"".join(encode_network([entry]))
        goal = cells / CELLS_A_SECOND + values / VALUES_A_SECOND
        for direction, work in (
            ("encode", lambda entry=entry: list(encode_network([entry]))),
            ("decode", lambda message=message: list(decode_network([message]))),
        ):
            seconds = least_seconds(work, repetitions)
            speeds = f"{cells / seconds / 1e6:9.1f} {values / seconds / 1e6:9.2f}"
            print(f"{density:8.1%} {direction:6} {len(message):9,} {speeds} {seconds / goal:11.2f}", flush=True)


if __name__ == "__main__":
    main()
