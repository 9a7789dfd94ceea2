"""Running statistics are estimated anew, and nothing else is touched."""

from copy import deepcopy

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from ellzero.training import classification_loss, recalibrate_batchnorm


def batches(count: int = 3, *shape: int) -> list[Tensor]:
    """Batches of unequal sizes, so that averaging batches and pooling samples differ."""
    generator = torch.Generator().manual_seed(7)
    return [2 * torch.randn(5 + 3 * number, *(shape or (4,)), generator=generator) + number for number in range(count)]


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=0.3), nn.Dropout(0.5), nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        model(batches()[0] * 100)  # stale statistics
    return model


def everything_of(model: nn.Module) -> tuple[dict[str, Tensor], list[bool], list[object]]:
    modules = list(model.modules())
    return deepcopy(model.state_dict()), [m.training for m in modules], [getattr(m, "momentum", None) for m in modules]


def test_statistics_are_the_averages_over_the_batches_computed_by_hand() -> None:
    model, given = network(), batches()
    recalibrate_batchnorm(model, given)
    first, second = model[1], model[4]
    hidden = [model[0](x) for x in given]
    torch.testing.assert_close(first.running_mean, torch.stack([h.mean(0) for h in hidden]).mean(0))
    torch.testing.assert_close(first.running_var, torch.stack([h.var(0) for h in hidden]).mean(0))
    # The second one sees what the first one says while it normalises by the batch, and no dropout.
    normed = [(h - h.mean(0)) / (h.var(0, unbiased=False) + first.eps).sqrt() * first.weight + first.bias for h in hidden]
    outputs = [model[3](h) for h in normed]
    torch.testing.assert_close(second.running_mean, torch.stack([o.mean(0) for o in outputs]).mean(0))
    torch.testing.assert_close(second.running_var, torch.stack([o.var(0) for o in outputs]).mean(0))


def test_images_are_averaged_over_places_too() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2)).eval()
    given = batches(2, 2, 4, 4)
    recalibrate_batchnorm(model, iter(given))
    torch.testing.assert_close(model[0].running_mean, torch.stack([x.mean((0, 2, 3)) for x in given]).mean(0))
    torch.testing.assert_close(model[0].running_var, torch.stack([x.var((0, 2, 3)) for x in given]).mean(0))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_but_the_statistics_changes(training: bool) -> None:
    model = network().train(training)
    model[2].train(not training)  # a mode of its own
    model[0].weight.grad = torch.ones(3, 4)
    before, random = everything_of(model), torch.get_rng_state()
    recalibrate_batchnorm(model, batches())
    after = everything_of(model)
    assert after[1:] == before[1:]
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(model[0].weight.grad, torch.ones(3, 4))
    for name, tensor in after[0].items():
        assert torch.equal(tensor, before[0][name]) != name.endswith(("running_mean", "running_var", "num_batches_tracked")), name


def test_other_kinds_of_batches_and_calls() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Tensor, shift: Tensor) -> Tensor:
            return self.norm(x + shift)

    shift = torch.ones(4)
    ways = [
        lambda model: recalibrate_batchnorm(model, [{"x": x, "shift": shift} for x in batches()]),
        lambda model: recalibrate_batchnorm(model, [(x, shift) for x in batches()]),
        lambda model: recalibrate_batchnorm(model, batches(), lambda model, x: model(x, shift)),
    ]
    expected = torch.stack([x.mean(0) for x in batches()]).mean(0) + 1
    for way in ways:
        model = Keyword()
        way(model)
        torch.testing.assert_close(model.norm.running_mean, expected)


def test_a_loss_serves_as_the_call() -> None:
    one, other = network(), network()
    other.load_state_dict(one.state_dict())
    recalibrate_batchnorm(one, batches())
    recalibrate_batchnorm(other, [(x, torch.zeros(len(x), dtype=torch.int64)) for x in batches()], classification_loss)
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_layer_that_no_batch_reaches_keeps_its_statistics() -> None:
    model = network()
    model.add_module("unused", nn.BatchNorm1d(3))
    model.unused.running_mean.fill_(5.0)
    recalibrate_batchnorm(model, batches(), lambda model, x: model[:4](x))
    assert bool((model.unused.running_mean == 5).all())
    assert model[1].num_batches_tracked == 3


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], ValueError, "no batch to recalibrate on"),
        ([torch.randn(6, 4), torch.randn(1, 4)], ValueError, "more than 1 value per channel"),
        ([torch.randn(6, 4), torch.randn(6, 5)], RuntimeError, "shapes"),
    ],
)
def test_after_an_error_all_is_as_before(given: list[Tensor], error: type[Exception], message: str) -> None:
    model = network()
    before = everything_of(model)
    with pytest.raises(error, match=message):
        recalibrate_batchnorm(model, given)
    after = everything_of(model)
    assert after[1:] == before[1:]
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=0)


def test_nothing_to_recalibrate_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Sequential has no batch normalisation with running statistics"):
        recalibrate_batchnorm(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)), batches())
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(TypeError, match=r"pass the model itself, not model\.parameters\(\)"):
        recalibrate_batchnorm(network().parameters(), batches())  # type: ignore[arg-type]
