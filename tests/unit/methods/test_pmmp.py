"""PMMP against autograd, brute force over gamma and over subsets, and torch's Adam; its gates, its masks, its collapse."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from ellzero.methods import PMMP, Alternating, ExactGates, Simultaneous, constraint, exact_gamma, geometric, pmmp_masks, ramp, undecided
from ellzero.methods.pmmp.formulas import ascents_into_, descents_into_, differences_into_
from ellzero.methods.pmmp.state import PMMPState, block_of
from ellzero.types import At
from gates import all_gates, expectation_by_enumeration

AT = At(progress=0.4, step=7)
NUMBERS = st.floats(-3, 3).map(lambda x: round(x, 6))


def some_params(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (2, 4)}
    return {name: nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for name, shape in shapes.items()}


def scattered(method: PMMP, params: dict[str, Tensor], seed: int = 1) -> PMMPState:
    """A state away from its beginning: w not theta, gamma between 0 and 1, u different everywhere."""
    generator = torch.Generator().manual_seed(seed)
    state = method.init(params)
    for each in state.every(params):
        each.w += torch.randn(each.w.shape, generator=generator, dtype=torch.float64)
        each.gamma.copy_(torch.rand(each.gamma.shape, generator=generator, dtype=torch.float64))
        each.u.copy_(torch.rand(each.u.shape, generator=generator, dtype=torch.float64))
    return state


def step_(method: PMMP, params: dict[str, Tensor], state: PMMPState, step: int = 1, lr: float = 0.0) -> None:
    """One step of SGD on a loss without data gradient."""
    for parameter in params.values():
        parameter.grad = torch.zeros_like(parameter)
    at = replace(AT, step=step)
    method.add_gradient_(params, state, at)
    with torch.no_grad():
        for parameter in params.values():
            parameter -= lr * parameter.grad  # type: ignore[operator]
    method.after_step_(params, state, {}, at)


def test_all_four_gradients_equal_autograd() -> None:
    method = PMMP(alpha=0.3, multiplier=1.7)
    params = some_params()
    state = scattered(method, params)
    variables = state.every(params)
    for_w, for_gamma, for_u, differences = ([torch.full_like(p, torch.nan).detach() for p in params.values()] for _ in range(4))
    with torch.no_grad():
        block = block_of(params, variables)
        differences_into_(differences, block)
        descents_into_(for_w, for_gamma, block, alpha=0.3, multiplier=1.7)
        ascents_into_(for_u, differences, block, multiplier=1.7)
    method.add_gradient_(params, state, AT)
    for each in variables:
        for tensor in (each.w, each.gamma, each.u):
            tensor.requires_grad_()
    value = method.penalty(params, state, AT)
    for (parameter, each), w, gamma, u in zip(zip(params.values(), variables, strict=True), for_w, for_gamma, for_u, strict=True):
        expected = torch.autograd.grad(value, [parameter, each.w, each.gamma, each.u], retain_graph=True)
        for own, other in zip((parameter.grad, w, gamma, -u), expected, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-11, atol=1e-13)
    assert all(bool((u <= 0).all()) for u in for_u)


def test_the_penalty_is_an_expectation_over_gates() -> None:
    """Corollary 2.4 before its maximum: E_z[alpha l0(z) + m u (theta - w z)^2], all 2^n gates enumerated."""
    params = {"w": torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))}
    method = PMMP(alpha=0.3, multiplier=1.7)
    state = scattered(method, params)
    each = state.of("w")

    def of_gates(z: Tensor) -> Tensor:
        return (0.3 * z + 1.7 * each.u * (params["w"] - each.w * z).square()).sum(dim=1)

    torch.testing.assert_close(method.penalty(params, state, AT), expectation_by_enumeration(of_gates, each.gamma), rtol=1e-12, atol=0)


@given(theta=NUMBERS, u=st.floats(0, 5), alpha=st.floats(0, 2), multiplier=st.floats(0.1, 10))
def test_the_exact_step_is_the_minimum_over_w_and_gamma(theta: float, u: float, alpha: float, multiplier: float) -> None:
    """By brute force: gamma at 0, 1 and between, w by scanning; the minimum is the capped square min(alpha, m u theta^2)."""
    at_theta = torch.tensor([theta], dtype=torch.float64)
    multipliers = torch.tensor([u], dtype=torch.float64)
    gamma = exact_gamma(at_theta, multipliers, alpha=alpha, multiplier=multiplier)
    method = PMMP(alpha=alpha, multiplier=multiplier)
    state = method.init({"x": at_theta})
    state.of("x").u.copy_(multipliers)

    def objective(w: Any, gamma: Any) -> Any:
        return alpha * gamma + multiplier * u * ((theta - w * gamma) ** 2 + w**2 * gamma * (1 - gamma))

    state.of("x").gamma.copy_(gamma)
    value = float(method.penalty({"x": at_theta}, state, AT))
    grid_w, grid_gamma = np.meshgrid(np.append(np.linspace(-4, 4, 161), theta), np.linspace(0, 1, 41))
    least = float(objective(grid_w, grid_gamma).min())
    assert float(gamma) in (0.0, 1.0)
    assert value == pytest.approx(min(alpha, multiplier * u * theta**2), rel=1e-12, abs=1e-12)
    assert value <= least + 1e-9
    assert value == pytest.approx(min(objective(theta, 0.0), objective(theta, 1.0)), rel=1e-9, abs=1e-12)


def test_the_exact_threshold_is_the_root_of_alpha_over_m_u() -> None:
    threshold = math.sqrt(0.2 / (1.5 * 0.4))
    theta = torch.tensor([0.999, 1.001, -0.999, -1.001], dtype=torch.float64) * threshold
    gamma = exact_gamma(theta, torch.full_like(theta, 0.4), alpha=0.2, multiplier=1.5)
    assert gamma.tolist() == [0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_minimax_equals_l0_regularised_least_squares(seed: int) -> None:
    """Corollary 2.4 for a linear model: min over theta of loss + capped square, as u grows, against all 2^n subsets."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(12, 5, dtype=torch.float64, generator=generator)
    y = X @ torch.tensor([1.0, 0.0, -0.6, 0.0, 0.05], dtype=torch.float64) + 0.1 * torch.randn(12, dtype=torch.float64, generator=generator)
    alpha = 0.5

    def least(u: float) -> float:
        """Minimises over theta and gates together: given the gates, theta solves a ridge regression with price u on closed ones."""
        found: list[float] = []
        for z in all_gates(5):
            theta = torch.linalg.solve(X.T @ X + u * torch.diag(1 - z), X.T @ y)
            method = PMMP(alpha=alpha, u=u, updates=ExactGates())
            state = method.init({"x": theta})
            state.of("x").gamma.copy_(exact_gamma(theta, state.of("x").u, alpha=alpha))
            found.append(float((y - X @ theta).square().sum() + method.penalty({"x": theta}, state, AT)))
        return min(found)

    subsets: list[float] = []
    for z in all_gates(5).bool():
        columns = X[:, z]
        rest = y - columns @ torch.linalg.lstsq(columns, y).solution if bool(z.any()) else y
        subsets.append(float(rest.square().sum() + alpha * z.sum()))
    values = [least(u) for u in (1e-2, 1.0, 1e2, 1e9)]
    assert values == sorted(values)
    assert values[0] < 0.9 * min(subsets)
    assert values[-1] == pytest.approx(min(subsets), rel=1e-6)


@given(theta=NUMBERS, w=NUMBERS, gamma=st.floats(0, 1))
def test_the_constraint_is_not_negative_and_least_at_theta(theta: float, w: float, gamma: float) -> None:
    tensors = [torch.tensor(value, dtype=torch.float64) for value in (theta, w, gamma)]
    value = float(constraint(*tensors))
    assert value >= 0
    assert value >= theta**2 * (1 - gamma) - 1e-9
    assert float(constraint(tensors[0], tensors[0], tensors[2])) == pytest.approx(theta**2 * (1 - gamma), abs=1e-9)


def test_simultaneous_steps_are_one_adam_on_all_four_from_one_point() -> None:
    """Against torch's Adam on leaves, with gradients by autograd and gamma clamped; theta moves too, by SGD, in between."""
    method = PMMP(alpha=0.05, p_init=0.5, u_init=0.1, lr=0.03, updates=Simultaneous())
    params, mirrored = some_params(), some_params()
    state, mirror = scattered(method, params), scattered(method, mirrored)
    down = [tensor for each in mirror.every(params) for tensor in (each.w, each.gamma)]
    up = [each.u for each in mirror.every(params)]
    leaves = [tensor.requires_grad_() for tensor in (*down, *up)]
    optimizer = torch.optim.Adam([{"params": down}, {"params": up, "maximize": True}], lr=0.03)
    for step in range(25):
        step_(method, params, state, step, lr=0.1)
        gradients = torch.autograd.grad(method.penalty(mirrored, mirror, AT), [*mirrored.values(), *leaves])
        for leaf, gradient in zip(leaves, gradients[len(mirrored) :], strict=True):
            leaf.grad = gradient
        optimizer.step()
        with torch.no_grad():
            for parameter, gradient in zip(mirrored.values(), gradients, strict=False):
                parameter -= 0.1 * gradient
            for each in mirror.every(params):
                each.gamma.clamp_(0.0, 1.0)
    gammas = torch.cat([each.gamma.flatten() for each in state.every(params)])
    assert bool((gammas == 0).any()) or bool((gammas == 1).any())
    for each, other in zip(state.every(params), mirror.every(params), strict=True):
        for name in ("w", "gamma", "u"):
            torch.testing.assert_close(getattr(each, name), getattr(other, name).detach(), rtol=1e-9, atol=1e-12)


def test_alternating_steps_ascend_after_the_descents_at_the_point_reached() -> None:
    method = PMMP(alpha=0.05, p_init=0.5, u_init=0.1, lr=0.03, updates=Alternating(descents=3))
    params = some_params()
    state = scattered(method, params)
    for step in range(1, 7):
        before = [each.u.clone() for each in state.every(params)]
        step_(method, params, state, step, lr=0.1)
        rising = step % 3 == 0
        for theta, each, u in zip(params.values(), state.every(params), before, strict=True):
            assert torch.equal(each.u, u) != rising
            if step == 3:
                # The first step of Adam: lr times the sign, but for eps, of the gradient at the new point.
                slope = constraint(theta.detach(), each.w, each.gamma)
                torch.testing.assert_close(each.u - u, 0.03 * slope / (slope + 1e-8), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_exact_steps_set_w_and_gamma_and_ascend_closed_gates_alone(multiplier: float) -> None:
    method = PMMP(alpha=0.05 * multiplier, u_init=0.1, multiplier=multiplier, lr=0.03, updates=ExactGates())
    params = some_params()
    state = method.init(params)
    step_(method, params, state)
    for theta, each in zip(params.values(), state.every(params), strict=True):
        open_gates = 0.1 * theta.detach() ** 2 > 0.05
        assert 0 < int(open_gates.sum()) < open_gates.numel()
        assert torch.equal(each.w, theta.detach())
        assert torch.equal(each.gamma.bool(), open_gates)
        torch.testing.assert_close(each.u, torch.where(open_gates, 0.1, 0.13).double(), rtol=1e-5, atol=0)
    for parameter in params.values():
        parameter.grad = None
    method.add_gradient_(params, state, AT)
    for theta, each in zip(params.values(), state.every(params), strict=True):
        expected = torch.where(each.gamma.bool(), 0.0, 2 * multiplier * each.u * theta.detach())
        torch.testing.assert_close(theta.grad, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("updates", [Simultaneous(), Alternating(), ExactGates()], ids=repr)
def test_a_given_u_follows_its_schedule_and_is_not_ascended(updates: Any) -> None:
    method = PMMP(alpha=1e-3, u=geometric(1e-2, 1.0), lr=1e-2, updates=updates)
    params = some_params()
    state = method.init(params)
    assert all(bool((each.u == 1e-2).all()) for each in state.every(params))
    step_(method, params, state)
    assert all(bool((each.u == geometric(1e-2, 1.0)(AT.progress)).all()) for each in state.every(params))


@pytest.mark.parametrize("p_init", [0.0, 0.5, 1.0])
def test_gamma_moves_by_the_learning_rate_and_stays_in_its_interval(p_init: float) -> None:
    """Before u matters every gamma falls by lr a step, whatever theta is, until it is clamped at 0."""
    method = PMMP(alpha=100.0, p_init=p_init, lr=0.02)
    params = some_params()
    state = method.init(params)
    for step in range(1, 8):
        step_(method, params, state, step)
        for each in state.every(params):
            expected = torch.full_like(each.gamma, max(0.0, p_init - 0.02 * step))
            torch.testing.assert_close(each.gamma, expected, rtol=0, atol=2e-4 * step)
            assert bool((each.u >= 0).all() & (each.u <= 0.022 * step).all())


def test_gamma_is_clamped_at_1() -> None:
    method = PMMP(alpha=0.0, p_init=0.99, u_init=1.0, lr=0.05)
    params = some_params()
    state = method.init(params)
    step_(method, params, state)
    assert all(bool((each.gamma == 1).all()) for each in state.every(params))


def test_steps_without_noted_gradients_move_nothing() -> None:
    """What was noted before a step is used once: neither at the beginning nor after a step is there anything to move along."""
    method = PMMP(alpha=1e-2, p_init=0.5, u_init=0.3, lr=0.05)
    params = some_params()
    state = method.init(params)
    for _ in range(2):
        before = {name: tensor.clone() for name, tensor in state.state_dict().items()}
        method.after_step_(params, state, {}, AT)
        assert all(torch.equal(tensor, before[name]) for name, tensor in state.state_dict().items())
        step_(method, params, state)
        assert not any(torch.equal(each.gamma, before[f"variables.{i}.gamma"]) for i, each in enumerate(state.every(params)))


def test_a_missing_learning_rate_is_named() -> None:
    method = PMMP(alpha=1e-2)
    params = some_params()
    state = method.init(params)
    with pytest.raises(ValueError, match=r"no learning rate is known for the auxiliary variables of a\.weight: attach PMMP, or pass lr="):
        step_(method, params, state)


def closing(method: PMMP, names: tuple[str, ...]) -> tuple[dict[str, Tensor], PMMPState]:
    """Gates that close at the next step in the layers named, and stay open elsewhere."""
    params = some_params()
    state = method.init(params)
    for name, each in zip(params, state.every(params), strict=True):
        each.gamma.fill_(1e-9 if name in names else 1.0)
    return params, state


def test_a_layer_whose_gates_all_close_is_named_once() -> None:
    method = PMMP(alpha=0.3, lr=0.01)
    params, state = closing(method, ("b.weight", "a.bias"))
    with pytest.warns(UserWarning, match=r"closed every gate of b\.weight: .*alpha = 0\.3, and m \* u \* theta\^2 is at most 0\.\d+"):
        step_(method, params, state, step=50)
    step_(method, params, state, step=100)
    assert state.collapsed == {"b.weight"}


def test_collapse_is_looked_for_every_50_steps() -> None:
    method = PMMP(alpha=0.3, lr=0.01)
    params, state = closing(method, ("a.weight", "b.weight"))
    step_(method, params, state, step=51)
    with pytest.warns(UserWarning, match=r"a\.weight, b\.weight"):
        step_(method, params, state, step=100)


def test_gates_that_have_yet_to_open_are_no_collapse() -> None:
    """From p_init = 0 every gate is closed; once some have opened, closing them all is a collapse, also after a resume."""
    method = PMMP(alpha=1e-4, p_init=0.0, lr=0.01)
    params = some_params()
    state = method.init(params)
    step_(method, params, state, step=0)
    assert not any(bool(each.opened) for each in state.every(params))
    for each in state.every(params):
        each.gamma.fill_(0.5)
    step_(method, params, state, step=50)
    resumed = method.init(params)
    resumed.load_state_dict(state.state_dict())
    resumed.of("b.weight").gamma.fill_(1e-9)
    resumed.of("b.weight").moments_gamma.first.fill_(1.0)
    with pytest.warns(UserWarning, match=r"closed every gate of b\.weight"):
        step_(method, params, resumed, step=100)


@pytest.mark.parametrize("updates", [Simultaneous(), Alternating()], ids=repr)
def test_weights_that_are_pulled_to_nothing_behind_gates_that_never_open_are_a_collapse(updates: Any) -> None:
    """From p_init = 0 no gate is ever open, so none closes; but the weights fall as u rises. They are named once, and not before."""
    method = PMMP(alpha=100.0, p_init=0.0, lr=0.02, updates=updates)
    params = some_params()
    state = method.init(params)
    starts = {name: float(theta.detach().abs().max()) for name, theta in params.items()}
    for step in range(50):
        step_(method, params, state, step, lr=0.01)
    assert all(float(theta.detach().abs().max()) > 0.1 * starts[name] for name, theta in params.items())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(50, 400):
            step_(method, params, state, step, lr=0.01)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1
    assert "PMMP has pulled every weight of a.weight, b.weight to nothing: at most 0.0" in messages[0]
    assert all(float(theta.detach().abs().max()) < 1e-3 * starts[name] for name, theta in params.items())
    assert not any(bool(each.gamma.any()) or bool(each.opened) for each in state.every(params))


def test_small_weights_are_no_collapse_while_a_gate_is_open_or_where_they_began_small() -> None:
    """Also where they began at 0, and after a resume: what a layer has reached is in its state."""
    method = PMMP(alpha=100.0, p_init=0.0, lr=0.01)
    params = some_params()
    with torch.no_grad():
        params["a.weight"] *= 1e-6
        params["b.weight"].zero_()
    state = method.init(params)
    step_(method, params, state, step=50)
    with torch.no_grad():
        params["b.weight"].fill_(1.0)
    step_(method, params, state, step=100)
    with torch.no_grad():
        params["b.weight"].fill_(0.04)
    resumed = method.init(params)
    resumed.load_state_dict(state.state_dict())
    resumed.of("b.weight").gamma.view(-1)[0] = 0.6
    resumed.of("b.weight").moments_gamma.first.zero_()
    step_(method, params, resumed, step=150)
    assert not resumed.collapsed
    resumed.of("b.weight").gamma.clamp_(max=0.5)
    with pytest.warns(UserWarning, match=r"every weight of b\.weight to nothing: at most 0\.04 of the largest .* gamma at most 0\.\d+"):
        step_(method, params, resumed, step=200)


def test_exact_steps_with_too_large_an_alpha_collapse_at_once_and_say_so() -> None:
    method = PMMP(alpha=1e3, u=1.0, updates=ExactGates())
    params = some_params()
    with pytest.warns(UserWarning, match=r"a\.weight, b\.weight"):
        step_(method, params, method.init(params), step=0)


def test_masks_from_gates_and_from_both() -> None:
    method = PMMP(alpha=1e-3)
    params = some_params()
    state = method.init(params)
    for each in state.every(params):
        each.gamma.fill_(0.0).view(-1)[:3] = torch.tensor([0.5, 0.51, 1.0], dtype=torch.float64)
    gates = pmmp_masks(state)
    assert {name: mask.flatten().nonzero().flatten().tolist() for name, mask in gates.items()} == {name: [1, 2] for name in params}
    assert {name: mask.shape for name, mask in gates.items()} == {name: theta.shape for name, theta in params.items()}
    assert int(pmmp_masks(state, above=0.4)["b.weight"].sum()) == 3
    other = torch.zeros(2, 4, dtype=torch.bool)
    other.view(-1)[[0, 2]] = True
    both = pmmp_masks(state, {"b.weight": other, "norm.weight": torch.tensor([True, False])})
    assert both["b.weight"].flatten().nonzero().flatten().tolist() == [2]
    assert torch.equal(both["a.weight"], gates["a.weight"])
    assert both["norm.weight"].tolist() == [True, False]


def test_masks_of_a_collapsed_layer_are_refused_by_name() -> None:
    state = PMMP().init(some_params())
    state.of("a.bias").gamma.fill_(0.0)
    assert not bool(pmmp_masks(state)["a.bias"].any())
    with pytest.raises(ValueError, match=r"no weight of b\.weight is kept by its gates and by the other masks"):
        pmmp_masks(state, {"b.weight": torch.zeros(2, 4, dtype=torch.bool)})
    state.of("b.weight").gamma.fill_(0.3)
    with pytest.raises(ValueError, match=r"every gate of b\.weight is closed \(gamma at most 0\.5\)"):
        pmmp_masks(state)
    with pytest.raises(ValueError, match="above must be in"):
        pmmp_masks(state, above=1.0)
    with pytest.raises(TypeError, match=r"expected the state of PMMP, got Linear: pass sparsifier\.state"):
        pmmp_masks(nn.Linear(2, 2))


def test_undecided_gates_are_counted_strictly_between_the_margins() -> None:
    params = {"a": torch.zeros(4, dtype=torch.float64), "b": torch.zeros(2, dtype=torch.float64)}
    state = PMMP().init(params)
    state.of("a").gamma.copy_(torch.tensor([0.0, 0.05, 0.5, 0.85], dtype=torch.float64))
    assert undecided(state) == pytest.approx(2 / 6)
    assert undecided(state, margin=0.2) == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_init": 1.5}, r"p_init is a probability in \[0, 1\], got 1\.5"),
        ({"p_init": math.nan}, "p_init is a probability"),
        ({"multiplier": 0.0}, r"multiplier must be finite and above 0, got 0\.0"),
        ({"u_init": -1.0}, r"u_init must be finite and at least 0, got -1\.0"),
        ({"u": ramp(-1.0, 1.0)}, r"u must be finite and at least 0, got -1\.0"),
        ({"lr": -1e-3}, r"lr must be finite and at least 0, got -0\.001"),
        ({"alpha": -1.0}, r"alpha must be finite and at least 0, got -1\.0"),
        ({"updates": ExactGates()}, "with u = 0 the exact step closes every gate"),
    ],
)
def test_bad_options_are_refused_with_their_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PMMP(**options)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("updates", "message"), [(ExactGates, r"updates=ExactGates is a class"), ("exact", r"updates='exact': .*Updates, got str")]
)
def test_classes_and_names_in_place_of_updates_are_refused(updates: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        PMMP(updates=updates)


def test_bad_descents_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Alternating\(descents=0\)"):
        Alternating(descents=0)
