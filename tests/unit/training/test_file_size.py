"""How many weights fit into a file."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ellzero.archive.load import load_file
from ellzero.archive.save import save_model
from ellzero.params import count_nonzeros, everything, select_parameters
from ellzero.quantise.as_stored import as_stored
from ellzero.quantise.grids import LogGrid, Quantiser, UniformGrid
from ellzero.targets import Bytes
from ellzero.training._sparsify import _warn_of_fitting
from ellzero.training.batches import classification_error, classification_loss
from ellzero.training.file_size import (
    Named,
    PackingCost,
    cell_shares,
    coded_bytes,
    expected_nonzeros,
    good_ratio,
    magnitudes_of,
    packing_cost,
    prune_smallest_to_fit_,
    weight_bits,
)
from ellzero.training.recipe import Recipe
from ellzero.training.task import Task


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def test_as_many_weights_stay_as_fit() -> None:
    network = model()
    params = select_parameters(network, everything)
    quantiser = Named(names=list(params), grid=LogGrid())
    order = torch.cat([p.detach().abs().flatten() for p in params.values()]).sort(descending=True).values

    left = prune_smallest_to_fit_(params, magnitudes_of(params), lambda: coded_bytes(network, quantiser), 500)

    assert left == count_nonzeros(network)
    assert 480 < coded_bytes(network, quantiser) <= 500
    # They are the largest, and a few more would be too many: sizes rise with the count but for a byte or five.
    assert min(float(p[p != 0].detach().abs().min()) for p in params.values()) == float(order[left - 1])
    more = model()
    for p in more.parameters():
        p.data[p.abs() < order[left + 40]] = 0
    assert coded_bytes(more, quantiser) > 500


def test_what_fits_already_is_left_alone_and_what_never_fits_is_refused() -> None:
    network = model()
    params = select_parameters(network, everything)
    before = {name: p.detach().clone() for name, p in params.items()}
    assert prune_smallest_to_fit_(params, magnitudes_of(params), lambda: coded_bytes(network, None), 1 << 20) == count_nonzeros(network)
    with pytest.raises(ValueError, match="without any weight it takes"):
        prune_smallest_to_fit_(params, magnitudes_of(params), lambda: coded_bytes(network, None), 5)
    assert all(torch.equal(before[name], p.detach()) for name, p in params.items())


def test_the_first_guess_grows_with_the_file_and_is_no_more_than_half_of_all() -> None:
    guesses = [expected_nonzeros(count, [(300, 784), (100, 300)]) for count in (100, 2000, 4000, 10**9)]
    assert guesses == sorted(guesses)
    assert 1200 < guesses[1] < 2400
    assert guesses[-1] <= 1.1 * (300 * 784 + 100 * 300) / 2 + 1
    assert expected_nonzeros(1, [(3, 3)]) >= 1
    with pytest.raises(ValueError, match="at least a byte"):
        Bytes(0)


def test_only_named_tensors_are_moved_to_the_grid() -> None:
    network = model()
    assert coded_bytes(network, Named(names=["0.weight"])) > coded_bytes(network, Named(names=list(dict(network.named_parameters()))))
    assert coded_bytes(network, Named(names=[])) == coded_bytes(network, None)


def test_a_weight_costs_less_where_many_others_are() -> None:
    alive = torch.zeros(20, 30, dtype=torch.bool)
    alive[:4, :6] = True
    alive[10, 20] = True
    bits = weight_bits(alive)
    assert bits.shape == alive.shape
    assert float(bits[0, 0]) < float(bits[10, 0]) < float(bits[10, 20])
    assert float(bits.min()) >= 4.0


def test_shares_of_cells_are_those_of_row_and_column_in_float64() -> None:
    """Of eight cells three are used: 3.5 / 9 of all, and so much is added to the counts of each row and column."""
    shares = cell_shares(torch.tensor([[True, True, False, False], [True, False, False, False]]))
    of_all = 3.5 / 9
    rows = [(2 + of_all) / 5, (1 + of_all) / 5]
    columns = [(2 + of_all) / 3, (1 + of_all) / 3, of_all / 3, of_all / 3]
    expected = torch.tensor([[row * column / of_all for column in columns] for row in rows], dtype=torch.float64)
    assert shares.dtype == torch.float64
    torch.testing.assert_close(shares, expected, rtol=1e-14, atol=0)


def test_to_prune_the_dear_saves_more_than_to_prune_the_cheap() -> None:
    torch.manual_seed(0)
    weight = torch.randn(100, 200)
    density = torch.rand(100, 1) ** 4 * torch.rand(1, 200) ** 4
    weight[torch.rand(100, 200) > density] = 0
    bits = weight_bits(weight != 0)

    def without(order: torch.Tensor) -> int:
        layer = nn.Linear(200, 100, bias=False)
        with torch.no_grad():
            layer.weight.copy_(weight)
            places = (weight != 0).flatten().nonzero().flatten()
            layer.weight.view(-1)[places[order[:100]]] = 0
        return coded_bytes(layer, LogGrid())

    order = bits[weight != 0].argsort(stable=True)
    assert without(order.flip(0)) < 0.95 * without(order)


class Fragile(nn.Module):
    """Two classes by the small difference of two large weights, which a coarse grid does not keep."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 2)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[10.0], [10.9]]))
            self.linear.bias.copy_(torch.tensor([5.0, 5.0]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs)


def signs(count: int) -> list[tuple[Tensor, Tensor]]:
    inputs = torch.randn(count, 1, generator=torch.Generator().manual_seed(0))
    return [(inputs, (inputs[:, 0] > 0).long())]


def test_what_packing_costs_is_measured_and_a_grid_that_is_fine_enough_is_found() -> None:
    network, data = Fragile(), signs(1000)
    coarse = packing_cost(network, as_stored(network, LogGrid(1.3)), classification_error, data)
    assert coarse.error == 0
    assert coarse.points == pytest.approx(100 * coarse.errors / 1000) == 100 * coarse.packed_error
    assert coarse.points > 40
    assert coarse.too_high
    ratio = good_ratio(network, classification_error, data)
    assert ratio is not None
    assert not packing_cost(network, as_stored(network, LogGrid(ratio)), classification_error, data).too_high
    with torch.no_grad():
        network.linear.weight[1] = 10.01
    assert good_ratio(network, classification_error, data) is None


@pytest.mark.parametrize(
    ("errors", "count", "too_high"), [(6, 1000, True), (4, 1000, False), (2, 100, False), (3, 100, True), (-9, 100, False)]
)
def test_a_cost_is_too_high_above_half_a_point_where_it_is_no_chance(errors: int, count: int, too_high: bool) -> None:
    assert PackingCost(error=0.1, packed_error=0.1 + errors / count, errors=errors).too_high is too_high


def test_a_last_pruning_that_costs_too_much_is_warned_of() -> None:
    trained, fitted = Fragile(), Fragile()
    task = Task(
        loss_fn=classification_loss,
        train=signs(100),
        valid=signs(1000),
        accept_on=signs(100),
        error_fn=classification_error,
        recipe=Recipe(),
        seed=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_fitting(trained, fitted, task)
        _warn_of_fitting(trained, fitted, replace(task, valid=None))
    with torch.no_grad():
        fitted.linear.weight[1] = 0
    with pytest.warns(UserWarning, match=r"costs \d+\.\d\d points of validation error .*more than 0\.5: ask for more bytes"):
        _warn_of_fitting(trained, fitted, task)


@pytest.mark.parametrize("grid", [LogGrid(1.3), UniformGrid(error=0.1, vectors=0), Named(names=["0.weight"])])
def test_a_network_as_stored_is_what_its_file_gives_back(grid: Quantiser, tmp_path: Path) -> None:
    network = model().append(nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 3).half()))
    save_model(network, tmp_path / "a.l0", quantise=grid)
    stored = as_stored(network, grid).state_dict()
    assert all(torch.equal(stored[name], tensor) for name, tensor in load_file(tmp_path / "a.l0").items())
    assert not torch.equal(stored["0.weight"], network.state_dict()["0.weight"])
