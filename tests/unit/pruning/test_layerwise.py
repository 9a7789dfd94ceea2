import copy
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from ellzero.data import Part, load_cifar10, standardised
from ellzero.models import MLP, ResNet
from ellzero.models.resnet import Block
from ellzero.params import apply_masks_, everything, select_parameters
from ellzero.pruning import Allocation, layerwise_prune_, magnitude_masks
from ellzero.pruning.layer_problem import cheapest
from ellzero.pruning.regression import Regression, add_up_, regressors, weights_and_bias, write_weights_and_bias_
from ellzero.surgery.calls import call_model
from ellzero.surgery.layer_matrices import AnyMatrixLayer, Transposed, groups_of, output_columns
from ellzero.training.recalibrate import recalibrate_batchnorm


@pytest.fixture(autouse=True)
def _drawn_weights() -> Iterator[None]:
    """Layers draw their weights from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def correlated(generator: torch.Generator, samples: int, *shape: int) -> torch.Tensor:
    """Inputs in which neighbours are alike, as they are in images."""
    x = torch.randn(samples, *shape, generator=generator)
    return x + 0.7 * x.roll(1, -1) + 0.5 * x.roll(2, -1)


CONVOLUTIONS = [
    nn.Conv2d(3, 4, 3, padding=1),
    nn.Conv2d(3, 4, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2), bias=False),
    nn.Conv2d(3, 4, 3, padding="same"),
    nn.Conv2d(3, 4, 3, padding=2, padding_mode="circular"),
    nn.Conv1d(3, 4, 3, stride=2, padding=1),
    nn.Conv2d(6, 4, 3, padding=1, groups=2),
    nn.Conv1d(4, 8, 3, groups=4, bias=False),
    nn.Conv3d(2, 4, (1, 2, 3), stride=(1, 2, 1), padding=1, dilation=(1, 1, 2)),
    nn.Conv3d(2, 4, 2, padding=1, padding_mode="replicate", groups=2),
    nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1),
    nn.ConvTranspose2d(4, 6, (2, 3), stride=(2, 1), padding=(0, 1), dilation=(2, 1), groups=2),
    nn.ConvTranspose2d(3, 4, 2, padding=2),
    nn.ConvTranspose3d(2, 4, 2, stride=2, groups=2, bias=False),
]
SPATIAL = (7, 6, 5)
"""Sizes of images, of which a layer takes as many as it has dimensions."""


@pytest.mark.parametrize("layer", [*CONVOLUTIONS, nn.Linear(6, 4), nn.Linear(6, 4, bias=False)], ids=str)
def test_a_layer_is_its_matrix_times_what_is_regressors(layer: nn.Module, generator: torch.Generator):
    assert isinstance(layer, AnyMatrixLayer)
    shapes = [(6,), (2, 3, 6)] if isinstance(layer, nn.Linear) else [(layer.in_channels, *SPATIAL[: len(layer.kernel_size)])]
    for shape in shapes:
        inputs = torch.randn(5, *shape, generator=generator)
        columns = regressors(layer, inputs)
        matrices = weights_and_bias(layer).float().unflatten(0, (groups_of(layer), -1))
        expected = output_columns(layer, layer(inputs).detach())
        torch.testing.assert_close((columns @ matrices.mT).mT.flatten(1, 2), expected, rtol=1e-4, atol=1e-5)
    before = copy.deepcopy(layer.state_dict())
    write_weights_and_bias_(layer, weights_and_bias(layer))
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_a_convolution_is_pruned_as_the_linear_layer_of_its_patches(generator: torch.Generator):
    convolution = nn.Conv2d(2, 3, 3, padding=1)
    inputs = correlated(generator, 40, 2, 5, 5)
    linear = nn.Linear(18, 3)
    write_weights_and_bias_(linear, weights_and_bias(convolution))
    patches = functional.unfold(inputs, 3, padding=1).mT.flatten(0, 1)
    options = {"zeros": 0.5, "allocate": Allocation.EVENLY, "per_feature": None}
    found, expected = layerwise_prune_(convolution, inputs, **options), layerwise_prune_(linear, patches, **options)
    assert torch.equal(found.masks["weight"].flatten(1), expected.masks["weight"])
    torch.testing.assert_close(weights_and_bias(convolution), weights_and_bias(linear), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("zeros", [0.3, 0.5, 0.8])
def test_a_layer_is_never_worse_than_by_magnitude_on_the_inputs_given(seeds: int, zeros: float):
    generator = torch.Generator().manual_seed(seeds)
    for bias in (False, True):
        layer = nn.Linear(20, 10, bias=bias)
        inputs = correlated(generator, 100, 20)
        dense = layer(inputs).detach()
        other = copy.deepcopy(layer)
        apply_masks_(select_parameters(other), magnitude_masks(other, keep=200 - round(200 * zeros)))
        result = layerwise_prune_(layer, inputs, zeros=zeros, allocate=Allocation.EVENLY, damping=1e-9)
        assert result.zeros == round(200 * zeros) == int((layer.weight == 0).sum())
        ours, theirs = (float((one(inputs) - dense).detach().square().sum()) for one in (layer, other))
        assert ours < 0.9 * theirs
        assert result.layers[0].relative_error == pytest.approx(ours / float(dense.square().sum()), rel=1e-3)


def test_where_fitted_magnitude_masks_are_better_they_are_taken():
    wins = 0
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        layer = nn.Linear(6, 1, bias=False).double()
        inputs = (torch.randn(6, 6, generator=generator) @ torch.randn(6, 30, generator=generator)).T.double()
        target = layer(inputs).detach()
        kept = magnitude_masks(layer, keep=3)["weight"]
        fitted = sum(
            float(np.square(inputs[:, mask].numpy() @ np.linalg.lstsq(inputs[:, mask].numpy(), y.numpy(), rcond=None)[0] - y.numpy()).sum())
            for mask, y in zip(kept, target.T, strict=True)
        )
        layerwise_prune_(layer, inputs, zeros=0.5, damping=1e-10)
        ours = float((layer(inputs) - target).detach().square().sum())
        assert ours <= fitted * (1 + 1e-6) + 1e-9
        wins += ours < 0.999 * fitted
    assert wins > 30


def test_the_gates_of_a_tiny_layer_are_those_of_eq_38_at_their_price():
    # One row, four weights: every mask is enumerated, and alpha decides between error and weights.
    generator = torch.Generator().manual_seed(5)
    layer = nn.Linear(4, 1, bias=False).double()
    inputs = correlated(generator, 30, 4).double()
    target = layer(inputs).detach()
    masks = [[bool(number >> bit & 1) for bit in range(4)] for number in range(16)]
    errors = []
    for mask in masks:
        design = (inputs * torch.tensor(mask)).numpy()
        solution = np.linalg.lstsq(design, target.numpy(), rcond=None)[0]
        errors.append(float(((design @ solution - target.numpy()) ** 2).sum()))
    for alpha in (0.01, 1.0, 3.0, 10.0, 1000.0):
        pruned = copy.deepcopy(layer)
        layerwise_prune_(pruned, inputs, alpha=alpha, allocate=Allocation.EVENLY, damping=1e-12)
        kept = (pruned.weight[0] != 0).tolist()
        objective = [error + alpha * sum(mask) for error, mask in zip(errors, masks, strict=True)]
        assert errors[masks.index(kept)] + alpha * sum(kept) <= 1.15 * min(objective)


def test_a_bias_is_the_weight_of_ones(generator: torch.Generator):
    layer = nn.Linear(6, 4)
    inputs = correlated(generator, 200, 6) + 1.0
    dense = layer(inputs).detach()
    result = layerwise_prune_(layer, inputs, zeros=0.5, allocate=Allocation.EVENLY, damping=1e-9)
    assert result.masks["bias"].all()
    # With a free bias the residuals have no mean; without, they would: the inputs have one.
    assert (layer(inputs) - dense).mean(0).abs().max() < 1e-4
    layer = nn.Linear(6, 4)
    with torch.no_grad():
        layer.bias[:2] = 1e-6
    result = layerwise_prune_(layer, inputs, zeros=0.3, select=everything, allocate=Allocation.EVENLY)
    assert result.layers[0].weights == 28
    assert (layer.bias == 0).any()
    assert torch.equal(result.masks["bias"], layer.bias != 0)


def test_later_layers_make_up_for_what_earlier_ones_lost(generator: torch.Generator):
    model = MLP((10, 30, 30, 5), nn.Tanh, seed=2)
    inputs = correlated(generator, 400, 10)
    dense = model(inputs).detach()
    result = layerwise_prune_(model, list(inputs.split(150)), zeros=0.6, allocate=Allocation.TOGETHER)
    other = MLP((10, 30, 30, 5), nn.Tanh, seed=2)
    apply_masks_(select_parameters(other), magnitude_masks(other, keep=result.weights - result.zeros))
    ours, theirs = (float((one(inputs) - dense).detach().square().mean()) for one in (model, other))
    assert ours < 0.3 * theirs
    assert result.zeros == round(0.6 * result.weights)
    assert [layer.name for layer in result.layers] == ["layers.0", "layers.1", "layers.2"]
    for name, mask in result.masks.items():
        assert not model.state_dict()[name][~mask].any()


def test_what_nothing_reads_any_more_is_removed_whatever_the_budget(generator: torch.Generator):
    model = MLP((8, 6, 2), seed=1)
    with torch.no_grad():
        model.layers[1].weight[:, 3:] *= 1e-5  # pyright: ignore[reportIndexIssue]
    inputs = correlated(generator, 200, 8)
    dense = model(inputs).detach()
    result = layerwise_prune_(model, inputs, zeros=0.1, allocate=Allocation.TOGETHER)
    # Six of 60 were asked for: the ones of the last layer that hardly mattered. Their units' 24 incoming weights and biases go with them.
    assert not model.state_dict()["layers.1.weight"][:, 3:].any()
    for name in ("layers.0.weight", "layers.0.bias"):
        assert not model.state_dict()[name][3:].any()
        assert not result.masks[name][3:].any()
        assert model.state_dict()[name][:3].all()
    assert result.zeros == 30
    torch.testing.assert_close(model(inputs).detach(), dense, rtol=1e-3, atol=1e-3)


def test_dead_units_leave_the_budget_to_the_living(generator: torch.Generator):
    model = MLP((8, 6, 6, 2), seed=1)
    with torch.no_grad():
        model.layers[2].weight[:, 3:] *= 1e-5  # pyright: ignore[reportIndexIssue]
    result = layerwise_prune_(model, correlated(generator, 200, 8), zeros=0.25, allocate=Allocation.TOGETHER)
    # All 24 zeros of 96 are weights to and from dead units, so that every other stays, those of the first layer too.
    state = model.state_dict()
    assert not state["layers.1.weight"][3:].any()
    assert state["layers.1.weight"][:3].all()
    assert state["layers.0.weight"].all()
    assert result.zeros == 24


def test_weights_from_a_unit_that_has_become_0_are_removed(generator: torch.Generator):
    model = nn.Sequential(nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[0].weight[5] = 0
        model[0].weight[5, 2] = 1e-3
        model[2].weight[:, 5] = 1e3
    inputs = correlated(generator, 200, 8)
    result = layerwise_prune_(model, inputs, zeros=1 / 6)
    # The last layer, pruned first, keeps them: they matter for its outputs. Then the unit's one small weight goes.
    assert not model[0].weight[5].any()
    assert not model[2].weight[:, 5].any()
    assert not result.masks["2.weight"][:, 5].any()
    assert result.layers[1].zeros == 4


@pytest.mark.parametrize("piece", [1, 1 << 23])
def test_every_layer_is_the_least_squares_fit_of_the_dense_outputs_to_the_inputs_that_come_now(
    piece: int, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ellzero.pruning.regression._PIECE_ENTRIES", piece)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    inputs = correlated(generator, 150, 2, 6, 6).double()
    dense = copy.deepcopy(model)
    result = layerwise_prune_(model, list(inputs.split(60)), zeros=0.5, damping=1e-12, per_feature=None)
    now = then = inputs
    for index, (layer, original) in enumerate(zip(model, dense, strict=True)):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            columns = regressors(layer, now).flatten(0, 2)
            residuals = (output_columns(layer, original(then)) - output_columns(layer, layer(now))).mT.flatten(0, 1).detach()
            kept = torch.cat((result.masks[f"{index}.weight"].flatten(1), result.masks[f"{index}.bias"][:, None]), 1)
            gradient = (residuals.T @ columns).abs()
            assert gradient[kept].max() < 1e-6 * gradient[~kept].max()
        now, then = layer(now).detach(), original(then).detach()


def residual(generator: torch.Generator, inputs: torch.Tensor) -> nn.Sequential:
    """A small network of convolutions, normalisation and shortcuts, with the statistics of some inputs."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), Block(4, 4, 1), Block(4, 8, 2), nn.Flatten(), nn.Linear(8 * 16, 3)
    )
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.normal_(generator=generator).mul_(0.3).add_(1.0 if "bn" in name else 0.0)
    recalibrate_batchnorm(model, [inputs])
    return model


def test_normalisation_and_shortcuts_stay_and_the_mode_is_given_back(generator: torch.Generator):
    inputs = correlated(generator, 40, 3, 8, 8)
    model = residual(generator, inputs)
    model[2].train()
    model[3].eval()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        dense = copy.deepcopy(model).eval()(inputs)
    result = layerwise_prune_(model, list(inputs.split(15)), zeros=0.4)
    assert model[2].training
    assert not model[3].training
    for name, tensor in model.state_dict().items():
        if name in result.masks:
            assert not torch.equal(tensor, before[name]), name
        else:
            assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [layer.name for layer in result.layers] == ["0", "2.conv1", "2.conv2", "3.conv1", "3.conv2", "5"]
    assert all(layer.zeros == round(0.4 * layer.weights) for layer in result.layers)
    other = copy.deepcopy(model).eval()
    other.load_state_dict(before)
    params = select_parameters(other)
    apply_masks_(params, {n: magnitude_masks({n: p}, keep=p.numel() - round(0.4 * p.numel()))[n] for n, p in params.items()})
    with torch.no_grad():
        ours, theirs = (float((one.eval()(inputs) - dense).square().mean()) for one in (model, other))
    assert ours < 0.3 * theirs


def test_it_repeats_and_leaves_the_global_generator_alone(generator: torch.Generator):
    inputs = correlated(generator, 20, 3, 8, 8)
    original = residual(generator, inputs)
    before = torch.get_rng_state()
    states = []
    for seed in (4, 4, 5):
        model = copy.deepcopy(original)
        layerwise_prune_(model, inputs, zeros=0.5, per_feature=3, seed=seed)
        states.append(model.state_dict())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(states[0][name], tensor) for name, tensor in states[1].items())
    assert not torch.equal(states[0]["0.weight"], states[2]["0.weight"])


def test_a_layer_that_is_called_twice_is_fitted_to_both_calls(generator: torch.Generator):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.tanh(self.layer(x)))

    model = Twice()
    inputs = correlated(generator, 50, 6)
    regression = Regression.empty("layer", model.layer)
    add_up_([regression], model, [inputs], forward=call_model)
    hidden = torch.tanh(model.layer(inputs)).detach()
    columns = torch.cat([functional.pad(part, (0, 1), value=1.0) for part in (inputs, hidden)]).double()
    torch.testing.assert_close(regression.gram[0], columns.T @ columns, rtol=1e-5, atol=1e-4)
    dense = model(inputs).detach()
    layerwise_prune_(model, inputs, zeros=0.3, allocate=Allocation.EVENLY)
    assert (model(inputs) - dense).square().mean() < dense.square().mean()


def test_positions_taken_stand_for_those_left_out(generator: torch.Generator):
    layer = nn.Conv2d(2, 3, 3)
    same_everywhere = torch.randn(4, 2, 1, 1, generator=generator).expand(4, 2, 10, 10)
    grams: list[torch.Tensor] = []
    for per_feature in (None, 1):
        regression = Regression.empty("", layer)
        add_up_([regression], layer, [same_everywhere], forward=call_model, per_feature=per_feature, num_samples=4, generator=generator)
        assert len(regression.positions[0]) == (64 if per_feature is None else 5)  # 19 columns over 4 samples
        again = Regression.empty("", layer)
        add_up_([again], layer, [same_everywhere], forward=call_model, targets=[regression])
        torch.testing.assert_close(again.gram, regression.gram)
        torch.testing.assert_close(again.cross, weights_and_bias(layer) @ regression.gram[0], rtol=1e-4, atol=1e-4)
        grams.append(regression.gram)
    torch.testing.assert_close(grams[0], grams[1], rtol=1e-5, atol=1e-5)


def test_the_cheapest_removals_are_a_beginning_of_every_row():
    prices = torch.tensor([[0.0, 1, 1, 5], [2, 2, 2, 2], [1, 3, 3, 3]], dtype=torch.float64)
    other = torch.tensor([[0.5, 1.5]], dtype=torch.float64)
    taken = [cheapest(prices, [other], count).tolist() for count in range(15)]
    assert taken[:7] == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0], [3, 0, 1], [3, 0, 1]]
    assert taken[7:11] == [[3, 1, 1], [3, 2, 1], [3, 3, 1], [3, 4, 1]]
    assert taken[14] == [4, 4, 4]
    assert cheapest(other, [prices], 6).tolist() == [2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of zeros= and alpha="),
        ({"zeros": 0.5, "alpha": 1.0}, "exactly one of zeros= and alpha="),
        ({"zeros": 1.0}, "zeros=1.0"),
        ({"zeros": 0.5, "damping": 0.0}, "damping=0.0"),
        ({"zeros": 0.5, "select": lambda name, module, _tensor: "1" in name}, "nothing that is selected can be pruned"),
    ],
)
def test_senseless_arguments_are_refused(options: dict[str, object], message: str):
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=message):
        layerwise_prune_(model, torch.ones(4, 3), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.ones(0, 3), "inputs hold no sample"),
        ([torch.ones(0, 3), torch.ones(0, 3)], "inputs hold no sample"),
        (torch.tensor([[1.0, 2.0, torch.nan]]), "what enters 0 holds NaN or infinity"),
        ([torch.ones(2, 3), torch.full((2, 3), torch.inf)], "what enters 0 holds NaN or infinity"),
    ],
)
def test_inputs_without_samples_or_with_nan_are_refused_and_change_nothing(inputs: object, message: str):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        layerwise_prune_(model, inputs, zeros=0.5)  # type: ignore[arg-type]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_cannot_be_pruned_so_is_named():
    with pytest.raises(ValueError, match="holds no batch"):
        layerwise_prune_(nn.Linear(3, 3), iter(()), zeros=0.5)
    transposed = nn.ConvTranspose1d(2, 2, 3, stride=2)

    def call(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x, output_size=[12])

    with pytest.raises(ValueError, match="was called with output_size="):
        layerwise_prune_(transposed, torch.ones(1, 2, 5), zeros=0.5, forward=call)
    with pytest.raises(
        ValueError, match=r"nothing that is selected can be pruned, weight_ih_l0: GRU is no linear layer and no convolution"
    ):
        layerwise_prune_(nn.GRU(3, 3), torch.ones(1, 2, 3), zeros=0.5)


class Own(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input) * 2


class Various(nn.Module):
    """Has a layer that can be pruned, and one of each kind that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.own, self.unused = nn.Linear(4, 4), Own(4, 4), nn.Linear(4, 4)
        self.tied = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.tied[1].weight = self.tied[0].weight
        self.recurrent = nn.GRU(4, 4, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.hooked = nn.utils.weight_norm(nn.Linear(4, 4))
        self.token = nn.Parameter(torch.ones(1, 1, 4))
        self.matrix = nn.Parameter(torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.hooked(self.normed(self.own(torch.tanh(self.plain(x)))))
        return self.recurrent(self.tied[1](self.tied[0](x + self.token)) @ self.matrix)[0]


def test_the_share_is_of_all_that_is_selected_and_what_is_left_is_listed(generator: torch.Generator):
    model = Various()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = layerwise_prune_(model, correlated(generator, 50, 3, 4), zeros=0.5)
    assert [layer.name for layer in result.layers] == ["plain"]
    assert {parameter.name: parameter.reason for parameter in result.left} == {
        "own.weight": "Own has a forward of its own",
        "unused.weight": "no input given reaches it as a layer",
        "tied.0.weight": "it shares a parameter with another layer, which would change with it",
        "recurrent.weight_ih_l0": "GRU is no linear layer and no convolution",
        "recurrent.weight_hh_l0": "GRU is no linear layer and no convolution",
        "normed.parametrizations.weight.original1": "the weight is computed from other tensors",
        "hooked.weight_v": "the weight is computed from other tensors",
        "matrix": "Various is no linear layer and no convolution",
    }
    selected = select_parameters(model)
    assert result.weights == sum(tensor.numel() for tensor in selected.values())
    assert result.zeros == 8
    assert result.share == 8 / result.weights
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"plain.weight", "plain.bias"}


WITH_GROUPS = [layer for layer in CONVOLUTIONS if groups_of(layer) > 1 or isinstance(layer, Transposed | nn.Conv3d)]


@pytest.mark.parametrize("layer", WITH_GROUPS, ids=str)
def test_convolutions_of_all_kinds_lose_less_than_by_magnitude(layer: AnyMatrixLayer, generator: torch.Generator):
    assert not isinstance(layer, nn.Linear)
    layer = copy.deepcopy(layer)
    inputs = correlated(generator, 60, layer.in_channels, *SPATIAL[: len(layer.kernel_size)])
    dense, other = layer(inputs).detach(), copy.deepcopy(layer)
    size = layer.weight.numel()
    apply_masks_(select_parameters(other), magnitude_masks(other, keep=size - size // 2))
    result = layerwise_prune_(layer, inputs, zeros=0.5, damping=1e-9, per_feature=None)
    assert result.zeros == size // 2 == int((layer.weight == 0).sum())
    assert torch.equal(result.masks["weight"], layer.weight != 0)
    ours, theirs = (float((one(inputs) - dense).detach().square().sum()) for one in (layer, other))
    # Where no two inputs of an output are alike there is nothing to adapt, and magnitude is as good.
    assert ours <= (0.97 if weights_and_bias(layer).shape[1] > 9 else 1.0001) * theirs
    assert result.layers[0].relative_error == pytest.approx(ours / float(dense.square().sum()), rel=1e-3)


def test_groups_are_pruned_as_layers_of_their_own(generator: torch.Generator):
    whole = nn.Conv1d(4, 6, 3, groups=2)
    inputs = correlated(generator, 60, 4, 9)
    parts = [nn.Conv1d(2, 3, 3) for _ in range(2)]
    for index, part in enumerate(parts):
        write_weights_and_bias_(part, weights_and_bias(whole)[3 * index : 3 * index + 3])
        layerwise_prune_(part, inputs[:, 2 * index : 2 * index + 2], alpha=5.0, per_feature=None)
    layerwise_prune_(whole, inputs, alpha=5.0, per_feature=None)
    assert 0 < int((whole.weight == 0).sum()) < whole.weight.numel()
    torch.testing.assert_close(weights_and_bias(whole), torch.cat([weights_and_bias(part) for part in parts]), rtol=1e-4, atol=1e-5)


def test_a_network_with_depthwise_and_transposed_convolutions_is_pruned_in_one_go(generator: torch.Generator):
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, padding=1)),
    )
    inputs = correlated(generator, 24, 3, 8, 8)
    dense = model(inputs).detach()
    other = copy.deepcopy(model)
    result = layerwise_prune_(model, inputs, zeros=0.4)
    assert result.left == ()
    assert result.share >= 0.4
    params = select_parameters(other)
    apply_masks_(params, {n: magnitude_masks({n: p}, keep=p.numel() - round(0.4 * p.numel()))[n] for n, p in params.items()})
    ours, theirs = (float((one(inputs) - dense).detach().square().mean()) for one in (model, other))
    assert ours < 0.5 * theirs


@pytest.mark.slow
def test_a_trained_residual_network_loses_less_than_a_quarter_of_what_magnitude_pruning_costs(data_directory: Path):
    dense = ResNet(20).eval()
    dense.load_state_dict(safetensors.torch.load_file(data_directory / "networks" / "cifar10-resnet20-12fca82f.safetensors"))
    test = load_cifar10(data_directory, Part.TEST)
    images = standardised(test.inputs[:1000])

    @torch.no_grad()
    def log_probabilities(model: nn.Module) -> torch.Tensor:
        return torch.cat([model(part).log_softmax(1) for part in images.split(250)])

    reference = log_probabilities(dense)

    def divergence(model: nn.Module) -> float:
        return float((reference.exp() * (reference - log_probabilities(model))).sum(1).mean())

    def by_magnitude(masks: dict[str, torch.Tensor]) -> float:
        model = copy.deepcopy(dense)
        apply_masks_(select_parameters(model), masks)
        return divergence(model)

    params = select_parameters(dense)
    half = sum(tensor.numel() for tensor in params.values()) // 2
    overall = by_magnitude(magnitude_masks(params, keep=half))
    each = by_magnitude({n: magnitude_masks({n: p}, keep=p.numel() // 2)[n] for n, p in params.items()})
    unlabelled = standardised(load_cifar10(data_directory, batches=(1,)).inputs[:500])
    model = copy.deepcopy(dense)
    result = layerwise_prune_(model, list(unlabelled.split(250)), zeros=0.5)
    assert result.zeros >= result.weights // 2
    ours = divergence(model)
    assert ours <= min(overall, each) / 4
    assert overall == pytest.approx(0.0992, abs=0.002)
    assert each == pytest.approx(0.1441, abs=0.002)


def test_inputs_in_another_scale_than_in_training_are_warned_of(generator: torch.Generator):
    inputs = correlated(generator, 60, 3, 8, 8)
    model = residual(generator, inputs)
    layerwise_prune_(copy.deepcopy(model), inputs, zeros=0.3)
    with pytest.warns(UserWarning, match=r"not like those that the network was trained on.*'1' has 0\.1\d* times the standard deviation"):
        layerwise_prune_(copy.deepcopy(model), list((inputs / 10).split(20)), zeros=0.3)
