import pytest
import torch
from scipy import stats

from ellzero.data import teacher_samples
from ellzero.models import Teacher


def test_inputs_are_uniform_and_the_noise_is_normal_with_this_standard_deviation():
    teacher = Teacher(seed=1)
    inputs, targets = teacher_samples(teacher, 20_000, seed=5)
    assert inputs.shape == (20_000, 2)
    assert targets.shape == (20_000, 1)
    with torch.no_grad():
        noise = (targets - teacher(inputs)).flatten().double().numpy()
    assert stats.kstest(noise, stats.norm(0, 0.08).cdf).pvalue > 0.01
    assert stats.kstest(inputs.flatten().double().numpy(), stats.uniform(-1, 2).cdf).pvalue > 0.01


def test_the_seed_decides_and_the_teacher_stays_in_its_mode():
    teacher = Teacher(seed=1).train()
    before = torch.get_rng_state()
    one, same, other = (teacher_samples(teacher, 10, seed=seed, noise=0.5) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert teacher.training
    assert torch.equal(one.targets, same.targets)
    assert not torch.equal(one.inputs, other.inputs)
    assert not one.targets.requires_grad


def test_without_noise_targets_are_the_teachers():
    teacher = Teacher((3, 4, 2, 2), seed=0)
    inputs, targets = teacher_samples(teacher, 6, seed=0, features=3, noise=0)
    assert torch.equal(targets, teacher(inputs).detach())


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"samples": 3, "features": 0}, {"samples": 3, "noise": -0.1}])
def test_senseless_arguments_are_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="samples="):
        teacher_samples(Teacher(), seed=0, **wrong)  # type: ignore[arg-type]
