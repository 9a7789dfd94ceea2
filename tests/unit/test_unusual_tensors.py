"""Sparse gradients, sparse and computed weights, compiled modules, quantised optimizer states: taken, or one clear line by name."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ellzero.attaching import attach
from ellzero.methods import ADMM, DRR, PMMP, RL1, Method
from ellzero.params import count_nonzeros, duplicate, everything, select_parameters
from ellzero.pruning import layerwise_prune_, random_gradient
from ellzero.surgery import fold, shrink


@pytest.fixture(autouse=True)
def _drawn_weights() -> Any:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the older weight_norm
        torch.manual_seed(0)
        yield


class Words(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self, *, bag: bool = False) -> None:
        super().__init__()
        self.table: nn.Module = nn.EmbeddingBag(12, 4, sparse=True, mode="sum") if bag else nn.Embedding(12, 4, sparse=True)
        self.head = nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens))


TOKENS = torch.tensor([[0, 1, 2], [3, 4, 4]])


def steps(model: Words, method: Method, *, masked: bool = False) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, method, select=everything, total_steps=3)
    if masked:
        sparsifier.freeze({"table.weight": torch.arange(48).reshape(12, 4) % 3 > 0}, penalty=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(TOKENS).square().mean().backward()
        optimizer.step()
    if masked:
        sparsifier.assert_sparse()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("method", [RL1(alpha=1e-3), DRR(alpha=1e-3), PMMP(alpha=1e-3)], ids=lambda method: type(method).__name__)
def test_a_sparse_gradient_under_a_penalty_in_the_gradient_is_named(method: Method, masked: bool) -> None:
    with pytest.raises(TypeError, match=r"the gradient of table\.weight is sparse, a penalty's is not: use sparse=False"):
        steps(Words(), method, masked=masked)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("method", [RL1(alpha=0.05, proximal=True), ADMM(alpha=1e-3)], ids=lambda method: type(method).__name__)
def test_a_sparse_gradient_under_a_proximal_method_is_taken(method: Method, masked: bool) -> None:
    model = Words()
    before = model.get_parameter("table.weight").detach().clone()
    steps(model, method, masked=masked)
    assert not torch.equal(model.get_parameter("table.weight").detach(), before)


@pytest.mark.parametrize("bag", [False, True])
def test_random_gradients_of_sparse_embeddings_are_those_of_dense_ones(bag: bool) -> None:
    sparse = Words(bag=bag)
    with torch.no_grad():
        sparse.head.weight[:, 1] = 0
    dense = duplicate(sparse)
    dense.get_submodule("table").sparse = False  # type: ignore[assignment]
    masks, expected = (random_gradient(model, [TOKENS]) for model in (sparse, dense))
    assert {name: mask.tolist() for name, mask in masks.items()} == {name: mask.tolist() for name, mask in expected.items()}
    assert not masks["table.weight"][:, 1].any()
    assert masks["table.weight"][:5, 0].all()


def hooked(kind: str) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[2].weight[:, 1] = 0
    if kind == "weight_norm":
        torch.nn.utils.weight_norm(model[0])
    elif kind == "spectral_norm":
        torch.nn.utils.spectral_norm(model[0])
    elif kind == "prune":
        torch.nn.utils.prune.l1_unstructured(model[0], "weight", 0.25)
    else:
        parametrizations.weight_norm(model[0])
    return model


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("weight_norm", "0.weight_v"),
        ("spectral_norm", "0.weight_orig"),
        ("prune", "0.weight_orig"),
        ("parametrization", "0.parametrizations.weight.original1"),
    ],
)
def test_random_gradients_reach_through_computed_weights(kind: str, name: str, called: bool) -> None:
    model = hooked(kind)
    if called:
        model(torch.ones(2, 4))  # the weight is then no leaf, which deepcopy refuses
    inputs = torch.randn(5, 4)
    expected = model(inputs).detach()
    masks = random_gradient(model, inputs)
    # Without its dead row a weight that is normalised becomes another one, or 0 / 0, so nothing of it is removed.
    assert bool(masks[name][1].any()) is (kind != "prune")
    assert masks[name][[0, 2]].any()
    with torch.no_grad():
        for key, mask in masks.items():
            model.get_parameter(key).mul_(mask)
    torch.testing.assert_close(model(inputs).detach(), expected)


def test_a_copy_computes_hooked_weights_from_its_own() -> None:
    model = hooked("weight_norm")
    inputs = 3 * torch.randn(20, 4)
    expected = model(inputs)
    with pytest.raises(ValueError, match=r"0 \(Linear\) keeps 'weight', computed from other tensors.*remove_weight_norm"):
        duplicate(model)
    copy = duplicate(model, recompute=True)
    torch.testing.assert_close(copy(inputs), expected)
    with torch.no_grad():
        copy.get_parameter("0.weight_g").zero_()
    assert torch.equal(model(inputs), expected)
    assert not torch.allclose(copy(inputs), expected)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "prune"])
def test_layerwise_pruning_beside_hooked_weights(kind: str) -> None:
    model = hooked(kind)
    result = layerwise_prune_(model, torch.randn(40, 4), zeros=0.5)
    assert [layer.name for layer in result.layers] == ["2"]
    assert [left.reason for left in result.left] == ["the weight is computed from other tensors"]


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("weight_norm", r"remove_weight_norm\(module\)"),
        ("spectral_norm", r"remove_spectral_norm\(module\)"),
        ("prune", r"prune\.remove\(module, \"weight\"\)"),
        ("parametrization", r"remove_parametrizations\(module, \"weight\"\)"),
    ],
)
def test_shrink_names_what_makes_a_computed_weight_a_parameter(kind: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"0 \(\w+\) computes its weight from other tensors: make it permanent first \(.*{remedy}\)"):
        shrink(hooked(kind), torch.randn(2, 4))


def scripted(kind: str) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if kind == "script":
            return torch.jit.script(model)
        if kind == "trace":
            return torch.jit.trace(model, torch.randn(2, 4))  # type: ignore[no-any-return]
        model[0] = torch.jit.script(model[0])
    return model


@pytest.mark.parametrize("kind", ["script", "trace", "part"])
def test_compiled_modules_are_regularised_and_refused_where_they_would_have_to_be_traced(kind: str) -> None:
    model = scripted(kind)
    for act in (shrink, fold):
        with pytest.raises(ValueError, match=r"(the model|0) is compiled by torch\.jit, so what it computes cannot be seen"):
            act(model, torch.randn(2, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze({"0.weight": torch.arange(12).reshape(3, 4) % 2 > 0})
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    sparsifier.assert_sparse()
    assert count_nonzeros(dict(model.named_parameters())["0.weight"][None]) == 6


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_sparse_weights_are_counted_and_otherwise_named(layout: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with torch.no_grad():
        warnings.simplefilter("ignore", UserWarning)  # CSR tensors are in beta state
        model[0].weight[:, 1:3] = 0
        stored = model[0].weight.to_sparse_csr() if layout == "csr" else model[0].weight.to_sparse()
    model[0].weight = nn.Parameter(stored)
    assert count_nonzeros(model) == 6 + 3 + 6 + 2
    for act in (select_parameters, lambda given: attach(torch.optim.SGD(given.parameters(), lr=0.1), given, RL1(alpha=1e-3))):
        with pytest.raises(TypeError, match=r"0\.weight is stored sparsely \(torch\.sparse_\w+\).*to_dense"):
            act(model)
    assert list(select_parameters(model, lambda name, module, parameter: name == "1.weight")) == ["1.weight"]
    with pytest.raises(ValueError, match=r"0\.weight is stored sparsely"):
        duplicate(model)
    with pytest.raises(ValueError, match=r"the weight of 0 \(Linear\) is stored sparsely"):
        shrink(model, torch.randn(2, 4))


class Codes(Tensor):
    """A moment of 8 bits, as torchao has them: it says that it is of floats, and can be neither masked nor filled."""

    @staticmethod
    def __new__(cls, like: Tensor) -> "Codes":
        return Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{cls.__name__} does not know {func}")


class LowBit(torch.optim.Optimizer):
    """Signs of the gradient, with a moment that nobody reads."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("exp_avg", Codes(parameter))
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def test_a_quantised_moment_is_left_alone_and_weights_are_masked_all_the_same() -> None:
    model = nn.Linear(4, 3)
    optimizer = LowBit(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()

    step()
    sparsifier.freeze({"weight": torch.arange(12).reshape(3, 4) % 2 > 0})
    step()
    sparsifier.assert_sparse()
    assert int((model.weight == 0).sum()) == 6
