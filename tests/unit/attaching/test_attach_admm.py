"""ADMM behind `attach` and `sparsify`: a resumed run goes on bit for bit, and masks come from z."""

import io
from typing import Any

import pytest
import torch
from attach_support import network, same, train

from ellzero.attaching._attach import attach
from ellzero.data import Resident
from ellzero.methods import ADMM, admm_masks, geometric
from ellzero.params import everything
from ellzero.training import Epochs, Recipe, classification_loss, sparsify
from training_problems import digits_batches, small_network

METHODS = [
    ADMM(alpha=1e-3, tau=geometric(0.4, 0.1), every=3),
    ADMM(alpha=1e-3, tau=0.1, every=2, settle=0.4),
]


def start(method: Any, seed: int = 0) -> tuple[Any, Any, Any]:
    model = network(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, attach(optimizer, model, method, total_steps=10)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("break_at", [1, 4, 7])
def test_a_resumed_run_equals_an_unbroken_one(method: Any, break_at: int) -> None:
    whole, optimizer, _ = start(method)
    train(whole, optimizer, range(10))

    model, optimizer, sparsifier = start(method)
    train(model, optimizer, range(break_at))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "sparsifier": sparsifier.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    model, optimizer, sparsifier = start(method, seed=1)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    sparsifier.load_state_dict(saved["sparsifier"])
    train(model, optimizer, range(break_at, 10))
    assert same(whole, model)


def test_settled_masks_are_those_of_z_and_are_kept() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, ADMM(alpha=3e-3, tau=geometric(0.4, 0.1, end=0.7), every=5, settle=0.8), total_steps=100)
    train(model, optimizer, range(80))
    assert sparsifier.masks is None
    expected = admm_masks(sparsifier.state)
    train(model, optimizer, range(80, 100))
    masks = sparsifier.masks
    assert masks is not None
    assert all(torch.equal(masks[name], expected[name]) for name in expected)
    assert 0 < sum(int(mask.sum()) for mask in masks.values()) < sum(mask.numel() for mask in masks.values())
    sparsifier.assert_sparse()


def test_an_optimizer_without_steps_is_refused() -> None:
    model = network()
    with pytest.raises(TypeError, match="has no step per element"):
        attach(torch.optim.RMSprop(model.parameters()), model, ADMM(tau=0.1))


def test_sparsify_learns_digits_with_few_weights() -> None:
    train_batches, valid = digits_batches()
    assert isinstance(train_batches, Resident)
    result = sparsify(
        small_network(),
        classification_loss,
        train=train_batches,
        valid=valid,
        method=ADMM(alpha=3e-4, tau=geometric(0.8, 0.2, end=0.9), every=5, settle=0.95),
        progress=False,
        recipe=Recipe(select=everything, epochs=Epochs(prelude=15, regularise=30, fine_tune=10), prelude_lr=5e-3, lr=5e-3),
    )
    assert result.nonzeros < 0.5 * result.parameters
    assert result.history[-1].valid_loss is not None
    assert result.history[-1].valid_loss < 0.5
