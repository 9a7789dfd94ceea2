import copy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ellzero.surgery import SelectedLinear, compose, expand_, fold, fold_, shrink, shrink_to
from sparse_networks import STRUCTURES, Structure, nonzeros, perceptron, sparse

structures = st.sampled_from(STRUCTURES)
densities = st.sampled_from([0.0, 0.03, 0.1, 0.25, 0.5])
seeds = st.integers(0, 10_000)


def assert_same_function(found: nn.Module, expected: nn.Module, example: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    for batch in (example, torch.randn(5, *example.shape[1:], generator=generator, dtype=example.dtype) * 3):
        torch.testing.assert_close(found(batch), expected(batch), rtol=1e-12, atol=1e-12)


@given(structures, densities, seeds, st.booleans())
def test_answers_as_the_original(structure: Structure, density: float, seed: int, inputs: bool) -> None:
    model, example = sparse(structure, density, seed)
    before = copy.deepcopy(model.state_dict())
    small = shrink(model, example, inputs=inputs).model
    assert_same_function(small, model, example)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert list(small.state_dict()) == list(before)


@settings(max_examples=15)
@given(structures, densities, seeds, st.booleans())
def test_a_second_time_finds_nothing_more(structure: Structure, density: float, seed: int, inputs: bool) -> None:
    model, example = sparse(structure, density, seed)
    assert not shrink(shrink(model, example, inputs=inputs).model, example, inputs=inputs).kept


@settings(max_examples=15)
@given(structures, densities, seeds, st.booleans())
def test_expanding_gives_the_folded_model(structure: Structure, density: float, seed: int, inputs: bool) -> None:
    model, example = sparse(structure, density, seed)
    shrunk = shrink(model, example, inputs=inputs)
    full = copy.deepcopy(model)
    expand_(full, shrunk.model, shrunk.kept)
    folded = fold(model, example)
    assert_same_function(full, folded, example)
    assert nonzeros(full) == nonzeros(folded) == nonzeros(shrunk.model)
    for (name, found), expected in zip(full.named_parameters(), folded.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=name)


@settings(max_examples=15)
@given(structures, densities, seeds, st.booleans())
def test_the_same_sizes_come_back_from_kept(structure: Structure, density: float, seed: int, inputs: bool) -> None:
    model, example = sparse(structure, density, seed)
    shrunk = shrink(model, example, inputs=inputs)
    again = shrink_to(structure.build().double().eval() if "conv" not in structure.name else model, shrunk.kept)
    again.load_state_dict(shrunk.model.state_dict())
    assert repr(again) == repr(shrunk.model)
    torch.testing.assert_close(again(example), shrunk.model(example), rtol=0, atol=0)


@settings(max_examples=15)
@given(structures, seeds, st.booleans())
def test_kept_of_repeated_shrinking_refers_to_the_first_model(structure: Structure, seed: int, inputs: bool) -> None:
    model, example = sparse(structure, 0.5, seed)
    first = shrink(model, example, inputs=inputs)
    middle = copy.deepcopy(first.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in middle.parameters():
            if parameter.ndim > 1:
                parameter.mul_(torch.rand(parameter.shape, generator=generator) < 0.4)
                parameter[torch.rand(len(parameter), generator=generator) < 0.4] = 0
    second = shrink(middle, example, inputs=inputs)
    kept = compose(first.kept, second.kept)
    # The order of hidden units changes no function, so the indices themselves are compared too.
    at_once, in_turn = shrink_to(model, kept), shrink_to(shrink_to(model, first.kept), second.kept)
    torch.testing.assert_close(at_once.state_dict(), in_turn.state_dict(), rtol=0, atol=0)
    full = copy.deepcopy(model)
    expand_(full, second.model, kept)
    assert_same_function(full, middle, example)
    again = shrink_to(model, kept)
    again.load_state_dict(second.model.state_dict())
    assert_same_function(again, middle, example)


def test_chains_of_dead_units_are_resolved() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with torch.no_grad():
        model[6].weight[:, 1:] = 0  # the last hidden layer: only unit 0 is read
        model[4].weight[0, 2:] = 0  # which reads units 0 and 1
        model[2].weight[0] = 0  # of which 0 is constant
    example = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    small = shrink(model, example).model
    assert [small[i].out_features for i in (0, 2, 4, 6)] == [5, 1, 1, 2]
    assert_same_function(small, model, example)


def test_dead_inputs_go_only_on_request() -> None:
    model, example = sparse(Structure("", lambda: perceptron(nn.ReLU)), 0.1, 1)
    layer = shrink(model, example).model[1]
    assert type(layer) is nn.Linear
    assert layer.in_features == 128
    shrunk = shrink(model, example, inputs=True)
    selected = shrunk.model[1]
    assert isinstance(selected, SelectedLinear)
    assert (selected.weight != 0).any(0).all()
    assert selected.features.tolist() == torch.nonzero((fold(model, example)[1].weight != 0).any(0)).flatten().tolist()
    (indices,) = shrunk.kept["1.features"]
    assert torch.equal(indices, selected.features)


def test_everything_dead_keeps_a_channel_everywhere() -> None:
    for structure in STRUCTURES:
        model, example = sparse(structure, 0.0, 3)
        small = shrink(model, example, inputs=True).model
        assert all(parameter.numel() > 0 for parameter in small.parameters())
        assert_same_function(small, model, example)


def test_a_residual_keeps_a_channel_that_either_branch_needs() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
            self.side = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.a(x)
            return self.head(a + self.b(x)) + self.side(a)

    model = Sum().double()
    with torch.no_grad():
        model.head.weight[:, 1:] = 0  # the sum is read in channel 0 only
        model.side.weight[:, 0] = 0
        model.side.weight[:, 2:] = 0  # one branch is read in channel 1 too
    example = torch.randn(2, 3, dtype=torch.float64)
    shrunk = shrink(model, example)
    assert torch.equal(shrunk.kept["b.weight"][0], torch.tensor([0, 1]))
    assert_same_function(shrunk.model, model, example)


def test_one_output_channel_is_not_depthwise() -> None:  # story 39
    model = nn.Sequential(
        nn.Conv2d(4, 1, 1), nn.ReLU(), nn.Conv2d(1, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 3, groups=3), nn.Flatten(), nn.Linear(3, 2)
    ).double()
    with torch.no_grad():
        model[6].weight[:, 1] = 0
    example = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    small = shrink(model, example).model
    assert (small[0].in_channels, small[0].out_channels, small[0].groups) == (4, 1, 1)
    assert (small[4].in_channels, small[4].out_channels, small[4].groups) == (2, 2, 2)
    assert_same_function(small, model, example)


def test_a_view_with_a_written_number_of_features_keeps_the_channels() -> None:
    class Written(nn.Module):
        def __init__(self, written: bool) -> None:
            super().__init__()
            self.conv, self.head, self.written = nn.Conv2d(1, 4, 3), nn.Linear(4, 2), written

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.conv(x))
            return self.head(x.view(-1, 4) if self.written else x.reshape(len(x), -1))

    example = torch.randn(2, 1, 3, 3, dtype=torch.float64)
    for written, channels in ((True, 4), (False, 2)):
        model = Written(written).double()
        with torch.no_grad():
            model.head.weight[:, :2] = 0
        small = shrink(model, example).model
        assert small.conv.out_channels == channels
        assert_same_function(small, model, example)


def test_flags_and_modes_stay() -> None:
    model, example = sparse(STRUCTURES[3], 0.2, 5)
    model[0].weight.requires_grad_(False)
    model.train()
    model[1].eval()
    small = shrink(model, example).model
    assert [module.training for module in small.modules()] == [module.training for module in model.modules()]
    assert [p.requires_grad for p in small.parameters()] == [p.requires_grad for p in model.parameters()]
    assert all(parameter.grad is None for parameter in small.parameters())
    half, example = sparse(STRUCTURES[0], 0.2, 5, torch.float32)
    assert {p.dtype for p in shrink(half, example).model.parameters()} == {torch.float32}


def test_the_last_layer_and_the_input_stay() -> None:
    model = nn.Linear(4, 3)
    nn.init.zeros_(model.weight)
    shrunk = shrink(model, torch.randn(2, 4))
    assert shrunk.kept == {}
    assert shrink(model, torch.randn(2, 4), inputs=True).kept.keys() == {"weight", "features"}


def test_what_code_does_beside_its_trace_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    with torch.no_grad():
        model[0].weight[0] = 0
        model[0].bias[0] = 1
    example = torch.randn(2, 3, dtype=torch.float64)
    before = copy.deepcopy(model.state_dict())
    # A hook that changes what the second layer reads: the constant 1 arrives as 2.
    model[1].register_forward_hook(lambda module, args, output: output * (2 if len(output.shape) == 2 else 1))
    with pytest.raises(RuntimeError, match="differ"):
        shrink(model, example)
    with pytest.raises(RuntimeError, match="differ"):
        fold_(model, example)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_kept_of_another_model_is_refused() -> None:
    model, example = sparse(STRUCTURES[0], 0.1, 1)
    shrunk = shrink(model, example)
    with pytest.raises(ValueError, match="kept names"):
        shrink_to(nn.Sequential(nn.ReLU(), nn.ReLU()), shrunk.kept)
    with pytest.raises(ValueError, match="kept belongs to another model"):
        expand_(copy.deepcopy(model), model, shrunk.kept)
