"""Which networks read which data, found out before a run begins."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ellzero.cli.jobs.by_name import NETWORKS, network, resident, wants_channels
from ellzero.cli.jobs.fit import require_fit
from ellzero.cli.main import main
from ellzero.data import Dataset, Images, Part
from ellzero.models import Student
from ellzero.training.problem import Problem

SHAPES = {Dataset.MNIST: (28, 28), Dataset.FASHION_MNIST: (28, 28), Dataset.CIFAR10: (3, 32, 32), Dataset.DIGITS: (8, 8)}
FITS = {
    "lenet-300-100": {Dataset.MNIST, Dataset.FASHION_MNIST},
    "lenet-5-caffe": {Dataset.MNIST, Dataset.FASHION_MNIST},
    "vgg-16-512": {Dataset.CIFAR10},
    "mlp-3x512": {Dataset.CIFAR10},
    "digits-mlp": {Dataset.DIGITS},
}


def some_problem(dataset: Dataset, *, channels: bool = False, **more) -> Problem:
    """Ten black images, one of each class."""
    shape = SHAPES[dataset]
    inputs = torch.zeros(10, *((1, *shape) if channels and len(shape) == 2 else shape), dtype=torch.uint8)
    batches = resident(Images(inputs=inputs, labels=torch.arange(10), name=dataset.value, part=Part.TRAIN))
    return Problem(train=batches, test=lambda: batches, samples=10, name=dataset.value, **more)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_fits_its_own_data_and_says_what_to_take_elsewhere(name: str) -> None:
    model = network(name, 0)
    for dataset in Dataset:
        problem = some_problem(dataset, channels=wants_channels(model))
        if dataset in FITS[name]:
            require_fit(model, problem, name)
            continue
        readers = " and ".join(other for other, fits in FITS.items() if dataset in fits)
        own = " and ".join(fit.value for fit in Dataset if fit in FITS[name])
        with pytest.raises(
            ValueError, match=rf"^{name} does not fit {dataset.value}, whose inputs are [\dx]+: it reads {own}; {readers} read"
        ):
            require_fit(model, problem, name)


def test_a_network_of_ones_own_hears_what_torch_says_or_which_outputs_are_missing() -> None:
    with pytest.raises(ValueError, match=r"mine:student does not fit mnist, whose inputs are 28x28: mat1 and mat2 shapes .*2x784"):
        require_fit(Student(), some_problem(Dataset.MNIST), "mine:student")
    few = nn.Sequential(nn.Flatten(), nn.Linear(64, 9))
    with pytest.raises(ValueError, match=r"of 2 samples it makes \[2, 9\], expected \[2, 10\], a score for each class"):
        require_fit(few, some_problem(Dataset.DIGITS), "mine:few")


def test_a_look_changes_neither_the_network_nor_the_global_generator() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10), nn.Dropout(0.5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    require_fit(model, some_problem(Dataset.DIGITS), "mine:own")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training
    assert model[3].training


def test_a_loss_of_ones_own_is_left_alone() -> None:
    def loss(model: nn.Module, batch: object) -> Tensor:
        raise AssertionError

    require_fit(Student(), some_problem(Dataset.MNIST, loss_fn=loss), "mine:student")


def test_the_command_says_it_in_one_line_and_leaves_nothing(
    tmp_path: Path, data_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELLZERO_DATA", str(data_directory))
    assert main(["sparsify", "mlp-3x512", "--data", "mnist", "-o", "run"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("ellzero: mlp-3x512 does not fit mnist, whose inputs are 28x28: it reads cifar10;")
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert not (tmp_path / "run").exists()


def with_seed(*, seed: int) -> nn.Module:
    return nn.Linear(seed + 1, 1)


def with_anything(**options: int) -> nn.Module:
    return nn.Linear(options["seed"] + 1, 1)


def without_seed() -> nn.Module:
    return nn.Linear(1, 1)


def broken(*, seed: int) -> nn.Module:
    raise TypeError(f"the seed {seed} is not what is wrong")


def test_a_factory_gets_the_seed_if_it_takes_one():
    for factory, size in ((with_seed, 8), (with_anything, 8), (without_seed, 1)):
        model = network(f"{__name__}:{factory.__name__}", 7)
        assert isinstance(model, nn.Linear)
        assert model.in_features == size
    with pytest.raises(TypeError, match="not what is wrong"):
        network(f"{__name__}:broken", 7)
