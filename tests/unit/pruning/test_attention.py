"""Attention taken apart computes what it did, and its projections are pruned as linear layers."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ellzero.params import apply_masks_, everything, select_parameters
from ellzero.pruning import layerwise_prune_, magnitude_masks
from ellzero.pruning.attention import UnrolledAttention, unrolled


@pytest.fixture(autouse=True)
def _drawn_weights() -> Iterator[None]:
    """Layers draw their weights from the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class Around(nn.Module):
    """An attention with a layer behind it."""

    def __init__(self, kind: type[nn.MultiheadAttention] = nn.MultiheadAttention, **options: Any) -> None:
        super().__init__()
        self.attention = kind(8, 2, **options)
        self.head = nn.Linear(8, 3)
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.normal_(parameter, std=0.5)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **options: Any) -> Any:
        key = query if key is None else key
        outputs, weights = self.attention(query, key, key if value is None else value, **options)
        return self.head(outputs), weights


@pytest.mark.parametrize(
    ("made", "called"),
    [
        ({}, {}),
        ({"batch_first": True}, {"need_weights": False}),
        ({"bias": False}, {"average_attn_weights": False}),
        ({"add_bias_kv": True, "add_zero_attn": True}, {}),
        ({"kdim": 5, "vdim": 6, "batch_first": True}, {}),
        ({"batch_first": True}, {"key_padding_mask": torch.tensor([[False, False, False, True]] * 4)}),
        ({}, {"attn_mask": torch.triu(torch.ones(4, 4, dtype=torch.bool), 1), "is_causal": True, "need_weights": False}),
        ({"dropout": 0.5}, {}),
    ],
)
def test_attention_taken_apart_computes_what_it_did(made: dict[str, Any], called: dict[str, Any]) -> None:
    model = Around(**made).eval()
    sizes = (8, made.get("kdim", 8), made.get("vdim", 8))
    inputs = [torch.randn(4, 4, size) for size in sizes]
    expected = model(*inputs, **called)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with unrolled(model):
        assert type(model.attention) is UnrolledAttention
        torch.testing.assert_close(model(*inputs, **called), expected)
    assert type(model.attention) is nn.MultiheadAttention
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    unbatched = [given[0] for given in inputs]
    if "key_padding_mask" not in called:
        expected = model(*unbatched, **called)
        with unrolled(model):
            torch.testing.assert_close(model(*unbatched, **called), expected)


@pytest.mark.parametrize("made", [{"batch_first": True}, {"kdim": 8, "vdim": 8}, {"bias": False}, {"add_bias_kv": True}])
def test_projections_are_pruned(made: dict[str, Any]) -> None:
    model = Around(**made)
    inputs = torch.randn(40, 5, 8) @ torch.randn(8, 8)
    dense, other = model.eval()(inputs)[0].detach(), copy.deepcopy(model)
    result = layerwise_prune_(model, inputs, zeros=0.5)
    projections = [f"attention.{letter}_proj" for letter in "qkv"]
    assert [layer.name for layer in result.layers] == [*projections, "attention.out_proj", "head"]
    assert result.left == ()
    assert result.weights == 4 * 64 + 24
    assert result.share == 0.5
    for name, mask in result.masks.items():
        assert mask.shape == model.get_parameter(name).shape
        assert not model.get_parameter(name)[~mask].any()
    assert result.masks.keys() == {name for name, _ in model.named_parameters() if "bias_" not in name}
    params = select_parameters(other)
    apply_masks_(params, {name: magnitude_masks({name: p}, keep=p.numel() // 2)[name] for name, p in params.items()})
    ours, theirs = (float((one(inputs)[0] - dense).detach().square().mean()) for one in (model, other))
    assert ours < 0.7 * theirs


def test_a_transformer_is_pruned_without_its_fast_path() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False).eval()
    inputs = torch.randn(40, 5, 8)
    dense, other = model(inputs).detach(), copy.deepcopy(model)
    result = layerwise_prune_(model, inputs, zeros=0.5)
    assert result.left == ()
    assert len(result.layers) == 12
    assert result.share >= 0.5
    params = select_parameters(other)
    apply_masks_(params, {name: magnitude_masks({name: p}, keep=p.numel() // 2)[name] for name, p in params.items()})
    ours, theirs = (float((one(inputs) - dense).detach().square().mean()) for one in (model, other))
    assert ours < 0.5 * theirs


def test_biases_are_pruned_where_they_are_selected_and_others_are_listed() -> None:
    model = Around(add_bias_kv=True)
    result = layerwise_prune_(model, torch.randn(40, 5, 8), zeros=0.5, select=everything)
    assert [left.name for left in result.left] == ["attention.bias_k", "attention.bias_v"]
    assert {left.reason for left in result.left} == {"MultiheadAttention is no linear layer and no convolution"}
    bias = model.attention.in_proj_bias
    assert torch.equal(result.masks["attention.in_proj_bias"], bias != 0)
    assert result.weights == sum(parameter.numel() for parameter in model.parameters())


class Own(nn.MultiheadAttention):
    """A subclass, which may compute something else."""


def test_what_is_not_taken_apart_is_listed() -> None:
    subclass, hooked = Around(Own), Around()
    hooked.attention.register_forward_hook(lambda module, given, output: output)
    for model in (subclass, hooked):
        result = layerwise_prune_(model, torch.randn(40, 5, 8), zeros=0.5)
        assert [layer.name for layer in result.layers] == ["head"]
        assert [left.name for left in result.left] == ["attention.in_proj_weight", "attention.out_proj.weight"]
        assert result.left[1].reason == "no input given reaches it as a layer"


def test_attention_is_put_back_after_an_error() -> None:
    model = Around()
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        layerwise_prune_(model, torch.full((3, 2, 8), torch.nan), zeros=0.5)
    assert type(model.attention) is nn.MultiheadAttention
