import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import ellzero.codec
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind, Original, Tally
from ellzero.codec.errors import FormatError, LimitError
from ellzero.codec.varint import Cursor, varint

Sections = Sequence[tuple[int, bytes, bool]]
KNOWN = range(1, 128)
ORIGINAL = Original(size=300, sha256=bytes(range(32)))


def written(sections: Sections, kind: Kind = Kind.NETWORK) -> bytes:
    file = io.BytesIO()
    writer = ContainerWriter(file, kind)
    for number, payload, check in sections:
        writer.section(number, payload, check=check)
    size = writer.finish(ORIGINAL if kind is Kind.DATA else None)
    assert size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes, known: Sequence[int] = KNOWN, max_section: int = 1 << 20) -> list[tuple[int, bytes]]:
    reader = ContainerReader(io.BytesIO(data), max_section=max_section)
    return [(section.kind, section.payload) for section in reader.sections(known)]


def with_check(data: bytes) -> bytes:
    """Ends a tampered file with the check that fits, so that the tampering itself must be noticed."""
    return data + zlib.crc32(data).to_bytes(4, "little")


SMALL = written([(1, b"head", False), (2, b"payload", True)])
DATA = written([(1, b"ab", False)], Kind.DATA)


def test_files_are_these_bytes():
    assert written([]).hex(" ") == "89 6c 30 0a 00 02 00 00 " + zlib.crc32(bytes.fromhex("896c300a00020000")).to_bytes(4, "little").hex(" ")
    assert SMALL.hex(" ") == "89 6c 30 0a 00 02 01 04 68 65 61 64 82 07 70 61 79 6c 6f 61 64 15 80 2f 7b 00 00 a0 4a a6 1e"
    assert DATA.hex() == "896c300a0001" + "01026162" + "0022ac02" + bytes(range(32)).hex() + DATA[-4:].hex()


@given(st.lists(st.tuples(st.integers(1, 127), st.binary(max_size=300), st.booleans()), max_size=5), st.sampled_from(Kind))
def test_sections_come_back(sections: Sections, kind: Kind):
    data = written(sections, kind)
    reader = ContainerReader(io.BytesIO(data))
    assert reader.kind is kind
    found = list(reader.sections(KNOWN))
    assert [(section.kind, section.payload) for section in found] == [(number, payload) for number, payload, _ in sections]
    assert reader.position == len(data)
    if kind is Kind.DATA:
        assert reader.original == ORIGINAL


def test_a_small_network_costs_at_most_24_bytes_beyond_its_payload():
    payloads = [bytes(300), bytes(1500)]
    assert len(written([(1, payload, False) for payload in payloads])) - sum(map(len, payloads)) <= 18


def test_data_that_arrive_in_dribs_are_read_whole():
    class Dribble(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 0, 3) if size is not None and size > 6 else size)

    payload = bytes(range(256)) * 20
    reader = ContainerReader(Dribble(written([(1, payload, True)])))
    assert [section.payload for section in reader.sections(KNOWN)] == [payload]


def test_every_truncation_is_an_error():
    for data in (SMALL, DATA):
        for length in range(len(data)):
            with pytest.raises(FormatError):
                read(data[:length])


def test_every_flipped_byte_is_an_error():
    for data in (SMALL, DATA):
        for place in range(len(data)):
            for mask in (1, 0x80, 0xFF, 0x20):
                with pytest.raises(FormatError):
                    read(data[:place] + bytes((data[place] ^ mask,)) + data[place + 1 :])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an ellzero file: it is empty"),
        (b"\x1f\x8b\x08\x00", "not an ellzero file: it is gzip"),
        (b"hello, world", "it starts with 68 65 6c 6c, not 89 6c 30 0a"),
        (SMALL[:3] + b"\r\n" + SMALL[4:], "transfer it as binary"),
        (SMALL[:5], "truncated after 5 bytes"),
        (SMALL[:-1], "truncated after .* get it again"),
        (SMALL[:4] + b"\x01" + SMALL[5:], "of format 1, this ellzero reads up to format 0: upgrade"),
        (SMALL[:5] + b"\x09" + SMALL[6:], "of kind 9"),
        (SMALL + b"\n", "bytes follow the end at byte"),
        (SMALL + SMALL, "bytes follow the end at byte"),
        (SMALL[:-6] + b"\x01" + SMALL[-5:], "truncated|unknown section|damaged"),
        (SMALL[:14] + b"X" + SMALL[15:], r"section from byte 12 to 25 is damaged \(its check fails\)"),
        (SMALL[:8] + b"X" + SMALL[9:], r"damaged \(its check at the end fails\)"),
        (with_check(b"\x89l0\n\x00\x02\x00\x01a"), "end at byte 8 has 1 bytes, which it cannot"),
        (with_check(b"\x89l0\n\x00\x01\x00\x00"), "the end of the file needs"),
        (with_check(b"\x89l0\n\x00\x01\x00\x22\x05" + bytes(33)), "1 bytes too many"),
        (with_check(b"\x89l0\n\x00\x02\x01\x82\x00ab\x00\x00"), "not written as it must be"),
        (with_check(b"\x89l0\n\x00\x02\x01" + b"\xff" * 10 + b"\x00\x00"), "not written as it must be"),
        (b"\x89l0\n\x00\x02\x01" + varint(1 << 19) + b"few", "truncated after .* 524285 or more are missing"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(data: bytes, message: str):
    with pytest.raises(FormatError, match=message) as caught:
        read(data)
    assert "\n" not in str(caught.value)


def test_a_section_larger_than_the_limit_is_refused_before_it_is_read():
    with pytest.raises(LimitError, match="4611686018427387904 bytes, more than the limit of 1048576: raise the limit"):
        read(b"\x89l0\n\x00\x02\x01" + varint(1 << 62))


def test_an_unknown_section_is_an_error():
    with pytest.raises(FormatError, match="unknown section 2 at byte 12"):
        read(SMALL, known=[1])


def test_another_kind_is_refused_with_the_command_for_it():
    reader = ContainerReader(io.BytesIO(DATA))
    reader.expect(Kind.DATA)
    with pytest.raises(FormatError, match="holds compressed data, for `ellzero decompress`; expected a network"):
        reader.expect(Kind.NETWORK)


def test_the_tally_is_of_all_that_passed():
    tally = Tally()
    tally.update(b"a")
    tally.update(memoryview(b"bc"))
    assert tally.original.size == 3
    assert tally.original.sha256.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(("value", "digits"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), ((1 << 64) - 1, "ff" * 9 + "01")])
def test_varints_are_these_bytes(value: int, digits: str):
    assert varint(value).hex() == digits
    cursor = Cursor(bytes.fromhex(digits), "a section")
    assert cursor.varint() == value
    cursor.end()


@pytest.mark.parametrize("digits", ["8000", "ff" * 9 + "02", "ff" * 9 + "7f", "80" * 9 + "8001", "ff00"])
def test_other_spellings_and_larger_numbers_are_refused(digits: str):
    with pytest.raises(FormatError, match="not written as it must be"):
        Cursor(bytes.fromhex(digits), "a section").varint()


@given(st.binary(max_size=12))
def test_a_number_has_one_spelling(data: bytes):
    cursor = Cursor(data, "a section")
    try:
        value = cursor.varint()
    except FormatError:
        return
    assert varint(value) == data[: cursor.position]


def test_the_cursor_believes_nothing():
    with pytest.raises(FormatError, match="the head needs 5 bytes at byte 1 and has 2"):
        Cursor(b"\x05ab", "the head").text()
    with pytest.raises(FormatError, match="no UTF-8"):
        Cursor(b"\x02\xff\xfe", "the head").text()
    with pytest.raises(FormatError, match="claims 200 tensors where at most 8 fit"):
        Cursor(varint(200), "the head").count(8, "tensors")
    cursor = Cursor(b"\x02\xc3\xa9rest", "the head")
    assert cursor.text() == "é"
    with pytest.raises(FormatError, match="4 bytes too many"):
        cursor.end()
    assert cursor.rest() == b"rest"


def test_files_story_30_no_pickle_is_read():
    # A pickle runs what is in it. The codec imports neither pickle nor anything of torch, which would.
    folder = Path(ellzero.codec.__file__).parent
    imports = re.compile(r"^\s*(?:import|from)\s+(pickle|marshal|shelve|dill|joblib|torch)\b|allow_pickle\s*=\s*True", re.MULTILINE)
    sources = {path.name: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    assert len(sources) > 20
    assert [name for name, text in sources.items() if imports.search(text)] == []
