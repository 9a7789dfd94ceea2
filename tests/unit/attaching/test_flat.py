import pytest
import torch
from torch.nn import functional

from ellzero.attaching import attach
from ellzero.attaching.flat import REFRESH, FlatProximal
from ellzero.methods import DRR, RL1
from ellzero.params import everything
from training_problems import digits_batches, equal, small_network

METHODS = [RL1(alpha=1e-3, proximal=True), DRR(alpha=1e-3, beta=5.0, proximal=True)]


def train(method, *, joined: bool, monkeypatch, steps: int = 60):
    if not joined:
        monkeypatch.setattr(FlatProximal, "fits", lambda self, *rest: False)
    model, (batches, _) = small_network(), digits_batches()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    sparsifier = attach(optimizer, model, method, select=everything)
    done = 0
    while done < steps:
        for batch in batches:
            optimizer.zero_grad()
            functional.cross_entropy(model(batch.inputs), batch.targets).backward()
            optimizer.step()
            done += 1
    monkeypatch.undo()
    return model, sparsifier


@pytest.mark.parametrize("method", METHODS)
def test_joined_parameters_step_as_single_ones_do(method, monkeypatch):
    monkeypatch.setattr("ellzero.attaching.flat.REFRESH", 1)  # the caps of every step, as single tensors have them
    joined, _ = train(method, joined=True, monkeypatch=monkeypatch)
    single, _ = train(method, joined=False, monkeypatch=monkeypatch)
    for one, other in zip(joined.parameters(), single.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        assert int(((one == 0) != (other == 0)).sum()) <= 2  # rounding may decide a scalar that is just at its threshold


def test_something_is_pruned_and_caps_are_kept_between_refreshes(monkeypatch):
    model, sparsifier = train(METHODS[1], joined=True, monkeypatch=monkeypatch)
    assert REFRESH > 1
    assert sum(int((p == 0).sum()) for p in model.parameters()) > 100
    caps = sparsifier.state_dict()["caps"][0]
    assert caps.keys() == dict(model.named_parameters()).keys()
    assert all(value > 0 for value in caps.values())


def test_a_run_resumed_between_refreshes_ends_with_the_same_bits():
    method, (batches, _) = METHODS[1], digits_batches()

    def steps(model, optimizer, first, last):
        for number in range(first, last):
            batch = next(batches.epoch(number))
            optimizer.zero_grad()
            functional.cross_entropy(model(batch.inputs), batch.targets).backward()
            optimizer.step()

    whole = small_network()
    optimizer = torch.optim.Adam(whole.parameters(), lr=2e-3)
    attach(optimizer, whole, method, select=everything)
    steps(whole, optimizer, 0, 3 * REFRESH)

    first = small_network()
    optimizer = torch.optim.Adam(first.parameters(), lr=2e-3)
    sparsifier = attach(optimizer, first, method, select=everything)
    steps(first, optimizer, 0, REFRESH + 5)
    second = small_network(seed=1)
    second.load_state_dict(first.state_dict())
    resumed = torch.optim.Adam(second.parameters(), lr=2e-3)
    resumed.load_state_dict(optimizer.state_dict())
    attach(resumed, second, method, select=everything).load_state_dict(sparsifier.state_dict())
    steps(second, resumed, REFRESH + 5, 3 * REFRESH)
    assert equal(whole, second)


@pytest.mark.parametrize(
    ("make", "fits"),
    [
        (lambda p: torch.optim.Adam(p), True),
        (lambda p: torch.optim.AdamW(p), True),
        (lambda p: torch.optim.Adam(p, amsgrad=True), False),
        (lambda p: torch.optim.SGD(p, lr=0.1), False),
        (lambda p: torch.optim.Adam([{"params": [one]} for one in p]), False),
    ],
)
def test_only_one_plain_group_of_adam_is_joined(make, fits):
    model = small_network()
    optimizer = make(list(model.parameters()))
    sparsifier = attach(optimizer, model, METHODS[0], select=everything)
    for _ in range(2):
        model(torch.rand(4, 64)).sum().backward()
        optimizer.step()
    assert FlatProximal().fits(METHODS[0], optimizer, dict(model.named_parameters()), sparsifier.at) is fits
