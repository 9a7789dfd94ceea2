"""A model that changes after it was attached, and a method that begins after a prelude."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from attach_support import OPTIMIZERS, backward, half_masks, network, same, train
from torch import Tensor, nn

from ellzero.attaching import attach
from ellzero.attaching.masking import Keep
from ellzero.methods import ADMM, PMMP, RL1, Method
from ellzero.params import everything, select_parameters
from ellzero.types import Phase


def attached(method: Method | None = None) -> tuple[nn.Sequential, torch.optim.Optimizer, Any]:
    model = network()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    return model, optimizer, attach(optimizer, model, method or RL1(alpha=1e-3), total_steps=50)


def replace_by_loading(model: nn.Sequential) -> None:
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)


def replace_a_module(model: nn.Sequential) -> None:
    model[2] = nn.Linear(8, 3)


def prune_by_another_library(model: nn.Sequential) -> None:
    torch.nn.utils.prune.l1_unstructured(model[0], "weight", amount=0.5)


@pytest.mark.parametrize("replace", [replace_by_loading, replace_a_module, prune_by_another_library])
def test_tensors_replaced_after_attach_are_noticed_at_the_next_step(replace: Any) -> None:
    model, optimizer, sparsifier = attached()
    train(model, optimizer, range(2))
    sparsifier.freeze(half_masks(sparsifier.params))
    replace(model)
    with pytest.raises(RuntimeError, match=r"(another tensor|has been replaced).*attach again"):
        train(model, optimizer, range(1))
    with pytest.raises(AssertionError, match="no longer holds the tensors that are masked"):
        sparsifier.assert_sparse()


def test_a_layer_that_comes_to_the_optimizer_later_is_named() -> None:
    model, optimizer, _ = attached()
    model.add_module("3", nn.Linear(3, 3))
    optimizer.add_param_group({"params": list(model[3].parameters())})
    with pytest.raises(RuntimeError, match=r"3\.weight came to the optimizer after attach"):
        train(model, optimizer, range(1))


def test_parameters_of_another_model_may_come_to_the_optimizer() -> None:
    model, optimizer, _ = attached()
    optimizer.add_param_group({"params": list(nn.Linear(3, 3).parameters())})
    train(model, optimizer, range(2))


@pytest.mark.parametrize("method", [PMMP(alpha=1e-3, u_init=0.1), ADMM(alpha=1e-3)], ids=lambda method: type(method).__name__)
def test_a_method_with_variables_begins_where_the_prelude_has_led(method: Method) -> None:
    model, optimizer, sparsifier = attached(method)
    sparsifier.set_phase(Phase.PRELUDE)
    train(model, optimizer, range(10))
    sparsifier.set_phase(Phase.REGULARISE)
    fresh = method.init(select_parameters(model))
    assert all(torch.equal(sparsifier.state.state_dict()[name], tensor) for name, tensor in fresh.state_dict().items())
    train(model, optimizer, range(5))
    moved = {name: tensor.clone() for name, tensor in sparsifier.state.state_dict().items()}
    sparsifier.set_phase(Phase.FINE_TUNE)
    sparsifier.set_phase(Phase.REGULARISE)  # what it has learnt by then stays
    assert all(torch.equal(moved[name], tensor) for name, tensor in sparsifier.state.state_dict().items())


def test_a_resumed_prelude_begins_the_method_as_an_uninterrupted_one_does() -> None:
    ends: list[nn.Sequential] = []
    for interrupted in (False, True):
        model, optimizer, sparsifier = attached(ADMM(alpha=1e-3))
        sparsifier.set_phase(Phase.PRELUDE)
        train(model, optimizer, range(6))
        if interrupted:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), sparsifier.state_dict()))
            model, optimizer, sparsifier = attached(ADMM(alpha=1e-3))
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            sparsifier.load_state_dict(saved[2])
        sparsifier.set_phase(Phase.REGULARISE)
        train(model, optimizer, range(6))
        ends.append(model)
    assert same(*ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_leave_neither_nan_nor_a_negative_zero(dtype: torch.dtype) -> None:
    kept = torch.tensor([True, False, False, True])
    weight = nn.Parameter(torch.tensor([1.0, float("nan"), -2.0, 3.0], dtype=dtype))
    weight.grad = torch.tensor([1.0, float("inf"), -2.0, float("nan")], dtype=dtype)
    params: dict[str, Tensor] = {f"w{number}": nn.Parameter(weight.detach().clone()) for number in range(20)} | {"w": weight}
    keep = Keep(dict.fromkeys(params, kept))
    keep.apply_to_gradients_(params)
    keep.apply_to_weights_(params)
    for tensor in (weight, weight.grad, params["w3"]):
        pruned = tensor.detach()[~kept]
        assert torch.equal(pruned, torch.zeros(2, dtype=dtype))
        assert not bool(pruned.signbit().any())


def test_a_submodule_called_as_a_wrappers_is_another_name() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2))
            self.module = nn.Linear(2, 2, bias=False)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.module(inputs @ self.weight)

    model = Holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3), select=everything)
    assert sorted(sparsifier.params) == ["module.weight", "weight"]
    sparsifier.freeze({"module.weight": torch.tensor([[True, False], [True, True]])})
    assert bool((model.weight == 1).all())
    assert int((model.module.weight == 0).sum()) == 1
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    sparsifier.assert_sparse()


def test_a_step_after_a_change_that_replaces_nothing_is_as_before() -> None:
    model, optimizer, _ = attached()
    model.to(torch.float32).train().eval()
    model.register_buffer("extra", torch.ones(1))
    backward(model, 0)
    optimizer.step()
