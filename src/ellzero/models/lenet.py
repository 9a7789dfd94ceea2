"""The networks of LeCun et al., Gradient-based learning applied to document recognition, 1998."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.models.initialise import Initialise, as_generator, paper_uniform_, uninitialised
from ellzero.models.mlp import MLP


class LeNet300(MLP):
    """LeNet-300-100: the 784-300-100-10 network with ReLU for 28x28 images, 266,610 parameters (table 1a of the paper).

    Args:
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(self, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__((784, 300, 100, 10), initialise=initialise, seed=seed)


class LeNet5Caffe(nn.Module):
    """LeNet-5 as the examples of Caffe have it, for 1x28x28 images: 431,080 parameters (table 1b of the paper).

    Two 5x5 convolutions without padding, to 20 and 50 channels, each followed by ReLU and a maximum over 2x2; then 800-500-10. Caffe
    itself has no ReLU after the convolutions; the paper's networks do.

    Args:
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(self, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__()
        self.conv1 = uninitialised(nn.Conv2d, 1, 20, 5)
        self.conv2 = uninitialised(nn.Conv2d, 20, 50, 5)
        self.dense1 = uninitialised(nn.Linear, 800, 500)
        self.dense2 = uninitialised(nn.Linear, 500, 10)
        self.pool = nn.MaxPool2d(2)
        self.activation = nn.ReLU()
        generator = as_generator(seed)
        for layer in (self.conv1, self.conv2, self.dense1):
            initialise(layer, self.activation, generator)
        initialise(self.dense2, nn.Identity(), generator)

    def forward(self, inputs: Float[Tensor, "batch 1 28 28"]) -> Float[Tensor, "batch 10"]:
        """Computes the logits of a batch of images."""
        # ReLU and maximum commute; after the maximum there is a quarter as much to do. Convolutions and maxima take half as long on a CPU
        # where the channels of a pixel lie side by side; `contiguous` would leave the strides of a single channel as they are.
        images = inputs.to(memory_format=torch.channels_last)
        features = self.activation(self.pool(self.conv1(images)))
        features = self.activation(self.pool(self.conv2(features)))
        return self.dense2(self.activation(self.dense1(features.flatten(1))))
