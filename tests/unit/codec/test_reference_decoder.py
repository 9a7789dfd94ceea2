"""The decoder written from docs/formats/format.md alone reads what the package writes."""

import io
import re
import subprocess
import sys
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "reference"))

import byte_model
import decoder as reference
import network
import numpy as np
import pytest
from hypothesis import given, strategies as st

from array_range_coder import RangeDecoder, RangeEncoder
from ellzero.codec.container import ContainerReader, ContainerWriter, Kind, Original, Tally
from ellzero.codec.errors import FormatError

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "tests" / "reference"


def container(sections: list[tuple[int, bytes, bool]], kind: Kind, original: Original | None) -> bytes:
    file = io.BytesIO()
    writer = ContainerWriter(file, kind)
    for number, payload, check in sections:
        writer.section(number, payload, check=check)
    writer.finish(original)
    return file.getvalue()


@given(st.lists(st.tuples(st.integers(1, 127), st.binary(max_size=200), st.booleans()), max_size=4), st.sampled_from(Kind))
def test_it_takes_containers_apart(sections: list[tuple[int, bytes, bool]], kind: Kind):
    original = Original(size=1 << 40, sha256=bytes(32)) if kind is Kind.DATA else None
    found_kind, found, trailer = reference.sections(container(sections, kind, original))
    assert found_kind == kind
    assert found == [(number, payload) for number, payload, _ in sections]
    assert trailer == (b"" if original is None else b"\x80\x80\x80\x80\x80\x20" + bytes(32))


@given(st.data())
def test_both_readers_agree_on_damaged_containers(data: st.DataObject):
    good = container([(1, b"some payload", True), (2, bytes(200), False)], Kind.NETWORK, None)
    place = data.draw(st.integers(0, len(good)))
    bad = good[:place] + data.draw(st.binary(max_size=4)) + good[place + data.draw(st.integers(0, 4)) :]
    try:
        expected = reference.sections(bad)[1]
    except reference.Damaged:
        with pytest.raises(FormatError):
            list(ContainerReader(io.BytesIO(bad)).sections(range(1, 128)))
    else:
        assert [(section.kind, section.payload) for section in ContainerReader(io.BytesIO(bad)).sections(range(1, 128))] == expected


def symbol(message: reference.Message, frequencies: list[int], bits: int) -> int:
    """Decodes a symbol of the page's, which no file holds so far."""
    ends = [0, *accumulate(frequencies)]
    found = bisect_right(ends, (((message.offset + 1) << bits) - 1) // message.width) - 1
    start = message.width * ends[found] >> bits
    message.follow(start, (message.width * ends[found + 1] >> bits) - start)
    return found


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 65535)), max_size=200), st.lists(st.integers(0, 3)), st.integers(0, 1 << 40))
def test_it_decodes_messages(pairs: list[tuple[int, int]], symbols: list[int], raw: int):
    encoder = RangeEncoder()
    encoder.encode_bits([bit for bit, _ in pairs], np.array([p for _, p in pairs], np.int64))
    encoder.encode_symbols(symbols, [1, 4096 - 7, 1, 5])
    encoder.encode_raw([raw], 41)
    message = reference.Message(encoder.finish())
    assert [message.bit(p) for _, p in pairs] == [bit for bit, _ in pairs]
    assert [symbol(message, [1, 4096 - 7, 1, 5], 12) for _ in symbols] == symbols
    assert message.raw(41) == raw


def test_it_decodes_integers_with_learnt_probabilities():
    # The vector of the page.
    message = reference.Message(bytes.fromhex("9071ff7bd11f64034031fc6218ff"))
    cells = [reference.Cell(255) for _ in range(160)]
    assert [reference.integer(message, cells) for _ in range(6)] == [0, 1, 2, 300, 7, (1 << 40) - 2]


@given(st.binary(max_size=20), st.lists(st.integers(1, 65535), max_size=100))
def test_both_decoders_read_the_same_in_any_bytes(data: bytes, p: list[int]):
    message = reference.Message(data)
    assert RangeDecoder(data).decode_bits(p).tolist() == [message.bit(one) for one in p]


def test_empty_files_decode():
    assert byte_model.decode_data(container([], Kind.DATA, Tally().original)) == b""
    assert network.decode(container([], Kind.NETWORK, None)) == {}
    with pytest.raises(reference.Damaged, match="size or hash of the original"):
        byte_model.decode_data(container([], Kind.DATA, Original(size=1, sha256=Tally().original.sha256)))


def test_the_decoder_of_networks_is_short_and_needs_no_library():
    text = "".join((REFERENCE / name).read_text(encoding="utf-8") for name in ("decoder.py", "network.py"))
    assert text.count("\n") < 400
    assert set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) <= {"decoder", *sys.stdlib_module_names}
    code = f"import sys; sys.path.insert(0, {str(REFERENCE)!r}); import network; print(network.decode(sys.stdin.buffer.read()))"
    data = container([], Kind.NETWORK, None)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], input=data, capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, b"{}"), done.stderr.decode()


def test_the_page_holds_the_bytes_that_are_written():
    page = (ROOT / "docs/formats/format.md").read_text(encoding="utf-8")
    assert f"`{container([], Kind.NETWORK, None).hex(' ')}`" in page
    encoder = RangeEncoder()
    encoder.encode_bits([1, 0, 1, 1, 0, 0, 1, 0] * 4, [40000, 300, 65535, 1] * 8)
    encoder.encode_raw([0x1234567], 28)
    encoder.encode_symbols([0, 2, 1], [1, 5, 10])
    assert f"`{encoder.finish().hex(' ')}`" in page
