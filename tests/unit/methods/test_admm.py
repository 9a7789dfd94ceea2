"""ADMM as a method: its three steps against formulas written out, its fixed points, its masks, its collapse."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from ellzero.distributed import WorkerMean
from ellzero.methods import ADMM, admm_masks, admm_residual, geometric, ramp
from ellzero.methods.admm.state import ADMMState
from ellzero.types import At

AT = At(progress=0.4, step=7)


def some_params(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (2, 4)}
    return {name: nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for name, shape in shapes.items()}


def steps_of(params: dict[str, Tensor], value: float = 0.1) -> dict[str, Tensor]:
    return {name: torch.full_like(x, value).detach() for name, x in params.items()}


def scattered(method: ADMM, params: dict[str, Tensor], seed: int = 1) -> ADMMState:
    generator = torch.Generator().manual_seed(seed)
    state = method.init(params)
    assert isinstance(state, ADMMState)
    for each in state.every(params):
        each.z.copy_(torch.randn(each.z.shape, generator=generator, dtype=torch.float64))
        each.u.copy_(torch.randn(each.u.shape, generator=generator, dtype=torch.float64))
        each.rho.fill_(method.rho(AT))
    return state


def test_the_x_step_is_the_implicit_proximal_step_in_the_optimizers_metric() -> None:
    """By scipy: the minimum of (y - x)^2 / (2 step) + rho/2 (y - z + u)^2 for each weight, with a step of its own."""
    method = ADMM(alpha=0.3, tau=0.5, every=1000)
    params = some_params()
    state = scattered(method, params)
    generator = torch.Generator().manual_seed(5)
    steps = {name: torch.rand(x.shape, generator=generator, dtype=torch.float64) for name, x in params.items()}
    steps["a.bias"][0] = 0.0
    before = {name: x.detach().clone() for name, x in params.items()}
    method.after_step_(params, state, steps, AT)
    assert torch.equal(params["a.bias"][0], before["a.bias"][0])
    for name, each in zip(params, state.every(params), strict=True):
        flat = zip(*(t.flatten().tolist() for t in (before[name], each.z, each.u, steps[name], params[name])), strict=True)
        for x, z, u, step, after in flat:

            def objective(y: float, x: float = x, z: float = z, u: float = u, step: float = step) -> float:
                return (y - x) ** 2 / 2 + step * (2 * 0.3 / 0.25) / 2 * (y - z + u) ** 2

            assert after == pytest.approx(minimize_scalar(objective, bounds=(-9, 9), method="bounded").x, abs=1e-5)


def test_z_and_u_move_by_eq_36_and_37_every_few_steps() -> None:
    method = ADMM(alpha=0.3, tau=0.5, every=4)
    params = some_params()
    state = scattered(method, params)
    for step in range(7):
        old = [(each.z.clone(), each.u.clone()) for each in state.every(params)]
        method.after_step_(params, state, steps_of(params), replace(AT, step=step))
        for x, each, (z, u) in zip(params.values(), state.every(params), old, strict=True):
            if step == 3:
                q = x.detach() + u
                kept = q.abs() > 0.5
                assert bool(kept.any())
                assert not bool(kept.all())
                assert torch.equal(each.z, torch.where(kept, q, 0.0))
                assert torch.equal(each.u, torch.where(kept, 0.0, q))
            else:
                assert torch.equal(each.z, z)
                assert torch.equal(each.u, u)


def test_the_multiplier_y_stays_when_rho_moves() -> None:
    """Of weights that are 0 in z before and after, y = rho u grows by rho (x - z) alone, although rho is 16 times what it was."""
    method = ADMM(alpha=0.3, tau=geometric(2.0, 0.5), every=1)
    params = {"w": nn.Parameter(torch.full((3,), 0.01, dtype=torch.float64))}
    state = method.init(params)
    assert isinstance(state, ADMMState)
    (each,) = state.every(params)
    nowhere = {"w": torch.zeros(3, dtype=torch.float64)}
    method.after_step_(params, state, nowhere, At(progress=0.0))
    y = method.rho(At(progress=0.0)) * each.u
    method.after_step_(params, state, nowhere, At(progress=1.0))
    rho = method.rho(At(progress=1.0))
    assert rho == pytest.approx(16 * method.rho(At(progress=0.0)))
    torch.testing.assert_close(rho * each.u, y + rho * params["w"].detach(), rtol=1e-12, atol=0)


def test_the_end_is_a_minimum_of_the_l0_regularised_quadratic() -> None:
    """Loss sum((x - t)^2) / 2: every weight ends where |t| > sqrt(2 alpha) or at 0, as eq. 6 has it, for rho = 1 by tau = sqrt(2 alpha)."""
    alpha = 0.08
    target = torch.tensor([2.0, -1.0, 0.5, 0.43, 0.37, -0.3, 0.1, 0.0], dtype=torch.float64)
    method = ADMM(alpha=alpha, tau=math.sqrt(2 * alpha), every=40)
    params = {"w": nn.Parameter(torch.zeros(8, dtype=torch.float64))}
    optimizer = torch.optim.SGD(params.values(), lr=0.1)
    params["w"].data.copy_(target)
    state = method.init(params)
    for step in range(1000):
        params["w"].grad = params["w"].detach() - target
        optimizer.step()
        method.after_step_(params, state, steps_of(params), At(step=step))
    assert isinstance(state, ADMMState)
    expected = torch.where(target.abs() > 0.4, target, 0.0)
    torch.testing.assert_close(state.every(params)[0].z, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(params["w"].detach(), expected, rtol=0, atol=1e-6)
    assert admm_residual(params, state) < 1e-6
    value = float(method.penalty(params, state, AT).detach())
    assert value == pytest.approx(alpha * 4, abs=1e-6)


def test_the_penalty_is_the_augmented_lagrangian() -> None:
    method = ADMM(alpha=0.3, tau=geometric(1.0, 0.5))
    params = some_params()
    state = scattered(method, params)
    rho = 2 * 0.3 / method.tau(AT.progress) ** 2  # type: ignore[operator]
    value = method.penalty(params, state, AT)
    expected = sum(
        0.3 * int((each.z != 0).sum()) + rho * (each.u * (x - each.z)).sum() + rho / 2 * (x - each.z).square().sum()
        for x, each in zip(params.values(), state.every(params), strict=True)
    )
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for (x, each), gradient in zip(
        zip(params.values(), state.every(params), strict=True), torch.autograd.grad(value, list(params.values())), strict=True
    ):
        torch.testing.assert_close(gradient, rho * (x - each.z + each.u))


def test_a_price_per_worker_keeps_the_threshold() -> None:
    """Sums of losses make alpha larger by as much; then rho is larger, and under steps smaller by as much nothing changes."""
    params, others = some_params(), some_params()
    one, ten = ADMM(alpha=1e-3, tau=0.5, every=2), ADMM(alpha=1e-2, tau=0.5, every=2)
    states = one.init(params), ten.init(others)
    for step in range(6):
        one.after_step_(params, states[0], steps_of(params, 0.1), At(step=step))
        ten.after_step_(others, states[1], steps_of(others, 0.01), At(step=step))
    for name in params:
        torch.testing.assert_close(params[name], others[name], rtol=1e-12, atol=0)


def test_masks_settle_once_and_the_weights_are_left_alone_after() -> None:
    method = ADMM(alpha=0.1, tau=0.5, every=1, settle=0.5)
    params = some_params()
    state = method.init(params)
    assert isinstance(state, ADMMState)
    method.after_step_(params, state, steps_of(params), At(progress=0.4))
    assert method.masks_(params, state, At(progress=0.4)) is None
    kept = {name: (each.z != 0).clone() for name, each in zip(params, state.every(params), strict=True)}
    masks = method.masks_(params, state, At(progress=0.5))
    assert masks is not None
    assert all(torch.equal(masks[name], kept[name]) for name in params)
    before = {name: x.detach().clone() for name, x in params.items()}
    method.after_step_(params, state, steps_of(params), At(progress=0.6))
    assert method.masks_(params, state, At(progress=0.6)) is None
    assert all(torch.equal(params[name], before[name]) for name in params)


def test_masks_from_z_and_from_both() -> None:
    method = ADMM(alpha=0.1, tau=0.5, every=1)
    params = some_params()
    state = method.init(params)
    with pytest.raises(ValueError, match="no z-step yet"):
        admm_masks(state)
    method.after_step_(params, state, steps_of(params), AT)
    assert isinstance(state, ADMMState)
    masks = admm_masks(state)
    for name, each in zip(params, state.every(params), strict=True):
        assert torch.equal(masks[name], each.z != 0)
    other = torch.zeros(2, 4, dtype=torch.bool)
    first = int(masks["b.weight"].flatten().nonzero()[0])
    other.view(-1)[first] = True
    both = admm_masks(state, {"b.weight": other, "norm.weight": torch.tensor([True, False])})
    assert both["b.weight"].flatten().nonzero().flatten().tolist() == [first]
    assert torch.equal(both["a.weight"], masks["a.weight"])
    assert both["norm.weight"].tolist() == [True, False]
    with pytest.raises(ValueError, match=r"no weight of b\.weight is kept by z and by the other masks"):
        admm_masks(state, {"b.weight": torch.zeros(2, 4, dtype=torch.bool)})


def test_masks_that_decide_nothing_or_leave_nothing_are_refused() -> None:
    params = some_params()
    for tau, message in ((1e-6, "z is 0 nowhere"), (50.0, r"every weight of a\.weight is 0 in the consensus z")):
        method = ADMM(alpha=0.1, tau=tau, every=1)
        state = method.init(params)
        method.after_step_(params, state, steps_of(params, 0.0), AT)
        with pytest.raises(ValueError, match=message):
            admm_masks(state)
    with pytest.raises(TypeError, match=r"expected the state of ADMM, got Linear: pass sparsifier\.state"):
        admm_masks(nn.Linear(2, 2))


def test_a_layer_that_has_lived_and_is_lost_is_named_once() -> None:
    method = ADMM(alpha=0.1, tau=0.5, every=1)
    params = some_params()
    state = method.init(params)
    method.after_step_(params, state, steps_of(params), AT)
    assert isinstance(state, ADMMState)
    for name in ("b.weight", "a.bias"):
        params[name].data.fill_(0.01)
        state.every([name])[0].u.zero_()
    with pytest.warns(UserWarning, match=r"closed every weight of b\.weight by step 9: \|x \+ u\| there is at most 0\.1\d+, .*tau = 0\.5"):
        method.after_step_(params, state, steps_of(params), replace(AT, step=9))
    method.after_step_(params, state, steps_of(params), replace(AT, step=10))
    assert state.collapsed == {"b.weight"}


def test_a_layer_that_has_yet_to_live_is_no_collapse() -> None:
    method = ADMM(alpha=0.1, tau=100.0, every=1)
    params = some_params()
    state = method.init(params)
    method.after_step_(params, state, steps_of(params), AT)
    assert isinstance(state, ADMMState)
    assert not state.opened
    assert not state.collapsed


def test_alpha_0_draws_nothing() -> None:
    method = ADMM(alpha=ramp(0.0, 1.0), tau=0.5, every=1)
    params = some_params()
    before = {name: x.detach().clone() for name, x in params.items()}
    state = scattered(method, params)
    method.after_step_(params, state, steps_of(params), At(progress=0.0))
    assert all(torch.equal(params[name], before[name]) for name in params)
    assert all(bool((each.u.abs() <= 0.5).all()) for each in state.every(params))


@pytest.mark.usefixtures("unchecked")
def test_a_class_in_place_of_its_object_is_refused() -> None:
    """Called in place of an object, it would make one and average nothing."""
    with pytest.raises(TypeError, match=r"mean_over_workers=WorkerMean is a class: expected an object, such as WorkerMean\(\)"):
        ADMM(mean_over_workers=WorkerMean)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"mean_over_workers='mean': expected an object that is a MeanOverWorkers, got str"):
        ADMM(mean_over_workers="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, r"alpha must be finite and at least 0, got -1\.0"),
        ({"tau": 0.0}, r"tau must be finite and above 0, got 0\.0"),
        ({"tau": ramp(1.0, 0.0)}, r"tau must be finite and above 0, got 0\.0 at progress 1"),
        ({"every": 0}, "expected at least 1, got 0"),
        ({"settle": 0.0}, r"settle is a progress in \(0, 1\], or None, got 0\.0"),
        ({"settle": 1.5}, "settle is a progress"),
    ],
)
def test_bad_options_are_refused_with_their_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ADMM(**options)
