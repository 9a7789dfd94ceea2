"""The parts of the byte model against definitions."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ellzero.codec.bytes import tables
from ellzero.codec.bytes.transforms import change_x86_calls, find_stride, has_x86_calls, looks_like_text


def test_squash_is_the_logistic_function_and_stretch_its_inverse():
    x = np.arange(-tables.LOGIT_LIMIT, tables.LOGIT_LIMIT + 1)
    exact = 65536 / (1 + np.exp(-x / 256))
    assert np.abs(tables.SQUASH - exact).max() <= 1
    assert (tables.SQUASH + tables.SQUASH[::-1] == 65536).all()
    assert tables.SQUASH.min() == 1
    middles = 16 * np.arange(4096) + 8
    assert (tables.SQUASH[tables.STRETCH + tables.LOGIT_LIMIT] >= middles).all()
    assert (tables.SQUASH[tables.STRETCH + tables.LOGIT_LIMIT - 1] < middles).all()
    for index in (200, 700, 2048, 4000):
        p = (16 * index + 8) / 65536
        assert abs(tables.STRETCH[index] - 256 * math.log(p / (1 - p))) <= 2
    assert (np.diff(tables.STRETCH) >= 0).all()


def test_histories_remember_four_bits_exactly_and_more_by_counts():
    following = tables.history_tables().following
    total = tables.history_tables().total
    states = {0}
    for length in range(1, tables.EXACT_LENGTH + 1):
        states = {int(following[2 * state + bit]) for state in states for bit in (0, 1)}
        assert len(states) == 2**length
        assert {int(total[state]) for state in states} == {length}
    ones = 0
    for _ in range(100):
        ones = int(following[2 * ones + 1])
    assert total[ones] == tables.COUNT_CAPS[0]
    assert int(following[2 * ones + 1]) == ones
    # One surprise leaves little of forty agreements.
    assert total[following[2 * ones]] < 10


def test_first_probabilities_of_histories_lean_to_what_was_seen():
    histories = tables.history_tables()
    state = 0
    for _ in range(20):
        before = histories.initial[state]
        state = int(histories.following[2 * state + 1])
        assert histories.initial[state] > before
    assert ((histories.initial > 0) & (histories.initial < 65536)).all()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(st.sampled_from([b"\xe8", b"\xe9", b"\x00", b"\xff", b"\xe8\x10\x00\x00\x00"]), st.binary(max_size=3)), max_size=200
    ),
    st.integers(0, 1 << 40),
)
def test_targets_of_calls_become_distances_again(parts: list[bytes], start: int):
    data = np.frombuffer(b"".join(parts), np.uint8)
    block = data.copy()
    change_x86_calls(block, np.int64(start), False)
    change_x86_calls(block, np.int64(start), True)
    assert (block == data).all()


def test_overlapping_calls_in_every_short_string_come_back():
    """All strings of eight bytes of which three kinds matter, near the end of the numbers that three bytes hold."""
    for digits in itertools.product((0xE8, 0x00, 0xFF), repeat=8):
        data = np.array(digits, np.uint8)
        block = data.copy()
        change_x86_calls(block, np.int64(0xFFFFFC), False)
        change_x86_calls(block, np.int64(0xFFFFFC), True)
        assert (block == data).all(), digits


def test_calls_of_one_target_become_equal():
    code = bytearray(random.Random(1).randbytes(300).replace(b"\xe8", b"\x90").replace(b"\xe9", b"\x90"))
    for place in (10, 100, 200):
        code[place : place + 5] = b"\xe8" + (5000 - place - 5 & 0xFFFFFFFF).to_bytes(4, "little")
    block = np.frombuffer(bytes(code), np.uint8).copy()
    assert has_x86_calls(block)
    change_x86_calls(block, np.int64(0), False)
    assert {block[place : place + 5].tobytes() for place in (10, 100, 200)} == {b"\xe8" + (5000).to_bytes(4, "little")}
    assert not has_x86_calls(np.frombuffer(b"plain text " * 30, np.uint8))


@pytest.mark.parametrize("stride", [4, 13, 216])
def test_the_stride_of_records_is_found(stride: int):
    rng = np.random.default_rng(stride)
    records = rng.integers(0, 256, (5000 // stride, stride), dtype=np.uint8)
    records[:, 1 : 1 + stride // 3] = 7
    records[:, 0] = 3
    if stride == 216:
        records[:, 40:120] = rng.integers(0, 256, 80, dtype=np.uint8)
    assert find_stride(records.reshape(-1)) == stride


def test_text_and_noise_have_no_stride():
    source = random.Random(2)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(1, 10))) for _ in range(300)]
    text = " ".join(source.choices(words, k=4000)).encode()
    assert find_stride(np.frombuffer(text, np.uint8)) == 0
    assert find_stride(np.frombuffer(random.Random(3).randbytes(50000), np.uint8)) == 0
    assert find_stride(np.zeros(5, np.uint8)) == 0


@pytest.mark.parametrize("data", [b"a\tb\r\n" * 9, "Grüße, 世界\n".encode(), b"\x1b[1mbold\x1b[0m of a terminal\n", b""])
def test_text_of_any_language_looks_like_text(data: bytes):
    assert looks_like_text(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("data", [bytes(range(256)), b"\x00" * 5, "UTF-16".encode("utf-16-le"), random.Random(4).randbytes(3000)])
def test_what_is_binary_does_not(data: bytes):
    assert not looks_like_text(np.frombuffer(data, np.uint8))
