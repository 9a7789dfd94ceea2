"""Bytes and files come back as they were, and a file object behaves as those of gzip and lzma do."""

import bz2
import gzip
import io
import lzma
import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ellzero.archive import _compress as archive
from ellzero.archive._compress import compress, decompress
from ellzero.codec.bytes import data_file
from ellzero.codec.errors import FormatError, LimitError

TEXT = b"".join(b"line %d of a text that repeats itself, number %d\r\n" % (line, line * line) for line in range(60))
NOISE = random.Random(1).randbytes(5000)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff",
        bytes(range(256)),
        bytes(reversed(range(256))) * 3,
        b"a" * 20_000,
        b"\x00" * 5000 + b"\x01" + b"\x00" * 5000,
        NOISE,
        lzma.compress(TEXT),
        bz2.compress(NOISE[:500] * 4),
        zlib.compress(TEXT),
        TEXT,
        b"\r\n\r\r\n\n" * 50,
        b"\xff\xfe\x80\xc0\xaf\xed\xa0\x80" * 40,
        compress(TEXT, level=1),
    ],
    ids=lambda data: f"{len(data)}-{zlib.crc32(data):08x}",
)
def test_files_story_24_bytes_of_every_kind_come_back(data: bytes):
    blob = compress(data, level=1)
    assert decompress(blob) == data
    assert len(blob) <= len(data) + len(data) // 1000 + 64


PIECES = st.one_of(
    st.binary(max_size=200),
    st.tuples(st.binary(min_size=1, max_size=12), st.integers(1, 60)).map(lambda pair: pair[0] * pair[1]),
    st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.integers(0, 1 << 31), max_size=40).map(lambda numbers: b"".join(n.to_bytes(4, "little") for n in numbers)),
    st.just(b"\xe8\x10\x20\x00\x00\x90" * 8),
)


@given(st.lists(PIECES, max_size=5), st.sampled_from([1, 1, 1, 2, 3]))
@settings(max_examples=25)
def test_whatever_is_compressed_comes_back(pieces: list[bytes], level: int):
    data = b"".join(pieces)
    assert decompress(compress(data, level=level)) == data


@pytest.mark.parametrize("around", [1, 2, 3])
@pytest.mark.parametrize("change", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["text", "noise", "both"])
def test_sizes_around_the_edges_of_blocks(around: int, change: int, kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_file, "BLOCK", 1000)
    monkeypatch.setattr(data_file, "looks_random", lambda block: kind != "text" and int(block[0]) == NOISE[0])
    source = {"text": TEXT, "noise": NOISE, "both": TEXT[:1000] + NOISE[:1000] + TEXT}[kind]
    data = source[: 1000 * around + change]
    blob = compress(data, level=1)
    assert decompress(blob) == data
    sections = data_file.ContainerReader(io.BytesIO(blob)).sections(tuple(data_file.DataSection))
    assert sum(section.kind != data_file.DataSection.MODEL for section in sections) == -(-len(data) // 1000)


@pytest.mark.slow
@pytest.mark.parametrize("change", [-1, 0, 1])
def test_sizes_around_the_edge_of_a_real_block(change: int):
    data = (TEXT * 500)[: data_file.BLOCK + change]
    assert decompress(compress(data, level=1)) == data


@pytest.mark.parametrize("level", range(1, 10))
def test_every_level_decodes_with_nothing_but_the_file(level: int):
    assert decompress(compress(TEXT, level=level)) == TEXT


def test_files_story_19_the_same_input_gives_the_same_file():
    assert compress(TEXT, level=2) == compress(bytearray(TEXT), level=2) == compress(memoryview(TEXT), level=2)


@pytest.mark.parametrize("level", [0, 10, -1])
def test_levels_that_do_not_exist(level: int):
    with pytest.raises(ValueError, match="levels are 1"):
        compress(b"x", level=level)


def test_files_story_23_no_more_comes_out_than_allowed():
    bomb = compress(b"\x00" * 30_000, level=1)
    assert len(bomb) < 300
    with pytest.raises(LimitError, match="limit of 29999"):
        decompress(bomb, max_size=29_999)
    assert len(decompress(bomb, max_size=30_000)) == len(decompress(bomb, max_size=None)) == 30_000


def test_files_story_22_memory_is_refused_with_the_need():
    blob = compress(TEXT, level=5)
    parameters = data_file.read_parameters(io.BytesIO(blob))
    assert parameters is not None
    with pytest.raises(LimitError, match=f"needs {parameters.num_bytes} bytes of memory"):
        decompress(blob, memory=parameters.num_bytes - 1)
    assert decompress(blob, memory=parameters.num_bytes) == TEXT


def test_files_story_10_nothing_may_follow():
    blob = compress(TEXT, level=1)
    with pytest.raises(FormatError, match="follow the end"):
        decompress(blob + b"\x00")
    with pytest.raises(FormatError, match="follow the end"):
        decompress(blob + blob)


def test_a_file_written_and_read(tmp_path: Path):
    path = tmp_path / "a.l0"
    with archive.open(path, "wb", level=1) as file:
        assert file.writable()
        assert not file.readable()
        assert file.write(TEXT) == len(TEXT)
        assert file.write(memoryview(NOISE)) == len(NOISE)
        assert file.tell() == len(TEXT) + len(NOISE)
        assert names(tmp_path) != ["a.l0"]  # not under its name before it is whole
    assert names(tmp_path) == ["a.l0"]
    assert decompress(path.read_bytes()) == TEXT + NOISE
    with archive.open(str(path)) as file:
        assert file.read(10) == TEXT[:10]
        assert file.read() == (TEXT + NOISE)[10:]
        assert file.read() == b""


def test_a_file_read_line_by_line_and_as_text(tmp_path: Path):
    path = tmp_path / "a.l0"
    with archive.open(path, "wt", level=1, encoding="utf-8", newline="") as file:
        file.write("müßig\r\nzweite\n")
    with archive.open(path) as file:
        assert list(file) == ["müßig\r\n".encode(), b"zweite\n"]
    with archive.open(path, "rt", encoding="utf-8") as file:
        assert file.read() == "müßig\nzweite\n"


def test_places_can_be_sought(tmp_path: Path):
    path = tmp_path / "a.l0"
    path.write_bytes(compress(TEXT, level=1))
    with archive.open(path) as file:
        assert file.seekable()
        assert file.seek(100) == 100
        assert file.read(20) == TEXT[100:120]
        assert file.seek(5) == 5
        assert file.read(20) == TEXT[5:25]
        assert file.seek(-7, os.SEEK_END) == len(TEXT) - 7
        assert file.read() == TEXT[-7:]
        assert file.seek(len(TEXT) + 10) == len(TEXT)


def test_a_file_object_stays_open_and_may_begin_anywhere(tmp_path: Path):
    target = io.BytesIO()
    target.write(b"before")
    with archive.open(target, "wb", level=1) as file:
        file.write(TEXT)
    target.seek(6)
    with archive.open(target) as file:
        assert file.read(5) == TEXT[:5]
        file.seek(0)
        assert file.read() == TEXT
    assert not target.closed


@pytest.mark.parametrize("mode", ["wb", "wt"])
def test_an_exception_leaves_what_was_there(mode: str, tmp_path: Path):
    path = tmp_path / "a.l0"
    path.write_bytes(b"old")

    def fail() -> None:
        with archive.open(path, mode) as file:  # pyright: ignore[reportCallIssue, reportArgumentType]
            file.write("x" if mode == "wt" else b"x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.l0"]


def test_wrong_options_leave_what_was_there(tmp_path: Path):
    path = tmp_path / "a.l0"
    path.write_bytes(b"old")
    with pytest.raises(LookupError):
        archive.open(path, "wt", encoding="no such encoding")
    with pytest.raises(ValueError, match="levels are"):
        archive.open(path, "wb", level=11)
    with pytest.raises(ValueError, match="mode 'a'"):
        archive.open(path, "a")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValueError, match="are of text"):
        archive.open(path, "rb", encoding="utf-8")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(FileExistsError):
        archive.open(path, "xb")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.l0"]


def test_a_new_file_only(tmp_path: Path):
    with archive.open(tmp_path / "a.l0", "xb", level=1) as file:
        file.write(b"new")
    assert decompress((tmp_path / "a.l0").read_bytes()) == b"new"


def test_a_damaged_file_never_looks_like_the_end_of_a_sound_one():
    blob = bytearray(compress(TEXT, level=1))
    blob[-1] ^= 1
    file = archive.open(io.BytesIO(bytes(blob)))
    for _ in range(2):
        with pytest.raises(FormatError):
            file.read()


def test_nothing_is_written_to_a_closed_file():
    file = archive.open(io.BytesIO(), "wb", level=1)
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


class Dribble(io.RawIOBase):
    """A raw file, as a socket is one: it reads and takes three bytes at most."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:
        piece = self.content[: min(3, len(buffer))]
        del self.content[: len(piece)]
        buffer[: len(piece)] = piece
        return len(piece)

    def write(self, data: memoryview, /) -> int:
        self.content += data[:3]
        return min(3, len(data))


def test_raw_files_that_read_and_take_less_than_asked():
    sink = Dribble()
    with archive.open(sink, "wb", level=1) as file:
        file.write(TEXT + NOISE)
    assert decompress(bytes(sink.content)) == TEXT + NOISE
    with archive.open(Dribble(compress(TEXT, level=1))) as file:
        assert file.read() == TEXT


def test_a_file_that_would_block_is_an_error():
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    with io.FileIO(read, "r") as source, io.FileIO(write, "w") as sink:
        with pytest.raises(BlockingIOError, match="set it to block"), archive.open(source) as file:
            file.read()
        with pytest.raises(BlockingIOError, match="set it to block"), archive.open(sink, "wb", level=1) as file:
            file.write(os.urandom(1 << 17))


class Collector:
    """A file object that says nothing about what it took."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: bytes) -> None:
        self.content += bytes(data)


@pytest.mark.usefixtures("unchecked")
def test_a_file_object_may_return_nothing():
    sink = Collector()
    with archive.open(sink, "wb", level=1) as file:  # pyright: ignore[reportCallIssue, reportArgumentType]
        file.write(TEXT)
    assert decompress(sink.content) == TEXT


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 4)),
        np.zeros((3, 0), np.int16),
        np.arange(24.0).reshape(4, 6),
        np.arange(24.0).reshape(4, 6).T,
        np.arange(24)[::3],
        np.arange(5, dtype=">f4"),
        np.zeros(3, [("a", "u1"), ("b", "f8")]),
        np.float32(3),
        np.array(7),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}",
)
def test_arrays_of_any_shape_and_type_are_bytes(array: np.ndarray):
    expected = array.tobytes()
    assert decompress(compress(array, level=1)) == expected  # pyright: ignore[reportArgumentType]
    file = io.BytesIO()
    with archive.open(file, "wb", level=1) as writer:
        writer.write(array)
    assert decompress(np.frombuffer(file.getvalue(), np.uint8)) == expected  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("data", "said"), [(12, "not int"), ("text", "not text: encode it first"), (None, "not NoneType"), ([1], "not list")]
)
def test_what_is_no_bytes_is_refused(data: object, said: str):
    for call in (compress, decompress, archive.open(io.BytesIO(), "wb").write):
        with pytest.raises(TypeError, match=said):
            call(data)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("unchecked")
def test_names_are_bytes_too_and_never_empty(tmp_path: Path):
    name = os.fsencode(tmp_path / "a.l0")
    with archive.open(name, "wb", level=1) as file:
        file.write(TEXT)
    with archive.open(name) as file:
        assert file.read() == TEXT
    with pytest.raises(FileExistsError, match=r"a\.l0 exists"):
        archive.open(name, "xb")
    for empty in ("", b""):
        for mode in ("rb", "wb", "xb"):
            with pytest.raises(FileNotFoundError, match="the name of the file is empty"):
                archive.open(empty, mode)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(OSError, match="is a folder: name a file in it"):
        archive.open(tmp_path, "wb")
    for wrong in (3, None, [1]):
        with pytest.raises(TypeError, match="expected a path or a binary file object, not"):
            archive.open(wrong)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match="not one of text"):
        archive.open(io.StringIO())  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert names(tmp_path) == ["a.l0"]


def test_file_objects_have_the_name_and_mode_of_their_file(tmp_path: Path):
    path = tmp_path / "a.l0"
    for mode in ("wb", "rb", "wt", "rt", "w", "r"):
        with archive.open(path, mode) as file:  # pyright: ignore[reportCallIssue, reportArgumentType]
            assert file.name == str(path)
            assert file.mode == (mode if "t" in mode else f"{mode[0]}b")
    assert archive.open(os.fsencode(path)).name == os.fsencode(path)
    path.unlink()
    with open(path, "wb") as raw, archive.open(raw, "wb") as file:
        assert file.name == path or file.name == str(path)
    with archive.open(io.BytesIO(), "wb") as file:
        assert file.name == ""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"encoding": "utf-8"},
        {"encoding": "latin-1", "newline": ""},
        {"encoding": "utf-16", "newline": "\r\n"},
        {"encoding": "ascii", "errors": "replace"},
        {"encoding": "ascii", "errors": "backslashreplace", "newline": "\n"},
    ],
    ids=str,
)
def test_text_is_that_of_gzip(options: dict[str, str], tmp_path: Path):
    def through(opener: Any, path: Path) -> tuple[object, ...]:
        with opener(path, "wt", **options) as file:
            written = file.write("müßig\nzweite\r\ndritte")
            file.writelines(["a\n", "b"])
        with opener(path, "rb") as file:
            raw = file.read()
        with opener(path, "rt", **options) as file:
            lines = list(file)
            told = (file.encoding, file.errors, file.newlines)
        with opener(path, "rt", **options) as file:
            file.readline()
            place = file.tell()
            rest = file.read()
            file.seek(place)
            assert file.read() == rest
        return written, raw, lines, told, rest

    assert through(archive.open, tmp_path / "a.l0") == through(gzip.open, tmp_path / "a.gz")
    with pytest.raises(FileExistsError):
        archive.open(tmp_path / "a.l0", "xt", **options)


def test_going_forward_while_writing_writes_zeros():
    target = io.BytesIO()
    with archive.open(target, "wb", level=1) as file:
        file.write(b"begin")
        assert file.seek(3, os.SEEK_CUR) == 8
        assert file.seek(10) == file.tell() == 10
        file.write(b"end")
        for place in ((2,), (-1, os.SEEK_CUR), (0, os.SEEK_END)):
            with pytest.raises(OSError, match="cannot be gone back in"):
                file.seek(*place)
    assert decompress(target.getvalue()) == b"begin\0\0\0\0\0end"
