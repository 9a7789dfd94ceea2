"""The online code against the closed form of the Krichevsky-Trofimov estimator, sequences worked out by hand, and a decoder."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special

from ellzero.description import OnlineCode, online_code


class Counter:
    """The estimator of Krichevsky and Trofimov over `classes` symbols: (count + 1/2) / (total + classes / 2)."""

    def __init__(self, classes: int = 2) -> None:
        self.counts = np.full(classes, 0.5)

    def log_probabilities(self, batch: np.ndarray) -> np.ndarray:
        return np.log(self.counts / self.counts.sum())[batch]

    def learn(self, batch: np.ndarray) -> None:
        np.add.at(self.counts, batch, 1)


def code(data: list[int] | np.ndarray, size: int = 1, classes: int = 2, **options) -> OnlineCode:
    data, model = np.asarray(data, dtype=np.int64), Counter(classes)
    batches = [data[i : i + size] for i in range(0, len(data), size)]
    return online_code(batches, model.log_probabilities, model.learn, **{"symbols": len(data), **options})


@given(data=st.lists(st.integers(0, 4), max_size=60))
def test_counting_symbol_by_symbol_costs_the_closed_form(data: list[int]):
    counts = np.bincount(data, minlength=5) if data else np.zeros(5)
    # The Dirichlet integral: the probability of the whole sequence, whatever its order.
    log = (special.gammaln(counts + 0.5) - special.gammaln(0.5)).sum() + special.gammaln(2.5) - special.gammaln(counts.sum() + 2.5)
    assert code(data, classes=5).total_bits == pytest.approx(-log / math.log(2), rel=1e-12, abs=1e-12)


def test_a_sequence_by_hand():
    # 1/2, then 1 of the one seen: 3/4, then 0 where all were 1: 1/6.
    found = code([1, 1, 0])
    assert found.batch_bits == pytest.approx([1.0, math.log2(4 / 3), math.log2(6)])
    assert found.total_bits == pytest.approx(math.log2(16))
    assert (found.total_bytes, found.symbols, found.mean_bits) == (1, 3, pytest.approx(4 / 3))


def test_within_a_batch_nothing_is_learnt():
    # (1, 1) at 1/2 each, then (1, 0) at 5/6 and 1/6.
    found = code([1, 1, 1, 0], size=2)
    assert found.batch_bits == pytest.approx([2.0, math.log2(6 / 5) + math.log2(6)])
    assert found.batch_symbols.tolist() == [2, 2]


def test_a_batch_is_coded_before_it_is_learnt_and_each_once():
    events: list[str] = []

    def log_probabilities(batch: str) -> np.ndarray:
        events.append(f"code {batch}")
        return np.zeros(1)

    online_code(iter("abc"), log_probabilities, lambda batch: events.append(f"learn {batch}"), symbols=3)
    assert events == ["code a", "learn a", "code b", "learn b", "code c", "learn c"]


@given(seed=st.integers(0, 2**31), count=st.integers(1, 40))
def test_a_receiver_that_learns_what_it_decodes_keeps_the_length(seed: int, count: int):
    """An ideal arithmetic coder: the data are a number in an interval whose width is the product of the probabilities."""
    data = np.random.default_rng(seed).integers(3, size=count)
    bits = code(data, classes=3).total_bits
    low, width, sender = 0.0, 1.0, Counter(3)
    for symbol in data[:20]:
        probabilities = np.exp(sender.log_probabilities(np.arange(3)))
        low, width = low + width * probabilities[:symbol].sum(), width * probabilities[symbol]
        sender.learn(np.array([symbol]))
    assert -math.log2(width) <= bits + 1e-9
    number, receiver, decoded = low + width / 2, Counter(3), []
    for _ in data[:20]:
        probabilities = np.exp(receiver.log_probabilities(np.arange(3)))
        edges = np.concatenate(([0.0], probabilities.cumsum()))
        symbol = int(np.searchsorted(edges, number, side="right") - 1)
        decoded.append(symbol)
        number = (number - edges[symbol]) / probabilities[symbol]
        receiver.learn(np.array([symbol]))
    if bits < 40:  # beyond it the number needs more digits than a float64 has
        assert decoded == data[:20].tolist()


def uniform(batch: np.ndarray) -> np.ndarray:
    """Predicts every byte but the first of each row, as a network without a start symbol does."""
    return np.full((len(batch), batch.shape[1] - 1), -math.log(256), dtype=np.float32)


def test_what_no_prediction_covers_is_paid_for():
    chunks = [np.zeros((2, 2048), dtype=np.uint8), np.zeros((1, 2048), dtype=np.uint8)]
    found = online_code(chunks, uniform, lambda batch: None, symbols=3 * 2048, verbatim_bits=8)
    assert found.batch_symbols.tolist() == [2 * 2047, 2047]
    assert found.verbatim_symbols == 3
    assert found.verbatim_bits == 24
    assert found.symbols == 3 * 2048
    assert found.total_bytes == pytest.approx(3 * 2048, abs=1)
    assert found.mean_bits == pytest.approx(8, rel=1e-6)


def test_predictions_of_2047_of_2048_bytes_are_no_code_of_2048():
    with pytest.raises(ValueError, match=r"2047 of 2048 symbols .* other 1 costs"):
        online_code([np.zeros((1, 2048))], uniform, lambda batch: None, symbols=2048)


def test_a_second_epoch_is_not_coded():
    with pytest.raises(ValueError, match=r"6 symbols were coded, but the data hold 3.*once"):
        code([0, 1, 0, 0, 1, 0], symbols=3)


def test_bits_and_bytes_are_told_apart():
    found = code([0] * 100)
    assert found.total_bytes == math.ceil(found.total_bits / 8)


@pytest.mark.parametrize("wrong", [0.7, math.nan, math.inf])
def test_what_is_no_log_probability_is_refused_by_batch(wrong: float):
    logs = iter([np.array([-1.0]), np.array([-1.0, wrong])])
    with pytest.raises(ValueError, match="batch 1 has the log-probability"):
        online_code([0, 1], lambda batch: next(logs), lambda batch: None, symbols=3)


def test_an_impossible_symbol_cannot_be_coded_and_no_data_cost_nothing():
    assert online_code([0], lambda batch: np.array([-np.inf]), lambda batch: None, symbols=1).total_bits == math.inf
    empty = code([])
    assert (empty.total_bits, empty.total_bytes, empty.symbols, empty.mean_bits) == (0, 0, 0, 0)


def test_a_float32_sum_over_many_symbols_loses_nothing():
    count = 2_000_001
    logs = np.full(count, -math.log(3), dtype=np.float32)
    found = online_code([0], lambda batch: logs, lambda batch: None, symbols=count)
    assert found.total_bits == pytest.approx(count * math.log2(3), rel=1e-7)
