"""Reordering hidden units: the same function, fuller units first, fewer bytes."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from ellzero.archive.save import model_bytes
from ellzero.models import LeNet5Caffe, LeNet300, ResNet
from ellzero.quantise.grids import LogGrid
from ellzero.surgery import reorder


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = functional.relu(self.norm(self.first(images)))
        return self.head(torch.flatten(first + self.second(first), 1))


class Softmaxed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(inputs)))


def sparse(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            keep = torch.rand(parameter.shape[0], generator=generator) ** 2
            mask = torch.rand(parameter.shape, generator=generator) < keep.view(-1, *[1] * (parameter.ndim - 1))
            parameter.mul_(mask)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(torch.rand(module.num_features, generator=generator))
    return model.eval()


MODELS = {
    "chain": (lambda: LeNet300(seed=0), (2, 1, 28, 28)),
    "convolutions": (lambda: LeNet5Caffe(seed=0), (2, 1, 28, 28)),
    "residual": (Residual, (2, 1, 4, 4)),
    "layer norm": (Softmaxed, (2, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_function_stays_and_the_model_given_too(name: str) -> None:
    torch.manual_seed(1)
    make, shape = MODELS[name]
    model, inputs = sparse(make()), torch.rand(shape)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    result = reorder(model, inputs)
    other = torch.rand(shape)
    torch.testing.assert_close(result(other), model(other), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    for key, tensor in result.state_dict().items():
        assert torch.equal(tensor.flatten().sort().values, before[key].flatten().sort().values), key


@pytest.mark.parametrize("name", ["chain", "convolutions"])
def test_fuller_units_come_first_and_bytes_are_saved(name: str) -> None:
    make, shape = MODELS[name]
    model = sparse(make())
    result = reorder(model, torch.rand(shape))
    hidden = [parameter for parameter in result.parameters() if parameter.ndim >= 2][:-1]
    for parameter in hidden:
        counts = torch.count_nonzero(parameter.flatten(1), dim=1)
        assert torch.equal(counts, counts.sort(descending=True).values)
    grid = LogGrid(2.0, num_levels=3)
    assert len(model_bytes(model, quantise=grid)) - len(model_bytes(result, quantise=grid)) > 100


def test_what_cannot_be_traced_is_refused() -> None:
    with pytest.raises(ValueError, match="getitem"):
        reorder(ResNet(20), torch.rand(2, 3, 32, 32))


def test_units_that_are_added_move_together() -> None:
    model = sparse(Residual())
    result = reorder(model, torch.rand(2, 1, 4, 4))
    orders = []
    for name in ("first.bias", "second.bias", "norm.running_mean"):
        with torch.no_grad():
            old, new = model.state_dict()[name], result.state_dict()[name]
        orders.append([old.tolist().index(each) if each else None for each in new.tolist()])
    known = [{each for each in place if each is not None} for place in zip(*orders, strict=True)]
    assert all(len(each) <= 1 for each in known)
    assert orders[2] != list(range(8))
