import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from array_range_coder import RangeDecoder, RangeEncoder
from ellzero.codec import rangecoder
from ellzero.jit.kernels import plain

decisions = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 65535)), max_size=300)


def entropy_bytes(bits: np.ndarray, p: np.ndarray) -> float:
    """What the model says that decisions cost."""
    return float(-np.log2(np.where(bits == 1, p, 65536 - p) / 65536).sum() / 8)


def encoded(bits: np.ndarray, p: np.ndarray) -> bytes:
    encoder = RangeEncoder()
    encoder.encode_bits(bits, p)
    return encoder.finish()


def mixed() -> RangeEncoder:
    encoder = RangeEncoder()
    encoder.encode_bits([1, 0, 1, 1, 0, 0, 1, 0] * 4, [40000, 300, 65535, 1] * 8)
    encoder.encode_raw([0x1234567], 28)
    encoder.encode_symbols([0, 2, 1], [1, 5, 10])
    return encoder


def test_messages_are_these_bytes():
    assert mixed().finish().hex() == "00b77a606ad57679e098047f8492"
    assert encoded(np.array([1, 0, 1]), np.array([32768, 32768, 32768])).hex() == "40"
    assert encoded(np.array([0] * 4), np.array([65535] * 4)).hex() == "fffffffffeffffff"


def test_a_message_of_nothing_is_empty():
    assert RangeEncoder().finish() == b""


@given(decisions)
def test_decisions_come_back(pairs: list[tuple[int, int]]):
    bits, p = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    message = encoded(bits, p)
    assert RangeDecoder(message).decode_bits(p).tolist() == bits.tolist()
    assert len(message) <= entropy_bytes(bits, p) * 1.0001 + 1


@given(st.lists(st.integers(0, 40), min_size=1, max_size=50), st.integers(0, 24), st.data())
def test_symbols_of_any_distribution_come_back(weights: list[int], total_bits: int, data: st.DataObject):
    total = 1 << total_bits
    # Any frequencies with the wanted sum: the shares of a partition, of which many are 0.
    edges = sorted({weight * total // 40 for weight in weights} | {0, total})
    frequencies = np.diff(edges)
    frequencies = np.insert(frequencies, data.draw(st.integers(0, frequencies.size)), 0)
    possible = np.flatnonzero(frequencies)
    symbols = data.draw(st.lists(st.sampled_from(possible.tolist()), max_size=100))
    encoder = RangeEncoder()
    encoder.encode_symbols(symbols, frequencies)
    assert RangeDecoder(encoder.finish()).decode_symbols(len(symbols), frequencies).tolist() == symbols


@given(st.integers(0, 64), st.data())
def test_raw_bits_come_back(width: int, data: st.DataObject):
    values = data.draw(st.lists(st.integers(0, (1 << width) - 1), max_size=20))
    encoder = RangeEncoder()
    encoder.encode_raw(np.array(values, np.uint64), width)
    message = encoder.finish()
    assert RangeDecoder(message).decode_raw(len(values), width).tolist() == values
    assert len(message) <= (width * len(values) + 7) // 8 + 1


@pytest.mark.parametrize("p", [1, 2, 17, 655, 20000, 32768, 60000, 65534, 65535])
def test_length_is_that_of_the_model(p: int, seed: int):
    random = np.random.default_rng(seed)
    bits = (random.random(400_000) < p / 65536).astype(np.uint8)
    probabilities = np.full(bits.size, p)
    # The message is some number in the interval: with luck a short one.
    ideal = entropy_bytes(bits, probabilities)
    assert ideal - 3 <= len(encoded(bits, probabilities)) <= 1.0001 * ideal + 8


def test_length_is_that_of_another_coder(seed: int):
    import constriction

    random = np.random.default_rng(seed)
    weights = random.exponential(size=200) ** 3
    frequencies = 1 + np.floor(weights / weights.sum() * ((1 << 24) - 300)).astype(np.int64)
    frequencies[0] += (1 << 24) - frequencies.sum()
    symbols = random.choice(200, 50_000, p=frequencies / frequencies.sum()).astype(np.int32)
    encoder = RangeEncoder()
    encoder.encode_symbols(symbols, frequencies)
    other = constriction.stream.queue.RangeEncoder()
    model = constriction.stream.model.Categorical((frequencies / frequencies.sum()).astype(np.float32), perfect=False)
    other.encode(symbols, model)
    assert len(encoder.finish()) <= 1.0001 * other.get_compressed().nbytes + 8


def test_a_carry_runs_back_over_many_bytes():
    # 255 again and again, then a decision that pushes the message over the edge.
    encoder = RangeEncoder()
    symbols = [0] * 3 + [255] * 50 + [254]
    encoder.encode_symbols(symbols, [1] * 256)
    encoder.encode_bits([0] * 40, [65535] * 40)
    message = encoder.finish()
    decoder = RangeDecoder(message)
    assert decoder.decode_symbols(len(symbols), [1] * 256).tolist() == symbols
    assert decoder.decode_bits([65535] * 40).tolist() == [0] * 40


@given(st.binary(max_size=40), st.lists(st.integers(1, 65535), max_size=200))
def test_any_bytes_decode_to_something_without_an_error(data: bytes, p: list[int]):
    decoder = RangeDecoder(data)
    assert decoder.decode_bits(p).max(initial=0) <= 1
    assert decoder.decode_symbols(50, [1, 2, 5]).max() <= 2
    assert decoder.decode_raw(3, 10).max() < 1024
    state = decoder._state
    assert state[0] < state[1]
    assert 1 << 32 <= state[1] < 1 << 40


def test_the_largest_bytes_lie_within_the_interval_too():
    decoder = RangeDecoder(b"\xff" * 20)
    for _ in range(50):
        assert decoder._state[0] < decoder._state[1]
        decoder.decode_bits([65535])


@given(st.binary(max_size=40), st.lists(st.integers(1, 65535), max_size=200))
def test_zeros_at_the_end_may_be_left_out(data: bytes, p: list[int]):
    assert RangeDecoder(data).decode_bits(p).tolist() == RangeDecoder(data + bytes(9)).decode_bits(p).tolist()


@given(decisions, st.integers(0, 20))
def test_an_encoder_never_writes_past_its_buffer(pairs: list[tuple[int, int]], size: int):
    state, memory = np.zeros(3, np.uint64), np.full(64 + size, 77, np.uint8)
    buffer = memory[32 : 32 + size]
    rangecoder.start_encoder(state)
    for bit, p in pairs:
        rangecoder.encode_bit(state, buffer, bit, p)
    length = rangecoder.finish_encoder(state, buffer)
    assert (memory[:32] == 77).all()
    assert (memory[32 + size :] == 77).all()
    whole = encoded(np.array([bit for bit, _ in pairs]), np.array([p for _, p in pairs], np.int64))
    if length <= size:
        assert buffer[:length].tobytes() == whole
    else:
        # Zeros at the end would have been left out, had there been room for them.
        assert length >= len(whole)


def test_the_same_in_plain_python():
    state, buffer, bits = np.zeros(3, np.uint64), np.zeros(64, np.uint8), []
    plain(rangecoder.start_encoder)(state)
    for bit, p in zip([1, 0, 1, 1, 0, 0, 1, 0] * 4, [40000, 300, 65535, 1] * 8, strict=True):
        plain(rangecoder.encode_bit)(state, buffer, bit, p)
    length = plain(rangecoder.finish_encoder)(state, buffer)
    message = encoded(np.array([1, 0, 1, 1, 0, 0, 1, 0] * 4), np.array([40000, 300, 65535, 1] * 8))
    assert buffer[:length].tobytes() == message
    plain(rangecoder.start_decoder)(state, buffer[:length])
    for p in [40000, 300, 65535, 1] * 8:
        bits.append(int(plain(rangecoder.decode_bit)(state, buffer[:length], p)))
    assert bits == [1, 0, 1, 1, 0, 0, 1, 0] * 4


PLAIN = """
import sys
sys.modules["torch"] = None
import numpy as np
from array_range_coder import RangeDecoder, RangeEncoder
encoder = RangeEncoder()
encoder.encode_bits([1, 0, 1, 1, 0, 0, 1, 0] * 4, [40000, 300, 65535, 1] * 8)
encoder.encode_raw([0x1234567], 28)
encoder.encode_symbols([0, 2, 1], [1, 5, 10])
message = encoder.finish()
print(message.hex())
decoder = RangeDecoder(message)
assert decoder.decode_bits([40000, 300, 65535, 1] * 8).tolist() == [1, 0, 1, 1, 0, 0, 1, 0] * 4
assert decoder.decode_raw(1, 28).tolist() == [0x1234567] and decoder.decode_symbols(3, [1, 5, 10]).tolist() == [0, 2, 1]
"""


@pytest.mark.parametrize("jit", ["0", "1"])
def test_the_same_without_a_compiler_and_without_torch(jit: str, source_environment: dict[str, str]):
    path = os.pathsep.join((source_environment["PYTHONPATH"], str(Path(__file__).parents[2])))
    environment = source_environment | {"NUMBA_DISABLE_JIT": jit, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-W", "error", "-c", PLAIN], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "00b77a606ad57679e098047f8492"


def test_what_cannot_be_encoded_is_refused():
    encoder = RangeEncoder()
    with pytest.raises(ValueError, match=r"1\.\.65535, not 0\.\.0"):
        encoder.encode_bits([1], [0])
    with pytest.raises(ValueError, match=r"0 or 1, not 2"):
        encoder.encode_bits([2], [5])
    with pytest.raises(ValueError, match=r"2 decisions with 3 probabilities"):
        encoder.encode_bits([0, 1], [5, 5, 5])
    with pytest.raises(ValueError, match=r"sum to 3; the sum must be a power of two"):
        encoder.encode_symbols([0], [1, 2])
    with pytest.raises(ValueError, match=r"symbol 1 has the frequency 0"):
        encoder.encode_symbols([1], [4, 0])
    with pytest.raises(ValueError, match=r"0\.\.1, not 2\.\.2"):
        encoder.encode_symbols([2], [2, 2])
    with pytest.raises(ValueError, match=r"8 does not fit into 3 bits"):
        encoder.encode_raw([8], 3)
    with pytest.raises(ValueError, match=r"at most 64"):
        RangeDecoder(b"").decode_raw(1, 65)
