"""Damaged and hostile files end in one clear error, in bounded time and memory."""

import io
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from array_range_coder import RangeDecoder
from ellzero.codec.container import MAGIC, ContainerReader, ContainerWriter, Kind, Tally
from ellzero.codec.errors import FormatError
from ellzero.codec.varint import varint
from scrambling import scrambled

MEBIBYTE = 1 << 20
MAX_SECTION = 8 * MEBIBYTE


def sound(kind: Kind, seed: int) -> bytes:
    """A file with a few sections of several sizes."""
    source = random.Random(seed)
    file = io.BytesIO()
    writer = ContainerWriter(file, kind)
    tally = Tally()
    for number in range(1, 5):
        payload = source.randbytes(source.choice((0, 1, 50, 127, 128, 700)))
        tally.update(payload)
        writer.section(number, payload, check=source.random() < 0.5)
    writer.finish(tally.original if kind is Kind.DATA else None)
    return file.getvalue()


FILES = [sound(Kind.DATA, 1), sound(Kind.NETWORK, 2), sound(Kind.NETWORK, 3)]


def outcome(data: bytes) -> str | None:
    """What is said about a file; None where it is sound."""
    try:
        for section in ContainerReader(io.BytesIO(data), max_section=MAX_SECTION).sections(range(1, 8)):
            RangeDecoder(section.payload).decode_bits(np.full(100, 9000))
    except FormatError as error:
        return str(error)
    return None


@given(st.randoms(use_true_random=False))
def test_mutated_files_are_clean_errors(source: random.Random):
    data = scrambled(source, source.choice(FILES))
    said = outcome(data)
    assert data in FILES if said is None else (said and "\n" not in said)


@given(st.binary(max_size=60), st.sampled_from([b"", MAGIC, MAGIC + b"\x00\x01", MAGIC + b"\x00\x02\x01"]))
def test_any_bytes_are_clean_errors(tail: bytes, start: bytes):
    said = outcome(start + tail)
    assert said
    assert "\n" not in said


MANY = """
import random, resource, time
from scrambling import scrambled
from test_fuzz import FILES, outcome
source = random.Random(20250517)
outcome(FILES[0])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
slowest, said = 0.0, set()
for _ in range(20_000):
    data = scrambled(source, source.choice(FILES))
    start = time.process_time()
    message = outcome(data)
    slowest = max(slowest, time.process_time() - start)
    assert data in FILES if message is None else message
    said.add(message)
assert len(said) > 1000
print(slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say how much memory a process has used")
def test_20000_mutated_files_are_clean_errors_in_bounded_time_and_memory(source_environment: dict[str, str]):
    # In a process of its own: the run-time type checker of the tests makes every call a hundred times slower.
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    environment = source_environment | {"PYTHONPATH": os.pathsep.join((source_environment["PYTHONPATH"], *folders))}
    done = subprocess.run([sys.executable, "-c", MANY], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    slowest, growth = map(float, done.stdout.split())
    kibibyte = 1 if sys.platform == "darwin" else 1024
    assert slowest < 2
    assert growth * kibibyte < 16 * MEBIBYTE


@pytest.mark.parametrize("length", [1, 1 << 20, 1 << 22, MAX_SECTION, MAX_SECTION + 1, 1 << 32, (1 << 64) - 1])
@pytest.mark.parametrize("head", [0x00, 0x01, 0x81])
def test_a_length_that_lies_allocates_nothing(length: int, head: int, tmp_path: Path):
    path = tmp_path / "liar"
    path.write_bytes(MAGIC + b"\x00\x02" + bytes((head,)) + varint(length))
    # A real file: unlike BytesIO it sets aside what it is asked for before it knows how much there is.
    with path.open("rb") as file:
        tracemalloc.start()
        with pytest.raises(FormatError):
            list(ContainerReader(file, max_section=MAX_SECTION).sections(range(1, 8)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * MEBIBYTE
