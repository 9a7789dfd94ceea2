"""Phases in a loop of somebody else's, without a framework."""

import pytest
import torch
from integration_support import FREEZE, METHODS, PHASES, REGULARISE, STEPS, adam, batches, largest, network, plain_loop, same_bits
from torch.nn import functional

from ellzero.attaching._attach import attach
from ellzero.integrations.phases import Conductor, Phases, scalars
from ellzero.methods import RL1
from ellzero.types import Phase


@pytest.mark.parametrize("name", METHODS)
def test_a_conducted_loop_is_the_plain_loop(name: str) -> None:
    model = network()
    optimizer = adam(model)
    sparsifier = attach(optimizer, model, METHODS[name], total_steps=STEPS)
    conductor = Conductor(sparsifier, PHASES, STEPS)
    frozen: list[int] = []
    phases: list[Phase] = []
    for step, (inputs, labels) in enumerate(batches(), start=1):
        phases.append(sparsifier.phase)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if conductor.stepped(model):
            frozen.append(step)
    conductor.require_frozen()
    assert frozen == [FREEZE]
    assert phases == [Phase.PRELUDE] * REGULARISE + [Phase.REGULARISE] * (FREEZE - REGULARISE) + [Phase.FINE_TUNE] * (STEPS - FREEZE)
    assert same_bits(model, plain_loop(METHODS[name]))


def test_a_run_that_ends_dense_is_an_error() -> None:
    model = network()
    conductor = Conductor(attach(adam(model), model, RL1()), PHASES, STEPS)
    with pytest.raises(RuntimeError, match=r"after 0 optimizer steps, before masks were in force \(step 35\)"):
        conductor.require_frozen()


@pytest.mark.parametrize("shares", [{"regularise": 0.7}, {"freeze": 1.1}, {"regularise": -0.1}, {"regularise": 0.5, "freeze": 0.5}])
def test_phases_out_of_order_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected shares of the steps"):
        Phases(masks=largest, **shares)


def test_the_shortest_run_has_a_step_under_masks() -> None:
    model = network()
    optimizer = adam(model)
    conductor = Conductor(attach(optimizer, model, RL1()), Phases(masks=largest, freeze=1.0), 2)
    for inputs, labels in batches()[:2]:
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        conductor.stepped(model)
    conductor.require_frozen()


def test_what_a_logger_shows() -> None:
    model = network()
    optimizer = adam(model)
    sparsifier = attach(optimizer, model, RL1(alpha=0.5))
    total = sum(parameter.detach().abs().sum() for parameter in sparsifier.params.values())
    values = scalars(sparsifier)
    assert values["ellzero/penalty"] == pytest.approx(0.5 * float(total))
    assert values["ellzero/nonzeros"] == 512
    assert values["ellzero/density"] == 1.0
    inputs, labels = batches()[0]
    functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    assert scalars(sparsifier)["ellzero/gradient_norm_penalty"] == pytest.approx(0.5 * 512**0.5, rel=1e-4)


class _Wrapped:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


@pytest.mark.parametrize("package", ["accelerate.optimizer", "lightning.fabric.wrappers", "pytorch_lightning.core.optimizer"])
def test_attach_takes_off_what_frameworks_wrap_around_an_optimizer(package: str) -> None:
    model = network()
    optimizer = adam(model)
    wrapped = type("Wrapped", (_Wrapped,), {"__module__": package})
    sparsifier = attach(wrapped(optimizer), model, RL1(alpha=1e-2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert sparsifier.step == 1
    assert not torch.equal(before[0], next(model.parameters()))


def test_wrappers_that_nobody_knows_are_refused(unchecked: None) -> None:
    model = network()
    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer, got _Wrapped"):
        attach(_Wrapped(adam(model)), model, RL1())
