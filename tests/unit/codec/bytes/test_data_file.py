"""Whatever goes in comes out, in another process that gets only the archive; whatever is no archive is refused in time."""

import contextlib
import hashlib
import io
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ellzero.codec.bytes import data_file, parameters
from ellzero.codec.bytes.data_file import (
    ByteEncoder,
    DataSection,
    compress_bytes,
    decode_blocks,
    decompress_bytes,
    model_for,
    read_parameters,
)
from ellzero.codec.bytes.parameters import ByteModel, parameters_of
from ellzero.codec.bytes.presets import PRESETS, SECTIONED, WIDENED
from ellzero.codec.bytes.transforms import has_x86_calls
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind, Original, Section
from ellzero.codec.errors import FormatError, LimitError

FAST = 1

# Reads archives, each behind its length in 8 bytes, and answers each with the SHA-256 of what it decodes to.
SERVER = """
import hashlib, sys
from ellzero.codec.bytes.data_file import decompress_bytes
assert "torch" not in sys.modules
while head := sys.stdin.buffer.read(8):
    data = decompress_bytes(sys.stdin.buffer.read(int.from_bytes(head, "little")))
    sys.stdout.buffer.write(hashlib.sha256(data).digest())
    sys.stdout.buffer.flush()
"""

Decode = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def decoded_hash() -> Iterator[Decode]:
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(data_file.__file__))))
    environment = dict(os.environ) | {"PYTHONPATH": source}
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(archive: bytes) -> bytes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(len(archive).to_bytes(8, "little") + archive)
            process.stdin.flush()
            return process.stdout.read(32)

        yield ask
        process.stdin.close()


def looks_like() -> st.SearchStrategy[bytes]:
    """Bytes of the kinds that files hold."""
    words = st.lists(
        st.sampled_from([b"the ", b"cat ", b"Sat\r\n", b"<a>", b"</a>", b"12,", b"\xff\xfe", b"\xe8\x01\x02\x00\x00"]), max_size=80
    )
    runs = st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.integers(1, 300)), max_size=4)
    return st.one_of(st.binary(max_size=300), words.map(b"".join), runs.map(lambda parts: b"".join(byte * count for byte, count in parts)))


def sections(archive: bytes) -> list[tuple[int, bytes]]:
    return [(section.kind, section.payload) for section in ContainerReader(io.BytesIO(archive)).sections(tuple(DataSection))]


def rebuilt(parts: list[tuple[int, bytes]], original: Original) -> bytes:
    """An archive whose checks all hold, whatever is in it."""
    file = io.BytesIO()
    writer = ContainerWriter(file, Kind.DATA)
    for kind, payload in parts:
        writer.section(kind, payload, check=True)
    writer.finish(original)
    return file.getvalue()


@settings(deadline=None, max_examples=30)
@given(data=looks_like(), level=st.sampled_from([1, 2, 4]))
def test_bytes_come_back_in_another_process(decoded_hash: Decode, data: bytes, level: int):
    assert decoded_hash(compress_bytes(data, level=level)) == hashlib.sha256(data).digest()


@pytest.mark.parametrize("level", sorted(PRESETS))
def test_every_level_brings_back_all_byte_values(decoded_hash: Decode, level: int):
    data = bytes(range(256)) + b"All levels: " * 40 + random.Random(level).randbytes(200)
    archive = compress_bytes(data, level=level)
    assert len(archive) < len(data)
    assert decoded_hash(archive) == hashlib.sha256(data).digest()


@settings(deadline=None, max_examples=30)
@given(data=looks_like(), pieces=st.integers(1, 7), block=st.sampled_from([1, 2, 63, 64, 65, 256]))
def test_blocks_of_any_size_share_one_model(decoded_hash: Decode, data: bytes, pieces: int, block: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", block)
        file = io.BytesIO()
        encoder = ByteEncoder(file, level=FAST, size=len(data))
        for start in range(0, len(data), pieces * 10):
            encoder.write(data[start : start + pieces * 10])
        assert encoder.finish() == len(file.getvalue())
    blocks = [part for part in sections(file.getvalue()) if part[0] != DataSection.MODEL]
    assert len(blocks) == -(-len(data) // block)
    assert decoded_hash(file.getvalue()) == hashlib.sha256(data).digest()


@settings(deadline=None, max_examples=40)
@given(data=looks_like(), calls=st.booleans(), piece=st.integers(1, 70))
def test_pieces_of_any_size_make_the_same_archive_and_are_told_of(data: bytes, calls: bool, piece: int):
    # A call lies across the end of many a piece.
    data += b"".join(b"\x90\xe8" + (i * -40 % 2**32).to_bytes(4, "little") for i in range(40)) if calls else b""
    whole = compress_bytes(data, level=FAST)
    told: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "PIECE", piece)
        file = io.BytesIO()
        encoder = ByteEncoder(file, level=FAST, size=len(data), report=told.append)
        encoder.write(data)
        encoder.finish()
        assert file.getvalue() == whole
        assert told == [*range(piece, len(data), piece), *[len(data)] * bool(data)]
        pieces = list(decode_blocks(io.BytesIO(whole)))
    assert b"".join(pieces) == data
    # Of a call that is cut, at most four bytes wait for the next piece.
    assert max(map(len, pieces), default=0) <= piece + 4
    assert len(pieces) == -(-len(data) // piece)


def traced(run: Callable[[], bytes]) -> tuple[bytes, int]:
    """What a function returns, and the most memory that it took; numpy tells of its arrays, too."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def model_of(archive: bytes) -> ByteModel:
    parameters = read_parameters(io.BytesIO(archive))
    assert parameters is not None
    return parameters


def test_text_in_sections_takes_less_at_the_levels_that_follow_them():
    source = random.Random(9)

    def word() -> str:
        return "".join(source.choices("aeiou" + 2 * "bcdfgklmnprstvz", k=source.randint(4, 9)))

    common = [word() for _ in range(60)]
    sections: list[str] = []
    for _ in range(120):
        names = [word() for _ in range(6)]
        sections.append("\n".join(" ".join(source.choices([*common, *names * 4], k=12)) for _ in range(5)) + "\n")
    # The same lines, with and without what ends a section.
    apart, together = ("\n".join(sections).encode(), "".join(sections).encode())
    for level in SECTIONED:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parameters, "SECTIONED", {})
            before = len(compress_bytes(apart, level=level))
        archive = compress_bytes(apart, level=level)
        assert len(archive) < 0.98 * before
        assert len(archive) < len(compress_bytes(together, level=level))
        assert model_of(archive).sections
    assert not model_of(compress_bytes(apart, level=7)).sections
    assert model_of(compress_bytes(bytes(range(256)) * 9, level=9)).sections


@pytest.mark.parametrize("parts", [0, 10, 16, 32, 37, 39, 8 + 48, 9 + 48, 9 + 64, 9 + 128, 255])
def test_models_that_nobody_wrote_are_refused(parts: int):
    section = Section(kind=DataSection.MODEL, offset=6, payload=bytes((parts, 12, 12)))
    with pytest.raises(FormatError, match="unknown to this ellzero"):
        parameters_of(section, None)


def test_the_middle_levels_take_more_parts_for_what_is_no_text_where_the_memory_allows():
    records = b"".join(bytes([7, i * i & 255, i & 255, 0, 1, i >> 8]) for i in range(300))
    source = random.Random(6)
    text = " ".join("".join(source.choices("etaoinshrdlu", k=source.randint(1, 10))) for _ in range(500)).encode()
    for level in PRESETS:
        assert model_of(compress_bytes(records, level=level)).wide == (level in WIDENED)
        assert not model_of(compress_bytes(text, level=level)).wide
    wide, seven = (len(compress_bytes(records, level=level)) for level in (5, 7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "WIDENED", ())
        narrow = compress_bytes(records, level=5)
    assert wide == seven < len(narrow)
    little = model_for(5, 1).num_bytes
    assert model_for(5, 1, wide=True).num_bytes > little
    assert model_of(compress_bytes(records, level=5, memory=little)) == model_for(5, 1)


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_sizes_around_the_edge_of_a_block(decoded_hash: Decode, size: int):
    data = b"0" * ((1 << 16) + size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", 1 << 16)
        archive = compress_bytes(data, level=FAST)
    assert decoded_hash(archive) == hashlib.sha256(data).digest()
    assert len(archive) < 150


@pytest.mark.parametrize("size", [0, 1, 100, 5000, 40000, (1 << 20) + 30000])
def test_random_bytes_grow_by_a_thousandth_and_64_bytes_at_most(decoded_hash: Decode, size: int):
    data = random.Random(size).randbytes(size)
    archive = compress_bytes(data, level=FAST)
    assert len(archive) <= size + size // 1000 + 64
    assert decoded_hash(archive) == hashlib.sha256(data).digest()


def test_what_is_stored_after_coding_was_learnt_on_both_sides(decoded_hash: Decode):
    noise = random.Random(3).randbytes(2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", 2000)
        archive = compress_bytes(noise + noise + b"and text" * 100, level=2)
    kinds = [kind for kind, _ in sections(archive)]
    assert kinds == [DataSection.MODEL, DataSection.STORED_AND_LEARNT, DataSection.CODED, DataSection.CODED]
    assert len(archive) < 2500
    assert decoded_hash(archive) == hashlib.sha256(noise + noise + b"and text" * 100).digest()


def test_without_a_compiler_the_archive_is_the_same(source_environment: dict[str, str]):
    data = b"<p>Same 12, 13, 14 bytes\n</p>" * 3 + bytes(range(40))
    script = "import sys; from ellzero.codec.bytes.data_file import *; d = sys.stdin.buffer.read(); c = compress_bytes(d, level=5); "
    script += "assert decompress_bytes(c) == d; sys.stdout.buffer.write(c)"
    environment = source_environment | {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "error"}
    out = subprocess.run([sys.executable, "-c", script], input=data, env=environment, stdout=subprocess.PIPE, check=True).stdout
    assert out == compress_bytes(data, level=5)


def test_every_flip_of_a_bit_is_found():
    archive = compress_bytes(b"a short text, a short text", level=FAST)
    for place in range(len(archive)):
        damaged = bytearray(archive)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(FormatError):
            decompress_bytes(bytes(damaged))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damage_behind_valid_checks_ends_in_an_error_or_the_truth(data: st.DataObject):
    text = b"some text of some length, some text of other length"
    parts = sections(compress_bytes(text, level=FAST))
    index = data.draw(st.integers(0, len(parts) - 1))
    payload = bytearray(parts[index][1])
    place = data.draw(st.integers(0, len(payload) - 1))
    # The size in front is left below a few thousand bytes: decoding a million takes as long as it takes.
    payload[place] = data.draw(st.integers(0, 127 if place < 2 else 255))
    parts[index] = (data.draw(st.sampled_from([parts[index][0], DataSection.CODED, DataSection.STORED_AND_LEARNT])), bytes(payload))
    original = Original(size=len(text), sha256=hashlib.sha256(text).digest())
    with contextlib.suppress(FormatError):
        assert decompress_bytes(rebuilt(parts, original), max_size=1 << 24) == text


def test_limits_are_checked_before_anything_is_decoded():
    archive = compress_bytes(bytes(5000), level=FAST)
    with pytest.raises(LimitError, match="limit of 4999"):
        decompress_bytes(archive, max_size=4999)
    with pytest.raises(LimitError, match="bytes of memory"):
        decompress_bytes(archive, memory=1000)
    parameters = read_parameters(io.BytesIO(archive))
    assert parameters is not None
    assert decompress_bytes(archive, memory=parameters.num_bytes) == bytes(5000)
    assert read_parameters(io.BytesIO(compress_bytes(b""))) is None


@pytest.mark.parametrize("level", sorted(PRESETS))
@pytest.mark.parametrize("size", [0, 1000, 3_000_000])
def test_the_memory_of_a_model_is_what_it_says(level: int, size: int):
    parameters = model_for(level, size, memory=200_000_000)
    assert parameters.num_bytes <= 200_000_000
    real = sum(array.nbytes for array in parameters.start())
    assert real <= parameters.num_bytes <= real + 9_000_000


@pytest.mark.parametrize("level", [1, 6])
def test_both_directions_take_the_memory_that_is_stated_again_and_again(level: int):
    block = 1 << 17
    data = b"".join(b"line %d of a text\n" % (i * i) for i in range(14_000))[: 2 * block - 5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "BLOCK", block)
        stated = model_of(compress_bytes(data, level=level)).num_bytes
        for _ in range(2):
            archive, most = traced(lambda: compress_bytes(data, level=level))
            assert stated - (9 << 20) <= most <= stated
            out, most = traced(lambda packed=archive: decompress_bytes(packed))
            assert stated - (9 << 20) <= most <= stated
            assert out == data


def test_errors_name_what_was_wrong():
    with pytest.raises(ValueError, match="level 10"):
        compress_bytes(b"", level=10)
    with pytest.raises(ValueError, match="raise it"):
        model_for(1, 1000, memory=1000)
    with pytest.raises(FormatError, match="before its model"):
        decompress_bytes(rebuilt([(DataSection.CODED, b"\x05\x00\x00abc")], Original(size=5, sha256=bytes(32))))
    network = io.BytesIO()
    ContainerWriter(network, Kind.NETWORK).finish()
    with pytest.raises(FormatError, match="network"):
        decompress_bytes(network.getvalue())


def test_compression_does_not_depend_on_how_it_is_written():
    data = np.arange(3000, dtype=np.uint16).tobytes()
    once, often = io.BytesIO(), io.BytesIO()
    for file, step in ((once, len(data)), (often, 7)):
        encoder = ByteEncoder(file, level=FAST)
        for start in range(0, len(data), step):
            encoder.write(memoryview(data)[start : start + step])
        encoder.finish()
    assert once.getvalue() == often.getvalue() == compress_bytes(data, level=FAST)


def test_code_with_calls_across_pieces_comes_back() -> None:
    """Calls that overlap each other and the ends of the pieces in which a block is decoded."""
    draws = random.Random(3)
    code = bytearray(draws.choices((0x55, 0x8B, 0xEC, 0x83, 0x24), k=3 * data_file.PIECE + 7))
    for _ in range(6000):
        place = draws.randrange(len(code) - 5)
        code[place : place + 5] = (
            b"\xe8" + draws.choice([0x401000, 0xE8E8E9, 0xFF00E8]).to_bytes(3, "little") + draws.choice([b"\x00", b"\xff"])
        )
    for end in (data_file.PIECE, 2 * data_file.PIECE):
        for back in range(1, 9):
            code[end - back] = 0xE8
            code[end - back + 4] = 0
    data = bytes(code)
    assert has_x86_calls(np.frombuffer(data, np.uint8))
    assert decompress_bytes(compress_bytes(data, level=FAST)) == data
