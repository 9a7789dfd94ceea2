"""The network of Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, 2015, for 32x32 images."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.models.initialise import Initialise, as_generator, paper_uniform_, uninitialised


class VGG16(nn.Module):
    """VGG-16-512 for 3x32x32 images: 15,253,578 parameters (table 1c of the paper).

    Thirteen 3x3 convolutions with biases in five stages, each followed by batch normalisation and ReLU, a maximum over 2x2 after each
    stage, then 512-512-512-10 with ReLU and dropout.

    Args:
        stages: channels of the convolutions of each stage.
        hidden: units of both hidden linear layers.
        dropout: the probability of dropping one of them while training.
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number. Dropout draws from the global generator, as PyTorch's always does.

    Raises:
        ValueError: not five stages, or an empty one: 32x32 pixels are halved five times.
    """

    def __init__(
        self,
        *,
        stages: Sequence[Sequence[int]] = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
        hidden: int = 512,
        dropout: float = 0.4,
        initialise: Initialise = paper_uniform_,
        seed: torch.Generator | int = 0,
    ) -> None:
        super().__init__()
        if len(stages) != 5 or not all(stages):
            raise ValueError(f"stages={stages}: expected five, none empty, because images of 32x32 pixels are halved five times")
        generator = as_generator(seed)
        widths = [3, *(width for stage in stages for width in stage)]
        self.ends = [sum(len(stage) for stage in stages[: count + 1]) for count in range(5)]
        convolutions = [uninitialised(nn.Conv2d, fan_in, fan_out, 3, padding=1) for fan_in, fan_out in pairwise(widths)]
        dense = [uninitialised(nn.Linear, fan_in, fan_out) for fan_in, fan_out in pairwise((widths[-1], hidden, hidden, 10))]
        self.convolutions = nn.ModuleList(convolutions)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for width in widths[1:]])
        self.dense = nn.ModuleList(dense)
        self.activation = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(dropout)
        for layer in convolutions:
            initialise(layer, nn.Identity(), generator)  # what follows is the normalisation
        for layer in dense[:-1]:
            initialise(layer, self.activation, generator)
        initialise(dense[-1], nn.Identity(), generator)

    def forward(self, inputs: Float[Tensor, "batch 3 32 32"]) -> Float[Tensor, "batch 10"]:
        """Computes the logits of a batch of images."""
        features = inputs
        for count, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True), start=1):
            features = self.activation(norm(convolution(features)))
            if count in self.ends:
                features = self.pool(features)
        features = features.flatten(1)
        for layer in self.dense[:-1]:
            features = self.dropout(self.activation(layer(features)))
        return self.dense[-1](features)
