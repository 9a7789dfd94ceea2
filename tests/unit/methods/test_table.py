"""Every method passes the same table: gradient, laws, precision, state, determinism, proximal step."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from ellzero.methods import (
    ADMM,
    DRR,
    PMMP,
    RL1,
    Alternating,
    ExactGates,
    Gaussian,
    Method,
    PerModule,
    PerStage,
    Rational,
    Unregularised,
    geometric,
    ramp,
)
from ellzero.quantise.on_grid import OnGrid
from ellzero.types import At

GRADIENT_METHODS: list[Any] = [
    Unregularised(),
    RL1(alpha=3e-3),
    DRR(alpha=3e-3, beta=5.0),
    DRR(alpha=2e-3, beta=25.0),
    RL1(alpha=ramp(0.0, 1e-2, start=0.1, end=0.6)),
    DRR(alpha=1e-3, beta=geometric(1.0, 30.0)),
    DRR(alpha=3e-3, beta=4.0, relaxation=Gaussian()),
    DRR(alpha=3e-3, beta=4.0, relaxation=Rational()),
    DRR(alpha=3e-3, rho=2e-3),
    DRR(alpha=3e-3, normalise=PerModule()),
    DRR(alpha=3e-3, rho=ramp(0.0, 1e-2), relaxation=Rational(), normalise=PerStage()),
    PMMP(alpha=3e-3, p_init=0.4, u_init=0.7, multiplier=2.0, lr=1e-2),
    PMMP(alpha=ramp(0.0, 1e-2), p_init=0.0, u_init=0.2, updates=Alternating(descents=2), lr=1e-2),
    PMMP(alpha=1e-3, p_init=0.9, u=geometric(1e-2, 1.0), updates=ExactGates()),
]
PROXIMAL_METHODS: list[Any] = [
    RL1(alpha=3e-2, proximal=True),
    DRR(alpha=3e-2, beta=5.0, proximal=True),
    DRR(alpha=ramp(0.0, 5e-2), beta=geometric(1.0, 30.0), proximal=True),
    DRR(alpha=3e-2, normalise=PerStage(), proximal=True),
]
SPLIT_METHODS: list[Any] = [
    ADMM(alpha=3e-3, tau=0.5, every=2),
    ADMM(alpha=ramp(0.0, 1e-2), tau=geometric(1.0, 0.2), every=2, settle=0.5),
    OnGrid(bit_price=1e-3, every=2),
]
"""Methods that act after the step as proximal ones do, but towards a state of their own: no soft threshold."""
METHODS = GRADIENT_METHODS + PROXIMAL_METHODS + SPLIT_METHODS
AT = At(progress=0.37, step=37)


def some_params(seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Three tensors of different ranks, with exact zeros among them and magnitudes over several orders."""
    generator = torch.Generator().manual_seed(seed)
    params: dict[str, Tensor] = {}
    for name, shape in {"layer1.weight": (7, 5), "layer_2.weight": (3, 2, 2, 2), "layer_2.bias": (3,)}.items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * 10 ** (2 * torch.rand(shape, generator=generator) - 1)
        values[torch.rand(shape, generator=generator) < 0.2] = 0.0
        params[name] = nn.Parameter(values.to(dtype))
    return params


def autograd_of(method: Method, params: dict[str, Tensor], at: At = AT) -> list[Tensor]:
    return list(torch.autograd.grad(method.penalty(params, method.init(params), at), list(params.values())))


def set_gradients(params: dict[str, Tensor]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    data = {name: torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype) for name, p in params.items()}
    for name, parameter in params.items():
        parameter.grad = data[name].clone()
    return data


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_satisfies_the_protocol(method: Method) -> None:
    assert isinstance(method, Method)
    assert hash(method) == hash(replace(method))  # type: ignore[type-var]


@pytest.mark.parametrize("method", GRADIENT_METHODS, ids=repr)
@pytest.mark.parametrize("scale", [None, 1024.0])
def test_gradient_equals_autograd(method: Method, scale: float | None) -> None:
    params = some_params()
    data = set_gradients(params)
    state = method.init(params)
    expected = autograd_of(method, params)
    for _ in range(2):  # The second time the temporaries hold what the first has left in them.
        for name, parameter in params.items():
            parameter.grad = data[name].clone()
        method.add_gradient_(params, state, AT, *([] if scale is None else [scale]))
    for (name, parameter), gradient in zip(params.items(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, data[name] + (scale or 1.0) * gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", GRADIENT_METHODS, ids=repr)
def test_float32_is_float64_rounded(method: Method) -> None:
    double, single = some_params(), some_params(dtype=torch.float32)
    for params in (double, single):
        set_gradients(params)
        method.add_gradient_(params, method.init(params), AT)
    for name in double:
        assert single[name].grad.dtype == torch.float32  # type: ignore[union-attr]
        torch.testing.assert_close(single[name].grad.double(), double[name].grad, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    value = method.penalty(single, method.init(single), AT)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), method.penalty(double, method.init(double), AT), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_penalty_is_pure(method: Method) -> None:
    params = some_params()
    before = {name: parameter.detach().clone() for name, parameter in params.items()}
    first, second = (method.penalty(params, method.init(params), AT) for _ in range(2))
    assert first == second
    assert all(torch.equal(params[name], before[name]) and params[name].grad is None for name in params)


def laws_that_hold(method: Any) -> dict[str, bool]:
    """Tries the laws on some parameters, those that can be tried."""
    params = some_params()
    state = method.init(params)
    value = float(method.penalty(params, state, AT).detach())
    found: dict[str, bool] = {}
    if isinstance(getattr(method, "alpha", None), float):
        doubled = float(replace(method, alpha=2 * method.alpha).penalty(params, state, AT).detach())
        found["linear_in_alpha"] = doubled == pytest.approx(2 * value, rel=1e-14)
    zeros: dict[str, Tensor] = {name: torch.zeros_like(parameter) for name, parameter in params.items()}
    found["zero_at_zero"] = float(method.penalty(zeros, state, AT).detach()) == 0
    try:
        scalars = [torch.stack([x]) for parameter in params.values() for x in parameter.detach().flatten()]
        total = math.fsum(float(method.penalty({"x": x}, state, AT).detach()) for x in scalars)
    except KeyError:  # its state is of these parameters only
        total = math.nan
    found["separable"] = total == pytest.approx(value, rel=1e-12)
    return found


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_declared_laws_hold(method: Any) -> None:
    assert all(holds or not getattr(method.laws, law) for law, holds in laws_that_hold(method).items())


@pytest.mark.parametrize("kind", sorted({type(method) for method in METHODS}, key=lambda kind: kind.__name__))
def test_laws_that_hold_are_declared(kind: type) -> None:
    """What holds of every method of a kind here, whatever its hyperparameters and their starting values."""
    methods = [method for method in METHODS if type(method) is kind]
    for law in ("linear_in_alpha", "zero_at_zero", "separable"):
        tried = [method for method in methods if law in laws_that_hold(method)]
        if tried and all(laws_that_hold(method)[law] for method in tried):
            assert all(getattr(method.laws, law) for method in tried), law


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_state_round_trip_holds_no_temporaries(method: Method) -> None:
    params = some_params()
    state = method.init(params)
    set_gradients(params)
    method.add_gradient_(params, state, AT)
    method.after_step_(params, state, {name: torch.full_like(p, 0.1) for name, p in params.items()}, AT)
    saved, fresh = state.state_dict(), method.init(params)
    assert {name: tensor.shape for name, tensor in saved.items()} == {name: tensor.shape for name, tensor in fresh.state_dict().items()}
    fresh.load_state_dict(saved)
    assert all(torch.equal(tensor, fresh.state_dict()[name]) for name, tensor in saved.items())


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_two_runs_are_equal(method: Method) -> None:
    def run() -> dict[str, Tensor]:
        params = some_params()
        state = method.init(params)
        for step in range(5):
            set_gradients(params)
            at = At(progress=step / 5, step=step)
            method.add_gradient_(params, state, at)
            with torch.no_grad():
                for parameter in params.values():
                    parameter.sub_(0.1 * parameter.grad)  # type: ignore[operator]
            method.after_step_(params, state, {name: torch.full_like(p, 0.1) for name, p in params.items()}, at)
        return params

    first, second = run(), run()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("method", GRADIENT_METHODS, ids=repr)
def test_gradient_form_leaves_weights_alone_after_the_step(method: Method) -> None:
    params = some_params()
    before = {name: parameter.detach().clone() for name, parameter in params.items()}
    method.after_step_(params, method.init(params), {}, AT)
    assert all(torch.equal(params[name], before[name]) for name in params)


@pytest.mark.parametrize("method", PROXIMAL_METHODS + SPLIT_METHODS, ids=repr)
def test_proximal_form_leaves_gradients_alone(method: Method) -> None:
    params = some_params()
    data = set_gradients(params)
    method.add_gradient_(params, method.init(params), AT)
    assert all(torch.equal(params[name].grad, data[name]) for name in params)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", PROXIMAL_METHODS, ids=repr)
def test_proximal_step_minimises_the_linearised_objective(method: Method) -> None:
    """Over z: (z - w)^2 / (2 step) + pen'(|w|) |z|, with the slope by autograd and the minimiser by scipy."""
    params = {"layer1.w": nn.Parameter(torch.tensor([-2.0, -0.3, -0.01, 0.0, 1e-4, 0.02, 0.05, 0.4, 3.0], dtype=torch.float64))}
    steps = {"layer1.w": torch.tensor([0.1, 2.0, 1.0, 1.0, 0.5, 0.0, 3.0, 0.7, 5.0], dtype=torch.float64)}
    kept = steps["layer1.w"].clone()
    (slopes,) = autograd_of(method, params)
    before = params["layer1.w"].detach().clone()
    method.after_step_(params, method.init(params), steps, AT)
    assert torch.equal(steps["layer1.w"], kept)
    for w, step, slope, after in zip(before.tolist(), kept.tolist(), slopes.abs().tolist(), params["layer1.w"].tolist(), strict=True):

        def objective(z: float, w: float = w, step: float = step, slope: float = slope) -> float:
            return (z - w) ** 2 / 2 + step * slope * abs(z)

        candidates = [
            0.0,
            *(minimize_scalar(objective, bounds=side, method="bounded", options={"xatol": 1e-12}).x for side in ((-4, 0), (0, 4))),
        ]
        best = min(candidates, key=objective)
        assert after == pytest.approx(best, abs=1e-6)
        if abs(w) <= step * slope:
            assert after == 0.0


@given(
    values=st.lists(st.floats(-3, 3), min_size=1, max_size=20),
    step=st.floats(0, 10),
    method=st.sampled_from(PROXIMAL_METHODS),
)
def test_proximal_step_shrinks_and_keeps_signs(values: list[float], step: float, method: Method) -> None:
    params = {"layer1.w": nn.Parameter(torch.tensor(values, dtype=torch.float64))}
    before = params["layer1.w"].detach().clone()
    method.after_step_(params, method.init(params), {"layer1.w": torch.full_like(before, step)}, AT)
    after = params["layer1.w"].detach()
    assert bool((after.abs() <= before.abs()).all())
    assert bool((after * before >= 0).all())
    if step == 0:
        assert torch.equal(after, before)


@pytest.mark.parametrize("method", [RL1(alpha=1e-3), DRR(alpha=1e-3)], ids=repr)
def test_a_missing_gradient_is_created(method: Method) -> None:
    params = some_params()
    method.add_gradient_(params, method.init(params), AT)
    for parameter, expected in zip(params.values(), autograd_of(method, params), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", [RL1(alpha=1e-3), DRR(alpha=1e-3)], ids=repr)
def test_temporaries_follow_a_parameter_that_changes_shape(method: Method) -> None:
    params = some_params()
    state = method.init(params)
    method.add_gradient_(params, state, AT)
    smaller: dict[str, Tensor] = {name: nn.Parameter(parameter.detach()[:2].float()) for name, parameter in params.items()}
    method.add_gradient_(smaller, state, AT)
    for parameter, expected in zip(smaller.values(), autograd_of(method, smaller), strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_a_sparse_gradient_is_refused_by_name() -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    params = {"embedding.weight": embedding.weight}
    method = RL1(alpha=1e-3)
    with pytest.raises(TypeError, match=r"embedding\.weight is sparse"):
        method.add_gradient_(params, method.init(params), AT)


@pytest.mark.parametrize("bad", [-1e-5, math.nan, math.inf])
@pytest.mark.parametrize("method", [RL1, DRR])
def test_bad_alpha_is_refused_with_its_value(method: type, bad: float) -> None:
    with pytest.raises(ValueError, match=f"alpha must be finite and at least 0, got {bad}"):
        method(alpha=bad)
    with pytest.raises(ValueError, match="at progress 1"):
        method(alpha=lambda_schedule(bad))


def lambda_schedule(last: float) -> Any:
    class AtTheEnd:
        moving = True

        def __call__(self, progress: float) -> float:
            return last if progress == 1.0 else 1e-5

    return AtTheEnd()


@pytest.mark.parametrize("bad", [0.0, -5.0, math.nan])
def test_bad_beta_is_refused_with_its_value(bad: float) -> None:
    with pytest.raises(ValueError, match=f"beta must be finite and above 0, got {bad}"):
        DRR(alpha=1e-5, beta=bad)


def test_drr_counts_weights_as_beta_grows() -> None:
    params = some_params()
    nonzeros = sum(int(torch.count_nonzero(parameter)) for parameter in params.values())
    smallest = min(float(p.detach().abs()[p != 0].min()) for p in params.values())
    method = DRR(alpha=1.0, beta=50.0 / smallest)
    assert float(method.penalty(params, method.init(params), AT).detach()) == pytest.approx(nonzeros, rel=1e-12)
