"""Masks hold: no optimizer, decay or momentum brings a pruned weight back."""

from typing import Any

import pytest
import torch
from attach_support import OPTIMIZERS, backward, data, half_masks, network, same, train
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.attaching.moments import clear_dead_moments_
from ellzero.methods import DRR, RL1, Unregularised
from ellzero.params import everything
from ellzero.types import Phase


def moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> list[Tensor]:
    return [value for value in optimizer.state[parameter].values() if isinstance(value, Tensor) and value.shape == parameter.shape]


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("penalty", [False, True])
def test_story_01_momentum_does_not_revive(optimizer_name: str, penalty: bool) -> None:
    """Stories 1 and 2: the invariant is tested after every step, with momentum built up before the freeze."""
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    sparsifier = attach(optimizer, model, DRR(alpha=1e-2))
    train(model, optimizer, range(5))
    masks = half_masks(sparsifier.params)
    sparsifier.freeze(masks, penalty=penalty)
    before = model[2].weight.detach().clone()  # type: ignore[union-attr,operator]
    for step in range(20):
        train(model, optimizer, [step])
        for name, mask in masks.items():
            assert bool((model.get_parameter(name)[~mask] == 0).all())
    sparsifier.assert_sparse()
    assert bool((model[2].weight != before)[masks["2.weight"]].all())  # type: ignore[index,union-attr]


@pytest.mark.parametrize("optimizer_name", ["sgd-momentum", "adam", "adam-amsgrad", "adam-fused", "adamw", "lion", "rmsprop"])
def test_dead_momentum_is_cleared_once_and_the_survivors_is_kept(optimizer_name: str) -> None:
    """Story 5: resetting the momentum of what survives is an option, not forced."""
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-2))
    train(model, optimizer, range(5))
    weight = model.get_parameter("0.weight")
    before = [moment.clone() for moment in moments(optimizer, weight)]
    assert before
    mask = half_masks(sparsifier.params)["0.weight"]
    sparsifier.freeze({"0.weight": mask})
    for old, new in zip(before, moments(optimizer, weight), strict=True):
        assert torch.equal(new, torch.where(mask, old, 0.0))
        assert int(torch.count_nonzero(old[~mask])) > 0


def test_story_05_reset_momentum_is_an_option() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-2))
    train(model, optimizer, range(5))
    sparsifier.freeze({"0.weight": torch.eye(8, 6)}, reset_momentum=True)
    assert model.get_parameter("0.weight") not in optimizer.state
    assert float(optimizer.state[model.get_parameter("2.weight")]["step"]) == 5
    train(model, optimizer, [5])
    assert float(optimizer.state[model.get_parameter("0.weight")]["step"]) == 1
    sparsifier.assert_sparse()


def test_step_counts_of_scalars_are_no_moments() -> None:
    scalar = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.Adam([scalar])
    scalar.grad = torch.ones(())
    optimizer.step()
    clear_dead_moments_([optimizer], {"s": scalar}, {"s": torch.tensor(False)})
    assert float(optimizer.state[scalar]["step"]) == 1
    assert float(optimizer.state[scalar]["exp_avg"]) == 0


def test_masked_training_equals_masks_in_the_forward() -> None:
    """The independent reference: theta * mask inside the graph, with plain SGD."""
    model, reference = network(), network()
    masks = half_masks({name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 2})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    attach(optimizer, model, Unregularised()).freeze(masks)
    reference_optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, range(5))
    with torch.no_grad():
        for name, mask in masks.items():
            reference.get_parameter(name).mul_(mask)
    for step in range(5):
        reference_optimizer.zero_grad()
        inputs, targets = data(step)
        overlay = {name: parameter * masks[name] if name in masks else parameter for name, parameter in reference.named_parameters()}
        nn.functional.mse_loss(torch.func.functional_call(reference, overlay, inputs), targets).backward()
        reference_optimizer.step()
    torch.testing.assert_close(model.state_dict(), reference.state_dict())


def test_gradients_of_pruned_weights_are_zero_at_the_step() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-2))
    mask = torch.eye(8, 6) > 0
    sparsifier.freeze({"0.weight": mask}, penalty=True)
    backward(model, 0)
    optimizer.step()
    gradient = model.get_parameter("0.weight").grad
    assert gradient is not None
    assert int(torch.count_nonzero(gradient[~mask])) == 0
    assert all(int(torch.count_nonzero(moment[~mask])) == 0 for moment in moments(optimizer, model.get_parameter("0.weight")))


def test_freeze_decides_about_the_penalty() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=0.1))
    sparsifier.freeze({"0.weight": torch.eye(8, 6)}, penalty=True)
    assert sparsifier.phase is Phase.REGULARISE
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    assert sparsifier.phase is Phase.FINE_TUNE


def test_unfreeze_lets_weights_grow_again() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze({"0.weight": torch.eye(8, 6)}, penalty=True)
    train(model, optimizer, [0])
    assert int(torch.count_nonzero(model.get_parameter("0.weight"))) == 6
    sparsifier.unfreeze()
    assert sparsifier.masks is None
    train(model, optimizer, [1])
    assert int(torch.count_nonzero(model.get_parameter("0.weight"))) == 48
    with pytest.raises(ValueError, match="nothing is frozen"):
        sparsifier.assert_sparse()


def test_new_masks_replace_older_ones() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, Unregularised())
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    sparsifier.freeze({"2.weight": torch.ones(3, 8).tril()})
    assert list(sparsifier.masks or {}) == ["2.weight"]
    train(model, optimizer, [0])
    assert int(torch.count_nonzero(model.get_parameter("0.weight"))) > 6
    assert int(torch.count_nonzero(model.get_parameter("2.weight"))) == 6


def test_the_callers_mask_is_copied() -> None:
    model = network()
    sparsifier = attach(torch.optim.SGD(model.parameters(), lr=0.1), model, Unregularised())
    mask = torch.eye(8, 6) > 0
    sparsifier.freeze({"0.weight": mask})
    mask.fill_(True)
    assert int((sparsifier.masks or {})["0.weight"].sum()) == 6


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"0.weigth": torch.ones(8, 6)}, r"no trainable parameter is named '0\.weigth'.*0\.weight"),
        ({"0.weight": torch.ones(6, 8)}, r"shape \(6, 8\), the parameter \(8, 6\)"),
        ({"0.weight": torch.full((8, 6), 0.5)}, "other than 0 and 1"),
        ({"0.weight": torch.zeros(8, 6)}, r"every weight of 0\.weight is pruned"),
        ({}, "no masks were given"),
    ],
)
def test_masks_that_do_not_fit_are_refused(masks: Any, message: str) -> None:
    model = network()
    before = network()
    sparsifier = attach(torch.optim.SGD(model.parameters(), lr=0.1), model, Unregularised())
    with pytest.raises(ValueError, match=message):
        sparsifier.freeze(masks)
    assert same(model, before)
    assert sparsifier.masks is None


def test_story_28_an_empty_layer_is_allowed_on_request_and_an_empty_bias_always() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, Unregularised())
    sparsifier.freeze({"0.bias": torch.zeros(8)})
    sparsifier.freeze({"0.weight": torch.zeros(8, 6)}, allow_empty_layers=True)
    train(model, optimizer, [0])
    assert int(torch.count_nonzero(model.get_parameter("0.weight"))) == 0


def test_masks_may_name_parameters_that_are_not_regularised_but_not_ones_without_an_optimizer() -> None:
    model = network()
    optimizer = torch.optim.SGD([*model[0].parameters(), model[2].weight], lr=0.1)
    sparsifier = attach(optimizer, model, Unregularised())
    kept = torch.arange(8) < 4
    sparsifier.freeze({"0.bias": kept})
    train(model, optimizer, [0])
    assert torch.equal(model.get_parameter("0.bias") != 0, kept)
    with pytest.raises(ValueError, match=r"2\.bias is masked, but no attached optimizer owns it"):
        sparsifier.freeze({"2.bias": torch.tensor([True, True, False])})


def test_story_12_from_zeros_on_request_and_never_by_accident() -> None:
    sparse = network()
    with torch.no_grad():
        sparse[0].weight.mul_(torch.eye(8, 6))  # type: ignore[operator]
    optimizer = torch.optim.SGD(sparse.parameters(), lr=0.1)
    by_accident = attach(optimizer, sparse, RL1(alpha=1e-3))
    assert by_accident.masks is None
    by_accident.detach()
    sparsifier = attach(optimizer, sparse, RL1(alpha=1e-3), from_zeros=True)
    assert sparsifier.phase is Phase.REGULARISE
    train(sparse, optimizer, range(3))
    assert int(torch.count_nonzero(sparse.get_parameter("0.weight"))) == 6
    dense = network()
    with pytest.raises(ValueError, match="no regularised weight is exactly 0"):
        attach(torch.optim.SGD(dense.parameters(), lr=0.1), dense, RL1(), from_zeros=True)


def test_story_03_assert_sparse_names_and_counts_what_came_back() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, Unregularised())
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    sparsifier.assert_sparse()
    with torch.no_grad():
        model[0].weight[0, 1:4] = torch.tensor([1.0, torch.nan, 1e-30])  # type: ignore[index]
    with pytest.raises(AssertionError, match=r"3 pruned weights are not 0 \(0\.weight: 3\).*attach again"):
        sparsifier.assert_sparse()
    with pytest.raises(ValueError, match=r"Linear has no parameter '0\.weight'"):
        sparsifier.assert_sparse(nn.Linear(2, 2))


def test_everything_includes_biases() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=0.5, proximal=True), select=everything)
    train(model, optimizer, range(40))
    assert "0.bias" in sparsifier.params
    assert int((model.get_parameter("0.bias") == 0).sum()) > 0


def test_story_02_weights_are_masked_again_after_an_update_that_mixes_elements() -> None:
    """Muon orthogonalises the momentum, so a pruned weight moves although its own gradient and momentum are 0."""
    model = network()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    optimizer = torch.optim.Muon(matrices, lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-2))
    train(model, optimizer, range(3))
    sparsifier.freeze(half_masks(sparsifier.params), penalty=True)
    for step in range(5):
        train(model, optimizer, [step])
        sparsifier.assert_sparse()
