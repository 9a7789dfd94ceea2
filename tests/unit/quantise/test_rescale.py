"""Rescaling units: the same function, the same zeros, and the entropy of magnitudes at its least where that is known."""

import pytest
import torch
from torch import Tensor, nn

from ellzero.params import everything, select_parameters
from ellzero.quantise._rescale import rescale
from ellzero.quantise.grids import LogGrid

GRID = LogGrid(1.3125)


def answers(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model.eval()(inputs)


def scaled_(model: nn.Sequential, powers: list[int]) -> nn.Sequential:
    """Multiplies what each unit of the first layer reads, and divides what reads it."""
    factors = 1.3125 ** torch.tensor(powers, dtype=torch.float32)
    first, last = model[0], model[-1]
    with torch.no_grad():
        first.weight *= factors.view(-1, *[1] * (first.weight.ndim - 1))
        first.bias *= factors
        last.weight /= factors.repeat_interleave(last.weight.shape[1] // len(factors))
    return model


@pytest.mark.parametrize("powers", [[4, 0, -6, 0, 0, 2], [0, 0, 0, -3, 0, 0], [0, 5, 5, 0, 0, 0]])
def test_scrambled_scales_are_found_again(powers: list[int], seed: int):
    torch.manual_seed(seed)
    powers = powers + [0] * 6
    model = nn.Sequential(nn.Linear(9, 12), nn.ReLU(), nn.Linear(12, 5))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.randint(0, 2, parameter.shape) * 2 - 1) * (torch.rand_like(parameter) < 0.7))
        model[0].weight[:, 0], model[2].weight[0] = 1, 1  # so that each unit reads and is read
    before = answers(model, torch.ones(3, 9))
    result = rescale(scaled_(model, powers), torch.rand(2, 9), GRID)
    assert torch.allclose(answers(result, torch.ones(3, 9)), before, rtol=1e-4, atol=1e-4)
    for layer in (result[0], result[2]):
        sizes = layer.weight[layer.weight != 0].abs()
        assert sizes.max() / sizes.min() < 1.001


def test_a_convolution_before_flattening_moves_all_that_its_channels_become():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(6 * 9, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[torch.rand_like(parameter) < 0.5] = 0
    scaled_(model, [0, 3, -4, 6, 1, -2])
    inputs = torch.randn(5, 2, 8, 8)
    result = rescale(model, inputs[:2], GRID)
    assert torch.allclose(answers(result, inputs), answers(model, inputs), rtol=1e-4, atol=1e-4)
    moved = [not torch.equal(a, b) for a, b in zip(result.parameters(), model.parameters(), strict=True)]
    assert moved == [True, True, True, False]
    for name, parameter in select_parameters(result, everything).items():
        assert torch.equal(parameter != 0, model.get_parameter(name) != 0)


class Shortcut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.first(x).relu())


@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), "Tanh"),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU6(), nn.Linear(5, 2)), "ReLU6"),
        (nn.Sequential(nn.Linear(4, 5), nn.AlphaDropout(), nn.Linear(5, 2)), "AlphaDropout"),
        (nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)), "BatchNorm1d"),
        (Shortcut(), "add"),
    ],
)
def test_what_lets_no_factor_pass_is_refused(model: nn.Module, culprit: str):
    with pytest.raises(ValueError, match=culprit):
        rescale(model, torch.rand(2, 4), GRID)
