"""What attach owes to methods with a state and changing masks, and to the user's optimizer."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from attach_support import half_masks, network, train
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.methods import RL1, Unregularised
from ellzero.methods.protocol import Laws, no_gradient_
from ellzero.types import At, Masks, Params, Phase, Scalar


class Counts(nn.Module):
    """A state: how often each parameter has been looked at."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        for name in params:
            self.register_buffer(name.replace(".", "_"), torch.zeros((), dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Prunes one more input of the first layer at every second step."""

    laws = Laws()
    proximal = False

    def init(self, params: Params) -> nn.Module:
        return Counts(params)

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        return torch.stack([(parameter * 0.0).sum() for parameter in params.values()]).sum()

    add_gradient_ = no_gradient_

    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        assert steps == {}  # computed for proximal methods only
        for name in params:
            state.get_buffer(name.replace(".", "_")).add_(1)

    def masks_(self, params: Params, state: nn.Module, at: At) -> Masks | None:
        if at.step % 2 == 0:
            return None
        return {"0.weight": torch.arange(6).expand(8, 6) > at.step // 2}


def test_masks_that_a_method_changes_hold_at_once_and_join_those_in_force() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    sparsifier = attach(optimizer, model, Drop(), inert_after=None)
    sparsifier.freeze({"2.weight": torch.ones(3, 8).tril()}, penalty=True)
    dead: list[int] = []
    for step in range(6):
        train(model, optimizer, [step])
        sparsifier.assert_sparse()
        dead.append(int((model.get_parameter("0.weight") == 0).all(0).sum()))
        weight = model.get_parameter("0.weight")
        assert int(torch.count_nonzero(optimizer.state[weight]["exp_avg"][weight == 0])) == 0
    assert dead == [0, 1, 1, 2, 2, 3]
    assert int(torch.count_nonzero(model.get_parameter("2.weight"))) == 6
    sparsifier.set_phase(Phase.FINE_TUNE)
    train(model, optimizer, range(2))
    sparsifier.assert_sparse()
    assert int((model.get_parameter("0.weight") == 0).all(0).sum()) == 3  # a method acts in its phase only


def test_a_methods_state_travels_in_the_sparsifiers_state() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, Drop(), inert_after=None)
    train(model, optimizer, range(3))
    saved = sparsifier.state_dict()
    assert {name: int(count) for name, count in saved["method"].items()} == {"0_weight": 3, "2_weight": 3}
    other = network()
    again = attach(torch.optim.Adam(other.parameters()), other, Drop(), inert_after=None)
    again.load_state_dict(saved)
    assert int(again.state.get_buffer("0_weight")) == 3


def test_the_users_optimizer_gets_no_group_and_no_state() -> None:
    model = network()
    optimizer = torch.optim.Adam([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}])
    before = deepcopy(optimizer.state_dict()["param_groups"])
    sparsifier = attach(optimizer, model, Drop(), inert_after=None)
    sparsifier.freeze(half_masks(sparsifier.params), penalty=True)
    assert optimizer.state_dict() == {"state": {}, "param_groups": before}


@pytest.mark.parametrize("how", [deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deepcopy", "pickle"])
def test_a_copied_optimizer_keeps_no_masks_and_assert_sparse_says_so(how: Callable[[Any], Any]) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze(half_masks(sparsifier.params))
    model_copy, optimizer_copy = how((model, optimizer))
    train(model_copy, optimizer_copy, [0])
    sparsifier.assert_sparse()
    with pytest.raises(AssertionError, match=r"unpickled or replaced optimizers have no hooks: attach again"):
        sparsifier.assert_sparse(model_copy)


def test_accumulated_gradients_with_several_optimizers_and_a_scaler() -> None:
    """The scaler steps each optimizer in its turn; each adds the penalty once to the sum of the micro-batches."""
    outcomes: list[list[Tensor]] = []
    for scale in (1.0, 2.0**12):
        model = network()
        pair = [torch.optim.Adam(model[index].parameters(), lr=1e-2, fused=fused) for index, fused in ((0, True), (2, False))]
        sparsifier = attach(pair, model, RL1(alpha=1e-2))
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for step in range(8):
            inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
            scaler.scale(model(inputs).square().mean() / 2).backward()
            if step % 2:
                for optimizer in pair:
                    scaler.step(optimizer)
                scaler.update()
                for optimizer in pair:
                    optimizer.zero_grad()
        assert sparsifier.step == 4
        outcomes.append([parameter.detach() for parameter in model.parameters()])
    torch.testing.assert_close(*outcomes, rtol=1e-4, atol=1e-6)


def test_reset_momentum_of_some_tensors_leaves_the_proximal_steps_of_others_alone() -> None:
    """Adam's counts of steps then differ from tensor to tensor, and with them the correction of each second moment."""
    outcomes: list[Tensor] = []
    for reset in (False, True):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, RL1(alpha=1e-3, proximal=True))
        train(model, optimizer, range(3))
        # Only the first layer is masked, by nothing that changes it, so that the last layer meets the same gradients.
        sparsifier.freeze({"0.weight": torch.ones(8, 6)}, penalty=True, reset_momentum=reset)
        optimizer.zero_grad()
        inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(9))
        model(inputs).square().mean().backward()
        optimizer.step()
        outcomes.append(model.get_parameter("2.weight").detach().clone())
    torch.testing.assert_close(*outcomes, rtol=1e-5, atol=1e-7)


def test_masked_training_without_a_penalty_keeps_what_is_not_named_dense() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(optimizer, model, Unregularised()).freeze({"0.weight": torch.eye(8, 6)})
    train(model, optimizer, [0])
    assert int(torch.count_nonzero(model.get_parameter("2.weight"))) == 24
