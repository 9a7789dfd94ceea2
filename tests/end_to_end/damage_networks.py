"""Reads damaged network files in a process of its own, and prints what came of them as JSON: `flips SEED` or `mutations COUNT`.

Half of the mutated files have their checks made right again, as somebody would who means harm: then it is the decoder that has to cope.
After the first reading, the process may take no more than 256 MiB beyond what it has.
"""

import io
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ellzero.codec.container import ContainerReader, ContainerWriter, Kind
from ellzero.codec.errors import FormatError
from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.network_file import GROUP_SECTION, encode_network, read_network
from ellzero.codec.network.stored_grids import Logarithmic, Uniform
from ellzero.codec.network.tensors import Entry, ExactTensor, QuantisedTensor, Tied, exact

sys.path.insert(0, str(Path(__file__).parents[1]))
from scrambling import scrambled

MEBIBYTE = 1 << 20
MAX_TENSOR = 4 * MEBIBYTE
"""The most that a tensor may take, for those that read files of strangers."""
MAX_GROWTH = 256 * MEBIBYTE

Tensors = list[tuple[str, str, tuple[int, ...], bytes]]


def networks() -> Iterator[list[list[Entry]]]:
    """Three networks, the entries of each in the groups that they are written in."""
    source = np.random.default_rng(5)
    weight = (source.normal(size=(12, 16)) * (source.random((12, 16)) < 0.2)).astype(np.float32)
    yield [
        [
            exact("first.weight", weight),
            exact("first.bias", source.normal(size=12).astype(np.float16)),
            Tied(name="tie", of="first.weight"),
        ],
        [exact("steps", np.int64(1234)), exact("ones", np.ones((5, 5))), exact("empty", np.zeros((0, 3), np.float32))],
    ]
    levels = source.integers(-3, 4, (8, 6, 3, 3)).astype(np.int32)
    yield [
        [
            QuantisedTensor(name="conv.weight", dtype=DType.F32, shape=levels.shape, levels=levels, grid=Uniform(steps=(0.125,))),
            QuantisedTensor(
                name="conv.bias", dtype=DType.BF16, shape=(8,), levels=levels[:, 0, 0, 0], grid=Logarithmic(smallest=0.5, ratio=1.25)
            ),
        ]
    ]
    waves = np.sin(np.outer(np.arange(6), np.arange(64))).astype(np.float32)
    yield [[exact("waves", np.concatenate([waves, waves[:, ::-1]])), exact("mask", source.random((4, 9)) < 0.5)]]


def written(groups: list[bytes], *, check: bool) -> bytes:
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.NETWORK)
    for group in groups:
        writer.section(GROUP_SECTION, group, check=check)
    writer.finish()
    return file.getvalue()


def read(blob: bytes) -> Tensors:
    found: Tensors = []
    for entry in read_network(io.BytesIO(blob), max_bytes=MAX_TENSOR):
        if isinstance(entry, ExactTensor):
            found.append((entry.name, entry.dtype.value, entry.shape, entry.words.tobytes()))
        else:
            found.append((entry.name, entry.of, (), b""))
    return found


def flipped() -> Iterator[tuple[bytes, int]]:
    """Every byte of the three files with one bit wrong, and with all eight."""
    for number, blob in enumerate(FILES):
        for place in range(len(blob)):
            for mask in (1 << place % 8, 255):
                damaged = bytearray(blob)
                damaged[place] ^= mask
                yield bytes(damaged), number


def mutated(source: random.Random) -> tuple[bytes, int | None]:
    """A file with something wrong, and which of the three it was; None where its checks are right again."""
    number = source.randrange(len(FILES))
    if source.random() < 0.5:
        return scrambled(source, FILES[number]), number
    groups = [bytes(section.payload) for section in ContainerReader(io.BytesIO(FILES[number])).sections((GROUP_SECTION,))]
    place = source.randrange(len(groups))
    match source.randrange(8):
        case 0:
            groups.insert(place, source.choice(groups))
        case 1:
            groups[place] = source.randbytes(source.randint(0, 60))
        case _:
            groups[place] = scrambled(source, bytearray(groups[place]))
    return written(groups, check=source.random() < 0.5), None


def limit_memory() -> bool:
    """Lets this process take no more than `MAX_GROWTH` from here on; tells whether the system can be asked for that."""
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    import resource

    size = next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmSize:"))
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_GROWTH, size + MAX_GROWTH))
    return True


FILES: list[bytes] = []
HELD: list[Tensors] = []

if __name__ == "__main__":
    command, argument = sys.argv[1:]
    for groups in networks():
        messages = [next(iter(encode_network(group))) for group in groups]
        FILES.append(written(messages, check=len(messages) > 1))
        HELD.append(read(FILES[-1]))
    source = random.Random(int(argument))
    cases = flipped() if command == "flips" else (mutated(source) for _ in range(int(argument)))
    limited = limit_memory()
    slowest, count, harmless = 0.0, 0, 0
    said: list[str] = []
    for blob, number in cases:
        started = time.process_time()
        try:
            tensors = read(blob)
        except FormatError as error:
            said.append(str(error))
        else:
            assert number is None or tensors == HELD[number], "other tensors came out, and nothing was said"
            harmless += 1
        slowest = max(slowest, time.process_time() - started)
        count += 1
    assert not any("\n" in message for message in said)
    print(json.dumps({"count": count, "harmless": harmless, "slowest": slowest, "messages": len(set(said)), "limited": limited}))
