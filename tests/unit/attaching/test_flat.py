import pytest
import torch
from torch.nn import functional

from ellzero.attaching import attach
from ellzero.attaching.flat import FlatProximal
from ellzero.attaching.steps import REFRESH
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
    joined, _ = train(method, joined=True, monkeypatch=monkeypatch)
    single, _ = train(method, joined=False, monkeypatch=monkeypatch)
    for one, other in zip(joined.parameters(), single.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
        assert int(((one == 0) != (other == 0)).sum()) <= 2  # rounding may decide a scalar that is just at its threshold


def whole(model):
    return [list(model.parameters())]


def by_dimension(model):
    return [[p for p in model.parameters() if p.ndim >= 2], [p for p in model.parameters() if p.ndim < 2]]


def one_each(model):
    return [[p] for p in model.parameters()]


def grouped_run(group, method, *, options=(), optimizers=False, late=False, steps=100):
    """Trains with the parameters in groups, `options` for the second and later ones, or with one optimizer for each group."""
    model, (batches, _) = small_network(), digits_batches()
    groups = [{"params": own, **(dict(options) if number else {})} for number, own in enumerate(group(model))]
    make = lambda given: torch.optim.AdamW(given, lr=2e-3, weight_decay=0.0)  # noqa: E731
    several = [make([own]) for own in groups] if optimizers else [make(groups)]
    attach(several, model, method, select=everything)
    for number in range(steps):
        batch = next(batches.epoch(number))
        for optimizer in several:
            optimizer.zero_grad()
        functional.cross_entropy(model(batch.inputs), batch.targets).backward()
        if late and 20 <= number < 50:
            next(model.parameters()).grad = None  # as a layer that stochastic depth leaves out
        for optimizer in several:
            optimizer.step()
    return model


def check_grouping_changes_nothing(first, *others):
    assert sum(int((p == 0).sum()) for p in first.parameters()) > 100
    for other in others:
        for one, same in zip(first.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, same, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_grouping_changes_nothing(method):
    check_grouping_changes_nothing(
        grouped_run(whole, method),
        grouped_run(by_dimension, method),
        grouped_run(one_each, method),
        # An option without effect here makes groups that cannot be merged.
        grouped_run(by_dimension, method, options={"amsgrad": False, "weight_decay": 1e-30}),
        grouped_run(one_each, method, optimizers=True),
    )


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_grouping_changes_nothing_where_groups_differ_in_weight_decay(method):
    decayed = {"weight_decay": 0.1}
    check_grouping_changes_nothing(
        grouped_run(by_dimension, method, options=decayed),
        grouped_run(by_dimension, method, options=decayed, optimizers=True),
    )


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_grouping_changes_nothing_where_a_layer_is_left_out_for_some_steps(method):
    check_grouping_changes_nothing(grouped_run(whole, method, late=True), grouped_run(one_each, method, late=True))


def test_something_is_pruned_and_caps_are_kept_between_refreshes(monkeypatch):
    model, sparsifier = train(METHODS[1], joined=True, monkeypatch=monkeypatch)
    assert REFRESH > 1
    assert sum(int((p == 0).sum()) for p in model.parameters()) > 100
    caps = sparsifier.state_dict()["caps"][0]
    assert caps.keys() == dict(model.named_parameters()).keys()
    assert all(value > 0 for value in caps.values())


@pytest.mark.parametrize("group", [whole, one_each])
def test_a_run_resumed_between_refreshes_ends_with_the_same_bits(group):
    method, (batches, _) = METHODS[1], digits_batches()

    def adam(model):
        return torch.optim.Adam([{"params": own} for own in group(model)], lr=2e-3)

    def steps(model, optimizer, first, last):
        for number in range(first, last):
            batch = next(batches.epoch(number))
            optimizer.zero_grad()
            functional.cross_entropy(model(batch.inputs), batch.targets).backward()
            optimizer.step()

    straight = small_network()
    optimizer = adam(straight)
    attach(optimizer, straight, method, select=everything)
    steps(straight, optimizer, 0, 3 * REFRESH)

    first = small_network()
    optimizer = adam(first)
    sparsifier = attach(optimizer, first, method, select=everything)
    steps(first, optimizer, 0, REFRESH + 5)
    second = small_network(seed=1)
    second.load_state_dict(first.state_dict())
    resumed = adam(second)
    resumed.load_state_dict(optimizer.state_dict())
    attach(resumed, second, method, select=everything).load_state_dict(sparsifier.state_dict())
    steps(second, resumed, REFRESH + 5, 3 * REFRESH)
    assert equal(straight, second)


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
