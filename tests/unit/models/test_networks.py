from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from ellzero.cli.jobs.by_name import NETWORKS
from ellzero.data import Part, load_cifar10, standardised
from ellzero.models import MLP, VGG16, LeNet5Caffe, MLP3x512, ResNet, Student, Teacher
from ellzero.params import count_parameters


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (LeNet5Caffe, 520 + 25_050 + 400_500 + 5_010),
        (VGG16, 15_253_578),
        (MLP3x512, 2_103_818),
        (Teacher, 72),
        (lambda: Teacher((2, 5, 5, 1)), 51),
        (Student, 751),
        (ResNet, 269_722),
        (lambda: ResNet(32), 464_154),
        (lambda: ResNet(56), 853_018),
    ],
)
def test_parameter_counts(make: Callable[[], nn.Module], count: int):
    assert count_parameters(make()) == count


@pytest.mark.parametrize("make", [LeNet5Caffe, Student, Teacher, ResNet, lambda seed: VGG16(stages=[[4]] * 5, hidden=6, seed=seed)])
def test_the_seed_decides_and_the_global_generator_is_left_alone(make: Callable[..., nn.Module]):
    before = torch.get_rng_state()
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert all(not torch.equal(a, c) for a, _, c in pairs if a.ndim > 1)
    assert all(tensor.isfinite().all() for tensor in one.state_dict().values())


def test_lenet5_is_convolution_relu_maximum_twice_and_two_linear_layers(generator: torch.Generator):
    model = LeNet5Caffe(seed=3)
    images = torch.rand(5, 1, 28, 28, generator=generator)
    p = dict(model.named_parameters())
    features = functional.max_pool2d(functional.conv2d(images, p["conv1.weight"], p["conv1.bias"]).relu(), 2)
    assert features.shape == (5, 20, 12, 12)
    features = functional.max_pool2d(functional.conv2d(features, p["conv2.weight"], p["conv2.bias"]).relu(), 2)
    hidden = (features.reshape(5, 800) @ p["dense1.weight"].T + p["dense1.bias"]).relu()
    torch.testing.assert_close(model(images), hidden @ p["dense2.weight"].T + p["dense2.bias"])


def test_the_bounds_of_a_convolution_follow_its_fan_in():
    model = LeNet5Caffe(seed=0)
    for layer, fan_in, gain in ((model.conv1, 25, 2), (model.conv2, 500, 2), (model.dense1, 800, 2), (model.dense2, 500, 1)):
        bound = gain * (3 / fan_in) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max() <= bound * (1 + 1e-6)


def test_vgg_normalises_every_convolution_and_halves_the_image_five_times(generator: torch.Generator):
    stages = ((3, 4), (5, 6), (7, 8, 9), (10, 11, 12), (13, 14, 15))
    model = VGG16(stages=stages, hidden=6, seed=1).eval()
    features = images = torch.rand(2, 3, 32, 32, generator=generator)
    state = model.state_dict()
    index = 0
    for stage in stages:
        for width in stage:
            features = (
                functional.conv2d(features, state[f"convolutions.{index}.weight"], state[f"convolutions.{index}.bias"], padding=1)
                / (1 + 1e-5) ** 0.5
            )
            assert features.shape[1] == width
            features, index = features.relu(), index + 1
        features = functional.max_pool2d(features, 2)
    assert features.shape == (2, 15, 1, 1)
    features = features.flatten(1)
    for layer in range(3):
        features = features @ state[f"dense.{layer}.weight"].T + state[f"dense.{layer}.bias"]
        features = features.relu() if layer < 2 else features
    torch.testing.assert_close(model(images), features)


def test_vgg_drops_units_of_both_hidden_layers_only_while_training(generator: torch.Generator):
    model = VGG16(stages=[[4]] * 5, hidden=50, dropout=0.5, seed=1).eval()
    seen: list[torch.Tensor] = []
    for layer in model.dense[1:]:
        layer.register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0] == 0))
    images = torch.rand(4, 3, 32, 32, generator=generator)
    model(images)
    model.dropout.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(images)
    for still, dropped in zip(seen[:2], seen[2:], strict=True):
        assert 0.3 < float((dropped & ~still).float().mean() / (~still).float().mean()) < 0.7


def test_a_vgg_of_another_depth_is_refused():
    with pytest.raises(ValueError, match="expected five"):
        VGG16(stages=[[4]] * 4)


def test_a_teacher_is_a_drawn_network_with_two_layers_moved():
    drawn, teacher = MLP((2, 5, 8, 1), nn.Tanh, seed=7).state_dict(), Teacher(seed=7).state_dict()
    for name, tensor in drawn.items():
        expected = {"layers.0.weight": 2 * tensor + 1, "layers.1.weight": 2 * tensor}.get(name, tensor)
        assert torch.equal(teacher[name], expected), name


def test_a_residual_shortcut_takes_every_other_pixel_and_pads_channels_on_both_sides(generator: torch.Generator):
    model = ResNet(8, seed=0).eval()
    block = model.layer2[0]
    for name in ("bn2.weight", "bn2.bias"):
        nn.init.zeros_(block.get_parameter(name))
    images = torch.rand(2, 16, 8, 8, generator=generator)
    out = block(images)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, 8:24], images[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize("depth", [2, 19, 21])
def test_depths_that_are_not_6n_plus_2_are_refused(depth: int):
    with pytest.raises(ValueError, match=f"depth={depth}"):
        ResNet(depth)


def test_the_command_line_knows_them_by_name():
    counts = {name: count_parameters(make(0)) for name, make in NETWORKS.items()}
    assert counts["lenet-5-caffe"] == 431_080
    assert counts["vgg-16-512"] == 15_253_578
    assert counts["mlp-3x512"] == 2_103_818


@pytest.mark.parametrize(
    ("depth", "file", "correct"),
    [
        (20, "cifar10-resnet20-12fca82f", 915),
        pytest.param(32, "cifar10-resnet32-d509ac18", 928, marks=pytest.mark.slow),
        pytest.param(56, "cifar10-resnet56-4bfd9763", 926, marks=pytest.mark.slow),
    ],
)
def test_trained_residual_networks_load_and_are_as_good_as_they_were(data_directory: Path, depth: int, file: str, correct: int):
    model = ResNet(depth).eval()
    model.load_state_dict(safetensors.torch.load_file(data_directory / "networks" / f"{file}.safetensors"), strict=True)
    images = load_cifar10(data_directory, Part.TEST)
    with torch.no_grad():
        answers = torch.cat([model(standardised(part)).argmax(1) for part in images.inputs[:1000].split(250)])
    assert int((answers == images.labels[:1000]).sum()) == correct
