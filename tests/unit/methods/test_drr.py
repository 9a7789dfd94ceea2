"""DRR's wells against the paper's formulas and finite differences, its l2 term, and its layerwise normalisation."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from ellzero.methods import DRR, Exponential, Gaussian, PerModule, PerStage, Rational, Relaxation, ramp
from ellzero.models import LeNet300, ResNet, Student
from ellzero.types import At

# With the letters as printed: the paper's beta is the inverse width in eq. 39 and the width in eq. 40 and 41.
PRINTED = {
    Exponential(): lambda theta, beta: 1 - math.exp(-beta * abs(theta)),
    Gaussian(): lambda theta, width: 1 - math.exp(-(theta**2) / (2 * width**2)),
    Rational(): lambda theta, width: 1 - 1 / (1 + theta**2 / (3 * width**2)),
}
RELAXATIONS: list[Any] = list(PRINTED)
AT = At(progress=0.5, step=5)


def filled(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for name, shape in shapes.items()}


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=repr)
@given(theta=st.floats(-20, 20), beta=st.floats(0.05, 50))
def test_wells_are_those_of_the_paper(relaxation: Relaxation, theta: float, beta: float) -> None:
    printed = beta if relaxation == Exponential() else 1 / beta
    value = float(relaxation.value(torch.tensor(abs(theta), dtype=torch.float64), beta))
    assert value == pytest.approx(PRINTED[relaxation](theta, printed), rel=1e-9, abs=1e-12)  # type: ignore[index]


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=repr)
def test_slopes_are_those_of_the_wells(relaxation: Relaxation) -> None:
    theta = torch.tensor([-7.0, -0.4, -1e-3, 1e-6, 0.02, 0.3, 1.0, 40.0], dtype=torch.float64)
    for beta in (0.3, 5.0, 80.0):
        magnitude = theta.abs().requires_grad_()
        (expected,) = torch.autograd.grad(relaxation.value(magnitude, beta).sum(), magnitude)
        outputs = [torch.full_like(theta, torch.nan)]
        relaxation.slopes_into_(outputs, [theta], beta)
        torch.testing.assert_close(outputs[0] * relaxation.steepness(beta), expected, rtol=1e-11, atol=1e-13 * beta**2)


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=repr)
def test_wells_are_concave_where_they_say_so(relaxation: Relaxation) -> None:
    magnitude = torch.linspace(0, 3, 400, dtype=torch.float64)
    second = relaxation.value(magnitude, 2.0).diff().diff()
    assert relaxation.concave == bool((second <= 1e-15).all())


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=repr)
def test_wells_count_weights_as_beta_grows(relaxation: Relaxation) -> None:
    params = {"w": torch.tensor([0.0, 0.0, 1e-2, -0.3, 5.0], dtype=torch.float64)}
    method = DRR(alpha=1.0, beta=1e6, relaxation=relaxation)
    assert float(method.penalty(params, method.init(params), AT)) == pytest.approx(3, rel=1e-7)


@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=repr)
def test_extreme_weights_give_finite_gradients(relaxation: Relaxation) -> None:
    params: dict[str, Tensor] = {"w": nn.Parameter(torch.tensor([0.0, 1e-40, 1e-20, 1e15, -1e15]))}
    method = DRR(alpha=1e-3, relaxation=relaxation)
    method.add_gradient_(params, method.init(params), AT)
    gradient = params["w"].grad
    assert gradient is not None
    assert bool(gradient.isfinite().all())
    assert gradient[0] == 0
    assert bool((gradient[3:].abs() < 1e-10).all())


@pytest.mark.parametrize("relaxation", [Gaussian(), Rational()], ids=repr)
def test_only_concave_wells_have_a_proximal_form(relaxation: Any) -> None:
    with pytest.raises(ValueError, match=r"is not concave.*relaxation=Exponential\(\)"):
        DRR(relaxation=relaxation, proximal=True)


def test_negative_rho_is_refused_with_its_value() -> None:
    with pytest.raises(ValueError, match=r"rho must be finite and at least 0, got -0\.1"):
        DRR(rho=-0.1)


def test_rho_prices_the_squared_norm() -> None:
    params = filled({"a.weight": (3, 4), "a.bias": (3,)})
    plain, ridge = DRR(alpha=1e-2), DRR(alpha=1e-2, rho=0.3)
    difference = float((ridge.penalty(params, ridge.init(params), AT) - plain.penalty(params, plain.init(params), AT)).detach())
    assert difference == pytest.approx(0.3 * sum(float(p.detach().square().sum()) for p in params.values()), rel=1e-12)
    assert not ridge.laws.linear_in_alpha


@pytest.mark.parametrize("rho", [0.7, ramp(0.2, 1.2)], ids=["constant", "rising"])
def test_proximal_step_with_rho_minimises_tangent_and_square(rho: Any) -> None:
    """Over z: (z - w)^2 / (2 step) + alpha beta exp(-beta |w|) |z| + rho z^2, the minimiser by scipy."""
    method = DRR(alpha=3e-2, beta=5.0, rho=rho, proximal=True)
    params = {"w": nn.Parameter(torch.tensor([-2.0, -0.3, -0.01, 0.0, 0.02, 0.4, 3.0], dtype=torch.float64))}
    steps = {"w": torch.tensor([0.1, 2.0, 1.0, 1.0, 0.0, 0.7, 5.0], dtype=torch.float64)}
    before = params["w"].tolist()
    method.after_step_(params, method.init(params), steps, AT)
    for w, step, after in zip(before, steps["w"].tolist(), params["w"].tolist(), strict=True):

        def objective(z: float, w: float = w, step: float = step) -> float:
            return (z - w) ** 2 / 2 + step * (0.15 * math.exp(-5 * abs(w)) * abs(z) + 0.7 * z * z)

        sides = ((-4, 0), (0, 4))
        found = [0.0, *(minimize_scalar(objective, bounds=side, method="bounded", options={"xatol": 1e-12}).x for side in sides)]
        assert after == pytest.approx(min(found, key=objective), abs=1e-6)


def test_per_module_groups_a_weight_with_its_bias_and_counts_weights() -> None:
    """Two layers and a normalisation between them: N = 12 + 3 + 6 + 6 + 2 = 29, G = 2."""
    params = filled({"a.weight": (3, 4), "a.bias": (3,), "norm.weight": (3,), "norm.bias": (3,), "b.weight": (2, 3), "b.bias": (2,)})
    factors = PerModule().factors(params)
    assert factors == pytest.approx(
        {
            "a.weight": 29 / (15 * 2),
            "a.bias": 29 / (15 * 2),
            "norm.weight": 29 / (6 * 2),
            "norm.bias": 29 / (6 * 2),
            "b.weight": 29 / (8 * 2),
            "b.bias": 29 / (8 * 2),
        }
    )


def test_per_stage_groups_by_the_innermost_stage() -> None:
    """layer_1 holds two modules, and a stage within a stage is its own."""
    params = filled(
        {
            "body.layer_1.0.weight": (2, 3),
            "body.layer_1.1.weight": (2, 2),
            "body.layer_2.layer_21.c.weight": (2, 2),
            "body.layer_2.layer_22.c.weight": (2, 2),
            "layer_3.weight": (1, 2),
        }
    )
    factors = PerStage(prefix="layer_").factors(params)
    assert list(factors.values()) == pytest.approx([20 / (10 * 4), 20 / (10 * 4), 20 / (4 * 4), 20 / (4 * 4), 20 / (2 * 4)])
    with pytest.raises(ValueError, match=r"body\.layer_1\.0\.weight lies in no module whose name is 'body' and a number"):
        PerStage(prefix="body").factors(params)


def test_per_stage_finds_the_stages_of_a_resnet_and_no_layer_in_a_list_of_layers() -> None:
    """Taken for a stage, the list `layers` of an MLP would be the only one, and every factor 1."""
    whole = dict(ResNet(8).named_parameters())
    stages = {name: parameter for name, parameter in whole.items() if name.startswith("layer")}
    factors = PerStage().factors(stages)
    counts = {f"layer{stage}": sum(p.numel() for name, p in stages.items() if name.startswith(f"layer{stage}.")) for stage in (1, 2, 3)}
    assert factors == pytest.approx({name: sum(counts.values()) / (3 * counts[name.partition(".")[0]]) for name in stages})
    with pytest.raises(ValueError, match=r"^conv1\.weight lies in no module whose name is 'layer' and a number"):
        PerStage().factors(whole)
    for model in (LeNet300(), Student()):
        params = {name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 2}
        with pytest.raises(ValueError, match=r"layers\.0\.weight lies in no module .*PerStage\(prefix=''\)"):
            PerStage().factors(params)
        assert PerStage(prefix="").factors(params) == PerModule().factors(params)


@pytest.mark.usefixtures("unchecked")
def test_classes_and_names_in_place_of_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"relaxation=Gaussian is a class: expected an object, such as Gaussian\(\)"):
        DRR(relaxation=Gaussian)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"relaxation='gaussian': expected an object that is a Relaxation, got str"):
        DRR(relaxation="gaussian")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"normalise=PerModule is a class"):
        DRR(normalise=PerModule)  # type: ignore[arg-type]


def test_normalisation_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no layer to count \(norm\.weight\)"):
        PerModule().factors(filled({"norm.weight": (3,)}))


def test_normalisation_multiplies_alpha_and_rho() -> None:
    params = filled({"a.weight": (3, 4), "b.weight": (2, 2)})
    method = DRR(alpha=1e-2, rho=1e-3, normalise=PerModule())
    state = method.init(params)
    expected = 0.0
    for name, factor in {"a.weight": 16 / (12 * 2), "b.weight": 16 / (4 * 2)}.items():
        alone = DRR(alpha=1e-2 * factor, rho=1e-3 * factor)
        expected += float(alone.penalty({name: params[name]}, alone.init(params), AT).detach())
    assert float(method.penalty(params, state, AT).detach()) == pytest.approx(expected, rel=1e-12)


def test_normalisation_multiplies_thresholds_and_shrinkage() -> None:
    params, alike = (filled({"a.weight": (3, 4), "b.weight": (2, 2)}) for _ in range(2))
    steps = {name: torch.full_like(parameter, 2.0) for name, parameter in params.items()}
    method = DRR(alpha=5e-2, rho=1e-2, normalise=PerModule(), proximal=True)
    method.after_step_(params, method.init(params), steps, AT)
    for name, factor in {"a.weight": 16 / (12 * 2), "b.weight": 16 / (4 * 2)}.items():
        alone = DRR(alpha=5e-2 * factor, rho=1e-2 * factor, proximal=True)
        alone.after_step_({name: alike[name]}, alone.init(alike), {name: steps[name]}, AT)
        torch.testing.assert_close(params[name], alike[name], rtol=1e-12, atol=1e-15)


def test_factors_are_those_of_all_parameters_also_when_a_part_is_passed() -> None:
    """Several optimizers each pass their own parameters, and the penalty is one."""
    params = filled({"a.weight": (3, 4), "b.weight": (2, 2)})
    method = DRR(alpha=1e-2, normalise=PerModule())
    state = method.init(params)
    whole = float(method.penalty(params, state, AT).detach())
    parts = [float(method.penalty({name: params[name]}, state, AT).detach()) for name in params]
    assert whole == pytest.approx(sum(parts), rel=1e-12)
    for name in params:
        method.add_gradient_({name: params[name]}, state, AT)
    expected = torch.autograd.grad(method.penalty(params, state, AT), list(params.values()))
    for parameter, gradient in zip(params.values(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-15)


def test_factors_survive_a_network_that_shrinks() -> None:
    """A state restored into a network whose dead units have been removed weighs layers as before."""
    method = DRR(alpha=1e-2, normalise=PerModule())
    saved = method.init(filled({"a.weight": (3, 4), "b.weight": (2, 3)})).state_dict()
    smaller = filled({"a.weight": (1, 4), "b.weight": (2, 1)})
    state = method.init(smaller)
    state.load_state_dict(saved)
    expected = 0.0
    for name, factor in {"a.weight": 18 / (12 * 2), "b.weight": 18 / (6 * 2)}.items():
        alone = DRR(alpha=1e-2 * factor)
        expected += float(alone.penalty({name: smaller[name]}, alone.init(smaller), AT).detach())
    assert float(method.penalty(smaller, state, AT).detach()) == pytest.approx(expected, rel=1e-12)
