"""The networks for CIFAR-10 of He, Zhang, Ren, Sun, Deep residual learning for image recognition, 2016 (section 4.2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from ellzero.models.initialise import Initialise, as_generator, paper_uniform_, uninitialised


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation beside a shortcut without parameters (the authors' option A).

    Where the block halves the image, the shortcut takes every other pixel and fills the new channels with zeros, half of them before the
    old ones and half after.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = uninitialised(nn.Conv2d, channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = uninitialised(nn.Conv2d, width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.added = (width - channels) // 2

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch more rows columns"]:
        """Computes the features of a batch of images."""
        features = functional.relu(self.bn1(self.conv1(inputs)))
        features = self.bn2(self.conv2(features))
        if self.stride > 1:
            inputs = functional.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added, self.added))
        return functional.relu(features + inputs)


class ResNet(nn.Module):
    """A residual network for 3x32x32 images: ResNet-20 (269,722 parameters), 32, 44, 56, 110.

    A convolution to 16 channels, then three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels, the mean over all pixels, and a
    linear layer. The names are conv1, bn1, layer1.0.conv1, ..., linear.

    Args:
        depth: the number of layers with weights.
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.

    Raises:
        ValueError: `depth` is not 6 n + 2.
    """

    def __init__(self, depth: int = 20, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth={depth}: expected 6 n + 2 with n blocks per stage, as 20, 32, 44, 56 or 110")
        blocks = (depth - 2) // 6
        self.conv1 = uninitialised(nn.Conv2d, 3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(blocks)))
        self.layer2 = nn.Sequential(*(Block(16 if i == 0 else 32, 32, 2 if i == 0 else 1) for i in range(blocks)))
        self.layer3 = nn.Sequential(*(Block(32 if i == 0 else 64, 64, 2 if i == 0 else 1) for i in range(blocks)))
        self.linear = uninitialised(nn.Linear, 64, 10)
        generator = as_generator(seed)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                initialise(module, nn.Identity(), generator)  # a normalisation follows, or nothing

    def forward(self, inputs: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 10"]:
        """Computes the logits of a batch of images, pixels standardised as `ellzero.data.standardised` does."""
        features = functional.relu(self.bn1(self.conv1(inputs)))
        features = self.layer3(self.layer2(self.layer1(features)))
        return self.linear(features.mean((2, 3)))
