import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from ellzero.archive.load import load_model
from ellzero.archive.save import save_model
from ellzero.quantise.answers import Answers, Reading, read_answers
from ellzero.quantise.calibrate import Calibrated, LevelsByName, _split
from ellzero.quantise.feedback import RoundingPrice, bits_of_levels, factorise, round_with_feedback
from ellzero.quantise.fold_batchnorm import fold_batchnorm_, normalisations
from ellzero.quantise.grids import UniformGrid
from ellzero.quantise.moments import Moments
from ellzero.quantise.observed import mean_output, observe_layers
from ellzero.quantise.sensitivity import sensitivities
from ellzero.surgery.calls import call_model, inputs_of
from ellzero.surgery.layer_matrices import layer_columns, layer_matrices, output_columns

# An untrained network's answers mark no class, its statistics are drawn, and rates are chosen here to change much.
LOGITS = Reading(kind=Answers.LOGITS)
UNTRAINED: Any = {"answers": Answers.LOGITS, "max_difference": 1e9, "max_shift": 1e9}


class Convolutions(nn.Module):
    """Convolutions with and without bias, grouped, depthwise, strided, with normalisation and without."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.plain = nn.BatchNorm2d(8, affine=False)
        self.grouped = nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2, padding_mode="reflect")
        self.biased = nn.BatchNorm2d(12)
        self.dilated = nn.Conv2d(12, 6, 3, dilation=2, bias=False)
        self.head = nn.Linear(6, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        features = torch.relu(self.norm(self.first(inputs)))
        features = torch.relu_(self.plain(self.depthwise(features)))
        features = torch.relu(self.biased(self.grouped(features)))
        return self.head(torch.relu(self.dilated(features)).mean((2, 3)))


class Recurrent(nn.Module):
    """A linear layer without bias, one that is called twice, and parts that calibration does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.narrow = nn.Linear(8, 3, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.narrow(torch.tanh(self.twice(torch.tanh(self.twice(self.lstm(self.embedding(tokens))[0])))))


@pytest.fixture
def network() -> Convolutions:
    torch.manual_seed(0)
    model = Convolutions()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.uniform_(module.weight, -1, 2)
                nn.init.normal_(module.bias)
    return model.eval()


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    return torch.randn(40, 3, 10, 10, generator=generator)


@given(
    seed=st.integers(0, 1000),
    step=st.floats(0.05, 2),
    damping=st.sampled_from([1e-4, 0.01, 1.0]),
    groups=st.integers(1, 3),
    kept=st.sampled_from([0.1, 1.0]),
    price=st.sampled_from([None, 1e-3, 1.0]),
)
def test_feedback_never_leaves_a_row_a_larger_error_than_plain_rounding_and_revives_nothing(
    seed: int, step: float, damping: float, groups: int, kept: float, price: float | None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = 70 if groups == 1 else 9
    weight = torch.randn(groups, 4, n, generator=generator, dtype=torch.float64)
    weight[torch.rand(groups, 4, n, generator=generator) > kept] = 0
    rows = torch.randn(groups, 30, n, generator=generator, dtype=torch.float64) @ torch.randn(
        groups, n, n, generator=generator, dtype=torch.float64
    )
    gram = rows.mT @ rows
    paid = None if price is None else RoundingPrice(curvature=1.0, nats_per_bit=price)
    levels = round_with_feedback(weight, factorise(gram, damping), step, paid)
    assert torch.equal(levels, levels.round())
    assert not levels[weight == 0].any()
    if paid is not None:
        return
    found = (rows @ (weight - levels * step).mT).square().sum(1)
    plain = (rows @ (weight - torch.round(weight / step) * step).mT).square().sum(1)
    assert (found <= plain * (1 + 1e-9) + 1e-9).all()


def test_feedback_removes_most_of_the_error_where_inputs_are_correlated(generator: torch.Generator) -> None:
    weight = torch.randn(1, 16, 100, generator=generator, dtype=torch.float64)
    rows = torch.randn(400, 12, generator=generator, dtype=torch.float64) @ torch.randn(12, 100, generator=generator, dtype=torch.float64)
    rows += 0.1 * torch.randn(400, 100, generator=generator, dtype=torch.float64)
    levels = round_with_feedback(weight, factorise((rows.T @ rows)[None], 1e-4), 0.5)
    found = (rows @ (weight - levels * 0.5)[0].T).square().sum()
    plain = (rows @ (weight - torch.round(weight / 0.5) * 0.5)[0].T).square().sum()
    assert found < plain / 5


def test_feedback_is_the_sequence_of_conditional_least_squares(generator: torch.Generator) -> None:
    weight = torch.randn(1, 3, 6, generator=generator, dtype=torch.float64)
    rows = torch.randn(50, 6, generator=generator, dtype=torch.float64) @ torch.randn(6, 6, generator=generator, dtype=torch.float64)
    gram = (rows.T @ rows)[None]
    damped = gram[0] + 1e-3 * gram[0].diagonal().mean() * torch.eye(6, dtype=torch.float64)
    wanted, left = torch.zeros(3, 6, dtype=torch.float64), weight[0].clone()
    for j in range(6):
        wanted[:, j] = torch.round(left[:, j] / 0.3)
        # The later weights that make up best for all errors so far, each a least-squares solution.
        later = slice(j + 1, 6)
        error = weight[0, :, : j + 1] - wanted[:, : j + 1] * 0.3
        left[:, later] = weight[0, :, later] + torch.linalg.solve(damped[later, later], damped[later, : j + 1] @ error.T).T
    from ellzero.quantise.feedback import _round

    assert torch.equal(_round(weight, factorise(gram, 1e-3).upper, 0.3, None, None)[0], wanted)


def test_a_price_on_bits_makes_levels_cheaper(generator: torch.Generator) -> None:
    weight = torch.randn(1, 20, 30, generator=generator, dtype=torch.float64)
    found = factorise(torch.eye(30, dtype=torch.float64)[None], 1e-4)
    sizes = []
    for nats in (0.0, 1e-2, 1e-1):
        levels = round_with_feedback(weight, found, 0.5, RoundingPrice(curvature=1.0, nats_per_bit=nats))
        sizes.append(float(bits_of_levels(levels)[levels.abs().long()].sum()))
        assert (levels.abs() <= torch.round(weight / 0.5).abs()).all()
    assert sizes[0] > sizes[1] > sizes[2]


def test_estimated_bits_are_a_code(generator: torch.Generator) -> None:
    levels = torch.round(3 * torch.randn(5000, generator=generator, dtype=torch.float64))
    bits = bits_of_levels(levels)
    chances = torch.exp2(-bits)
    assert float(chances[0] + 2 * chances[1:].sum()) <= 1 + 1e-9
    _, counts = levels.unique(return_counts=True)
    entropy = -(counts * (counts / 5000).log2()).sum()
    assert entropy <= bits[levels.abs().long()].sum() <= 1.02 * entropy


@pytest.mark.parametrize("name", ["first", "depthwise", "grouped", "dilated", "head"])
def test_columns_times_weights_are_the_layers_outputs(network: Convolutions, images: Tensor, name: str) -> None:
    layer = network.get_submodule(name)
    inputs = inputs_of(network, layer, [images], forward=call_model)[0]
    with torch.no_grad():
        wanted = output_columns(layer, layer(inputs)).double()
    found = (layer_matrices(layer)[None] @ layer_columns(layer, inputs).double()).flatten(1, 2)
    if layer.bias is not None:
        found = found + layer.bias.detach().double()[None, :, None]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_moments_are_those_of_all_columns(network: Convolutions, images: Tensor) -> None:
    found = Moments.of(network.grouped, [images.repeat(1, 3, 1, 1)[:, :8] + 1, images.repeat(1, 3, 1, 1)[:7, 1:]])
    rows = torch.cat(
        [
            layer_columns(network.grouped, images.repeat(1, 3, 1, 1)[:, :8] + 1),
            layer_columns(network.grouped, images.repeat(1, 3, 1, 1)[:7, 1:]),
        ]
    )
    for group in range(2):
        own = rows[:, group].double().mT.flatten(0, 1)
        torch.testing.assert_close(found.mean[group], own.mean(0))
        torch.testing.assert_close(found.covariance[group], torch.cov(own.T, correction=0))


def test_folding_is_exact_and_the_architecture_stays(network: Convolutions, images: Tensor) -> None:
    with torch.no_grad():
        wanted = network(images)
        norms = normalisations(network, images, call_model)
        assert norms == {"first": "norm", "depthwise": "plain", "grouped": "biased"}
        fold_batchnorm_([(network.get_submodule(layer), network.get_submodule(norm)) for layer, norm in norms.items()])
        torch.testing.assert_close(network(images), wanted, rtol=1e-5, atol=1e-5)
    for norm in (network.norm, network.biased):
        assert (norm.weight == 1).all()
        assert (norm.running_mean == 0).all()
        assert (norm.running_var == torch.tensor(1 - norm.eps)).all()
    assert (network.biased.bias == 0).all()
    assert (network.norm.bias != 0).all()


def test_normalisations_that_others_share_or_feed_are_left_alone() -> None:
    class Awkward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.twice, self.after_relu = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.after_relu(torch.relu(self.twice(self.b(self.twice(self.a(inputs))))))

    assert normalisations(Awkward().eval(), torch.randn(3, 4), call_model) == {}


@pytest.mark.parametrize("fold", [True, False])
def test_the_mean_of_every_layers_output_is_the_originals(network: Convolutions, images: Tensor, fold: bool) -> None:
    # Biases on a grid so fine that it does not show: sensitivity of biases grows with nothing, so the grid is refined by hand.
    options = Calibrated(inputs=images, held_out=images, **UNTRAINED, nats_per_kilobyte=1e-2, fold_batchnorm=fold, measure=False)
    quantised = options.apply(network).model
    norms = normalisations(network, images, call_model)
    reference = network
    if fold:
        import copy

        reference = copy.deepcopy(network)
        fold_batchnorm_([(reference.get_submodule(layer), reference.get_submodule(norm)) for layer, norm in norms.items()])
    wanted = observe_layers(reference, [images], norms, folded=fold, forward=call_model)
    for layer in wanted:
        if layer.constant is None:
            continue
        own = quantised.get_submodule(layer.name)
        mean = mean_output(own, inputs_of(quantised, own, [images], forward=call_model))
        tensor = dict([*quantised.named_parameters(), *quantised.named_buffers()]).get(layer.constant.name or "")
        if layer.constant.name is None:
            shift = quantised.get_submodule(norms[layer.name]).running_mean - layer.constant.tensor
            torch.testing.assert_close(mean - shift, layer.mean_output, rtol=1e-4, atol=1e-5)
        else:
            assert tensor is not None
            step = tensor.abs()[tensor != 0].min()
            extra = torch.zeros(()) if layer.layer.bias is not None else (tensor - layer.constant.tensor).detach()
            assert ((mean + extra - layer.mean_output).abs() <= step / 2 + 1e-5).all()


@pytest.mark.parametrize("fold", [True, False])
def test_what_a_file_gives_back_is_the_quantised_model(network: Convolutions, images: Tensor, tmp_path: Path, fold: bool) -> None:
    options = Calibrated(inputs=[images[:20], images[20:]], **UNTRAINED, nats_per_kilobyte=1e-2, fold_batchnorm=fold)
    quantised, quantiser = options.apply(network)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_model(network, tmp_path / "a.l0", quantise=options)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name])
    loaded = load_model(Convolutions(), tmp_path / "a.l0").eval()
    assert isinstance(quantiser, LevelsByName)
    assert {"first.weight", "depthwise.weight", "grouped.weight", "dilated.weight", "head.weight", "head.bias"} <= set(quantiser.levels)
    for name in quantiser.levels:
        assert torch.equal(loaded.state_dict()[name], quantised.state_dict()[name]), name
    if fold:
        for name, tensor in quantised.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], tensor), name


def test_less_is_lost_than_by_plain_rounding_to_the_same_steps(network: Convolutions, images: Tensor, generator: torch.Generator) -> None:
    quantised, quantiser = Calibrated(inputs=images, **UNTRAINED, nats_per_kilobyte=3e-2, rounding_price=0).apply(network)
    assert isinstance(quantiser, LevelsByName)
    fresh = torch.randn(200, 3, 10, 10, generator=generator)
    with torch.no_grad():
        wanted, found = network(fresh), quantised(fresh)
        norms = normalisations(network, images, call_model)
        fold_batchnorm_([(network.get_submodule(layer), network.get_submodule(norm)) for layer, norm in norms.items()])
        for name, levels in quantiser.levels.items():
            tensor = network.state_dict()[name]
            step = levels.grid.steps[0]
            tensor.copy_(torch.round(tensor / step) * step)
        plain = network(fresh)
    assert LOGITS.divergence(found, wanted) < LOGITS.divergence(plain, wanted)


@pytest.mark.parametrize("fold", [True, False])
def test_a_pruned_network_stays_pruned(network: Convolutions, images: Tensor, generator: torch.Generator, fold: bool) -> None:
    with torch.no_grad():
        for layer in (network.first, network.grouped, network.head):
            layer.weight[torch.rand(layer.weight.shape, generator=generator) < 0.7] = 0
        assert network.grouped.bias is not None
        network.grouped.bias[:5] = 0
        network.head.bias[1:] = 0
        network.head.weight[2] = 0
    quantised, _ = Calibrated(inputs=images, **UNTRAINED, nats_per_kilobyte=1e-3, fold_batchnorm=fold).apply(network)
    for name, parameter in network.named_parameters():
        # Folding moves biases into the normalisation, whose own are what adds to the layers before it then.
        if not (fold and name in {"grouped.bias", "norm.bias", "biased.bias"}):
            assert not quantised.get_parameter(name)[parameter == 0].any(), name
    assert not torch.equal(quantised.head.weight, network.head.weight)
    assert quantised.head.bias[0] != 0


def test_biases_of_zero_among_weights_that_are_not_pruned_bring_means_back(network: Convolutions, images: Tensor) -> None:
    with torch.no_grad():
        network.head.bias.zero_()
    quantised, _ = Calibrated(inputs=images, **UNTRAINED, nats_per_kilobyte=1e-1).apply(network)
    assert quantised.head.bias.any()


def test_feedback_loses_less_than_plain_rounding_where_nine_weights_of_ten_may_not_move(images: Tensor, generator: torch.Generator) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(300, 60), nn.ReLU(), nn.Linear(60, 5)).eval()
    mixed = images.flatten(1) @ torch.randn(300, 300, generator=generator) / 17
    with torch.no_grad():
        for layer in (network[1], network[3]):
            layer.weight *= 10
            layer.weight[torch.rand(layer.weight.shape, generator=generator) < 0.9] = 0
            layer.bias.zero_()
    quantised, quantiser = Calibrated(inputs=mixed, **UNTRAINED, nats_per_kilobyte=1e-3).apply(network)
    assert isinstance(quantiser, LevelsByName)
    plain = copy.deepcopy(network)
    with torch.no_grad():
        for name, levels in quantiser.levels.items():
            tensor, step = plain.get_parameter(name), levels.grid.steps[0]
            tensor.copy_(torch.round(tensor / step) * step)
        wanted, found, rounded = network(mixed), quantised(mixed), plain(mixed)
    assert LOGITS.divergence(found, wanted) < LOGITS.divergence(rounded, wanted)


def test_other_networks_fall_back(tmp_path: Path, generator: torch.Generator) -> None:
    torch.manual_seed(0)
    model = Recurrent().eval()
    tokens = torch.randint(0, 20, (16, 7), generator=generator)
    result = Calibrated(inputs=tokens, nats_per_kilobyte=1e-3, max_difference=1, others=UniformGrid(error=0.1)).apply(model)
    assert isinstance(result.quantiser, LevelsByName)
    assert set(result.quantiser.levels) == {"narrow.weight"}
    save_model(result.model, tmp_path / "a.l0", quantise=result.quantiser)
    loaded = load_model(Recurrent(), tmp_path / "a.l0")
    assert torch.equal(loaded.narrow.weight, result.model.narrow.weight)
    change = (loaded.lstm.weight_hh_l0 - model.lstm.weight_hh_l0).detach()
    assert 0.03 < float(change.norm() / model.lstm.weight_hh_l0.detach().norm()) < 0.13


@pytest.mark.parametrize("kind", list(Answers))
def test_sampled_gradients_have_the_divergences_second_derivative(kind: Answers, generator: torch.Generator) -> None:
    reading = Reading(kind=kind, temperature=2.0, scale=0.3)
    answer = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    answer = answer.softmax(1) if kind is Answers.PROBABILITIES else answer
    drawn = reading.sampled_gradient(answer.expand(200_000, 4), generator)
    wanted = torch.autograd.functional.hessian(lambda moved: reading.divergence(moved, answer), answer)[0, :, 0]
    torch.testing.assert_close(drawn.T @ drawn / len(drawn), wanted, rtol=0.05, atol=3e-3 * float(wanted.abs().max()) + 2e-3)


@pytest.mark.parametrize("kind", [Answers.VALUES, Answers.EMBEDDINGS])
def test_answers_of_any_shape_are_values_or_embeddings(kind: Answers, generator: torch.Generator) -> None:
    image = torch.randn(3, 2, 5, generator=generator, dtype=torch.float64)
    reading = read_answers([image], kind, 1.0)
    assert float(reading.divergence(image, image.roll(1, 0))) == pytest.approx(3.0)
    wanted = torch.autograd.functional.hessian(lambda one: reading.divergence(one, image), image).reshape(30, 30)
    drawn = torch.stack([reading.sampled_gradient(image, generator).flatten() for _ in range(4000)])
    # A divergence is a sum over samples, which are drawn at once and with signs of their own.
    torch.testing.assert_close(drawn.T @ drawn / len(drawn), wanted, rtol=0.1, atol=0.1 * float(wanted.max()))


def test_sensitivity_predicts_the_divergence_of_small_noise(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 12), nn.Tanh(), nn.Linear(12, 4)).eval()
    inputs = torch.randn(300, 10, generator=generator)
    layers = {"0": model[0], "2": model[2]}
    seen = {name: Moments.of(layer, inputs_of(model, layer, [inputs], forward=call_model)) for name, layer in layers.items()}
    found = sensitivities(model, [inputs], layers, seen, forward=call_model, generator=generator, rounds=8, reading=LOGITS)
    with torch.no_grad():
        answer = model(inputs)
        for name, layer in layers.items():
            caused = 0.0
            for _ in range(40):
                noise = 0.02 * torch.randn(layer.weight.shape, generator=generator)
                shift = noise.double() @ seen[name].mean[0]
                layer.weight += noise
                layer.bias -= shift.float()
                caused += float(LOGITS.divergence(model(inputs), answer)) / len(inputs) / 40
                layer.weight -= noise
                layer.bias += shift.float()
            variance = float(seen[name].covariance[0].diagonal().mean())
            predicted = found[name].weight * variance * 0.02**2 / 2 * layer.weight.numel()
            assert predicted == pytest.approx(caused, rel=0.25)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="inputs holds no batch"):
        Calibrated(inputs=[])
    with pytest.raises(ValueError, match="damping=0"):
        Calibrated(inputs=torch.zeros(1, 2), damping=0)


class Embedding(nn.Module):
    """A network of embeddings, of unit length or not."""

    def __init__(self, *, unit: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 128))
        self.unit = unit

    def forward(self, inputs: Tensor) -> Tensor:
        vectors = self.layers(inputs)
        return nn.functional.normalize(vectors, dim=1) if self.unit else vectors


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    """Trained by contrast for some steps: two noisy views of an input are to be close, and far from all others."""
    torch.manual_seed(0)
    model = Embedding(unit=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        inputs = torch.randn(256, 64)
        one, other = (model(inputs + 0.3 * torch.randn(256, 64)) for _ in range(2))
        optimizer.zero_grad()
        nn.functional.cross_entropy(one @ other.T / 0.1, torch.arange(256)).backward()
        optimizer.step()
    return model.eval()


def cosine(model: nn.Module, other: nn.Module) -> float:
    fresh = torch.randn(512, 64, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return float(nn.functional.cosine_similarity(model(fresh), other(fresh)).mean())


def test_a_network_of_embeddings_keeps_its_directions(embedding: Embedding, generator: torch.Generator) -> None:
    inputs = torch.randn(256, 64, generator=generator)
    assert cosine(embedding, Calibrated(inputs=inputs).apply(embedding).model) > 0.96
    plain = copy.deepcopy(embedding)
    plain.unit = False
    with pytest.raises(ValueError, match=r"not clear what answers of shape \(224, 128\) are.*answers=Answers.EMBEDDINGS"):
        Calibrated(inputs=inputs).apply(plain)
    assert cosine(plain, Calibrated(inputs=inputs, answers=Answers.EMBEDDINGS).apply(plain).model) > 0.96
    with pytest.warns(UserWarning, match=r"answers differently, by \d+(\.\d+)? %.*read as logits; lower nats_per_kilobyte from 0.00016"):
        quantised = Calibrated(inputs=inputs, answers=Answers.LOGITS).apply(plain).model
    assert cosine(plain, quantised) < 0.5
    with pytest.warns(UserWarning, match=r"a mean cosine of 0\.\d+ between old and new, 32 samples.*read as embeddings"):
        Calibrated(inputs=inputs, nats_per_kilobyte=3e-3).apply(embedding)


def test_the_rate_that_a_warning_names_is_low_enough(embedding: Embedding, generator: torch.Generator) -> None:
    inputs = torch.randn(256, 64, generator=generator)
    with pytest.warns(UserWarning, match="answers differently") as caught:
        Calibrated(inputs=inputs, nats_per_kilobyte=3e-3, measure=False).apply(embedding)
    rate = re.search(r"to about (\S+),", str(caught[0].message))
    assert rate is not None
    Calibrated(inputs=inputs, nats_per_kilobyte=float(rate[1]), measure=False).apply(embedding)


class Classifier(nn.Module):
    """Classes by the nearest of five centres, as logits or as probabilities."""

    def __init__(self, *, softmax: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.head = nn.Linear(20, 200), nn.Linear(200, 5)
        self.softmax = softmax
        with torch.no_grad():
            self.first.weight.copy_(torch.randn(200, 20, generator=generator) / 20**0.5)
            self.head.weight.copy_(torch.randn(5, 200, generator=generator) / 4)
            self.first.bias.zero_()
            self.head.bias.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        logits = self.head(torch.relu(self.first(inputs)))
        return logits.softmax(1) if self.softmax else logits


def test_probabilities_are_read_as_the_logits_that_they_come_from(generator: torch.Generator) -> None:
    inputs, fresh = torch.randn(128, 20, generator=generator), torch.randn(500, 20, generator=generator)
    nats = []
    for softmax in (False, True):
        quantised = Calibrated(inputs=inputs).apply(Classifier(softmax=softmax)).model
        assert isinstance(quantised, Classifier)
        quantised.softmax = False
        with torch.no_grad():
            nats.append(float(LOGITS.divergence(quantised(fresh), Classifier(softmax=False)(fresh))) / 500)
    assert nats[1] == pytest.approx(nats[0], rel=0.3)


def test_what_answers_show_is_found_and_what_they_do_not_show_is_asked(generator: torch.Generator) -> None:
    rows = torch.randn(40, 6, generator=generator)
    assert read_answers([8 * rows], None, 3.0).kind is Answers.LOGITS
    assert read_answers([(8 * rows).log_softmax(1)], None, 3.0).kind is Answers.LOGITS
    assert read_answers([rows.softmax(1)[:20], rows.softmax(1)[20:]], None, 3.0).kind is Answers.PROBABILITIES
    assert read_answers([nn.functional.normalize(rows, dim=1)], None, 3.0).kind is Answers.EMBEDDINGS
    for values in (rows[:, :1], rows[:, 0], rows[:, :, None]):
        assert read_answers([values], None, 3.0).kind is Answers.VALUES
    constant = 100 * nn.functional.one_hot(torch.full((40,), 3), 6) + 0.01 * rows  # an outlier dimension, as in language models
    for unclear in (rows / 3, rows.sigmoid(), constant):
        with pytest.raises(ValueError, match="not clear"):
            read_answers([unclear], None, 3.0)
    assert read_answers([rows / 3], Answers.LOGITS, 3.0).kind is Answers.LOGITS


def test_answers_that_cannot_be_read_are_refused(generator: torch.Generator) -> None:
    rows = torch.randn(40, 6, generator=generator)
    with pytest.raises(ValueError, match="not finite"):
        read_answers([rows / 0], None, 3.0)
    for kind in Answers:
        with pytest.raises(ValueError, match="the same to all inputs"):
            read_answers([rows[:1].softmax(1).expand(40, 6)], kind, 3.0)
    with pytest.raises(ValueError, match=r"answers of shape \(40, 6, 1\) are read as logits"):
        read_answers([rows[:, :, None]], Answers.LOGITS, 3.0)
    with pytest.raises(ValueError, match="a single sample"):
        read_answers([rows[:1]], None, 3.0)


def test_values_count_in_units_of_how_they_vary_and_not_of_how_large_they_are(generator: torch.Generator) -> None:
    rows = torch.randn(40, 3, generator=generator)
    offset = torch.tensor([1000.0, 0.0, -50.0])
    assert read_answers([rows + offset], Answers.VALUES, 3.0).scale == pytest.approx(
        read_answers([rows], Answers.VALUES, 3.0).scale, rel=1e-3
    )


def test_what_is_compared_on_is_held_out() -> None:
    rows = torch.arange(64.0).reshape(32, 2)
    kept, held_out = _split([rows])
    assert torch.equal(held_out[0], rows[7::8])
    assert len(kept[0]) == 28
    kept, held_out = _split([{"a": rows, "b": rows[:, 0]}])
    assert [len(kept[0]["a"]), len(held_out[0]["b"])] == [28, 4]
    kept, held_out = _split([rows, rows + 1, rows + 2, rows + 3])
    assert [len(kept), len(held_out)] == [3, 1]
    assert torch.equal(held_out[0], rows + 3)
    # Which dimension is that of samples is not known of these.
    for batches in ([(rows, rows)], [rows[:12]], [{"a": rows, "b": rows[:5]}], [{"a": rows, "b": 3}]):
        kept, held_out = _split(batches)
        assert kept == held_out == batches
