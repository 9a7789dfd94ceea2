"""The decoder written from the document alone reads more of what the package writes: quantised networks, and the literal bytes."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "reference"))

import network as reference
from networks import read, written
from test_network_file import LITERAL

from ellzero.archive.entries import quantised
from ellzero.codec.network.tensors import Tied, exact
from ellzero.quantise.grids import LogGrid, UniformGrid


def agree(file: bytes) -> None:
    """Asserts that both decoders read the same."""
    decoded = reference.decode(file)
    for (name, value), tensor in zip(decoded.items(), read(file), strict=True):
        assert name == tensor.name
        assert value == (tensor.of if isinstance(tensor, Tied) else (tensor.dtype.value, tensor.shape, tensor.words.tolist()))


@pytest.mark.parametrize("grid", [LogGrid(1.3), UniformGrid(error=0.1, vectors=0.01)], ids=["log", "uniform"])
def test_it_reads_networks_that_were_quantised(grid: LogGrid | UniformGrid) -> None:
    source = np.random.default_rng(0)
    arrays_of = {"fc1.weight": source.normal(size=(12, 64)), "fc1.bias": source.normal(size=12), "fc2.weight": source.normal(size=(5, 12))}
    for array in arrays_of.values():
        array[source.random(array.shape) < 0.6] = 0
    tensors = [exact(name, array.astype(np.float32)) for name, array in arrays_of.items()]
    agree(written([quantised(tensor, grid) for tensor in tensors]))


def test_it_reads_the_literal_bytes() -> None:
    agree(bytes.fromhex(LITERAL))
    assert list(reference.decode(bytes.fromhex(LITERAL))) == ["fc.weight", "fc.bias"]
