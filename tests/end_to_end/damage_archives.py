"""Decodes damaged archives in a process of its own, and prints what came of them as JSON: `flips SEED` or `mutations COUNT`.

A mutated archive often has its checks made right again, as somebody would who means harm: then it is the decoder that has to cope.
"""

import io
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ellzero.archive._compress import compress, decompress
from ellzero.codec.bytes.data_file import BLOCK, DataSection, read_parameters
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind
from ellzero.codec.errors import FormatError

sys.path.insert(0, str(Path(__file__).parents[1]))
from scrambling import scrambled

SAMPLES = [b"abracadabra, abracadabra\n", b"\xe8\x00\x01\x00\x00\xc3" * 6, bytes(range(0, 256, 5)) + b"\x00" * 20_000]
LIMIT = 1 << 22


def flipped() -> Iterator[tuple[bytes, bytes]]:
    """Every byte of the three archives with one bit wrong, and with all eight."""
    for sample in SAMPLES:
        blob = compress(sample, level=1)
        for place in range(len(blob)):
            for mask in (1 << place % 8, 255):
                damaged = bytearray(blob)
                damaged[place] ^= mask
                yield bytes(damaged), sample


def lie(source: random.Random) -> int:
    """A number that is small or huge; one between promises a large block, and costs as much time as that."""
    return source.choice((source.getrandbits(12), source.getrandbits(64)))


def mutated(source: random.Random) -> tuple[bytes, bytes]:
    """An archive with something wrong, and what it was made of."""
    sample = source.choice(SAMPLES)
    blob = ARCHIVES[sample]
    if source.random() < 0.3:
        return scrambled(source, blob, lie), sample
    reader = ContainerReader(io.BytesIO(blob))
    sections = [(section.kind, bytearray(section.payload)) for section in reader.sections(tuple(DataSection))]
    match source.randrange(6):
        case 0:
            del sections[source.randrange(len(sections))]
        case 1:
            sections.insert(source.randrange(len(sections) + 1), source.choice(sections))
        case 2:
            sections.reverse()
        case 3:
            place = source.randrange(len(sections))
            sections[place] = (source.choice(tuple(DataSection)), sections[place][1])
        case _:
            place = source.randrange(len(sections))
            sections[place] = (sections[place][0], bytearray(scrambled(source, sections[place][1], lie)))
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.DATA)
    for kind, payload in sections:
        writer.section(kind, payload, check=True)
    writer.finish(reader.original)
    return file.getvalue(), sample


def outcome(blob: bytes, sample: bytes) -> str | None:
    """What is said of an archive; None where it gave what it was made of."""
    try:
        data = decompress(blob, max_size=LIMIT)
    except FormatError as error:
        return str(error)
    assert data == sample, "wrong bytes came out, and nothing was said"
    return None


def stated(blob: bytes) -> int:
    """The memory that an archive says it needs, if it can be asked."""
    try:
        parameters = read_parameters(io.BytesIO(blob))
    except FormatError:
        return 0
    return 0 if parameters is None else parameters.num_bytes


def peak() -> int:
    """The most memory used so far, or since this process began."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


ARCHIVES = {sample: compress(sample, level=1) for sample in SAMPLES}

if __name__ == "__main__":
    command, argument = sys.argv[1:]
    source = random.Random(int(argument))
    cases = flipped() if command == "flips" else (mutated(source) for _ in range(int(argument)))
    has_peak = Path("/proc/self/status").exists()
    for sample, blob in ARCHIVES.items():
        assert outcome(blob, sample) is None
    before = peak() if has_peak else 0
    slowest, sound, count, need = 0.0, 0, 0, 0
    said: set[str] = set()
    for blob, sample in cases:
        need = max(need, stated(blob))
        start = time.process_time()
        message = outcome(blob, sample)
        slowest = max(slowest, time.process_time() - start)
        count += 1
        sound += message is None
        said.add(message or "")
    growth = peak() - before if has_peak else 0
    print(
        json.dumps(
            {"count": count, "sound": sound, "slowest": slowest, "messages": len(said), "growth": growth, "need": need, "block": BLOCK}
        )
    )
