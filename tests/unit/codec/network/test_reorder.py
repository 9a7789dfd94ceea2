"""Hidden units in another order compute the same and take fewer bytes."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from networks import written

from ellzero.codec.network.reorder import density_order
from ellzero.codec.network.tensors import exact


def test_rows_come_by_density_and_equals_stay_in_order():
    weights = np.array([[0, 0, 0], [1, 0, 2], [0, 3, 0], [4, 5, 6], [0, 0, 7]])
    assert density_order(weights).tolist() == [3, 1, 2, 4, 0]
    assert density_order(weights.reshape(5, 3, 1, 1)).tolist() == [3, 1, 2, 4, 0]


def test_an_ordered_network_computes_the_same_and_is_smaller(seed: int):
    source = np.random.default_rng(seed)
    alive = source.random(200) < 0.3
    first = source.standard_normal((200, 60)) * (source.random((200, 60)) < source.random((200, 1)) * 0.2) * alive[:, None]
    second = source.standard_normal((10, 200)) * (source.random((10, 200)) < 0.3) * alive
    order = density_order(first)
    inputs = source.standard_normal(60)
    plain = second @ np.maximum(first @ inputs, 0)
    assert np.allclose(second[:, order] @ np.maximum(first[order] @ inputs, 0), plain)

    def size(a: np.ndarray, b: np.ndarray) -> int:
        return len(written([exact("a", (a != 0).astype(np.float32)), exact("b", (b != 0).astype(np.float32))]))

    assert size(first[order], second[:, order]) < size(first, second)
