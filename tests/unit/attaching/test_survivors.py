"""Sparse masks: what is computed for the survivors alone has the bits of what is computed for all weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attach_support import OPTIMIZERS
from torch import Tensor, nn

from ellzero.attaching import mask_kernels, survivors
from ellzero.attaching._attach import attach
from ellzero.attaching.flat import FlatProximal
from ellzero.attaching.steps import REFRESH, Caps
from ellzero.attaching.survivors import LANES, Survivors
from ellzero.methods import DRR, RL1, Gaussian, PerModule, Rational, ramp
from ellzero.params import everything, weights
from ellzero.types import At, Phase

PENALTIES = [
    DRR(alpha=1e-2, rho=1e-2),
    DRR(alpha=1e-2, relaxation=Gaussian()),
    DRR(alpha=ramp(0.0, 1e-2), relaxation=Rational()),
]


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Sizes are multiples of any vector's, so that a pass over whole tensors computes every scalar in the same way."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64)).to(dtype)


def loss_of(model: nn.Module, step: int) -> Tensor:
    parameter = next(model.parameters())
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(step)).to(parameter.dtype)
    return model(inputs).square().mean()


def backward(model: nn.Module, step: int) -> Tensor:
    loss = loss_of(model, step)
    loss.backward()
    return loss


def few(params: dict[str, Tensor], seed: int, share: float = 0.12) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(parameter.shape, generator=generator) < share for name, parameter in params.items()}


def matrices(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.ndim >= 2}


def everything_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    state = [value for parameter in model.parameters() for value in optimizer.state[parameter].values() if isinstance(value, Tensor)]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [*(parameter.detach() for parameter in model.parameters()), *gradients, *state]


Run = Callable[[], tuple[nn.Module, torch.optim.Optimizer]]


def check_same_bits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with and without gathering, and sees to it that the first did gather."""
    sizes: list[int] = []
    select = torch.index_select

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        sizes.append(args[2].numel())
        return select(*args, **kwargs)

    monkeypatch.setattr(torch, "index_select", counted)
    gathered = everything_of(*run())
    assert sizes
    assert all(size % LANES == 0 for size in sizes)
    sizes.clear()
    monkeypatch.setattr(survivors, "SHARE", 0.0)
    monkeypatch.setattr(mask_kernels, "LARGEST", -1)
    whole = everything_of(*run())
    assert not sizes
    assert len(gathered) == len(whole)
    assert all(torch.equal(one, other) for one, other in zip(gathered, whole, strict=True))


@pytest.mark.parametrize("method", PENALTIES, ids=repr)
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_masked_run_has_the_same_bits(optimizer_name: str, method: Any, set_to_none: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Momentum from before the freeze, masks replaced on the way, an end without masks."""

    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        sparsifier = attach(optimizer, model, method, select=everything, total_steps=12)
        for step in range(12):
            if step in (3, 6):
                masks = few(matrices(model), seed=step)
                sparsifier.freeze(masks, penalty=True)
            optimizer.zero_grad(set_to_none=set_to_none)
            backward(model, step)
            optimizer.step()
            if step >= 3:
                sparsifier.assert_sparse()
                for name, mask in masks.items():
                    gradient = model.get_parameter(name).grad
                    assert gradient is not None
                    assert int(torch.count_nonzero(gradient[~mask])) == 0
            if step == 9:
                sparsifier.set_phase(Phase.FINE_TUNE)
        return model, optimizer

    check_same_bits(run, monkeypatch)


def test_closures_and_unfreezing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2))
        sparsifier.freeze(few(matrices(model), seed=1), penalty=True)
        for step in range(6):

            def closure(step: int = step) -> Tensor:
                optimizer.zero_grad()
                return backward(model, step)

            optimizer.step(closure)
            if step == 3:
                sparsifier.unfreeze()
        return model, optimizer

    check_same_bits(run, monkeypatch)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_with_an_infinite_step(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=fused)
        sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2))
        sparsifier.freeze(few(matrices(model), seed=1), penalty=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            if step == 2:
                model.get_parameter("2.weight").grad[0, 0] = torch.inf  # type: ignore[index]
            scaler.step(optimizer)
            scaler.update()
        assert sparsifier.step == 4
        return model, optimizer

    check_same_bits(run, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_parameter_that_the_loss_does_not_reach_and_one_that_the_user_froze(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2), select=everything)
        sparsifier.freeze(few(matrices(model), seed=1), penalty=True)
        for step in range(6):
            optimizer.zero_grad()
            if step == 4:
                model.get_parameter("2.weight").requires_grad_(False)
            if step == 2:
                model[0](torch.ones(2, 16, dtype=dtype)).sum().backward()
            else:
                backward(model, step)
            optimizer.step()
        return model, optimizer

    check_same_bits(run, monkeypatch)


def test_a_parameter_used_twice_is_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network()
        model.append(nn.Linear(64, 64, bias=False))
        model[3].weight = model[2].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2))
        sparsifier.freeze({"3.weight": few(matrices(model), seed=1)["2.weight"]}, penalty=True)
        for step in range(5):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        return model, optimizer

    check_same_bits(run, monkeypatch)


def test_several_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network()
        pair = [torch.optim.Adam(model[0].parameters(), lr=1e-2), torch.optim.SGD(model[2].parameters(), lr=1e-2)]
        sparsifier = attach(pair, model, DRR(alpha=1e-2, rho=1e-2))
        sparsifier.freeze(few(matrices(model), seed=1), penalty=True)
        for step in range(5):
            model.zero_grad()
            backward(model, step)
            for optimizer in pair:
                optimizer.step()
        return model, pair[0]

    check_same_bits(run, monkeypatch)


@pytest.mark.parametrize("method", [RL1(alpha=1e-2, proximal=True), DRR(alpha=1e-2, proximal=True)], ids=repr)
@pytest.mark.parametrize("optimizer_name", ["adam", "adam-fused", "adamw"])
def test_the_joined_proximal_step_has_the_same_bits(optimizer_name: str, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over two looks at the median and a change of masks; weights of the survivors reach 0 on the way."""
    joined: list[int] = []
    after_step_ = type(method).after_step_

    def counted(self: Any, params: dict[str, Tensor], state: nn.Module, steps: dict[str, Tensor], at: At) -> None:
        joined.extend(parameter.numel() for parameter in params.values())
        after_step_(self, params, state, steps, at)

    monkeypatch.setattr(type(method), "after_step_", counted)

    def run() -> list[Tensor]:
        model = network()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        sparsifier = attach(optimizer, model, method, select=everything)
        for step in range(2 * REFRESH + 5):
            if step in (3, REFRESH + 3):
                sparsifier.freeze(few(matrices(model), seed=step), penalty=True)
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
            if step >= 3:
                sparsifier.assert_sparse()
        return everything_of(model, optimizer)

    gathered = run()
    everywhere = 1024 + 64 + 4096 + 64
    assert joined[0] == everywhere
    assert max(joined[3:]) < 0.25 * everywhere
    joined.clear()
    monkeypatch.setattr(survivors, "SHARE", 0.0)
    whole = run()
    assert set(joined) == {everywhere}
    assert all(torch.equal(one, other) for one, other in zip(gathered, whole, strict=True))


def test_what_is_gathered() -> None:
    sparse, dense = torch.zeros(10, 10, dtype=torch.bool), torch.ones(10, 10, dtype=torch.bool)
    sparse[3, 4] = sparse[9, 9] = True
    kept = Survivors({"sparse": sparse, "dense": dense, "empty": torch.zeros(8, 8, dtype=torch.bool)})
    index = kept.index("sparse", torch.zeros(10, 10))
    assert index is not None
    assert index.tolist() == [34] + [99] * (LANES - 1)
    assert kept.index("dense", torch.zeros(10, 10)) is None
    assert kept.index("empty", torch.zeros(8, 8)) is None
    assert kept.index("unmasked", torch.zeros(8, 8)) is None
    for unlike in (torch.zeros(10, 10).T[:, ::2], torch.zeros(10, 10).to_sparse(), torch.zeros(10, 10, device="meta")):
        assert kept.index("sparse", torch.zeros(10, 10), unlike) is None


@pytest.mark.parametrize("method", [RL1(alpha=1e-2), DRR(alpha=1e-2, normalise=PerModule()), DRR(alpha=1e-2, proximal=True)], ids=repr)
def test_other_methods_are_left_alone(method: Any) -> None:
    model = network()
    params = {name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 2}
    backward(model, 0)
    before = [parameter.grad.clone() for parameter in params.values() if parameter.grad is not None]
    assert Survivors(few(matrices(model), seed=1), method).add_gradient_(params, method.init(params), At(), 1.0) == []
    assert all(torch.equal(parameter.grad, old) for parameter, old in zip(params.values(), before, strict=True))  # type: ignore[arg-type]


def test_a_channels_last_convolution_is_masked_whole_beside_a_gathered_layer() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4)).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2), select=weights)
    masks = few(matrices(model), seed=1)
    sparsifier.freeze(masks, penalty=True)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8, 6, 6, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
        sparsifier.assert_sparse()
        for name, mask in masks.items():
            gradient = model.get_parameter(name).grad
            assert gradient is not None
            assert int(torch.count_nonzero(gradient[~mask])) == 0
            assert int(torch.count_nonzero(gradient[mask])) > 0


def test_a_sparse_gradient_is_refused_by_name() -> None:
    embedding = nn.Embedding(50, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    params: dict[str, Tensor] = {"weight": embedding.weight}
    method = DRR(alpha=1e-3)
    with pytest.raises(TypeError, match="weight is sparse"):
        Survivors(few(params, seed=1), method).add_gradient_(params, method.init(params), At(), 1.0)


def test_a_change_of_precision_makes_new_room() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = attach(optimizer, model, DRR(alpha=1e-2, rho=1e-2))
    sparsifier.freeze(few(matrices(model), seed=1), penalty=True)
    for dtype in (torch.float32, torch.float64):
        model.to(dtype)
        optimizer.zero_grad()
        backward(model, 0)
        optimizer.step()
        sparsifier.assert_sparse()


def test_flat_proximal_without_masks_takes_all() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    method = RL1(alpha=1e-2, proximal=True)
    params = dict(model.named_parameters())
    backward(model, 0)
    optimizer.step()
    twice = [parameter.detach().clone() for parameter in params.values()]
    FlatProximal().step_(method, optimizer, params, method.init(params), At(), Caps())
    assert all(bool((parameter != old).any()) for parameter, old in zip(params.values(), twice, strict=True))
