"""Methods and a pruning rule of a stranger's, whole in this file: nothing else knows their classes, and everything works with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ellzero.archive.save import save_model
from ellzero.attaching import attach
from ellzero.methods import Method
from ellzero.methods.protocol import Laws, no_after_step_, no_gradient_, no_masks_, no_state, replace_alpha
from ellzero.params import count_nonzeros
from ellzero.pruning import Evidence, PruningRule, magnitude_masks
from ellzero.quantise.grids import LogGrid
from ellzero.quantise.on_grid import GridState
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training import Checkpoint, Epochs, Recipe, classification_loss, sparsify
from ellzero.types import At, Masks, Params, Phase, Scalar
from training_problems import digits_batches, equal, small_network

RATE = 3e-3
"""The learning rate at which gates move as fast as `SampledGates` says."""


class Gates(nn.Module):
    """Logits of the probability that each weight is used, which move faster where the optimizer does."""

    def __init__(self, params: Params, start: float) -> None:
        super().__init__()
        self.names = list(params)
        self.logits = nn.ParameterList(torch.full_like(parameter, start) for parameter in params.values())

        self.rates: dict[str, float] = {}

    def follow_rates_(self, rates: Mapping[str, float]) -> None:
        self.rates = dict(rates)

    def of(self, name: str) -> nn.Parameter:
        return self.logits[self.names.index(name)]


class StraightThrough(torch.autograd.Function):
    """Bernoulli gates whose derivative is that of their probability (Y. Bengio and others, 2013)."""

    @staticmethod
    def forward(_: Any, probability: Tensor, draw: Tensor) -> Tensor:
        return (draw < probability).to(probability)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


@dataclass(frozen=True, kw_only=True)
class SampledGates:
    """Samples which weights the forward pass uses, and pays for their number: forward weights, strength, rates, masks at the end."""

    alpha: float = 1e-4
    lr: float = 0.2
    settle: float = 0.8

    @property
    def laws(self) -> Laws:
        return Laws(linear_in_alpha=True, zero_at_zero=False, separable=False)

    @property
    def proximal(self) -> bool:
        return False

    def init(self, params: Params) -> Gates:
        return Gates(params, 2.0)

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        assert isinstance(state, Gates)
        expected = torch.stack([torch.sigmoid(state.of(name)).sum() for name in params]).sum()
        return self.alpha * expected + sum((parameter * 0).sum() for parameter in params.values())

    def forward_weights(self, params: Params, state: nn.Module, at: At, generator: torch.Generator) -> Mapping[str, Tensor]:
        assert isinstance(state, Gates)
        return {
            name: parameter
            * StraightThrough.apply(torch.sigmoid(state.of(name)), torch.rand(parameter.shape, generator=generator).to(parameter))
            for name, parameter in params.items()
        }

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        assert isinstance(state, Gates)
        for name in params:
            logits = state.of(name)
            probability = torch.sigmoid(logits)
            gradient = self.alpha * probability * (1 - probability)
            logits -= self.lr * (state.rates[name] / RATE) * (gradient + (0 if logits.grad is None else logits.grad)).sign()

    def masks_(self, params: Params, state: nn.Module, at: At) -> Masks | None:
        assert isinstance(state, Gates)
        if at.progress < self.settle:
            return None
        masks = {name: state.of(name).detach() > 0 for name in params}
        return {name: mask if mask.any() else torch.ones_like(mask) for name, mask in masks.items()}

    add_gradient_ = no_gradient_
    with_alpha = replace_alpha


@dataclass(frozen=True, kw_only=True)
class TopGradients:
    """Lets only the largest share of each tensor's gradients through, beside an l2 penalty: changed gradients, survivors, a strength."""

    share: float = 0.3
    alpha: float = 1e-3

    laws = Laws(separable=True)
    proximal = False
    gradient_on_survivors = True

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        return self.alpha * torch.stack([parameter.square().sum() for parameter in params.values()]).sum()

    def change_gradient_(self, params: Params, state: nn.Module, at: At) -> None:
        for parameter in params.values():
            if parameter.grad is not None:
                sizes = parameter.grad.abs().flatten()
                smallest = sizes.kthvalue(max(1, round((1 - self.share) * sizes.numel()))).values
                parameter.grad.mul_(parameter.grad.abs() > smallest)

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        for parameter in params.values():
            pull = 2 * self.alpha * scale * parameter
            parameter.grad = pull if parameter.grad is None else parameter.grad.add_(pull)

    init = no_state
    after_step_ = no_after_step_
    masks_ = no_masks_
    with_alpha = replace_alpha


@dataclass(frozen=True, kw_only=True)
class Signs:
    """R-L1 by another name: a pull that one kernel adds, and silence where its price is 0."""

    alpha: float = 1e-3

    laws = Laws()
    proximal = False

    @property
    def silent(self) -> bool:
        return self.alpha == 0

    def exponential_pull(self, at: At) -> tuple[float, float]:
        return self.alpha, 0.0

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        return self.alpha * torch.stack([parameter.abs().sum() for parameter in params.values()]).sum()

    @torch.no_grad()
    def add_gradient_(self, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> None:
        for parameter in params.values():
            pull = self.alpha * scale * parameter.sign()
            parameter.grad = pull if parameter.grad is None else parameter.grad.add_(pull)

    init = no_state
    after_step_ = no_after_step_
    masks_ = no_masks_
    with_alpha = replace_alpha


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """Rounds weights to a coarse grid after each step, and remembers their exact values: ends on a grid."""

    ratio: float = 1.5

    laws = Laws(separable=False)
    proximal = False
    silent = True

    def init(self, params: Params) -> GridState:
        return GridState(params, LogGrid(self.ratio))

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        return torch.stack([(parameter * 0).sum() for parameter in params.values()]).sum()

    @torch.no_grad()
    def after_step_(self, params: Params, state: nn.Module, steps: Params, at: At) -> None:
        assert isinstance(state, GridState)
        for parameter, latent in zip(params.values(), state.every(params), strict=True):
            moved = latent.weight + (parameter - latent.shown)
            latent.weight = torch.where((latent.weight == 0) | (moved == 0), latent.weight, moved)
            parameter.copy_(latent.show())

    def grids(self, state: nn.Module) -> dict[str, tuple[float, float]]:
        assert isinstance(state, GridState)
        latents = zip(state.names, state.every(state.names), strict=True)
        return {name: (float(latent.grid[0]), float(latent.grid[1])) for name, latent in latents}

    add_gradient_ = no_gradient_
    masks_ = no_masks_


@dataclass(frozen=True)
class Taylor:
    """Keeps the weights of the largest |w * gradient|, over some batches: a pruning rule that reads data."""

    share: float = 0.2

    def masks(self, params: Params, evidence: Evidence, keep: int | None) -> Masks:
        for parameter in params.values():
            parameter.grad = None
        for batch in evidence.batches():
            evidence.loss(evidence.model, batch).backward()
        scores = {
            name: torch.zeros_like(parameter) if parameter.grad is None else (parameter * parameter.grad).abs().detach()
            for name, parameter in params.items()
        }
        for parameter in params.values():
            parameter.grad = None
        count = round(self.share * sum(score.numel() for score in scores.values())) if keep is None else keep
        return magnitude_masks(scores, keep=count)


METHODS: list[Method] = [SampledGates(), TopGradients(), Signs(), Signs(alpha=0.0), Rounding()]
SHORT = Recipe(epochs=Epochs(prelude=2, regularise=3, fine_tune=1), lr=RATE)


def steps_of(model: nn.Module, optimizer: torch.optim.Optimizer, count: int, first: int = 0) -> None:
    train, _ = digits_batches()
    batches = list(train.epoch(0))
    for step in range(first, first + count):
        inputs, labels = batches[step % len(batches)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_it_is_a_method_and_resumes_in_the_same_bits(method: Method) -> None:
    assert isinstance(method, Method)
    runs: list[nn.Module] = []
    for stops in (False, True):
        model = small_network()
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        sparsifier = attach(optimizer, model, method, total_steps=30)
        if not stops:
            steps_of(model, optimizer, 24)
        else:
            steps_of(model, optimizer, 11)
            saved = (model.state_dict(), optimizer.state_dict(), sparsifier.state_dict())
            model = small_network(seed=1)
            optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
            sparsifier = attach(optimizer, model, method, total_steps=30)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            sparsifier.load_state_dict(saved[2])
            steps_of(model, optimizer, 13, first=11)
        runs.append(model)
    assert equal(*runs)


@pytest.mark.parametrize("closure", [False, True])
def test_forward_weights_are_those_of_a_loop_without_the_library(closure: bool) -> None:
    method = SampledGates(settle=2.0)
    model, plain = small_network(), small_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    sparsifier = attach(optimizer, model, method, total_steps=30, seed=5)
    names = list(sparsifier.params)
    train, _ = digits_batches()
    batches = list(train.epoch(0))

    params = {name: parameter for name, parameter in plain.named_parameters() if name in names}
    gates, other = method.init(params), torch.optim.Adam(plain.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(5)
    for step in range(12):
        inputs, labels = batches[step % len(batches)]

        def loss(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(model(inputs), labels)
            value.backward()
            return value

        if closure:
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()

        other.zero_grad()
        gates.zero_grad()
        at = At(progress=step / 30, step=step)
        weights = method.forward_weights(params, gates, at, generator)
        outputs = torch.func.functional_call(plain, {**dict(plain.named_parameters()), **weights}, (inputs,))
        nn.functional.cross_entropy(outputs, labels).backward()
        other.step()
        gates.follow_rates_(dict.fromkeys(params, RATE))
        method.after_step_(params, gates, {}, at)
        with sparsifier.dense():
            for name, parameter in plain.named_parameters():
                torch.testing.assert_close(model.get_parameter(name), parameter, rtol=1e-5, atol=1e-6)
    assert any(bool((model.get_parameter(name) == 0).any()) for name in names)  # what the network computes with is sampled
    sparsifier.detach()
    assert not any(bool((model.get_parameter(name) == 0).any()) for name in names)


def test_freezing_and_other_phases_bring_the_dense_weights_back() -> None:
    model = small_network()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    sparsifier = attach(optimizer, model, SampledGates(), total_steps=30)
    steps_of(model, optimizer, 4)
    with sparsifier.dense():
        dense = {name: parameter.detach().clone() for name, parameter in sparsifier.params.items()}
    assert not all(torch.equal(dense[name], parameter) for name, parameter in sparsifier.params.items())
    sparsifier.set_phase(Phase.PRELUDE)
    assert all(torch.equal(dense[name], parameter) for name, parameter in sparsifier.params.items())
    sparsifier.set_phase(Phase.REGULARISE)
    masks = magnitude_masks(dense, keep=500)
    sparsifier.freeze(masks, penalty=False)
    assert all(torch.equal(dense[name] * masks[name], parameter) for name, parameter in sparsifier.params.items())


def test_gradients_are_changed_before_the_penalty_is_added() -> None:
    method = TopGradients(alpha=1e-2)
    model, plain = small_network(), small_network()
    optimizer, other = (torch.optim.SGD(network.parameters(), lr=0.1) for network in (model, plain))
    sparsifier = attach(optimizer, model, method)
    inputs, labels = next(iter(digits_batches()[0].epoch(0)))
    for _ in range(3):
        for network, steps in ((model, optimizer), (plain, other)):
            steps.zero_grad()
            nn.functional.cross_entropy(network(inputs), labels).backward()
        params = {name: plain.get_parameter(name) for name in sparsifier.params}
        method.change_gradient_(params, sparsifier.state, At())
        method.add_gradient_(params, sparsifier.state, At())
        optimizer.step()
        other.step()
        assert equal(model, plain)


@pytest.mark.parametrize("method", [METHODS[0], METHODS[1], METHODS[2]], ids=repr)
@pytest.mark.parametrize("target", [None, NonZeros(300), ErrorIncrease(0.5, tries=2), Bytes(900)], ids=repr)
@pytest.mark.filterwarnings("ignore:every alpha tried was accepted")
def test_sparsify_runs_it_with_every_target(method: Method, target: Any) -> None:
    train, valid = digits_batches()
    result = sparsify(
        small_network(), classification_loss, train=train, valid=valid, method=method, target=target, recipe=SHORT, progress=False
    )
    assert 0 < result.nonzeros <= result.parameters
    if isinstance(target, NonZeros):
        assert sum(count_nonzeros([parameter]) for parameter in result.model.parameters() if parameter.ndim == 2) <= 300
    if isinstance(target, ErrorIncrease):
        assert result.tries[0].alpha == pytest.approx(method.alpha)  # type: ignore[attr-defined]


def test_sparsify_hands_on_the_grids_of_a_method_that_ends_on_some(tmp_path: Path) -> None:
    train, valid = digits_batches()
    result = sparsify(small_network(), classification_loss, train=train, valid=valid, method=Rounding(), recipe=SHORT, progress=False)
    assert result.quantiser is not None
    save_model(result.model, tmp_path / "network.l0", quantise=result.quantiser)
    assert (tmp_path / "network.l0").stat().st_size < 4 * result.parameters


def test_a_run_with_it_resumes_from_any_checkpoint(tmp_path: Path) -> None:
    train, valid = digits_batches()

    class Stop(Exception):
        pass

    def run(checkpoint: Checkpoint | None, method: Method) -> nn.Module:
        arguments: dict[str, Any] = {"train": train, "valid": valid, "method": method, "progress": False}
        target = NonZeros(300)
        return sparsify(small_network(), classification_loss, target=target, recipe=SHORT, checkpoint=checkpoint, **arguments).model

    for number, method in enumerate(METHODS[:3]):
        path = tmp_path / f"{number}.pt"
        whole = run(None, method)
        with pytest.MonkeyPatch.context() as patch:
            import ellzero.training.driver as driver

            save, saves = driver.save, []

            def interrupted(path: Path, state: Any) -> None:
                save(path, state)  # noqa: B023
                saves.append(path)  # noqa: B023
                if len(saves) == 37:  # noqa: B023
                    raise Stop

            patch.setattr(driver, "save", interrupted)
            with pytest.raises(Stop):
                run(Checkpoint(path=path, seconds=0.0), method)
        assert equal(run(Checkpoint(path=path, resume=True), method), whole)


def test_a_rule_of_ones_own_chooses_the_final_masks(tmp_path: Path) -> None:
    assert isinstance(Taylor(), PruningRule)
    train, valid = digits_batches()
    arguments: dict[str, Any] = {"train": train, "valid": valid, "method": Signs(), "progress": False}
    for target in (None, NonZeros(300), Bytes(900)):
        recipe = Recipe(epochs=Epochs(prelude=2, regularise=2, fine_tune=1), rule=Taylor())
        result = sparsify(small_network(), classification_loss, target=target, recipe=recipe, **arguments)
        weights = [parameter for parameter in result.model.parameters() if parameter.ndim == 2]
        assert 0 < count_nonzeros(weights) <= (sum(weight.numel() for weight in weights) if target else 400)
        if isinstance(target, NonZeros):
            assert count_nonzeros(weights) <= target.count
        if isinstance(target, Bytes):
            save_model(result.model, tmp_path / "network.l0", quantise=result.quantiser)
            assert (tmp_path / "network.l0").stat().st_size <= target.count


@dataclass(frozen=True)
class KeepsAll:
    """A rule that does not do what it is asked to."""

    def masks(self, params: Params, evidence: Evidence, keep: int | None) -> Masks:
        return {name: torch.ones_like(parameter, dtype=torch.bool) for name, parameter in params.items()}


def test_a_rule_that_keeps_too_much_is_named() -> None:
    train, _ = digits_batches()
    recipe = Recipe(epochs=Epochs(prelude=1, regularise=1, fine_tune=1), rule=KeepsAll())
    with pytest.raises(ValueError, match=r"KeepsAll\(\) keeps \d+ weights, and at most 300 were asked for"):
        sparsify(small_network(), classification_loss, train=train, method=Signs(), target=NonZeros(300), recipe=recipe, progress=False)
