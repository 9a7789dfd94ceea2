import copy
import itertools
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from reachability import Graph, add_conv, add_linear, add_norm, add_pool
from torch import nn

from ellzero.params import apply_masks_, everything, named_parameters, select_parameters, weights
from ellzero.pruning._random_gradient import random_gradient


def sparse_(model, density, seed):
    """Makes random weights of both signs, most of them zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
            parameter.mul_(torch.rand(parameter.shape, generator=generator) < density)
    return model


def values(model):
    return {name: parameter.detach() for name, (_, parameter) in named_parameters(model).items()}


def same(a, b):
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def outputs_agree_after(model, masks, *inputs, within=1e-12):
    model = copy.deepcopy(model).double().eval()
    before = model(*inputs)
    apply_masks_(values(model), masks)
    after = model(*inputs)
    torch.testing.assert_close(after, before, rtol=within, atol=within * max(1.0, float(before.detach().abs().max())))


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=5),
    st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid, nn.ReLU6]),
    st.floats(0.1, 0.9),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=40)
def test_equals_matrix_products_of_the_supports_of_an_mlp(sizes, activation, density, seed):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), activation())][:-1]
    model = sparse_(nn.Sequential(*layers), density, seed)
    masks = random_gradient(model, seed=seed, draws=1)

    linear = [(name, layer) for name, layer in model.named_children() if isinstance(layer, nn.Linear)]
    supports = [(layer.weight.detach() != 0).float() for _, layer in linear]
    comes, live = [], torch.ones(sizes[0])
    for (_, layer), support in zip(linear, supports, strict=True):
        comes.append(live)
        live = ((support @ live + (layer.bias.detach() != 0)) > 0).float()
        live = torch.ones_like(live) if activation is nn.Sigmoid else live  # 1/2 at 0
    leads = [torch.ones(sizes[-1])]
    for support in reversed(supports[1:]):
        leads.insert(0, ((support.t() @ leads[0]) > 0).float())
    for (name, layer), support, a, b in zip(linear, supports, comes, leads, strict=True):
        assert torch.equal(masks[f"{name}.weight"], (support * torch.outer(b, a)) > 0)
        assert torch.equal(masks[f"{name}.bias"], (layer.bias.detach() != 0) & (b > 0))
    outputs_agree_after(model, masks, torch.randn(20, sizes[0], dtype=torch.float64))


class ConvNet(nn.Module):
    """Convolution, normalisation, max-pool, convolution, global or windowed pool, linear."""

    def __init__(self, channels, size, padding, last_pool):
        super().__init__()
        a, b, c = channels
        self.conv1 = nn.Conv2d(a, b, 3, padding=padding)
        self.norm = nn.BatchNorm2d(b)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(b, c, (2, 2), padding=1, stride=2, bias=False)
        side = (size + 2 * padding - 2) // 2
        side = (side + 2 - 2) // 2 + 1
        self.last = {"avg": nn.AvgPool2d(side), "adaptive": nn.AdaptiveMaxPool2d(1), "none": nn.Identity()}[last_pool]
        self.side = side if last_pool == "none" else 1
        self.out = nn.Linear(c * self.side**2, 2)

    def forward(self, x):
        x = self.pool(self.act(self.norm(self.conv1(x))))
        return self.out(self.last(torch.tanh(self.conv2(x))).flatten(1))


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from([5, 6, 7]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["avg", "adaptive", "none"]),
    st.floats(0.1, 0.7),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=40)
def test_equals_an_enumeration_of_all_paths_of_a_convolutional_network(channels, size, padding, last_pool, density, seed):
    model = sparse_(ConvNet(channels, size, padding, last_pool), density, seed)
    generator = torch.Generator().manual_seed(seed)
    model.norm.running_mean.copy_(torch.randn(channels[1], generator=generator) * (torch.rand(channels[1], generator=generator) < 0.5))
    model.norm.running_var.uniform_(0.1, 3, generator=generator)
    masks = random_gradient(model, seed=seed, draws=2, shape=(3, channels[0], size, size))

    def node(layer):
        return lambda *index: (layer, *index)

    graph = Graph()
    graph.inputs |= {("x", c, y, x) for c, y, x in itertools.product(range(channels[0]), range(size), range(size))}
    out = add_conv(graph, "conv1", node("x"), node("c1"), model.conv1.weight.shape, [size, size], padding)
    add_norm(graph, "norm", node("c1"), node("n"), model.norm.running_mean, out)
    out = add_pool(graph, node("n"), node("p"), channels[1], out, 2, 2)
    out = add_conv(graph, "conv2", node("p"), node("c2"), model.conv2.weight.shape, out, 1, stride=2, bias=False)
    if last_pool != "none":
        out = add_pool(graph, node("c2"), node("last"), channels[2], out, out[0], 1)
    last = "c2" if last_pool == "none" else "last"
    flat = [(last, c, y, x) for c, y, x in itertools.product(range(channels[2]), range(out[0]), range(out[1]))]
    add_linear(graph, "out", lambda i: flat[i], node("y"), model.out.weight.shape)
    graph.outputs = {("y", o) for o in range(2)}
    assert same(masks, graph.alive(values(model)))
    outputs_agree_after(model, masks, torch.randn(4, channels[0], size, size, dtype=torch.float64))


def mlp(*weights_and_biases, activation=nn.ReLU):
    """Builds a network of given weights."""
    layers = []
    for weight, bias in weights_and_biases:
        layer = nn.Linear(len(weight[0]), len(weight))
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1])


def test_a_relu_that_is_off_on_gaussian_inputs_survives():
    model = mlp(([[1.0, 1.0], [1.0, 0.5]], [-50.0, 0.1]), ([[2.0, 1.0]], [0.0]))
    masks = random_gradient(model)
    assert masks["0.weight"].all()
    assert masks["0.bias"].all()
    assert masks["2.weight"].all()
    assert masks["2.bias"].tolist() == [False]  # it is zero


def test_biases_of_units_that_feed_nothing_are_dead_and_constants_are_not():
    model = mlp(([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]], [0.3, 0.7, 0.5]), ([[1.0, 1.0, 0.0]], [0.0]))
    masks = random_gradient(model)
    assert masks["0.bias"].tolist() == [True, True, False]  # the second is a constant, the third leads nowhere
    assert masks["0.weight"].tolist() == [[True, True], [False, False], [False, False]]
    assert masks["2.weight"].tolist() == [[True, True, False]]


def test_figure_3_a_unit_without_inputs_and_bias_takes_its_outgoing_weights_along():
    model = mlp(([[1.0], [0.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    assert random_gradient(model)["2.weight"].tolist() == [[True, False]]


def test_silent_removes_constant_pixels_and_units_never_switched_on():
    torch.manual_seed(0)
    x = torch.rand(40, 3)
    x[:, 1] = 0.0
    model = mlp(([[1.0, 2.0, -1.0], [-1.0, 0.5, -2.0]], [0.2, -0.1]), ([[1.0, 1.0]], [0.3]))
    default = random_gradient(model, x)
    assert default["0.weight"].all()
    masks = random_gradient(model, x, silent=True)
    assert masks["0.weight"].tolist() == [[True, False, True], [False, False, False]]
    assert masks["0.bias"].tolist() == [True, False]
    assert masks["2.weight"].tolist() == [[True, False]]
    outputs_agree_after(model, masks, x.double())


def test_silent_lists_biases_of_silent_units_that_the_selection_leaves_out():
    x = torch.rand(20, 2) + 0.1
    model = mlp(([[1.0, 2.0], [-8.0, -9.0]], [0.2, 0.1]), ([[1.0, 1.0]], [0.3]))
    masks = random_gradient(model, x, select=weights, silent=True)
    assert set(masks) == {"0.weight", "2.weight", "0.bias"}
    assert masks["0.bias"].tolist() == [True, False]
    assert masks["0.weight"].tolist() == [[True, True], [False, False]]
    assert set(random_gradient(model, x, select=weights)) == {"0.weight", "2.weight"}
    outputs_agree_after(model, masks, x.double())


def test_silent_keeps_the_weights_of_a_saturated_tanh():
    x = torch.rand(20, 2) + 1
    model = mlp(([[100.0, 100.0], [0.1, 0.2]], [0.0, 0.1]), ([[1.0, 1.0]], [0.3]), activation=nn.Tanh)
    masks = random_gradient(model, x, silent=True)
    assert same(masks, random_gradient(model, x))
    assert masks["0.weight"].all()


@given(st.lists(st.integers(1, 6), min_size=3, max_size=4), st.sampled_from([nn.ReLU, nn.Tanh]), st.floats(0.2, 1), st.integers(0, 10**6))
@settings(deadline=None, max_examples=40)
@example(sizes=[5, 1, 4, 1], activation=nn.Tanh, density=1.0, seed=224664)  # saturated: no gradient, an effect of 9e-11 of the output
def test_silent_never_changes_an_output_on_the_given_inputs(sizes, activation, density, seed):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), activation())][:-1]
    model = sparse_(nn.Sequential(*layers), density, seed)
    for parameter in model.parameters():
        parameter.data.mul_(10)  # saturates tanh
    x = torch.randn(6, sizes[0], generator=torch.Generator().manual_seed(seed))
    x[:, 0] = 0
    structural, silent = random_gradient(model, x, seed=seed), random_gradient(model, x, seed=seed, silent=True)
    assert not any(bool((silent[name] & ~structural[name]).any()) for name in structural)
    outputs_agree_after(model, structural, x.double())
    outputs_agree_after(model, silent, x.double(), within=1e-9)


def test_every_batch_counts():
    model = mlp(([[1.0, 1.0]], [0.0]), ([[1.0]], [0.0]))
    first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert random_gradient(model, first, silent=True)["0.weight"].tolist() == [[True, False]]
    assert random_gradient(model, [first, second], silent=True)["0.weight"].tolist() == [[True, True]]
    assert random_gradient(model, iter([first, second]), silent=True)["0.weight"].tolist() == [[True, True]]


def test_tokens_that_the_batch_does_not_hold_keep_their_rows():
    model = nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), nn.Linear(12, 3))
    with torch.no_grad():
        model[0].weight[0] = 1.0  # used as it is, though no gradient ever reaches it
    tokens = torch.tensor([[0, 1, 2], [2, 3, 1]])
    assert all(mask.all() for mask in random_gradient(model, tokens).values())
    silent = random_gradient(model, tokens, silent=True)
    outputs = copy.deepcopy(model).double()
    expected = outputs(tokens)
    apply_masks_(values(outputs), silent)
    torch.testing.assert_close(outputs(tokens), expected)


def test_integers_are_not_made_up():
    with pytest.raises(ValueError, match="begins with Embedding"):
        random_gradient(nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3)))
    with pytest.raises(ValueError, match="begins with Conv2d"):
        random_gradient(nn.Conv2d(1, 1, 3))


class Tagger(nn.Module):
    """Positions looked up by slicing, an LSTM, a linear layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 5)
        self.positions = nn.Parameter(torch.randn(9, 5))
        self.lstm = nn.LSTM(5, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.lstm(self.embed(tokens) + self.positions[: tokens.shape[1]])[0])


def test_lstm_loses_what_leads_nowhere_and_nothing_else():
    torch.manual_seed(1)
    model = Tagger()
    tokens = torch.randint(0, 6, (2, 4))
    assert all(mask.all() for mask in random_gradient(model, tokens).values())
    with torch.no_grad():
        model.out.weight[:, [1, 5]] = 0  # unit 1 of either direction is not read
        for end in ("l1", "l1_reverse"):
            getattr(model.lstm, f"weight_hh_{end}")[:, 1] = 0  # nor does it feed the recurrence
    masks = random_gradient(model, tokens)
    unread = torch.zeros(16, dtype=torch.bool)
    unread[1::4] = True  # the four gates of unit 1
    for name in ("weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1_reverse"):
        mask, parameter = masks[f"lstm.{name}"], getattr(model.lstm, name)
        assert not mask[unread].any()
        assert torch.equal(mask[~unread], (parameter != 0)[~unread])
    assert masks["lstm.weight_ih_l0"].all()
    assert masks["positions"].all()
    outputs_agree_after(model, masks, tokens)


@pytest.mark.parametrize("norm_first", [True, False])
def test_attention_keeps_everything_that_leads_somewhere(norm_first):
    torch.manual_seed(2)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first), nn.Linear(8, 3))
    for parameter in model.parameters():
        parameter.data.normal_()
    x = torch.randn(2, 5, 8)
    assert all(mask.all() for mask in random_gradient(model, x).values())
    with torch.no_grad():
        model[0].linear2.weight[:, 3] = 0
        model[0].self_attn.out_proj.weight[:, :4] = 0  # nothing reads the first head
    masks = random_gradient(model, x)
    assert not masks["0.linear1.weight"][3].any()
    assert not masks["0.linear1.bias"][3]
    assert masks["0.linear1.weight"].sum() == 15 * 8
    head = masks["0.self_attn.in_proj_weight"].view(3, 8, 8)
    assert not head[:, :4].any()
    assert head[:, 4:].all()
    outputs_agree_after(model, masks, x.double())


def test_prelu_slopes_max_outs_and_opposed_relus_survive():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.prelu, self.out = nn.Linear(3, 4), nn.PReLU(4), nn.Linear(2, 1)

        def forward(self, x):
            x = self.prelu(self.first(x))
            x = torch.relu(x) + torch.relu(-x)
            return self.out(x.view(-1, 2, 2).max(2).values.clamp(max=0.01))

    torch.manual_seed(3)
    model = Odd()
    model.first.bias.data.fill_(50.0)  # on Gaussian inputs, the slopes for negative numbers are never used
    masks = random_gradient(model, draws=1)
    assert all(mask.all() for mask in masks.values())


def test_a_softmax_saturated_by_large_weights_or_wide_layers_hides_nothing():
    torch.manual_seed(7)
    wide = nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, 4), nn.Softmax(-1), nn.Linear(4, 1))
    for parameter in wide.parameters():
        parameter.data.mul_(1e4)
    assert all(mask.all() for mask in random_gradient(wide).values())
    decided = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.Softmax(-1), nn.Linear(2, 1))
    decided[1].bias.data.copy_(torch.tensor([1e4, 1.0]))  # on Gaussian inputs nothing else has a say
    assert all(mask.all() for mask in random_gradient(decided).values())


def test_what_no_window_of_a_pool_covers_is_dead():
    """The fifth value is in none of the windows of two, and with a dilation of two in one of them."""
    for pool, dead in ((nn.MaxPool1d(2), 1), (nn.MaxPool1d(2, stride=3), 1), (nn.MaxPool1d(2, dilation=2, stride=2), 0)):
        model = nn.Sequential(nn.Linear(3, 5, bias=False), pool)
        assert int((~random_gradient(model, shape=(4, 3))["0.weight"].any(1)).sum()) == dead, pool


def test_a_unit_switched_off_in_place_survives():
    class Off(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.out = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            x = -self.first(x)
            torch.relu_(x)
            return self.out(x)

    model = Off()
    model.first.bias.data.fill_(50.0)
    assert all(mask.all() for mask in random_gradient(model).values())


def test_a_running_mean_is_a_constant_input():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.zero_()
        model[1].weight.fill_(1.0)
        model[1].running_mean.copy_(torch.tensor([3.0, 0.0]))
    masks = random_gradient(model)
    assert masks["1.weight"].tolist() == [True, False]
    assert masks["3.weight"].tolist() == [[True, False]]


def test_one_tensor_that_must_stay_does_not_hold_back_the_others():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.rectified, self.out, self.saturated = nn.Linear(2, 2), nn.Linear(3, 1), nn.Linear(2, 1)

        def forward(self, x):
            return self.out(torch.cat([torch.relu(self.rectified(x)), torch.tanh(self.saturated(x))], 1))

    model = Two()
    with torch.no_grad():
        model.rectified.weight.copy_(torch.tensor([[1.0, 1.0], [-9.0, -9.0]]))
        model.rectified.bias.fill_(0.5)  # without its weights, the second unit would be on
        model.saturated.weight.fill_(100.0)
        model.saturated.bias.fill_(0.1)
    masks = random_gradient(model, torch.rand(9, 2) + 1, silent=True)
    assert masks["rectified.weight"].tolist() == [[True, True], [False, False]]
    assert masks["rectified.bias"].tolist() == [True, False]
    assert masks["out.weight"].tolist() == [[True, False, True]]
    assert masks["saturated.weight"].all()


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("wrap", [lambda y: (y, 1), lambda y: {"y": y, "n": None}, lambda y: Out(y=y), lambda y: [Pair(y, "a")]])
def test_outputs_in_containers_and_activations_in_place(wrap, inplace):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.out = nn.ReLU(inplace=inplace), nn.Linear(2, 2)

        def forward(self, x):
            return wrap(self.out(self.act(x)))

    model = Wrapped()
    with torch.no_grad():
        model.out.weight[0] = 0
    x = torch.randn(8, 2, dtype=torch.float64)
    kept = x.clone()
    masks = random_gradient(model, x)
    assert masks["out.weight"].tolist() == [[False, False], [True, True]]
    assert torch.equal(x, kept)


@dataclass
class Out:
    y: torch.Tensor


class Pair(NamedTuple):
    y: torch.Tensor
    label: str


def test_batches_are_called_as_they_are_or_as_forward_says():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(3, 2)

        def forward(self, x, *, y):
            return self.a(x) + self.b(y)

    x, y = torch.randn(4, 2), torch.randn(4, 3)
    by_name = random_gradient(Two(), {"x": x, "y": y})
    assert all(mask.all() for mask in by_name.values())
    by_forward = random_gradient(Two(), [(x, y)], forward=lambda model, batch: model(batch[0], y=batch[1]))
    assert same(by_name, by_forward)
    assert all(mask.all() for mask in random_gradient(nn.Bilinear(2, 3, 2), [(x, y)]).values())


class Detached(nn.Module):
    """Depends on its first layer in a way that no gradient sees."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.out.weight[:, 1] = 0

    def forward(self, x):
        return self.out(self.hidden(x).detach())


def test_what_no_gradient_sees_and_yet_changes_the_output_is_kept():
    model = Detached()
    masks = random_gradient(model)
    assert masks["hidden.weight"].all()
    assert masks["out.weight"].tolist() == [[True, False, True, True]] * 2
    outputs_agree_after(model, masks, torch.randn(5, 3, dtype=torch.float64))


def test_a_network_of_no_use_loses_everything():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return x + 1.0

    assert not any(mask.any() for mask in random_gradient(Unused(), shape=(4, 3)).values())


def test_tied_weights_appear_once_and_live_if_either_use_does():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.relu(self.a(x)))[:, :1]

    model = Tied()
    with torch.no_grad():
        model.a.weight[0, 1] = 0  # the output does not read hidden unit 1
    masks = random_gradient(model)
    assert list(masks) == ["a.weight"]
    assert masks["a.weight"].tolist() == [[True, False, True], [False] * 3, [True] * 3]


def test_the_model_its_gradients_mode_and_random_state_are_untouched():
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)).train()
    model(torch.randn(6, 4)).sum().backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    versions = [parameter._version for parameter in model.parameters()]
    random_state = torch.get_rng_state()
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        masks = random_gradient(model, x, silent=True)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert model.training
    assert model[2].training
    assert same(state, model.state_dict())
    assert all(torch.equal(a, b.grad) for a, b in zip(grads, model.parameters(), strict=True))
    assert versions == [parameter._version for parameter in model.parameters()]
    assert all(mask.dtype == torch.bool for mask in masks.values())


def test_seeds_are_reproducible_and_matter():
    seen = []

    def forward(model, batch):
        seen.append(batch.clone())
        return model(batch)

    model = nn.Linear(3, 2)
    first = random_gradient(model, seed=5, forward=forward)
    again = random_gradient(model, seed=5, forward=forward)
    half = len(seen) // 2
    assert same(first, again)
    assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))
    random_gradient(model, seed=6, forward=forward)
    assert not torch.equal(seen[0], seen[-1])


def test_wide_and_deep_networks_do_not_saturate():
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(300, 300), nn.Tanh())], nn.Linear(300, 2))
    assert all(mask.all() for mask in random_gradient(model, draws=1).values())


def test_compiled_and_wrapped_models_go_by_canonical_names():
    model = mlp(([[1.0], [1.0]], [0.5, 0.5]), ([[1.0, 0.0]], [0.0]))
    expected = random_gradient(model)
    assert same(random_gradient(torch.compile(model, backend="eager")), expected)
    assert same(random_gradient(nn.DataParallel(model)), expected)
    assert same(random_gradient(torch.optim.swa_utils.AveragedModel(model)), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"draws": 0}, "at least one draw"), ({"silent": True}, "pass inputs="), ({"inputs": []}, "holds no batch")],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        random_gradient(nn.Linear(2, 2), **arguments)


def test_an_output_without_real_tensors_is_refused():
    with pytest.raises(TypeError, match="no real tensor"):
        random_gradient(nn.Linear(2, 2), forward=lambda model, batch: "text")


def test_masks_apply_to_the_selection():
    model = mlp(([[1.0], [1.0]], [0.5, 0.5]), ([[1.0, 0.0]], [0.2]))
    masks = random_gradient(model, select=weights)
    assert list(masks) == ["0.weight", "2.weight"]
    apply_masks_(select_parameters(model, weights), masks)
    assert model[0].weight.tolist() == [[1.0], [0.0]]
    assert model[0].bias.tolist() == [0.5, 0.5]
    apply_masks_(select_parameters(model, everything), random_gradient(model))
    assert model[0].bias.tolist() == [0.5, 0.0]
