"""What a layer of layerwise pruning owes the others: prices in order, a budget of all zeros, fits held near the given weights."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from ellzero.pruning import Allocation, layerwise_prune_, regression as regression_module
from ellzero.pruning.layer_problem import LayerProblem
from ellzero.pruning.regression import Regression, _draw_positions, add_up_, weights_and_bias, write_weights_and_bias_
from ellzero.surgery.calls import call_model


@pytest.fixture(autouse=True)
def _drawn_weights() -> Iterator[None]:
    """Layers draw their weights from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def seen(layer: nn.Linear, inputs: Tensor, targets: Regression | None = None) -> Regression:
    """Adds up the regression of a layer over some inputs, to its own outputs or to those of another network."""
    regression = Regression.empty("", layer)
    add_up_([regression], layer, [inputs], forward=call_model, targets=None if targets is None else [targets])
    return regression


def problem(layer: nn.Linear, inputs: Tensor, damping: float = 1e-9) -> LayerProblem:
    """States the problem of a layer whose weights may be pruned and whose bias may not."""
    columns = weights_and_bias(layer).shape[1]
    return LayerProblem(seen(layer, inputs), torch.arange(columns) < layer.in_features, damping, relative=False)


@pytest.mark.parametrize("damping", [1e-6, 1.0, 1e6])
def test_damping_holds_the_fit_near_the_given_weights(damping: float, generator: torch.Generator):
    """Ridge regression towards the weights chosen before, by an augmented system, on inputs that differ from the dense network's."""
    layer = nn.Linear(6, 4, bias=False).double()
    dense = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    now = dense + 0.5 * torch.randn(50, 6, generator=generator, dtype=torch.float64)
    outputs = layer(dense).detach()
    stated = problem(layer, dense)
    stated.choose_(torch.tensor([2, 1, 0, 3]))
    given = stated.solution.clone()
    stated.refit_(seen(layer, now, stated.regression), damping)
    strength = (damping * float((now.T @ now).diagonal().mean())) ** 0.5
    for row, mask in enumerate(stated.mask):
        design = torch.cat([now[:, mask], strength * torch.eye(int(mask.sum()), dtype=torch.float64)])
        target = torch.cat([outputs[:, row], strength * given[row, mask]])
        expected = torch.linalg.lstsq(design, target[:, None]).solution[:, 0]
        torch.testing.assert_close(stated.solution[row, mask], expected, rtol=1e-6, atol=1e-9)
        assert not stated.solution[row, ~mask].any()
    if damping == 1e6:
        torch.testing.assert_close(stated.solution, given, rtol=1e-4, atol=1e-4)


def test_a_removal_that_is_free_after_a_dear_one_costs_what_both_do(generator: torch.Generator):
    """Two inputs that are nearly one, with opposite weights: without either the other is worth nothing, but the first costs."""
    layer = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -1.0]]))
    x = torch.randn(100, 1, generator=generator, dtype=torch.float64)
    inputs = torch.cat([x, x + 0.1 * torch.randn(100, 1, generator=generator, dtype=torch.float64)], 1)
    stated = problem(layer, inputs)
    first, second = stated.elimination.cost[0].tolist()
    assert second < 0.1 * first
    assert stated.prices[0].tolist() == [first, first]
    # Both weights together are worth the error that is left without them, so below half of that neither goes.
    result = layerwise_prune_(layer, inputs, alpha=0.3 * first, damping=1e-9)
    assert result.zeros == 0
    torch.testing.assert_close(layer.weight.detach(), torch.tensor([[1.0, -1.0]], dtype=torch.float64))


class Ignored(nn.Module):
    """Two layers, of whose outputs the third is of no use to anybody."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 6, bias=False), nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))[:, :2]


def test_zeros_found_by_random_gradients_count_towards_the_number_asked_for(generator: torch.Generator):
    model = Ignored()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.sign() * (0.2 + weight.abs()))
        model.last.weight[:, 5] *= 1e-5
        model.first.weight[0, :7] *= 1e-3
        model.first.weight[1, :6] *= 1e-3
    result = layerwise_prune_(model, torch.randn(300, 8, generator=generator), zeros=16 / 66, allocate=Allocation.TOGETHER)
    # Three weights from the sixth unit go by their price, five more of the useless output, and the sixth unit's eight: that is all.
    # The thirteen small weights of the first layer were among the sixteen cheapest before, and stay.
    masks = result.masks
    assert not masks["last.weight"][:, 5].any()
    assert not masks["last.weight"][2].any()
    assert not masks["first.weight"][5].any()
    assert result.zeros == 16 == sum(int((~mask).sum()) for mask in masks.values())


def test_rows_of_dead_units_cost_nothing_and_count_as_no_error(generator: torch.Generator):
    layer = nn.Linear(6, 3).double()
    stated = problem(layer, torch.randn(80, 6, generator=generator, dtype=torch.float64))
    before = copy.deepcopy((stated.prices, stated.dense))
    dead = torch.tensor([False, True, False])
    stated.free_(dead)
    for now, then in zip((stated.prices, stated.dense), before, strict=True):
        assert torch.equal(now[~dead], then[~dead])
        assert then[dead].all()
        assert not now[dead].any()
    stated.choose_(torch.tensor([0, 6, 0]))
    assert stated.relative_error < 1e-12
    assert not layer.weight[1].any()
    assert not layer.bias[1].any()


def test_weights_that_least_squares_made_0_are_kept_and_others_follow_the_masks(generator: torch.Generator):
    """Random gradient masks are of what is not 0; a bias that happens to be 0 may be needed after the layers before have changed."""
    layer = nn.Linear(6, 3).double()
    with torch.no_grad():
        layer.bias.zero_()
    inputs = torch.randn(80, 6, generator=generator, dtype=torch.float64)
    stated = problem(layer, inputs)
    masks = {"weight": torch.ones(3, 6, dtype=torch.bool), "bias": torch.zeros(3, dtype=torch.bool)}
    masks["weight"][1, 2] = False
    stated.drop_(masks)
    assert stated.masks()["bias"].all()
    assert torch.equal(stated.masks()["weight"], masks["weight"])
    assert not layer.weight[1, 2].any()
    # The inputs of the pruned network lie 1 higher, which only biases can make up for.
    stated.refit_(seen(layer, inputs + 1.0, stated.regression), 1e-9)
    torch.testing.assert_close(layer.bias[0].detach(), -layer.weight[0].sum().detach(), rtol=1e-5, atol=1e-5)


def test_a_layer_is_cut_where_a_whole_input_or_output_has_lost_its_weights(generator: torch.Generator):
    layer = nn.Conv2d(2, 3, 2)
    regression = Regression.empty("", layer)
    add_up_([regression], layer, [torch.randn(20, 2, 4, 4, generator=generator)], forward=call_model)
    stated = LayerProblem(regression, torch.arange(9) < 8, 1e-6, relative=False)
    assert not stated.cut
    stated.mask[:, [0, 1, 2, 7]] = False  # three of the four taps of the first input channel, one of the second
    stated.mask[0, :7] = False
    assert stated.mask[0, 7:].tolist() == [False, True]
    stated.mask[0, 3] = True
    assert not stated.cut
    for rows, columns in ((slice(None), slice(4)), (0, slice(8))):
        mask = stated.mask.clone()
        stated.mask[rows, columns] = False
        assert stated.cut
        stated.mask = mask


def test_positions_are_drawn_where_the_products_are():
    regression = Regression.empty("", nn.Linear(3, 2, device="meta"))
    drawn = [_draw_positions(count, regression, 1, 2, torch.Generator().manual_seed(0)) for count in (1, 100)]
    assert [positions.device.type for positions in drawn] == ["meta", "meta"]


def test_an_output_that_is_given_up_counts_as_an_error(generator: torch.Generator):
    """Also where random gradients find afterwards that nothing leads to it."""
    model = nn.Sequential(nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False)).double()
    with torch.no_grad():
        model[2].weight[2] *= 0.01
    inputs = torch.randn(100, 8, generator=generator, dtype=torch.float64)
    outputs = model(inputs).detach()
    result = layerwise_prune_(model, inputs, zeros=1 / 3, damping=1e-9)
    assert not result.masks["2.weight"][2].any()
    assert result.masks["2.weight"][:2].all()
    expected = float(outputs[:, 2].square().sum() / outputs.square().sum())
    assert result.layers[1].relative_error == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_read_from_a_layer_are_not_those_written_to_it(dtype: torch.dtype):
    layer = nn.Linear(3, 2, bias=False).to(dtype)
    read = weights_and_bias(layer)
    before = read.clone()
    write_weights_and_bias_(layer, torch.zeros_like(read))
    assert torch.equal(read, before)


def test_what_nothing_reads_any_more_goes_at_a_price_too(generator: torch.Generator):
    """The last layer's weights from half of the units are not worth the price, so that those units go whatever they cost."""
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[2].weight[:, 3:] *= 1e-5
    result = layerwise_prune_(model, torch.randn(200, 8, generator=generator), alpha=1e-4)
    assert not result.masks["2.weight"][:, 3:].any()
    assert not result.masks["0.weight"][3:].any()
    assert result.masks["0.weight"][:3].all()
    assert not model[0].weight[3:].any()
    assert not model[0].bias[3:].any()


@pytest.mark.parametrize(("entries", "pieces"), [(1, [1] * 5), (1 << 23, [5])])
def test_products_are_added_up_in_pieces(entries: int, pieces: list[int], monkeypatch: pytest.MonkeyPatch, generator: torch.Generator):
    """A piece of a batch is unfolded at a time, so that memory is bounded."""
    seen: list[int] = []

    def watched(layer: nn.Module, inputs: Tensor) -> Tensor:
        seen.append(len(inputs))
        return original(layer, inputs)  # type: ignore[arg-type]

    original = regression_module.regressors
    monkeypatch.setattr(regression_module, "regressors", watched)
    monkeypatch.setattr(regression_module, "_PIECE_ENTRIES", entries)
    layer = nn.Conv2d(2, 3, 2)
    add_up_([Regression.empty("", layer)], layer, [torch.randn(5, 2, 4, 4, generator=generator)], forward=call_model)
    assert seen == pieces
