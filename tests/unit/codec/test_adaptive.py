from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ellzero.codec import adaptive
from ellzero.codec.rangecoder import finish_encoder, start_decoder, start_encoder
from ellzero.jit.kernels import plain

# A coding of one item: (state, data, decode, cells, item) -> item.
Code = Callable[[np.ndarray, np.ndarray, bool, np.ndarray, int], np.integer]


def adaptive_bit(state, data, decode, cells, item):
    return adaptive.code_adaptive(state, data, decode, cells, 3, item, 255)


def integer(state, data, decode, cells, item):
    return adaptive.code_integer(state, data, decode, cells, 5, item, 255)


def encoded(code: Code, items: list[int], new: int = adaptive.NEW) -> tuple[bytes, np.ndarray]:
    state, buffer, cells = np.zeros(3, np.uint64), np.zeros(8 * len(items) + 400, np.uint8), np.full(200, new, np.uint32)
    start_encoder(state)
    for item in items:
        assert code(state, buffer, False, cells, item) == item
    return buffer[: finish_encoder(state, buffer)].tobytes(), cells


def decoded(code: Code, message: bytes, count: int, new: int = adaptive.NEW) -> tuple[list[int], np.ndarray]:
    state, data, cells = np.zeros(3, np.uint64), np.frombuffer(bytearray(message), np.uint8), np.full(200, new, np.uint32)
    start_decoder(state, data)
    return [int(code(state, data, True, cells, 0)) for _ in range(count)], cells


@pytest.mark.parametrize(
    ("code", "new", "largest"),
    [
        (adaptive_bit, adaptive.NEW, 1),
        (integer, adaptive.NEW, (1 << 40) - 2),
    ],
)
@given(data=st.data())
def test_what_was_coded_comes_back_and_both_sides_learnt_the_same(code: Code, new: int, largest: int, data: st.DataObject):
    sizes = st.integers(0, largest.bit_length()).flatmap(lambda bits: st.integers(0, min(largest, (1 << bits) - 1)))
    items = data.draw(st.lists(sizes, max_size=60))
    message, cells = encoded(code, items, new)
    found, learnt = decoded(code, message, len(items), new)
    assert found == items
    assert (learnt == cells).all()


@given(st.binary(max_size=30))
def test_any_bytes_decode_within_the_range(message: bytes):
    assert min(decoded(integer, message, 50)[0]) >= 0
    assert max(decoded(integer, message, 50)[0]) <= (1 << 40) - 2


def test_the_cost_is_that_of_a_learnt_probability(seed: int):
    # The ideal code for an unknown probability costs about log2(n) / 2 bits more than the entropy of what happened.
    random = np.random.default_rng(seed)
    for p in (0.003, 0.1, 0.5, 0.97):
        items = (random.random(5000) < p).astype(int).tolist()
        share = sum(items) / len(items)
        entropy = -len(items) * (share * np.log2(share) + (1 - share) * np.log2(1 - share))
        state, buffer, cells = np.zeros(3, np.uint64), np.zeros(9000, np.uint8), np.full(9, adaptive.NEW, np.uint32)
        start_encoder(state)
        for item in items:
            adaptive.code_adaptive(state, buffer, False, cells, 3, item, 1023)
        assert 8 * finish_encoder(state, buffer) <= 1.01 * entropy + 20


@pytest.mark.parametrize("limit", [1, 30, 1023])
def test_a_cell_learns_as_the_page_says(limit: int, seed: int):
    state, buffer, cells = np.zeros(3, np.uint64), np.zeros(9000, np.uint8), np.full(9, adaptive.NEW, np.uint32)
    start_encoder(state)
    q, n = 1 << 21, 0
    for bit in np.random.default_rng(seed).integers(0, 2, 1500).tolist():
        adaptive.code_adaptive(state, buffer, False, cells, 3, bit, limit)
        q += ((1 << 22) * bit - q) * (131072 // (2 * n + 3)) >> 16
        n = min(n + 1, limit)
        assert int(cells[3]) == q << 10 | n


@pytest.mark.parametrize("bit", [0, 1])
def test_certainty_costs_next_to_nothing(bit: int):
    assert 8 * len(encoded(adaptive_bit, [bit] * 2000)[0]) <= 24


def test_small_integers_cost_few_bits():
    assert len(encoded(integer, [0] * 500)[0]) <= 3
    # 28 + 1 is 11101 in binary: two of its bits are not learnt.
    assert len(encoded(integer, [28] * 500)[0]) <= 1000 // 8 + 6
    assert len(encoded(integer, [(1 << 40) - 2])[0]) <= 12


def test_these_bytes():
    assert encoded(integer, [0, 1, 2, 300, 7, (1 << 40) - 2])[0].hex() == "9071ff7bd11f64034031fc6218ff"


def test_the_same_in_plain_python():
    def slowly(state, data, decode, cells, item):
        return plain(adaptive.code_integer)(state, data, decode, cells, 5, item, 255)

    items = [0, 1, 2, 300, 7, (1 << 40) - 2]
    assert encoded(slowly, items)[0] == encoded(integer, items)[0]
    assert decoded(slowly, encoded(integer, items)[0], 6)[0] == items

    def bit_slowly(state, data, decode, cells, item):
        return plain(adaptive.code_adaptive)(state, data, decode, cells, 3, item, 255)

    bits = [1, 0, 0, 1, 1, 1] * 20
    assert encoded(bit_slowly, bits)[0] == encoded(adaptive_bit, bits)[0]
