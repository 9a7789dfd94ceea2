"""attach adds the penalty at the right moment, whatever the optimizer, the closure and the gradient scaler."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from attach_support import OPTIMIZERS, WITH_STEPS, backward, network, same, train
from torch import Tensor, nn

from ellzero.attaching._attach import attach
from ellzero.methods import DRR, RL1, Unregularised, ramp
from ellzero.params import everything
from ellzero.types import At, Phase


def by_hand(optimizer_name: str, method: Any, steps: int) -> nn.Module:
    """The reference: the penalty is part of the loss that autograd sees."""
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    params: dict[str, Tensor] = {name: parameter for name, parameter in model.named_parameters() if parameter.ndim >= 2}
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        method.penalty(params, method.init(params), At()).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("method", [RL1(alpha=1e-2), DRR(alpha=1e-2)], ids=repr)
def test_the_penalty_goes_in_before_the_step(optimizer_name: str, method: Any) -> None:
    expected = by_hand(optimizer_name, method, 10)
    model = network()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    sparsifier = attach(optimizer, model, method)
    train(model, optimizer, range(10))
    assert sparsifier.step == 10
    for got, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    plain = network()
    train(plain, OPTIMIZERS[optimizer_name](plain.parameters()), range(10))
    assert not same(model, plain)


@pytest.mark.parametrize("method", [RL1(alpha=1e-2), DRR(alpha=1e-2), RL1(alpha=1e-2, proximal=True)], ids=repr)
@pytest.mark.parametrize("how", ["positional", "keyword"])
@pytest.mark.parametrize("optimizer_name", WITH_STEPS)
def test_with_and_without_closure_give_the_same_weights(optimizer_name: str, how: str, method: Any) -> None:
    models = []
    for use_closure in (False, True):
        model = network()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        sparsifier = attach(optimizer, model, method)
        for step in range(6):
            if step == 3:
                sparsifier.freeze({"0.weight": torch.eye(8, 6)}, penalty=True)

            def closure(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer, step: int = step) -> Tensor:
                optimizer.zero_grad()
                return backward(model, step)

            if not use_closure:
                closure()
                optimizer.step()
            else:
                loss = optimizer.step(closure) if how == "positional" else optimizer.step(closure=closure)
                assert loss is not None
        assert sparsifier.step == 6
        sparsifier.assert_sparse()
        models.append(model)
    assert same(*models)


def test_an_explicit_closure_of_none_is_no_closure() -> None:
    models = [network(), network()]
    for model, arguments in zip(models, [{}, {"closure": None}], strict=True):
        optimizer = torch.optim.Adam(model.parameters())
        attach(optimizer, model, RL1(alpha=1e-2))
        backward(model, 0)
        optimizer.step(**arguments)
    assert same(*models)


def test_lbfgs_is_refused() -> None:
    model = network()
    with pytest.raises(TypeError, match="LBFGS evaluates its closure several times"):
        attach(torch.optim.LBFGS(model.parameters()), model, RL1())


def scaled_run(method: Any, *, fused: bool, scale: float, infinite: set[int], unscale: bool = False) -> tuple[nn.Module, Any]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
    sparsifier = attach(optimizer, model, method)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10_000, backoff_factor=0.5)
    for step in range(8):
        if step == 5:
            sparsifier.freeze({"0.weight": torch.eye(8, 6)}, penalty=True)
        optimizer.zero_grad()
        inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
        scaler.scale(model(inputs).square().mean()).backward()
        if step in infinite:
            model[0].weight.grad[0, 0] = torch.inf  # type: ignore[index,union-attr]
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return model, sparsifier


@pytest.mark.parametrize("method", [RL1(alpha=1e-2), DRR(alpha=1e-2), DRR(alpha=1e-2, proximal=True)], ids=repr)
@pytest.mark.parametrize("unscale", [False, True])
def test_gradient_scaler_fused_and_not_fused_agree_over_an_infinite_step(method: Any, unscale: bool) -> None:
    fused, fused_handle = scaled_run(method, fused=True, scale=2.0**14, infinite={3}, unscale=unscale)
    single, single_handle = scaled_run(method, fused=False, scale=2.0**14, infinite={3}, unscale=unscale)
    unscaled, _ = scaled_run(method, fused=False, scale=1.0, infinite={3})
    assert fused_handle.step == single_handle.step == 7
    for a, b, c in zip(fused.parameters(), single.parameters(), unscaled.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(b, c, rtol=1e-4, atol=1e-5)


def test_a_skipped_fused_step_changes_nothing() -> None:
    """The proximal step, the count and the masks all wait: found_inf means that the optimizer did not move."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    sparsifier = attach(optimizer, model, RL1(alpha=0.1, proximal=True))
    train(model, optimizer, range(3))
    before = deepcopy(model.state_dict())
    scaler = torch.amp.GradScaler("cpu")
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 6)).sum()).backward()
    model[0].weight.grad.fill_(torch.inf)  # type: ignore[union-attr,operator]
    scaler.step(optimizer)
    assert sparsifier.step == 3
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_rate_in_force_at_a_step_is_the_one_of_the_proximal_step() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    attach(optimizer, model, RL1(alpha=0.1, proximal=True))
    for rate in (0.1, 0.01, 0.001):
        before = model[0].weight.detach().clone()  # type: ignore[union-attr,operator]
        optimizer.zero_grad()
        backward(model, 0)
        moved = before - rate * model[0].weight.grad  # type: ignore[union-attr,operator]
        optimizer.step()
        scheduler.step()
        expected = moved.sign() * (moved.abs() - rate * 0.1).clamp_min(0)
        torch.testing.assert_close(model[0].weight.detach(), expected, rtol=1e-6, atol=1e-7)  # type: ignore[union-attr,operator]


def test_several_optimizers_share_a_model() -> None:
    """Two optimizers over half the parameters each do what one optimizer over all of them does."""
    one, two = network(), network()
    single = torch.optim.Adam(one.parameters(), lr=1e-2)
    pair = [torch.optim.Adam(two[0].parameters(), lr=1e-2), torch.optim.Adam(two[2].parameters(), lr=1e-2)]
    masks = {"0.weight": torch.eye(8, 6), "2.weight": torch.ones(3, 8).tril()}
    handles = [attach(single, one, DRR(alpha=1e-2)), attach(pair, two, DRR(alpha=1e-2))]
    for step in range(6):
        if step == 3:
            for handle in handles:
                handle.freeze(masks, penalty=True)
        for model, optimizers in ((one, [single]), (two, pair)):
            for optimizer in optimizers:
                optimizer.zero_grad()
            backward(model, step)
            for optimizer in optimizers:
                optimizer.step()
    assert same(one, two)
    assert handles[1].step == 6


def test_a_parameter_that_no_optimizer_owns_is_named() -> None:
    model = network()
    with pytest.raises(ValueError, match=r"2\.weight is regularised, but no optimizer owns it"):
        attach(torch.optim.Adam(model[0].parameters()), model, RL1())
    with pytest.raises(ValueError, match="belongs to 2 of the optimizers"):
        attach([torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters())], model, RL1())


def test_story_40_accumulation_counts_optimizer_steps() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=ramp(0.0, 1e-2)), total_steps=4)
    for micro in range(12):
        backward(model, micro)
        if micro % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    assert sparsifier.step == 4
    assert sparsifier.at == At(progress=1.0, step=4, phase=Phase.REGULARISE)


def test_progress_follows_steps_and_stops_at_one() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, RL1(alpha=ramp(0.0, 1e-2, start=0.2, end=0.8)), total_steps=10)
    seen = []
    for step in range(12):
        seen.append(sparsifier.at.progress)
        train(model, optimizer, [step])
    assert seen == [*(step / 10 for step in range(10)), 1.0, 1.0]


def test_a_ramp_acts_through_the_steps() -> None:
    model, model_constant = network(), network()
    for each, method in ((model, RL1(alpha=ramp(0.0, 1e-2, end=0.5))), (model_constant, RL1(alpha=0.0))):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        attach(optimizer, each, method, total_steps=4)
        train(each, optimizer, [0])
        if each is model:
            first = deepcopy(each)
            train(each, optimizer, [1])
    assert same(first, model_constant)
    train(model_constant, torch.optim.SGD(model_constant.parameters(), lr=0.1), [1])
    assert not same(model, model_constant)


def test_a_moving_schedule_needs_total_steps() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="pass total_steps"):
        attach(optimizer, model, RL1(alpha=ramp(0.0, 1e-5)))
    attach(optimizer, model, RL1(alpha=ramp(1e-5, 1e-5)))


@pytest.mark.parametrize("phase", [Phase.PRELUDE, Phase.FINE_TUNE])
@pytest.mark.parametrize("proximal", [False, True])
def test_the_penalty_acts_in_its_phase_only(phase: Phase, proximal: bool) -> None:
    plain, model = network(), network()
    train(plain, torch.optim.Adam(plain.parameters(), lr=1e-2), range(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=0.1, proximal=proximal))
    sparsifier.set_phase(phase)
    train(model, optimizer, range(3))
    assert same(plain, model)
    assert sparsifier.step == 3
    sparsifier.set_phase(Phase.REGULARISE)
    train(model, optimizer, [3])
    train(plain, torch.optim.Adam(plain.parameters(), lr=1e-2), [3])
    assert not same(plain, model)


def test_detach_leaves_the_optimizer_as_it_was() -> None:
    plain, model = network(), network()
    plain_optimizer = torch.optim.Adam(plain.parameters())
    optimizer = torch.optim.Adam(model.parameters())
    attach(optimizer, model, RL1(alpha=0.1)).detach()
    train(plain, plain_optimizer, range(3))
    train(model, optimizer, range(3))
    assert same(plain, model)
    attach(optimizer, model, RL1())


def test_attaching_twice_is_refused() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    attach(optimizer, model, RL1())
    with pytest.raises(ValueError, match=r"attached already.*detach"):
        attach(optimizer, model, DRR())


def test_story_14_nothing_selected_raises() -> None:
    """A configured pruner that prunes nothing."""
    model = network()
    with pytest.raises(ValueError, match="no parameter is selected"):
        attach(torch.optim.Adam(model.parameters()), model, RL1(), select=lambda name, module, parameter: name == "mistyped")


@pytest.mark.usefixtures("unchecked")
def test_story_41_parameters_instead_of_the_model() -> None:
    model = network()
    with pytest.raises(TypeError, match=r"pass the model itself, not model\.parameters\(\)"):
        attach(torch.optim.Adam(model.parameters()), model.parameters(), RL1())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer, got Linear"):
        attach([model[0]], model, RL1())  # type: ignore[list-item]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_ask_for_master_weights(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    with pytest.raises(TypeError, match=r"0\.weight is torch\.(bfloat16|float16).*float32 master weights"):
        attach(torch.optim.Adam(model.parameters()), model, RL1())


def test_complex_parameters_are_refused_by_name() -> None:
    model = nn.Linear(3, 2, dtype=torch.complex64)
    with pytest.raises(TypeError, match="weight is complex"):
        attach(torch.optim.Adam(model.parameters()), model, RL1())


def test_maximising_optimizers_are_refused() -> None:
    model = network()
    with pytest.raises(ValueError, match="maximize=True"):
        attach(torch.optim.Adam(model.parameters(), maximize=True), model, RL1())


def test_bad_counts_are_refused() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="total_steps must be at least 1, got 0"):
        attach(optimizer, model, RL1(), total_steps=0)
    with pytest.raises(ValueError, match="inert_after must be at least 1 or None, got 0"):
        attach(optimizer, model, RL1(), inert_after=0)


def test_autocast_with_float32_masters_works() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, DRR(alpha=1e-2, proximal=True))
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(8, 6, generator=torch.Generator().manual_seed(step))).float().square().mean()
        loss.backward()
        optimizer.step()
    assert sparsifier.step == 3


def test_a_parameter_frozen_by_the_user_is_left_alone() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(optimizer, model, RL1(alpha=0.1))
    before = model[0].weight.detach().clone()  # type: ignore[union-attr,operator]
    model[0].requires_grad_(False)
    train(model, optimizer, range(2))
    assert torch.equal(model[0].weight, before)  # type: ignore[arg-type]


def test_a_parameter_without_data_gradient_is_still_regularised() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    attach(optimizer, model, RL1(alpha=0.01))
    before = model["unused"].weight.detach().clone()
    model["used"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model["unused"].weight.detach(), before - 0.01 * before.sign())


def test_skipped_lists_what_is_not_regularised() -> None:
    model = network()
    assert attach(torch.optim.Adam(model.parameters()), model, RL1()).skipped == ["0.bias", "2.bias"]
    assert attach(torch.optim.Adam(model.parameters()), model, RL1(), select=everything).skipped == []


def test_story_19_an_inert_penalty_warns_once_and_names_alpha() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-12), inert_after=20)
    train(model, optimizer, range(19))
    with pytest.warns(UserWarning, match=r"alpha is too small to prune anything .*1e-12"):
        train(model, optimizer, [19])
    train(model, optimizer, range(20, 50))  # A second warning would be an error.
    assert sparsifier.last is not None
    assert sparsifier.last.ratio < 1e-6


def test_story_19_no_warning_where_the_penalty_acts_or_is_absent_or_still_rises() -> None:
    for method, total_steps in ((RL1(alpha=1e-3), None), (Unregularised(), None), (RL1(alpha=ramp(0.0, 1e-2, start=0.9)), 40)):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        attach(optimizer, model, method, inert_after=20, total_steps=total_steps)
        train(model, optimizer, range(45))


def test_story_19_a_schedule_that_ends_inert_warns() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    attach(optimizer, model, RL1(alpha=ramp(0.0, 1e-12)), inert_after=20, total_steps=30)
    train(model, optimizer, range(30))
    with pytest.warns(UserWarning, match="alpha is too small"):
        train(model, optimizer, [30])


def test_story_19_penalty_and_norms_on_request() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    method = DRR(alpha=1e-2)
    sparsifier = attach(optimizer, model, method, inert_after=10)
    assert sparsifier.last is None
    params: dict[str, Tensor] = dict(sparsifier.params)
    assert sparsifier.penalty() == pytest.approx(float(method.penalty(params, method.init(params), At()).detach()))
    backward(model, 0)
    data_norm = torch.stack([p.grad.square().sum() for p in params.values()]).sum().sqrt()  # type: ignore[union-attr]
    penalties = torch.autograd.grad(method.penalty(params, method.init(params), At()), list(params.values()))
    penalty_norm = torch.stack([gradient.square().sum() for gradient in penalties]).sum().sqrt()
    optimizer.step()
    assert sparsifier.last is not None
    assert sparsifier.last.step == 0
    assert sparsifier.last.data == pytest.approx(float(data_norm), rel=1e-6)
    assert sparsifier.last.penalty == pytest.approx(float(penalty_norm), rel=1e-6)
    train(model, optimizer, range(3))
    assert sparsifier.last.step == 3
