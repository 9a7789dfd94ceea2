"""The multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.models.initialise import Initialise, as_generator, paper_uniform_, uninitialised


class MLP(nn.Module):
    """Flattens its input and applies linear layers with an activation between them, none after the last.

    The linear layers are `layers.0`, `layers.1`, ...; each computes x W^T + b.

    Args:
        sizes: features of the input, of each hidden layer, and of the output.
        activation: makes the activation module, `nn.ReLU` by default.
        initialise: fills each layer, the paper's rule by default, or `pytorch_uniform_`.
        seed: a generator or a number; the global generator is neither read nor advanced.

    Raises:
        ValueError: fewer than two sizes, or a size below 1; or an activation for which `initialise` knows no gain.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Callable[[], nn.Module] = nn.ReLU,
        *,
        initialise: Initialise = paper_uniform_,
        seed: torch.Generator | int = 0,
    ) -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"sizes must hold at least an input and an output size, each at least 1, got {tuple(sizes)}")
        layers = [uninitialised(nn.Linear, fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
        self.layers = nn.ModuleList(layers)
        self.activation = activation()
        generator = as_generator(seed)
        for layer in layers[:-1]:
            initialise(layer, self.activation, generator)
        initialise(layers[-1], nn.Identity(), generator)

    def forward(self, inputs: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch out"]:
        """Computes the outputs (logits for a classifier) of a batch of inputs of any shape."""
        features = inputs.flatten(1)
        for layer in self.layers[:-1]:
            features = self.activation(layer(features))
        return self.layers[-1](features)


class DigitsMLP(MLP):
    """The 64-100-50-10 network with ReLU for the 8x8 digits: 12,060 parameters.

    Args:
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(self, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__((64, 100, 50, 10), initialise=initialise, seed=seed)


class MLP3x512(MLP):
    """The 3072-512-512-512-10 network with ReLU for 3x32x32 images: 2,103,818 parameters.

    Args:
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(self, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__((3072, 512, 512, 512, 10), initialise=initialise, seed=seed)
