"""The optimizer's own step per element, and the optimizers that have none."""

import math
from typing import Any

import pytest
import torch
from attach_support import OPTIMIZERS, WITH_STEPS, Lion, network, train
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.attaching.steps import CAP, SAMPLE, Caps, step_sizes
from ellzero.methods import DRR, RL1
from ellzero.methods.workspace import Workspace
from ellzero.params import everything


@pytest.mark.parametrize("optimizer_name", [name for name in WITH_STEPS if name.startswith("adam")])
def test_adam_step_is_its_formula_capped(optimizer_name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    train(model, optimizer, range(7))
    params: dict[str, Tensor] = dict(model.named_parameters())
    steps = step_sizes(optimizer, params, Workspace(), Caps())
    assert list(steps) == list(params)
    for name, parameter in params.items():
        state: Any = optimizer.state[parameter]
        v = state["max_exp_avg_sq" if "amsgrad" in optimizer_name else "exp_avg_sq"].double()
        raw = 1e-2 / ((v / (1 - 0.999**7)).sqrt() + 1e-8)
        expected = raw.clamp_max(CAP * sorted(raw.flatten().tolist())[v.numel() // 2])
        torch.testing.assert_close(steps[name].double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("optimizer_name", [name for name in WITH_STEPS if name.startswith("adam")])
def test_the_step_is_what_the_optimizer_does_to_a_unit_of_gradient(optimizer_name: str) -> None:
    """At constant gradient Adam moves by lr * sign(g), so step * |g| is lr: independent of the formula."""
    weight = nn.Parameter(torch.linspace(0.5, 2.0, 12).reshape(3, 4))
    optimizer = OPTIMIZERS[optimizer_name]([weight])
    gradient = torch.linspace(0.1, 0.4, 12).reshape(3, 4)
    for _ in range(20):
        weight.grad = gradient.clone()
        before = weight.detach().clone()
        optimizer.step()
    decay = 1e-2 * 0.1 * before if optimizer_name == "adamw" else 0.0
    steps = step_sizes(optimizer, {"w": weight}, Workspace(), Caps())
    torch.testing.assert_close(steps["w"] * gradient, before - weight.detach() - decay, rtol=1e-3, atol=1e-6)


def test_sgd_step_is_the_rate_of_its_group() -> None:
    model = network()
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters(), "lr": 0.25}], momentum=0.9)
    steps = step_sizes(optimizer, dict(model.named_parameters()), Workspace(), Caps())
    for name, parameter in model.named_parameters():
        assert torch.equal(steps[name], torch.full_like(parameter, 0.5 if name.startswith("0") else 0.25))


def adam_with_moments(v: Tensor, eps: float = 1e-8) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
    weight = nn.Parameter(torch.ones_like(v))
    optimizer = torch.optim.Adam([weight], lr=1.0, eps=eps)
    weight.grad = torch.ones_like(v)
    optimizer.step()
    optimizer.state[weight]["exp_avg_sq"] = v
    optimizer.state[weight]["step"] = torch.tensor(1e9)
    return optimizer, {"w": weight}


def test_the_cap_is_a_multiple_of_the_median_over_what_was_seen() -> None:
    v = torch.zeros(100, 10)
    v[:20] = 1.0
    v[0, 0] = 1e-12
    steps = step_sizes(*adam_with_moments(v), Workspace(), Caps())["w"]
    assert steps[0, 0] == pytest.approx(CAP)
    assert steps[1, 0] == pytest.approx(1.0)
    assert bool((steps[20:] == 0).all())


@pytest.mark.parametrize("eps", [1e-8, 0.0])
def test_nothing_seen_at_all_means_no_step(eps: float) -> None:
    assert bool((step_sizes(*adam_with_moments(torch.zeros(4, 3), eps), Workspace(), Caps())["w"] == 0).all())


@pytest.mark.parametrize("size", [SAMPLE - 1, SAMPLE, SAMPLE + 1, 3 * SAMPLE + 7])
def test_the_sampled_median_is_near_the_whole_one(size: int) -> None:
    v = torch.rand(size, 1, generator=torch.Generator().manual_seed(0)) ** 8
    steps = step_sizes(*adam_with_moments(v), Workspace(), Caps())["w"]
    raw = 1 / v.sqrt()
    assert float(steps.max()) <= 1.25 * CAP * float(raw.median())
    assert float(steps.max()) >= 0.8 * CAP * float(raw.median())


def test_embedding_rows_not_seen_yet_survive_a_proximal_step() -> None:
    """With v = 0 Adam's formula gives lr / eps, which would set every unseen row to 0 in one step."""
    model = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    attach(optimizer, model, DRR(alpha=1e-2, proximal=True), select=everything)
    before = model[0].weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.arange(5)).square().sum().backward()
        optimizer.step()
    assert torch.equal(model[0].weight[5:], before[5:])
    assert not torch.equal(model[0].weight[:5], before[:5])


def test_a_row_seen_rarely_is_not_lost_at_once() -> None:
    """After one small gradient v is tiny, and the uncapped step would be thousands of times the others'."""
    torch.manual_seed(0)  # a weight that is almost 0 would be lost rightly
    model = nn.Sequential(nn.Embedding(6, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    attach(optimizer, model, RL1(alpha=0.05, proximal=True), select=everything)
    for step in range(10):
        optimizer.zero_grad()
        weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1e-6 if step == 0 else 0.0])
        (model(torch.arange(6)) * weight[:, None]).sum().backward()
        optimizer.step()
    assert bool((model[0].weight[5] != 0).all())


@pytest.mark.parametrize("optimizer_name", WITH_STEPS)
def test_a_proximal_method_makes_exact_zeros(optimizer_name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    attach(optimizer, model, RL1(alpha=0.1, proximal=True))
    train(model, optimizer, range(60))
    zeros = int((model[0].weight == 0).sum())  # type: ignore[union-attr]
    assert 5 < zeros < 48
    assert bool((model[0].bias != 0).all())  # type: ignore[union-attr]


def test_the_proximal_step_is_taken_in_the_optimizers_metric() -> None:
    """The whole step by hand: Adam, then soft thresholding by lr * alpha / (sqrt(v) + eps)."""
    model, reference = network(), network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    reference_optimizer = torch.optim.Adam(reference.parameters(), lr=1e-2)
    attach(optimizer, model, RL1(alpha=1e-3, proximal=True))
    for step in range(4):
        train(model, optimizer, [step])
        train(reference, reference_optimizer, [step])
        for name in ("0.weight", "2.weight"):
            weight = reference.get_parameter(name)
            v = reference_optimizer.state[weight]["exp_avg_sq"] / (1 - 0.999 ** (step + 1))
            raw = 1e-2 / (v.sqrt() + 1e-8)
            threshold = 1e-3 * raw.clamp_max(CAP * sorted(raw.flatten().tolist())[math.floor(v.numel() / 2)])
            with torch.no_grad():
                weight.copy_(weight.sign() * (weight.abs() - threshold).clamp_min(0))
        torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer_type", [Lion, torch.optim.Muon, torch.optim.Adafactor, torch.optim.RMSprop, torch.optim.Adagrad])
def test_optimizers_without_a_step_refuse_proximal_methods(optimizer_type: Any) -> None:
    model = network()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    optimizer = optimizer_type(matrices, lr=1e-2)
    with pytest.raises(TypeError, match=rf"{optimizer_type.__name__} has no step per element.*proximal=False"):
        attach(optimizer, model, RL1(alpha=1e-3, proximal=True))
    attach(optimizer, model, RL1(alpha=1e-3))
    train(model, optimizer, range(3))


def test_a_proximal_method_leaves_alone_what_the_optimizer_has_not_stepped() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    attach(optimizer, model, RL1(alpha=1.0, proximal=True))
    before = model["unused"].weight.detach().clone()
    model["used"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(model["unused"].weight, before)
