"""State travels in state dicts; nothing is put on the model, so copies, pickles, averages and compilation work."""

import io
import pickle
from copy import copy, deepcopy
from typing import Any

import pytest
import torch
from attach_support import data, half_masks, network, same, train
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ellzero.attaching._attach import attach
from ellzero.methods import DRR, RL1, Unregularised, ramp
from ellzero.params import count_parameters
from ellzero.types import Phase

METHOD = DRR(alpha=ramp(1e-3, 1e-2))
PROXIMAL = DRR(alpha=ramp(1e-3, 1e-2), proximal=True)


Wrapped = nn.DataParallel  # without a GPU it passes calls on, and names begin with `module.`


def run(method: Any, break_at: int | None, *, wrap_after: bool = False) -> nn.Module:
    """Ten steps, frozen at the fifth, saved and restored before step `break_at`."""
    model: nn.Module = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, method, total_steps=10)
    for step in range(10):
        if step == break_at:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "sparsifier": sparsifier.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            inner = network(seed=1)
            inner.load_state_dict(saved["model"])
            model = Wrapped(inner) if wrap_after else inner
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            sparsifier = attach(optimizer, model, method, total_steps=10)
            optimizer.load_state_dict(saved["optimizer"])
            sparsifier.load_state_dict(saved["sparsifier"])
            assert sparsifier.step == step
        if step == 5:
            sparsifier.freeze(half_masks({"0.weight": torch.empty(8, 6), "2.weight": torch.empty(3, 8)}), penalty=True)
        train(model, optimizer, [step])
    sparsifier.assert_sparse()
    return model.module if isinstance(model, Wrapped) else model


@pytest.mark.parametrize("method", [METHOD, PROXIMAL], ids=["gradient", "proximal"])
@pytest.mark.parametrize("break_at", [0, 3, 5, 8])
@pytest.mark.parametrize("wrap_after", [False, True])
def test_resumed_training_equals_uninterrupted(method: Any, break_at: int, wrap_after: bool) -> None:
    """Also story 13: the masks are enforced again after a load."""
    assert same(run(method, None), run(method, break_at, wrap_after=wrap_after))


def test_state_holds_phase_steps_and_masks_under_plain_names() -> None:
    model = Wrapped(network())
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    train(model, optimizer, range(2))
    sparsifier.freeze({"module.0.weight": torch.eye(8, 6)})
    state = sparsifier.state_dict()
    assert list(state["masks"]) == ["0.weight"]
    assert state["masks"]["0.weight"].dtype == torch.bool
    fresh_model = network(seed=3)
    fresh = attach(torch.optim.Adam(fresh_model.parameters()), fresh_model, RL1(alpha=1e-3))
    fresh.load_state_dict(state)
    assert (fresh.phase, fresh.step) == (Phase.FINE_TUNE, 2)
    assert int(torch.count_nonzero(fresh_model.get_parameter("0.weight"))) == 6
    two = network()
    pair = attach([torch.optim.Adam(two[0].parameters()), torch.optim.Adam(two[2].parameters())], two, RL1())
    with pytest.raises(ValueError, match="of 1 optimizers, and 2 are attached"):
        pair.load_state_dict(state)


def test_a_state_without_masks_releases_them() -> None:
    model = network()
    sparsifier = attach(torch.optim.Adam(model.parameters()), model, RL1())
    state = sparsifier.state_dict()
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    sparsifier.load_state_dict(state)
    assert sparsifier.masks is None
    assert sparsifier.phase is Phase.REGULARISE


def test_story_11_saving_does_not_touch_the_live_masks() -> None:
    model = network()
    sparsifier = attach(torch.optim.Adam(model.parameters()), model, RL1())
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    state = sparsifier.state_dict()
    state["masks"]["0.weight"].fill_(False)
    state["masks"].clear()
    assert int((sparsifier.masks or {})["0.weight"].sum()) == 6
    sparsifier.assert_sparse()


def test_story_10_checkpoints_are_plain() -> None:
    """No weight_orig, no weight_mask: the model's and the optimizer's state dicts are those of an unsparsified model."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    train(model, optimizer, [0])
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    plain = network()
    plain_optimizer = torch.optim.Adam(plain.parameters())
    train(plain, plain_optimizer, [0])
    assert list(model.state_dict()) == list(plain.state_dict())
    assert {k: set(v) for k, v in optimizer.state_dict()["state"].items()} == {
        k: set(v) for k, v in plain_optimizer.state_dict()["state"].items()
    }
    plain.load_state_dict(model.state_dict())
    dense = network(seed=9)
    model.load_state_dict(dense.state_dict())
    train(model, optimizer, [1])
    sparsifier.assert_sparse()


def test_stories_08_and_09_the_model_can_be_copied_and_pickled() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    train(model, optimizer, range(2))
    assert same(deepcopy(model), model)
    assert same(pickle.loads(pickle.dumps(model)), model)
    sparsifier.assert_sparse(deepcopy(model))


@pytest.mark.parametrize("how", [deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))], ids=["deepcopy", "pickle"])
def test_copies_of_the_optimizer_have_no_hooks_and_can_be_attached(how: Any) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    train(model, optimizer, [0])
    model_copy, optimizer_copy = how((model, optimizer))
    again = attach(optimizer_copy, model_copy, RL1(alpha=1e-3))
    again.load_state_dict(sparsifier.state_dict())
    for each, its_optimizer in ((model, optimizer), (model_copy, optimizer_copy)):
        train(each, its_optimizer, range(1, 4))
    assert same(model, model_copy)


@pytest.mark.parametrize("how", [copy, deepcopy, pickle.dumps])
def test_a_sparsifier_says_how_to_copy_it(how: Any) -> None:
    model = network()
    sparsifier = attach(torch.optim.Adam(model.parameters()), model, RL1())
    with pytest.raises(TypeError, match=r"cannot be copied or pickled.*state_dict\(\).*attach"):
        how(sparsifier)


def test_averages_of_weights_are_masked_on_request() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    train(model, optimizer, range(2))
    average.update_parameters(model)
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    train(model, optimizer, range(2))
    average.update_parameters(model)
    with pytest.raises(AssertionError, match=r"42 pruned weights are not 0 .*apply_masks_\(module\)"):
        sparsifier.assert_sparse(average)
    sparsifier.apply_masks_(average)
    sparsifier.assert_sparse(average)
    average.requires_grad_(False)
    sparsifier.assert_sparse(average)


def test_story_06_merged_adapters_are_masked_on_request() -> None:
    model = network()
    sparsifier = attach(torch.optim.Adam(model.parameters()), model, Unregularised())
    sparsifier.freeze({"0.weight": torch.eye(8, 6)})
    merged = deepcopy(model)
    with torch.no_grad():
        merged[0].weight += torch.randn(8, 2) @ torch.randn(2, 6)  # type: ignore[operator]
    sparsifier.apply_masks_(merged)
    sparsifier.assert_sparse(merged)
    assert int(torch.count_nonzero(merged.get_parameter("0.weight"))) == 6
    with pytest.raises(ValueError, match="has no parameter"):
        sparsifier.apply_masks_(nn.Linear(3, 3))
    other = network()
    other[0] = nn.Linear(5, 8)
    with pytest.raises(ValueError, match=r"shape \(8, 5\) in the copy, its mask \(8, 6\)"):
        sparsifier.apply_masks_(other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_stories_15_and_37_compiled_models_keep_their_names(backend: str) -> None:
    plain = network()
    compiled = torch.compile(network(), backend=backend, fullgraph=True)
    masks = {"0.weight": torch.eye(8, 6)}
    for model, names in ((plain, masks), (compiled, {f"_orig_mod.{name}": mask for name, mask in masks.items()})):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
        assert list(sparsifier.params) == ["0.weight", "2.weight"]
        train(model, optimizer, range(2))
        sparsifier.freeze(names, penalty=True)
        train(model, optimizer, range(2, 5))
        sparsifier.assert_sparse()
    torch.testing.assert_close(list(plain.parameters()), list(compiled.parameters()))


def test_story_34_tied_weights_are_counted_and_masked_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))

    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=1.0))
    assert list(sparsifier.params) == ["embedding.weight"]
    assert count_parameters(model) == 24
    assert sparsifier.penalty() == pytest.approx(float(model.head.weight.detach().abs().sum()))
    mask = torch.eye(6, 4) > 0
    with pytest.raises(ValueError, match=r"head\.weight is tied to embedding\.weight"):
        sparsifier.freeze({"embedding.weight": mask, "head.weight": ~mask})
    sparsifier.freeze({"head.weight": mask}, penalty=True)
    before = model.head.weight.detach().clone()
    optimizer.zero_grad()
    (model(torch.arange(6)).sum() * 0).backward()
    optimizer.step()
    torch.testing.assert_close(model.head.weight.detach(), before - 0.1 * before.sign())
    assert int(torch.count_nonzero(model.embedding.weight)) == 4


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU])
def test_story_16_recurrent_weights_are_regularised_and_masked(recurrent: Any) -> None:
    model = nn.ModuleDict({"rnn": recurrent(4, 5, num_layers=2, bidirectional=True, batch_first=True)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, DRR(alpha=1e-3))
    assert len(sparsifier.params) == 8
    assert all("bias" in name for name in sparsifier.skipped)
    masks = half_masks(sparsifier.params)
    for step in range(6):
        if step == 3:
            sparsifier.freeze(masks, penalty=True)
        optimizer.zero_grad()
        model["rnn"](torch.randn(3, 7, 4))[0].square().mean().backward()
        optimizer.step()
    sparsifier.assert_sparse()
    dense_copy = recurrent(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    dense_copy.load_state_dict(model["rnn"].state_dict())
    inputs = torch.randn(2, 3, 4)
    assert torch.equal(dense_copy(inputs)[0], model["rnn"](inputs)[0])


def test_stories_17_and_18_attention_and_encoder_layers_with_the_fast_path_on_and_off() -> None:
    model = nn.ModuleDict({"layer": nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    assert {"layer.self_attn.in_proj_weight", "layer.self_attn.out_proj.weight"} <= set(sparsifier.params)
    sparsifier.freeze(half_masks(sparsifier.params), penalty=True)
    for step in range(4):
        optimizer.zero_grad()
        inputs = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(step))
        model["layer"](inputs).square().mean().backward()
        optimizer.step()
    sparsifier.assert_sparse()
    model.eval()
    before = torch.backends.mha.get_fastpath_enabled()
    outputs = []
    try:
        for enabled in (True, False):
            torch.backends.mha.set_fastpath_enabled(enabled)
            with torch.no_grad():
                outputs.append(model["layer"](inputs))
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    sparsifier.assert_sparse()


def test_a_model_that_moves_to_another_type_keeps_its_masks() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, DRR(alpha=1e-3))
    sparsifier.freeze({"0.weight": torch.eye(8, 6)}, penalty=True)
    train(model, optimizer, [0])
    model.double()
    optimizer.zero_grad()
    model(data(0)[0].double()).square().mean().backward()
    optimizer.step()
    sparsifier.assert_sparse()
    assert int(torch.count_nonzero(model.get_parameter("0.weight"))) == 6
