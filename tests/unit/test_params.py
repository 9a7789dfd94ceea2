"""What is selected, and under which name."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel

from ellzero.distributed import canonical_names, known_name
from ellzero.params import (
    aliases,
    apply_masks_,
    count_nonzeros,
    count_parameters,
    duplicate,
    everything,
    masks_from_zeros,
    named_parameters,
    select_parameters,
    weights,
)


class Tied(nn.Module):
    def __init__(self, *, tie: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm((1, 3))
        self.attention = nn.MultiheadAttention(3, 1)
        self.bilinear_bias = nn.Parameter(torch.ones(2, 2))
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.head = nn.Linear(3, 5, bias=False)
        if tie:
            self.head.weight = self.embedding.weight


@pytest.mark.parametrize("tie", [False, True])
def test_weights_are_selected_and_embeddings_norms_and_biases_are_not(tie: bool) -> None:
    attention = ["attention.in_proj_weight", "attention.out_proj.weight"]
    expected = ["embedding.weight", *attention] if tie else [*attention, "head.weight"]  # a head makes an embedding a weight
    assert sorted(select_parameters(Tied(tie=tie))) == sorted(expected)
    assert list(select_parameters(Tied(tie=tie), everything)) == list(named_parameters(Tied(tie=tie)))
    assert "frozen.weight" not in named_parameters(Tied(tie=tie))


def test_tied_tensors_count_once_under_their_first_name() -> None:
    model = Tied(tie=True)
    assert aliases(model) == {"head.weight": "embedding.weight"}
    assert count_parameters(Tied(tie=False)) - count_parameters(model) == 15
    with torch.no_grad():
        model.embedding.weight[0] = 0
    assert count_nonzeros(Tied(tie=True)) - count_nonzeros(model) == 3


def test_a_rule_is_asked_with_the_plain_name_and_the_owner() -> None:
    asked: list[tuple[str, type[nn.Module]]] = []

    def rule(name: str, module: nn.Module, parameter: torch.Tensor) -> bool:
        asked.append((name, type(module)))
        return name == "0.bias"

    assert list(select_parameters(AveragedModel(nn.Sequential(nn.Linear(2, 2))), rule)) == ["0.bias"]
    assert asked == [("0.weight", nn.Linear), ("0.bias", nn.Linear)]


class Holder(nn.Module):
    """Has submodules that are really called as wrappers call theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)
        self._orig_mod = nn.Sequential(nn.Linear(2, 2))
        self.block = AveragedModel(nn.Linear(2, 2))


def test_only_what_a_wrapper_adds_is_left_out_of_names() -> None:
    expected = ["module.weight", "_orig_mod.0.weight", "block.weight"]
    compiled = torch.compile(Holder(), backend="eager")
    for model in (Holder(), AveragedModel(Holder()), nn.DataParallel(Holder()), compiled, AveragedModel(compiled), nn.Sequential(Holder())):
        prefix = "0." if type(model) is nn.Sequential else ""
        assert sorted(select_parameters(model)) == sorted(prefix + name for name in expected)
    assert sorted(canonical_names(checkpoint_wrapper(Holder())).values())[-1] == "module.weight"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("module.weight", "module.weight"),
        ("module.module.weight", "module.weight"),
        ("_orig_mod.module.module.weight", "module.weight"),
        ("module.0.weight", "0.weight"),
        ("block._fsdp_wrapped_module.weight", "block.weight"),
        ("modules.weight", "modules.weight"),
    ],
)
def test_a_name_with_a_wrappers_prefix_means_the_known_one(given: str, expected: str) -> None:
    assert known_name(given, {"module.weight", "0.weight", "block.weight"}) == expected


def test_a_lazy_module_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"0\.weight has no shape yet.*run a batch through"):
        select_parameters(nn.Sequential(nn.LazyLinear(3)))


def test_masks_of_zeros_and_unknown_names() -> None:
    params = {"a": torch.tensor([1.0, 0.0, -0.0, float("nan")])}
    masks = masks_from_zeros(params)
    assert masks["a"].tolist() == [True, False, False, True]
    with pytest.raises(KeyError, match="no parameter is named 'b'"):
        apply_masks_(params, {"b": masks["a"]})
    apply_masks_(params, {"a": torch.tensor([True, True, True, False])})
    assert params["a"].tolist() == [1.0, 0.0, 0.0, 0.0]  # exactly 0, whatever stood there


def test_nothing_selected_is_an_error() -> None:
    with pytest.raises(ValueError, match="no parameter is selected"):
        select_parameters(nn.Sequential(nn.Embedding(3, 2), nn.LayerNorm((2, 2))), weights)


@pytest.mark.parametrize(
    "spoil", [lambda model: setattr(model, "kept", model.head.weight * 2), lambda model: setattr(model.head, "kept", model.head.weight + 1)]
)
def test_what_cannot_be_copied_is_named(spoil: Callable[[Tied], None]) -> None:
    model = Tied(tie=True)
    copy = duplicate(model)
    assert copy.get_parameter("head.weight") is copy.get_parameter("embedding.weight")
    spoil(model)
    with pytest.raises(ValueError, match=r"(the model \(Tied\)|head \(Linear\)) keeps 'kept', computed from other tensors"):
        duplicate(model)


def test_a_copy_shares_memory_where_its_original_does():
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(12.0).reshape(3, 4))
            self.part = nn.Parameter(self.weight.data[1:])
            self.other = nn.Parameter(torch.ones(2))
            self.register_buffer("flat", self.weight.data.view(-1))
            self.register_buffer("column", self.weight.data[:, 2])

    model = Views()
    copied = duplicate(model)
    assert isinstance(copied, Views)
    assert all(torch.equal(copied.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        copied.weight.fill_(7)
    for name in ("part", "flat", "column"):
        assert bool((copied.state_dict()[name] == 7).all()), name
    assert torch.equal(copied.other, torch.ones(2))
    assert torch.equal(model.weight, torch.arange(12.0).reshape(3, 4))
    assert torch.equal(model.state_dict()["flat"], torch.arange(12.0))
