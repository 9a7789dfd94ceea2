"""The decoder written from docs/formats/bytes-model.md alone reads what the package writes, at every level."""

import io
import random
import subprocess
import sys
from pathlib import Path

import pytest

from ellzero.codec.bytes import data_file, parameters
from ellzero.codec.bytes.data_file import DataSection, compress_bytes, read_parameters
from ellzero.codec.bytes.presets import PRESETS, SECTIONED, WIDENED
from ellzero.codec.container import ContainerReader

DECODER = Path(__file__).parents[3] / "reference" / "byte_model.py"


def decoded(archive: bytes) -> bytes:
    return subprocess.run([sys.executable, DECODER], input=archive, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("level", sorted(PRESETS))
def test_it_decodes_every_level(level: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_file, "WIDENED", ())
    data = b"<a b='1'><c>Some text, some Text.\n12, 345\n</c></a>\n" * 5 + bytes(range(100, 180)) + b"some text, some more\n" * 6
    assert decoded(compress_bytes(data, level=level)) == data


@pytest.mark.parametrize("written", [SECTIONED, {}], ids=["as it is written", "as it was at first"])
@pytest.mark.parametrize("level", sorted(SECTIONED))
def test_it_decodes_sections_and_models_without_them(level: int, written: dict[int, object], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parameters, "SECTIONED", written)
    data = "\r\n".join(
        f"Of {name}\r\n{name} ({n}7): an Isle, {name}'s {'Isle ' * n}\r\n" for n, name in enumerate(["Iona", "Öland", "Fair Isle"])
    )
    archive = compress_bytes(data.encode(), level=level)
    monkeypatch.undo()
    found = read_parameters(io.BytesIO(archive))
    assert found is not None
    assert (found.level, found.sections) == (level, bool(written))
    assert decoded(archive) == data.encode()


@pytest.mark.parametrize("level", [*WIDENED, 8, 9])
def test_it_decodes_wide_models(level: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_file, "WIDENED", (level,))  # levels 8 and 9 were written so at first
    data = bytes(range(256)) + b"A text" * 3 + bytes(range(0, 256, 3))
    archive = compress_bytes(data, level=level)
    parameters = read_parameters(io.BytesIO(archive))
    assert parameters is not None
    assert (parameters.level, parameters.wide) == (level, True)
    assert decoded(archive) == data


def planes(count: int) -> bytes:
    """Rows of 24 bytes: pixels of three bytes that change little by little."""
    source = random.Random(7)
    return bytes(
        (20 * ((x + y // 3) % 8) + 3 * y + 30 * k + source.randrange(3)) & 255 for y in range(count) for x in range(8) for k in range(3)
    )


@pytest.mark.parametrize("level", [3, 5, 9])
def test_it_decodes_pictures(level: int):
    data = planes(30)
    archive = compress_bytes(data, level=level)
    _, (kind, block) = [(s.kind, s.payload) for s in ContainerReader(io.BytesIO(archive)).sections(tuple(DataSection))]
    # Behind the size, which takes two bytes: flags, stride and row.
    assert (kind, block[2:5]) == (DataSection.CODED, bytes((2, 3, 24)))
    assert decoded(archive) == data


def test_it_decodes_records_calls_and_stored_blocks():
    source = random.Random(5)
    records = b"".join(bytes([7, 7, source.randrange(256), 1, 1, 1, i & 255, 9]) for i in range(60))
    calls = b"".join(b"\x55\x8b\xe8" + (i * -40 % 2**32).to_bytes(4, "little") for i in range(60))
    noise = source.randbytes(480)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", 480)
        archive = compress_bytes(records + calls + b"." * 60 + noise + records, level=7)
    parts = [(s.kind, s.payload) for s in ContainerReader(io.BytesIO(archive)).sections(tuple(DataSection))]
    coded, stored = DataSection.CODED, DataSection.STORED_AND_LEARNT
    assert [kind for kind, _ in parts] == [DataSection.MODEL, coded, coded, stored, coded]
    # Behind the size, two bytes: flags and stride.
    assert parts[1][1][2:4] == bytes((0, 8))
    assert parts[2][1][2] == 1
    assert decoded(archive) == records + calls + b"." * 60 + noise + records
