import io

import numpy as np
import pytest

from ellzero.archive.entries import write_entries
from ellzero.codec.network.network_file import read_network
from ellzero.codec.network.stored_grids import Uniform
from ellzero.codec.network.tensors import ExactTensor, exact
from ellzero.quantise.grids import UniformGrid
from ellzero.quantise.shared_step import SharedStep


@pytest.fixture
def network() -> list[ExactTensor]:
    """Matrices of several sizes and scales, one of them sparse, and whole numbers."""
    generator = np.random.default_rng(0)
    sparse = generator.normal(size=(100, 90)) * (generator.random((100, 90)) < 0.1)
    return [
        exact("narrow", generator.normal(scale=0.2, size=(120, 80)).astype(np.float32)),
        exact("wide", generator.normal(scale=1.5, size=(60, 70)).astype(np.float32)),
        exact("half", generator.normal(size=(50, 40)).astype(np.float16)),
        exact("sparse", sparse.astype(np.float32)),
        exact("count", np.arange(5)),
    ]


def packed(network: list[ExactTensor], quantise: SharedStep | UniformGrid) -> tuple[int, float]:
    """Bytes of the file, and the error of all weights together."""
    file = io.BytesIO()
    write_entries(file, network, quantise)
    file.seek(0)
    changed = total = 0.0
    for entry, back in zip(network, read_network(file), strict=True):
        assert isinstance(back, ExactTensor)
        if entry.name == "count":
            assert (back.words == entry.words).all()
            continue
        values = entry.array().astype(np.float64)
        changed += float(((back.array().astype(np.float64) - values) ** 2).sum())
        total += float((values**2).sum())
    return len(file.getvalue()), (changed / total) ** 0.5


@pytest.mark.parametrize("error", [0.01, 0.03])
def test_the_error_is_the_one_that_is_asked_for(error: float, network: list[ExactTensor]) -> None:
    # Steps are rounded up by up to a 16th.
    assert 0.97 * error < packed(network, SharedStep.at_error(network, error))[1] < 1.07 * error


def test_at_equal_error_it_takes_fewer_bytes_than_an_equal_error_of_each_tensor(network: list[ExactTensor]) -> None:
    shared = packed(network, SharedStep.at_error(network, 0.03))
    each = packed(network, UniformGrid(error=0.03, vectors=0.003))
    assert shared[1] < 1.07 * each[1]
    assert shared[0] < 0.97 * each[0]


def test_vectors_have_steps_of_their_own_and_huge_numbers_stay_exact() -> None:
    grid = SharedStep(step=0.5, vectors=0.01)
    variances = np.linspace(1e-5, 3e-5, 50)
    found = grid.quantise("norm.running_var", variances)
    assert found is not None
    assert isinstance(found.grid, Uniform)
    assert np.abs(found.levels * found.grid.steps[0] / variances - 1).max() < 0.05
    assert SharedStep(step=0.5, vectors=0).quantise("bias", np.array([0.3])) is None
    assert grid.quantise("weight", np.array([[0.3, -0.6, 0.0]])).levels.tolist() == [[1, -1, 0]]  # type: ignore[union-attr]
    assert grid.quantise("weight", np.array([[1e6]])) is None
    empty = grid.quantise("weight", np.zeros((0, 3)))
    assert empty is not None
    assert empty.levels.shape == (0, 3)


def test_bad_options_are_refused(network: list[ExactTensor]) -> None:
    with pytest.raises(ValueError, match="error=1"):
        SharedStep.at_error(network, 1.0)
    with pytest.raises(ValueError, match="step=0"):
        SharedStep(step=0.0)
    with pytest.raises(ValueError, match="'bad' has numbers that are not finite"):
        SharedStep.at_error([exact("bad", np.array([[1.0, np.nan]]))])
    assert SharedStep.at_error([]).step == 1.0
