"""Small networks of every structure that folding and shrinking know, with random zeros in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """Adds a convolution's output to its input, then a second sum with three readers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.first = nn.Conv2d(6, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.second = nn.Conv2d(5, 6, 1)
        self.skip = nn.Conv2d(6, 6, 1, bias=False)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x))
        y = self.second(functional.relu(self.norm(self.first(x))))
        x = torch.relu(x + y)
        x = x + self.skip(x)
        x = functional.adaptive_avg_pool2d(x, 1)
        return self.head(x.view(x.size(0), -1))


class Depthwise(nn.Module):
    """Separable convolutions, and one with a single output channel in a single group, which is not depthwise (story 39)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3)
        self.depth = nn.Conv2d(8, 8, 3, groups=8)
        self.point = nn.Conv2d(8, 6, 1)
        self.padded = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
        self.gate = nn.Conv2d(6, 1, 1)
        self.after = nn.Conv2d(1, 4, 2)
        self.head = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.stem(x.to(memory_format=torch.channels_last)))
        x = functional.silu(self.point(functional.leaky_relu(self.depth(x))))
        x = torch.tanh(self.gate(self.padded(x)))
        return self.head(torch.flatten(self.after(x), 1))


class Grouped(nn.Module):
    """A convolution of two groups, a layer norm, tied layers, and a product with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3)
        self.groups = nn.Conv2d(6, 8, 3, groups=2)
        self.squeeze = nn.Linear(8, 5)
        self.gate = nn.Linear(5, 8)
        self.between = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.groups(functional.relu(self.stem((x - 0.5) * 2))))
        x = functional.max_pool2d(x, 4).flatten(1)
        x = x * torch.sigmoid(self.gate(functional.relu(self.squeeze(x))))
        x = self.between(functional.elu(self.between(x)))
        return self.head(functional.hardswish(self.last(self.norm(x))))


def perceptron(activation: Callable[[], nn.Module], *, bias: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(2 * 8 * 8, 12, bias=bias),
        activation(),
        nn.Dropout(0.5),
        nn.Linear(12, 10, bias=bias),
        activation(),
        nn.Linear(10, 9),
        activation(),
        nn.Linear(9, 3, bias=bias),
    )


def convolutional(*, padding: int, bias: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=padding, bias=bias),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2, padding=1),
        nn.Conv2d(6, 7, 2, padding=padding),
        nn.Sigmoid(),
        nn.Conv2d(7, 6, 2, padding=padding, bias=bias),
        nn.BatchNorm2d(6, affine=False),
        nn.ReLU(inplace=inplace),
        nn.AvgPool2d(2, padding=1),
        nn.Flatten(),
        nn.LazyLinear(8),
        nn.BatchNorm1d(8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


@dataclass(frozen=True)
class Structure:
    name: str
    build: Callable[[], nn.Module]

    def __repr__(self) -> str:
        return self.name


STRUCTURES = [
    Structure("relu_perceptron", lambda: perceptron(nn.ReLU)),
    Structure("sigmoid_perceptron", lambda: perceptron(nn.Sigmoid)),
    Structure("tanh_perceptron_without_bias", lambda: perceptron(nn.Tanh, bias=False)),
    Structure("convolutional", lambda: convolutional(padding=0)),
    Structure("convolutional_padded", lambda: convolutional(padding=1)),
    Structure("convolutional_without_bias_in_place", lambda: convolutional(padding=1, bias=False, inplace=True)),
    Structure("residual", Residual),
    Structure("depthwise", Depthwise),
    Structure("grouped", Grouped),
]


def sparse(structure: Structure, density: float, seed: int, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    """Builds a network in eval mode with zeros everywhere, and a batch for it."""
    generator = torch.Generator().manual_seed(seed)
    model = structure.build().to(dtype).eval()
    example = torch.randn(3, 2, 8, 8, generator=generator, dtype=dtype)
    with torch.no_grad():
        model(example)
        for parameter in model.parameters():
            # Biases, scales and shifts are denser than weights, so that constant units say something.
            kept = torch.rand(parameter.shape, generator=generator) < (density if parameter.ndim > 1 else 0.7)
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * kept)
            if parameter.ndim > 1:  # whole units die, not only connections
                parameter[torch.rand(len(parameter), generator=generator) < 0.2] = 0
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand(buffer.shape, generator=generator, dtype=dtype) + (0.5 if name.endswith("var") else -0.5))
    return model, example


def nonzeros(model: nn.Module) -> int:
    return sum(int(torch.count_nonzero(parameter)) for parameter in model.parameters())
