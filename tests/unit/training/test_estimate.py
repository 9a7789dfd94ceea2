"""The size of a file estimated without coding, beside files of trained networks: what `ellzero sparsify` and experiments/lenet5.py left."""

from pathlib import Path

import pytest

import ellzero as lz
from ellzero.training.estimate import estimated_bits

NETWORKS = Path(__file__).parents[2] / "data" / "networks"


@pytest.mark.parametrize(
    ("name", "short", "over"),
    # Of the digits' network, three linear layers of 1,648 weights, it knows the least: 5.6 % short.
    [("lenet-5-1196", 0.03, 0.03), ("lenet-5-1475", 0.03, 0.03), ("digits", 0.06, 0.0)],
)
def test_the_estimate_is_near_the_file_of_a_trained_network(name: str, short: float, over: float) -> None:
    file = NETWORKS / f"{name}.l0"
    estimate, size = estimated_bits(lz.load_file(file)) / 8, file.stat().st_size
    assert (1 - short) * size < estimate < (1 + over) * size
