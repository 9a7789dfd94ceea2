"""Long repeats: found wherever they are, copied exactly, never a reason for a larger file, and never trusted."""

import hashlib
import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ellzero.cli.jobs.listing import Data, look
from ellzero.codec.bytes import data_file
from ellzero.codec.bytes.block_coder import BlockCoder
from ellzero.codec.bytes.copies import LEAST, LEAST_RUN, NEAR, Window, find_copies, num_bytes_of_window
from ellzero.codec.bytes.data_file import ByteEncoder, DataSection, compress_bytes, decompress_bytes, model_for
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind, Original
from ellzero.codec.errors import FormatError, MemoryLimitError
from ellzero.codec.varint import varint

DECODER = Path(__file__).parents[3] / "reference" / "byte_model.py"
BLOCK = data_file.BLOCK


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def sections(archive: bytes) -> list[tuple[int, bytes]]:
    return [(section.kind, section.payload) for section in ContainerReader(io.BytesIO(archive)).sections(tuple(DataSection))]


def archive_of(parts: list[tuple[int, bytes]], original: bytes) -> bytes:
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.DATA)
    for kind, payload in parts:
        writer.section(kind, payload, check=True)
    writer.finish(Original(size=len(original), sha256=hashlib.sha256(original).digest()))
    return file.getvalue()


def in_pieces(data: bytes, *, level: int = 1, memory: int | None = None) -> bytes:
    """What a pipe is compressed to, whose end is not known before it comes."""
    file = io.BytesIO()
    encoder = ByteEncoder(file, level=level, memory=memory)
    for start in range(0, len(data), 300_000):
        encoder.write(data[start : start + 300_000])
    encoder.finish()
    return file.getvalue()


@pytest.mark.parametrize("level", [1, 5, 9])
def test_two_copies_of_random_bytes_take_little_more_than_one(level: int):
    data = noise(700_000) * 2
    archive = compress_bytes(data, level=level)
    assert len(archive) < 700_100
    assert decompress_bytes(archive) == data
    assert decompress_bytes(in_pieces(data)) == data
    assert len(in_pieces(data)) < 700_100


@pytest.mark.parametrize("data", [bytes(3 * BLOCK + 5), b"ab" * 2_000_000, noise(2000) * 1000], ids=["zeros", "pairs", "records"])
def test_runs_are_not_modelled(data: bytes, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was asked")

    monkeypatch.setattr(BlockCoder, "code", refuse)
    monkeypatch.setattr(data_file, "looks_random", lambda _: True)
    for archive in (compress_bytes(data, level=9), in_pieces(data)):
        assert len(archive) < 2200
        assert decompress_bytes(archive) == data


def test_the_decoder_that_was_written_from_the_page_copies_as_well():
    text = b"This is text between what is copied. " * 9
    data = noise(LEAST + 9) + text + noise(LEAST + 9) + bytes(LEAST_RUN + 1) + text + noise(NEAR, seed=2) + noise(LEAST, seed=1) + text[5:]
    archive = compress_bytes(data, level=1)
    kinds = [kind for kind, _ in sections(archive)]
    assert kinds == [DataSection.WINDOW, DataSection.MODEL, DataSection.WITH_COPIES]
    assert decompress_bytes(archive) == data
    done = subprocess.run([sys.executable, DECODER], input=archive, stdout=subprocess.PIPE, check=True)
    assert done.stdout == data


@pytest.mark.parametrize("level", [1, 5])
def test_files_without_long_repeats_are_what_they_were(level: int, monkeypatch: pytest.MonkeyPatch):
    source = random.Random(5)
    words = [bytes(source.choices(b"etaoinshrdlu", k=source.randint(2, 9))) for _ in range(300)]
    part = b" ".join(source.choices(words, k=3000))
    data = part + noise(1000) + part[:9000] + bytes(9000) + part[:9000]
    archive = compress_bytes(data, level=level)
    assert {DataSection.WINDOW, DataSection.WITH_COPIES}.isdisjoint(kind for kind, _ in sections(archive))
    monkeypatch.setattr(ByteEncoder, "look_for_copies", lambda *_: None)
    assert compress_bytes(data, level=level) == archive


PARTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000), st.sampled_from([1, 700, 2047, 2048, LEAST, LEAST + 5000])), max_size=6)


@given(PARTS, st.integers(0, 300))
def test_every_copy_is_one_and_every_long_repeat_is_found(parts: list[tuple[int, int, int]], start: int):
    sources = [noise(LEAST + 10_000, seed=seed) for seed in range(3)] + [bytes(LEAST + 10_000)]
    data = noise(start, seed=9) + b"".join(sources[which][begin : begin + size] for which, begin, size in parts)
    rows = find_copies(np.frombuffer(data, np.uint8)).rows.tolist()
    end = 0
    for begin, length, distance in rows:
        assert end <= begin
        assert 0 < distance <= begin
        end = begin + length
        for place in range(begin, end, distance):
            size = min(distance, end - place)
            assert data[place : place + size] == data[place - distance : place - distance + size]
    assert end <= len(data)
    # Of what stands in the file for the second time, at most what a stretch may overlap is left.
    if len(data) >= LEAST:
        twice = find_copies(np.frombuffer(data + data, np.uint8))
        assert twice.rows[:, 1].sum() >= len(data) - 4096


def test_what_changes_after_it_was_looked_at_is_compressed_as_it_is_written():
    data = noise(50_000) * 2
    file = io.BytesIO()
    encoder = ByteEncoder(file, level=1, size=len(data))
    encoder.look_for_copies(np.frombuffer(data, np.uint8))
    changed = data[:70_000] + b"!" + data[70_001:]
    encoder.write(changed)
    encoder.finish()
    assert decompress_bytes(file.getvalue()) == changed


def test_a_block_begins_in_the_middle_of_a_copy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_file, "BLOCK", 100_000)
    data = b"begin" + noise(120_000) * 3 + b"end"
    assert decompress_bytes(compress_bytes(data, level=1)) == data
    assert decompress_bytes(in_pieces(data)) == data


def test_the_window_is_stated_and_kept_within_the_memory(tmp_path: Path):
    data = noise(5 << 20) * 2
    model = model_for(1, len(data)).num_bytes
    path = tmp_path / "a.l0"
    path.write_bytes(compress_bytes(data, level=1))
    entry = look(path)
    assert isinstance(entry, Data)
    window = num_bytes_of_window(5 << 20)
    assert window > 5 << 20
    # There is no model, because nothing is coded.
    assert entry.memory_bytes == window + data_file.BUFFERS
    assert decompress_bytes(path.read_bytes(), memory=entry.memory_bytes) == data
    with pytest.raises(MemoryLimitError, match="the window needs"):
        decompress_bytes(path.read_bytes(), memory=entry.memory_bytes - 1)
    archive = compress_bytes(data, level=1, memory=model + window)
    assert len(archive) < (5 << 20) + 200
    archive = compress_bytes(data, level=1, memory=model + window - 1000)
    assert len(archive) > 10 << 20
    assert decompress_bytes(archive) == data
    assert decompress_bytes(in_pieces(data, memory=model_for(1, None).num_bytes), memory=model_for(1, None).num_bytes) == data


def copies(*numbers: int, rest: bytes = b"\3") -> tuple[int, bytes]:
    return DataSection.WITH_COPIES, b"".join(varint(number) for number in (len(numbers) // 3, *numbers)) + rest


STORED = (DataSection.STORED, b"abc")
WINDOW = (DataSection.WINDOW, varint(1 << 17))
HOSTILE = [
    ([STORED, copies(0, 5, 0)], "0 bytes back"),
    ([STORED, copies(0, 5, 4)], "4 bytes back"),
    ([copies(0, 5, 1)], "1 bytes back"),
    ([STORED, copies(1, 5, 1)], "no room"),
    ([STORED, copies(0, BLOCK, 1, 0, 1, 1)], "no room"),
    ([STORED, copies(0, BLOCK + 1, 1)], "claims"),
    ([STORED, (DataSection.WITH_COPIES, varint(1 << 40))], "claims"),
    ([STORED, copies(0, 5, 1, rest=b"\1")], "bytes of kind 1"),
    ([STORED, copies(0, 5, 1, rest=b"\5")], "bytes of kind 5"),
    ([STORED, copies(0, 5, 1, rest=b"\2\5\0\0")], "before its model"),
    ([STORED, (DataSection.STORED, bytes(NEAR)), copies(0, 5, NEAR + 1)], "are kept"),
    ([WINDOW, WINDOW], "where none may be"),
    ([STORED, WINDOW], "where none may be"),
    ([(DataSection.MODEL, bytes((1, 10, 10))), WINDOW], "where none may be"),
    ([(DataSection.WINDOW, varint(NEAR))], "cannot be"),
    ([(DataSection.WINDOW, varint((1 << 30) + 1))], "cannot be"),
]


@pytest.mark.parametrize(("parts", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_copies_that_nobody_wrote_are_refused(parts: list[tuple[int, bytes]], said: str):
    with pytest.raises(FormatError, match=said):
        decompress_bytes(archive_of(parts, b"abc"))


def test_copies_as_the_page_has_them():
    expected = b"abc" + b"cccc" + b"x" + b"bcccccxb" + b"yz"
    assert decompress_bytes(archive_of([STORED, copies(0, 4, 1, 1, 8, 7, rest=b"\3xyz")], expected)) == expected


@given(st.integers(1, 40), st.lists(st.tuples(st.binary(max_size=60), st.integers(1, 60), st.integers(0, 200)), max_size=20))
def test_a_window_is_the_last_bytes(size: int, steps: list[tuple[bytes, int, int]]):
    window, whole = Window(size), b""
    for added, distance, length in steps:
        window.append(np.frombuffer(added, np.uint8))
        whole += added
        if distance > min(size, len(whole)):
            with pytest.raises(FormatError):
                window.copied(distance, length)
            continue
        source = whole[len(whole) - distance :]
        assert window.copied(distance, length).tobytes() == (source * (length // distance + 1))[:length]
