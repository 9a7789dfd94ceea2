"""What batch normalisation remembers, against what comes to it."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from ellzero.quantise.answers import Answers
from ellzero.quantise.calibrate import Calibrated
from ellzero.quantise.fold_batchnorm import fold_batchnorm_
from ellzero.surgery.batch_statistics import MAX_SHIFT, BatchStatistics


def images(count: int, seed: int) -> Tensor:
    """Images of correlated pixels with standard deviation 1 and mean 0, as training normalises them."""
    noise = torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return nn.functional.avg_pool2d(noise, 3, stride=1) * 3


@pytest.fixture(scope="module")
def network() -> nn.Sequential:
    """A network that has seen images for as long as its statistics need."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 20, 3), nn.BatchNorm2d(20), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(20, 10), nn.BatchNorm1d(10)),
    )
    with torch.no_grad():
        for seed in range(60):
            model(images(64, seed))
    return model.eval()


def distance(model: nn.Module, batches: list[Tensor]) -> float | None:
    with BatchStatistics(model) as statistics, torch.no_grad():
        for batch in batches:
            model(batch)
    return statistics.distance()


@pytest.mark.parametrize("count", [16, 32, 128, 512])
def test_inputs_like_those_of_training_are_near_however_few(network: nn.Sequential, count: int) -> None:
    found = distance(network, list(images(count, 1000).split(16)))
    assert found is not None
    assert found < MAX_SHIFT / 2


@pytest.mark.parametrize(("scale", "offset"), [(0.25, 0.5), (0.5, 0.0), (1.0, 1.0), (64.0, 128.0)])
def test_inputs_in_another_scale_are_far(network: nn.Sequential, scale: float, offset: float) -> None:
    found = distance(network, list((scale * images(64, 1000) + offset).split(16)))
    assert found is not None
    assert found > MAX_SHIFT


def test_the_distance_is_that_of_all_batches_together(network: nn.Sequential) -> None:
    first: nn.Module = network[1]
    assert isinstance(first, nn.BatchNorm2d)
    alone = nn.Sequential(copy.deepcopy(first)).eval()
    inputs = torch.randn(40, 12, 3, 3, generator=torch.Generator().manual_seed(0)) + 2
    found = distance(alone, list(inputs.split([7, 33])))
    variance, mean = torch.var_mean(inputs.double(), (0, 2, 3), correction=0)
    assert first.running_mean is not None
    assert first.running_var is not None
    remembered = first.running_var + first.eps
    wanted = (mean - first.running_mean) ** 2 / remembered + ((variance + first.eps).sqrt() / remembered.sqrt() - 1) ** 2
    assert found == pytest.approx(float(wanted.mean()) - 1.5 / 40, rel=1e-4)


def test_normalisation_that_remembers_nothing_says_nothing(network: nn.Sequential) -> None:
    fresh = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.BatchNorm2d(12, track_running_stats=False)).eval()
    assert distance(fresh, [100 * images(4, 0)]) is None
    folded = copy.deepcopy(network)
    with torch.no_grad():
        fold_batchnorm_([(folded[0], folded[1]), (folded[3], folded[4]), (folded[8], folded[9])])
    assert distance(folded, [100 * images(4, 0)]) is None
    assert not network[1]._forward_pre_hooks


def test_calibration_warns_of_inputs_in_another_scale(network: nn.Sequential) -> None:
    inputs = images(64, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Calibrated(inputs=inputs, answers=Answers.LOGITS, nats_per_kilobyte=1e-5).apply(network)
    with pytest.warns(UserWarning, match=r"not like those.*max_shift 0\.06.*'1' has 0\.25 times.*scale the inputs"):
        Calibrated(inputs=inputs / 4, answers=Answers.LOGITS, nats_per_kilobyte=1e-7).apply(network)
