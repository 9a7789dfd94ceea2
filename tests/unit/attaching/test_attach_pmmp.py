"""PMMP behind `attach`: its Adam follows the groups' learning rates, and a resumed run goes on bit for bit."""

import io
from typing import Any

import pytest
import torch
from attach_support import network, same, train

from ellzero.attaching._attach import attach
from ellzero.methods import PMMP, Alternating, ExactGates, Simultaneous, geometric, pmmp_masks
from ellzero.methods.pmmp.state import PMMPState
from ellzero.params import everything

METHODS = [
    PMMP(alpha=1e-3, p_init=0.6, u_init=1e-2, updates=Simultaneous()),
    PMMP(alpha=1e-3, p_init=0.6, u_init=1e-2, updates=Alternating(descents=2)),
    PMMP(alpha=1e-3, u=geometric(1e-2, 1.0), updates=ExactGates()),
    PMMP(alpha=1e-3, u_init=0.1, updates=ExactGates()),
]


def start(method: Any, seed: int = 0) -> tuple[Any, Any, Any]:
    model = network(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, attach(optimizer, model, method, total_steps=10)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("break_at", [1, 5])
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


def test_variables_move_at_the_rate_of_their_group_as_it_changes() -> None:
    """The first steps of Adam are lr long: gamma falls from 1 by the rate of its own group in that very step."""
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 1e-2}, {"params": model[2].parameters(), "lr": 1e-3}]
    optimizer = torch.optim.SGD(groups)
    sparsifier = attach(optimizer, model, PMMP(alpha=1.0), select=everything)
    assert isinstance(sparsifier.state, PMMPState)
    train(model, optimizer, [0])
    gammas = {name: sparsifier.state.of(name).gamma for name in sparsifier.params}
    torch.testing.assert_close(gammas["0.weight"], torch.full((8, 6), 1 - 1e-2))
    torch.testing.assert_close(gammas["2.bias"], torch.full((3,), 1 - 1e-3))
    optimizer.param_groups[0]["lr"] = 5e-2
    train(model, optimizer, [1])
    torch.testing.assert_close(gammas["0.weight"], torch.full((8, 6), 1 - 6e-2), rtol=1e-4, atol=0)


def test_an_own_rate_overrides_the_optimizer() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, PMMP(alpha=1.0, lr=0.2))
    train(model, optimizer, [0])
    assert isinstance(sparsifier.state, PMMPState)
    torch.testing.assert_close(sparsifier.state.of("0.weight").gamma, torch.full((8, 6), 0.8))


def test_two_optimizers_each_move_their_own_variables() -> None:
    model = network()
    optimizers = [torch.optim.Adam(model[index].parameters(), lr=1e-2) for index in (0, 2)]
    sparsifier = attach(optimizers, model, PMMP(alpha=1e-3))
    train(model, optimizers[0], [0, 1])
    assert isinstance(sparsifier.state, PMMPState)
    moved, still = (sparsifier.state.of(name) for name in ("0.weight", "2.weight"))
    assert (int(moved.moments_gamma.steps), int(still.moments_gamma.steps)) == (2, 0)
    assert bool((still.gamma == 1).all())


def test_nothing_of_the_method_is_in_the_optimizer_or_the_model() -> None:
    model, optimizer, sparsifier = start(PMMP(alpha=1e-3))
    train(model, optimizer, [0])
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.state) == len(list(model.parameters())) == len(model.state_dict())
    assert not list(sparsifier.state.parameters())


def test_a_whole_run_prunes_what_its_gates_close() -> None:
    """An exact PMMP with a rising u separates gates; the masks freeze what is left."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, PMMP(alpha=2e-3, u=geometric(0.05, 0.5), updates=ExactGates()), total_steps=150)
    train(model, optimizer, range(150))
    masks = pmmp_masks(sparsifier.state)
    sparsifier.freeze(masks)
    kept = sum(int(mask.sum()) for mask in masks.values())
    assert 10 <= kept <= 50
    train(model, optimizer, range(150, 160))
    sparsifier.assert_sparse()
