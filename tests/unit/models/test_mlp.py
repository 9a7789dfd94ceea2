import math

import pytest
import torch
from torch import nn

from ellzero.models import MLP, DigitsMLP, LeNet300, paper_uniform_, pytorch_uniform_


def test_parameter_counts():
    assert sum(p.numel() for p in LeNet300().parameters()) == 266_610
    assert sum(p.numel() for p in DigitsMLP().parameters()) == 64 * 100 + 100 + 100 * 50 + 50 + 50 * 10 + 10


def test_names_and_shapes_of_the_layers():
    shapes = {name: tuple(tensor.shape) for name, tensor in LeNet300().state_dict().items()}
    assert shapes == {
        "layers.0.weight": (300, 784),
        "layers.0.bias": (300,),
        "layers.1.weight": (100, 300),
        "layers.1.bias": (100,),
        "layers.2.weight": (10, 100),
        "layers.2.bias": (10,),
    }


def test_forward_equals_the_formula_and_flattens_its_input():
    model = MLP((6, 5, 4, 3), nn.Tanh, seed=1)
    inputs = torch.rand(7, 2, 3, generator=torch.Generator().manual_seed(0))
    weights = dict(model.named_parameters())
    hidden = torch.tanh(inputs.reshape(7, 6) @ weights["layers.0.weight"].T + weights["layers.0.bias"])
    hidden = torch.tanh(hidden @ weights["layers.1.weight"].T + weights["layers.1.bias"])
    torch.testing.assert_close(model(inputs), hidden @ weights["layers.2.weight"].T + weights["layers.2.bias"])


@pytest.mark.parametrize(("activation", "gain"), [(nn.ReLU, 2.0), (nn.Tanh, 5 / 3), (nn.Sigmoid, 1.0)])
def test_the_papers_bounds_are_kept_and_reached(activation: type[nn.Module], gain: float):
    model = MLP((400, 300, 200), activation, seed=3)
    for index, fan_in, layer_gain in ((0, 400, gain), (1, 300, 1.0)):
        weight = model.state_dict()[f"layers.{index}.weight"]
        bias = model.state_dict()[f"layers.{index}.bias"]
        bound = math.sqrt(3) * layer_gain / math.sqrt(fan_in)
        assert 0.999 * bound < weight.abs().max() <= bound * (1 + 1e-6)
        # A uniform variable on (-b, b) has the standard deviation b / sqrt(3); six standard errors of it are about 1 %.
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.012)
        assert abs(weight.mean()) < 6 * bound / math.sqrt(3 * weight.numel())
        assert 0.9 / math.sqrt(fan_in) < bias.abs().max() <= 1.000001 / math.sqrt(fan_in)


def test_pytorchs_default_is_pytorchs_default():
    model = LeNet300(initialise=pytorch_uniform_, seed=11)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        layers = [nn.Linear(784, 300), nn.Linear(300, 100), nn.Linear(100, 10)]
    expected = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
    for ours, theirs in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    first, second, third = LeNet300(seed=5), LeNet300(seed=torch.Generator().manual_seed(5)), LeNet300(seed=6)
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b, c in zip(first.parameters(), second.parameters(), third.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_a_convolution_counts_its_whole_kernel_as_fan_in():
    layer = nn.utils.skip_init(nn.Conv2d, 8, 64, 5)
    paper_uniform_(layer, nn.ReLU(), torch.Generator().manual_seed(0))
    bound = math.sqrt(3) * 2 / math.sqrt(8 * 25)
    assert 0.999 * bound < layer.weight.abs().max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("sizes", [(), (3,), (3, 0, 2)])
def test_impossible_sizes_are_refused(sizes: tuple[int, ...]):
    with pytest.raises(ValueError, match="sizes must hold"):
        MLP(sizes)


def test_an_activation_without_a_known_gain_is_refused_by_name():
    with pytest.raises(ValueError, match=r"no gain is known for GELU .*pytorch_uniform_"):
        MLP((3, 4, 2), nn.GELU)
    MLP((3, 4, 2), nn.GELU, initialise=pytorch_uniform_)
