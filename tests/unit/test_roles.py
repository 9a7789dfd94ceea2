"""Which parameters are weights, in modules of the shapes and names that are in use."""

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from ellzero.params import everything, rescaled, select_parameters, weight_norms


class Holder(nn.Module):
    """A module of somebody's own that holds one parameter."""

    def __init__(self, leaf: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_parameter(leaf, nn.Parameter(torch.ones(shape)))


class LayerNorm2d(Holder):
    """A normalisation outside torch.nn."""


class TopKRouter(Holder):
    """The router of a mixture of experts that is no linear layer."""


def is_selected(leaf: str, shape: tuple[int, ...], kind: type[Holder] = Holder, path: str = "block") -> bool:
    model = nn.Module()
    model.add_module("other", nn.Linear(2, 2))
    inner: nn.Module = kind(leaf, shape)
    *around, own = path.split(".")
    outer = model
    for part in around:
        outer.add_module(part, nn.Module())
        outer = outer.get_submodule(part)
    outer.add_module(own, inner)
    return f"{path}.{leaf}" in select_parameters(model)


@pytest.mark.parametrize(
    ("leaf", "shape"),
    [
        ("cls_token", (1, 1, 8)),
        ("class_token", (1, 1, 8)),
        ("mask_token", (1, 1, 8)),
        ("reg_token", (1, 4, 8)),
        ("register_tokens", (1, 4, 8)),
        ("query_tokens", (1, 32, 8)),
        ("pos_embed", (1, 17, 8)),
        ("pos_embedding", (1, 17, 8)),
        ("position_embeddings", (1, 17, 8)),
        ("positional_embedding", (77, 8)),
        ("absolute_pos_embed", (1, 16, 8)),
        ("rel_pos_h", (27, 8)),
        ("relative_position_bias_table", (169, 4)),
        ("attention_biases", (4, 49)),
        ("bias_k", (1, 1, 8)),
        ("down_proj_bias", (4, 8)),
        ("layer_scale", (8, 1, 1)),
        ("layer_scale_1", (8, 1, 1)),
        ("gamma", (1, 8, 1, 1)),
        ("logit_scale", (4, 1, 1)),
        ("temperature", (4, 1, 1)),
        ("A_log", (8, 4)),
        ("time_decay", (1, 1, 8)),
    ],
)
def test_tokens_positions_scales_and_biases_are_no_weights(leaf: str, shape: tuple[int, ...]) -> None:
    assert not is_selected(leaf, shape)


@pytest.mark.parametrize(
    ("leaf", "shape"),
    [
        ("weight", (8, 4)),
        ("weight", (1, 8)),
        ("proj", (8, 4)),
        ("text_projection", (8, 4)),
        ("gate_up_proj", (2, 8, 4)),
        ("embed_proj", (8, 4)),
        ("W", (8, 4)),
        ("lora_A", (2, 8)),
        ("kernel", (8, 4, 3, 3)),
        ("pos_proj_weight", (8, 4)),
    ],
)
def test_matrices_of_unknown_modules_are_weights(leaf: str, shape: tuple[int, ...]) -> None:
    assert is_selected(leaf, shape)


def test_normalisation_outside_torch_is_told_by_its_class() -> None:
    assert not is_selected("weight", (3, 8, 8), LayerNorm2d)
    assert not is_selected("weight", (1, 8, 1, 1))


@pytest.mark.parametrize(
    ("path", "module", "selected"),
    [
        ("block_sparse_moe.gate", nn.Linear(16, 8, bias=False), False),
        ("mlp.shared_expert_gate", nn.Linear(16, 1, bias=False), False),
        ("mlp.router.classifier", nn.Linear(16, 8), False),
        ("mlp.router", nn.Linear(16, 16), False),
        ("mlp.router", TopKRouter("weight", (8, 16)), False),
        ("mlp.anything", TopKRouter("weight", (8, 16)), False),
        ("moe.gate.wg", nn.Linear(16, 8), False),
        ("mlp.gate_proj", nn.Linear(16, 8), True),
        ("glu.gate", nn.Linear(16, 16), True),
        ("experts.0.w1", nn.Linear(16, 8), True),
    ],
)
def test_routers_are_no_weights_and_gated_layers_are(path: str, module: nn.Module, selected: bool) -> None:
    model = nn.Module()
    model.add_module("other", nn.Linear(2, 2))
    outer = model
    for part in path.split(".")[:-1]:
        outer.add_module(part, nn.Module())
        outer = outer.get_submodule(part)
    outer.add_module(path.rpartition(".")[2], module)
    assert (f"{path}.weight" in select_parameters(model)) is selected


def test_what_torch_calls_layers_is_selected_whatever_its_shape() -> None:
    model = nn.ModuleDict(
        {
            "one": nn.Linear(5, 1),
            "wide": nn.Linear(1, 5),
            "depthwise": nn.Conv2d(4, 4, 3, groups=4),
            "point": nn.Conv2d(1, 4, 1),
            "attention": nn.MultiheadAttention(4, 2, add_bias_kv=True, kdim=3, vdim=3),
            "rnn": nn.LSTM(4, 4, proj_size=2),
            "bilinear": nn.Bilinear(2, 3, 1),
        }
    )
    left = set(select_parameters(model, everything)) - set(select_parameters(model))
    assert {name for name in left if "bias" not in name} == set()
    assert {"attention.bias_k", "attention.bias_v"} <= left


def old_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.nn.utils.weight_norm(module)


def test_of_weight_norm_the_directions_are_selected_and_the_norms_are_not() -> None:
    old, new = nn.Sequential(old_weight_norm(nn.Linear(4, 3))), nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)))
    assert list(select_parameters(old)) == ["0.weight_v"]
    assert list(select_parameters(new)) == ["0.parametrizations.weight.original1"]
    assert weight_norms(old)["0.weight_v"].norms == "0.weight_g"
    assert weight_norms(new)["0.parametrizations.weight.original1"].norms == "0.parametrizations.weight.original0"
    alone = parametrizations.weight_norm(nn.Conv1d(4, 3, 2))
    assert list(select_parameters(alone)) == ["parametrizations.weight.original1"]
    assert len(select_parameters(new, everything)) == 3


def test_a_parametrized_embedding_is_an_embedding() -> None:
    model = nn.Sequential(parametrizations.spectral_norm(nn.Embedding(5, 3)), nn.Linear(3, 2))
    assert list(select_parameters(model)) == ["1.weight"]


class Symmetric(nn.Module):
    def forward(self, matrix: Tensor) -> Tensor:
        return matrix.triu() + matrix.triu(1).T


class Masked(nn.Module):
    def forward(self, matrix: Tensor) -> Tensor:
        return 3 * matrix * (torch.arange(matrix.numel()) % 3 > 0).view(matrix.shape)


class AddedTo(nn.Module):
    def forward(self, matrix: Tensor) -> Tensor:
        return matrix + 0.1


@pytest.mark.parametrize("kind", ["orthogonal", "symmetric", "added to"])
def test_parametrizations_in_which_zeros_do_not_survive_are_refused_by_name(kind: str) -> None:
    linear = nn.Linear(4, 4)
    if kind == "orthogonal":
        parametrizations.orthogonal(linear)
    else:
        parametrize.register_parametrization(linear, "weight", Symmetric() if kind == "symmetric" else AddedTo())
    model = nn.Sequential(linear, nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"0\.parametrizations\.weight\.original is parametrized by .*remove_parametrizations"):
        select_parameters(model)
    assert list(select_parameters(model, lambda name, module, parameter: name == "1.weight")) == ["1.weight"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_parametrizations_of_each_element_are_taken() -> None:
    linear = nn.Linear(4, 4)
    parametrize.register_parametrization(linear, "weight", Masked())
    assert list(select_parameters(linear)) == ["parametrizations.weight.original"]
    assert rescaled(linear, select_parameters(linear)) == {}


def test_spectral_norm_is_said_to_rescale_and_its_vectors_stay() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        old = nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(4, 3)))
    new = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 3)))
    before = {name: tensor.clone() for name, tensor in new.state_dict().items()}
    assert rescaled(old, select_parameters(old)) == {"0.weight_orig": "spectral_norm"}
    assert rescaled(new, select_parameters(new)) == {"0.parametrizations.weight.original": "SpectralNorm"}
    assert all(torch.equal(tensor, before[name]) for name, tensor in new.state_dict().items())
