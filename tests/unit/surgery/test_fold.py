import copy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ellzero.surgery import fold, fold_
from ellzero.surgery.analysis import Analysis
from sparse_networks import STRUCTURES, Structure, nonzeros, sparse

structures = st.sampled_from(STRUCTURES)
densities = st.sampled_from([0.0, 0.03, 0.1, 0.25, 0.5])
seeds = st.integers(0, 10_000)


@given(structures, densities, seeds)
def test_function_stays_and_nonzeros_never_grow(structure: Structure, density: float, seed: int) -> None:
    model, example = sparse(structure, density, seed)
    expected, before = model(example), copy.deepcopy(model)
    folded = fold_(model, example)
    torch.testing.assert_close(model(example), expected, rtol=1e-12, atol=1e-12)
    assert folded.removed == nonzeros(before) - nonzeros(model) >= 0
    for (name, old), new in zip(before.named_parameters(), model.parameters(), strict=True):
        gone = (old != 0) & (new == 0)
        assert torch.equal(folded.zeroed.get(name, torch.zeros_like(gone)), gone)
        changed = (old != new) & (new != 0)
        assert torch.equal(folded.absorbed.get(name, torch.zeros_like(changed)), changed)
        assert old.ndim == 1 or not changed.any()


@settings(max_examples=20)
@given(structures, densities, seeds, st.sampled_from([torch.float32, torch.float64]))
def test_folding_twice_changes_nothing(structure: Structure, density: float, seed: int, dtype: torch.dtype) -> None:
    model, example = sparse(structure, density, seed, dtype)
    once = fold(model, example)
    again = fold_(twice := copy.deepcopy(once), example)
    assert again.removed == 0
    assert not again.zeroed
    assert not again.absorbed
    torch.testing.assert_close(twice.state_dict(), once.state_dict(), rtol=0, atol=0)


@given(st.sampled_from([nn.ReLU, nn.Sigmoid]), densities, seeds)
def test_no_dead_or_constant_unit_remains_in_a_perceptron(activation: type[nn.Module], density: float, seed: int) -> None:
    model, example = sparse(STRUCTURES[0 if activation is nn.ReLU else 1], density, seed)
    layers = [module for module in fold(model, example) if isinstance(module, nn.Linear)]
    # Reachability by products of boolean matrices, written without the analysis.
    reaches = torch.ones(layers[-1].out_features, dtype=torch.bool)
    for layer, before in zip(layers[:0:-1], layers[-2::-1], strict=True):
        reaches = ((layer.weight != 0) & reaches[:, None]).any(0)
        hears = (before.weight != 0).any(1)
        assert torch.equal(reaches, hears)  # hidden units that are read hear something, all others nothing
        assert not before.bias[~hears].any()


@settings(max_examples=20)
@given(structures, densities, seeds)
def test_no_unit_that_reaches_nothing_has_weights(structure: Structure, density: float, seed: int) -> None:
    model, example = sparse(structure, density, seed)
    folded = fold(model, example)
    assert all(torch.equal(change, dict(folded.named_parameters())[name]) for name, change in _changes(folded, example))


def _changes(model: nn.Module, example: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    names = dict(model.named_parameters())
    return [(name, new) for operation in Analysis(model, example).operations for name, new in operation.folded().items() if name in names]


def test_constants_pass_through_their_activations() -> None:
    for activation in (
        nn.ReLU(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.GELU(),
        nn.SiLU(),
        nn.LeakyReLU(0.1),
        nn.ELU(),
        nn.Hardswish(),
        nn.Softplus(),
    ):
        model = nn.Sequential(nn.Linear(2, 3), activation, nn.Linear(3, 2)).double()
        with torch.no_grad():
            model[0].weight[1] = 0
        value = activation(model[0].bias[1])
        expected = model[2].bias + model[2].weight[:, 1] * value
        folded = fold(model, torch.randn(2, 2, dtype=torch.float64))
        torch.testing.assert_close(folded[2].bias, expected, rtol=1e-14, atol=1e-14)
        assert folded[0].bias[1] == 0
        assert not folded[2].weight[:, 1].any()


def _padded(padding: int, bias: float, mode: str = "zeros") -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3, padding=padding, padding_mode=mode)).double()
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = bias
    return model, torch.randn(2, 1, 6, 6, dtype=torch.float64)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_a_padded_convolution_absorbs_the_constant_zero_only(mode: str) -> None:
    model, example = _padded(1, 0.5, mode)
    folded = fold(model, example)
    torch.testing.assert_close(folded.state_dict(), model.state_dict(), rtol=0, atol=0)
    model, example = _padded(1, -0.5, mode)  # 0 behind the ReLU
    folded = fold(model, example)
    assert not folded[2].weight[:, 1].any()
    assert folded[0].bias[1] == 0
    model, example = _padded(0, 0.5, mode)
    assert not fold(model, example)[2].weight[:, 1].any()


def test_padding_by_name() -> None:
    for padding, absorbs in (("valid", True), ("same", False)):
        model, example = _padded(0, 0.5)
        model[2] = nn.Conv2d(3, 2, 3, padding=padding).double()
        assert fold(model, example)[2].weight[:, 1].any() != absorbs


def test_a_layer_without_bias_keeps_units_that_say_something() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight[1] = 0
        model[0].bias[1] = 0  # a half behind the sigmoid
    example = torch.randn(2, 2, dtype=torch.float64)
    torch.testing.assert_close(fold(model, example).state_dict(), model.state_dict(), rtol=0, atol=0)
    with torch.no_grad():
        model[2].weight[0, [0, 2]] = 0  # now a hidden unit hears constants alone, and the last layer has a bias
    folded = fold(model, example)
    assert not folded[4].weight[0, 0]
    assert not folded[2].weight[0].any()
    torch.testing.assert_close(folded(example), model(example), rtol=1e-12, atol=1e-12)


def test_batch_normalisation_takes_constants_over() -> None:
    model = nn.Sequential(nn.Conv1d(1, 3, 1), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 2, 3, padding=1)).double()
    with torch.no_grad():
        model[0].weight[1] = 0
        model[1].weight[2] = 0  # a pruned scale makes the channel constant, too
        model[1].bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
        model[1].running_mean.fill_(0.3)
    example = torch.randn(2, 1, 5, dtype=torch.float64)
    model.eval()
    folded = fold(model, example)
    assert not folded[0].weight[1:].any()
    assert not folded[0].bias[1:].any()
    assert not folded[1].weight[1:].any()
    expected = (model[0].bias[1] - 0.3) / (1 + model[1].eps) ** 0.5 + 2
    torch.testing.assert_close(folded[1].bias[1], expected)
    torch.testing.assert_close(folded(example), model(example), rtol=1e-12, atol=1e-12)


def test_average_pooling_with_padding_passes_zero_only() -> None:
    for pool, absorbs in ((nn.AvgPool1d(2), True), (nn.AvgPool1d(2, padding=1), False), (nn.MaxPool1d(2, padding=1), True)):
        model = nn.Sequential(nn.Conv1d(1, 3, 1), nn.Tanh(), pool, nn.Conv1d(3, 2, 1)).double()
        with torch.no_grad():
            model[0].weight[1] = 0
        folded = fold(model, torch.randn(2, 1, 6, dtype=torch.float64))
        assert folded[3].weight[:, 1].any() != absorbs


def test_in_place_activations_change_what_later_readers_see() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            z = torch.nn.functional.relu(y, inplace=True)
            return self.second(y + z)  # y is rectified too

    model = Twice().double()
    with torch.no_grad():
        model.first.weight[1] = 0
        model.first.bias[1] = -1
        model.first.weight[2] = 0
        model.first.bias[2] = 1
    expected = model.second.bias + 2 * model.second.weight[:, 2]
    folded = fold(model, torch.randn(2, 2, dtype=torch.float64))
    torch.testing.assert_close(folded.second.bias, expected)
    assert not folded.second.weight[:, 1:].any()


def test_tied_layers_are_left_alone() -> None:
    tied = nn.Linear(3, 3)
    other = nn.Linear(3, 3)
    other.weight = tied.weight
    for layers in ((tied, tied), (tied, other)):
        model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.Linear(3, 1)).double()
        with torch.no_grad():
            tied.weight[1] = 0
            model[6].weight[0, 0] = 0  # the second use's unit 0 is dead, the first use's is not
        example = torch.randn(2, 2, dtype=torch.float64)
        folded = fold(model, example)
        torch.testing.assert_close(folded[2].state_dict(), model[2].state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(folded(example), model(example), rtol=1e-12, atol=1e-12)


def test_gradients_modes_and_randomness_are_left_alone() -> None:
    model, example = sparse(STRUCTURES[3], 0.2, 5)
    model.train()
    state = torch.get_rng_state()
    kept = example.clone()
    with torch.no_grad():
        statistics = model[1].running_mean.clone()
    fold(model, example)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(example, kept)
    assert torch.equal(model[1].running_mean, statistics)
    assert all(module.training for module in model.modules())
    assert fold(model, example)[0].weight.grad is None
