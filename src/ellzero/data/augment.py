"""Random changes of training images that leave their class alone, applied to a whole batch at once.

An augmentation is a pure function of the images and of numbers drawn uniformly from [0, 1), one row of them per image. So the numbers
of a whole epoch can be drawn at once, and any batch of it can be made again from its own rows. Pixels keep their scale: bytes from 0 to 255
stay bytes where pixels only move (which is faster), and become float32 from 0 to 255 where they are interpolated.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional


@runtime_checkable
class Augmentation(Protocol):
    """A random change of images."""

    @property
    def num_draws(self) -> int:
        """How many uniform numbers each image takes."""
        ...

    def apply(
        self, images: Shaped[Tensor, "batch *channels height width"], draws: Float[Tensor, "batch k"]
    ) -> Shaped[Tensor, "batch *channels height width"]:
        """Returns changed images of the same shape and scale; background is 0."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shifts:
    """Moves each image by whole pixels, across and down, each from -pixels to pixels with equal probability; what enters is 0.

    Attributes:
        pixels: the largest move.

    Raises:
        ValueError: `pixels` is below 1.
    """

    pixels: int = 1

    def __post_init__(self) -> None:
        if self.pixels < 1:
            raise ValueError(f"pixels={self.pixels}: expected at least 1; pass augment=None for no shifts")

    @property
    def num_draws(self) -> int:
        """Two: across and down."""
        return 2

    def apply(
        self, images: Shaped[Tensor, "batch *channels height width"], draws: Float[Tensor, "batch 2"]
    ) -> Shaped[Tensor, "batch *channels height width"]:
        """Returns the images moved; exact for every type of pixel.

        Args:
            images: the images.
            draws: uniform numbers in [0, 1).
        """
        height, width = images.shape[-2:]
        padded = functional.pad(images.reshape(len(images), -1, height, width), (self.pixels,) * 4)
        # Every move is a window of the padded image; the view of all windows copies nothing, and indexing copies the one that is drawn.
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)
        # The product can round up to the bound itself.
        down, across = (draws * (2 * self.pixels + 1)).long().clamp_(max=2 * self.pixels).unbind(1)
        return windows[torch.arange(len(images), device=images.device), :, down, across].reshape(images.shape)


@dataclass(frozen=True, kw_only=True)
class Affine:
    """Turns, scales and shears each image about its centre, with bilinear interpolation.

    Attributes:
        degrees: the largest angle, in degrees; angles are uniform in [-degrees, degrees].
        scale: the largest change of size: factors are log-uniform in [1 / (1 + scale), 1 + scale].
        shear: the largest shear: rows move by a factor, uniform in [-shear, shear], of their height above the centre.

    Raises:
        ValueError: a negative argument, or all are 0.
    """

    degrees: float = 0.0
    scale: float = 0.0
    shear: float = 0.0

    def __post_init__(self) -> None:
        if min(self.degrees, self.scale, self.shear) < 0 or max(self.degrees, self.scale, self.shear) == 0:
            raise ValueError(f"{self}: expected no negative argument and at least one above 0")

    @property
    def num_draws(self) -> int:
        """Three: angle, size, shear."""
        return 3

    def apply(
        self, images: Shaped[Tensor, "batch *channels height width"], draws: Float[Tensor, "batch 3"]
    ) -> Float[Tensor, "batch *channels height width"]:
        """Returns the images transformed.

        Args:
            images: the images, bytes or floating point numbers.
            draws: uniform numbers in [0, 1).
        """
        images = _floating(images)
        angle, size, shear = (draws.to(images.dtype) * 2 - 1).unbind(1)
        angle = angle * math.radians(self.degrees)
        # grid_sample asks where each pixel of the result comes from, so the matrix is the inverse, and a larger image is sampled closer.
        shrink = torch.exp(-size * math.log1p(self.scale))
        cos, sin = shrink * torch.cos(angle), shrink * torch.sin(angle)
        slant = shear * self.shear
        zero = torch.zeros_like(angle)
        height, width = images.shape[-2:]
        aspect = height / width
        rows = (torch.stack((cos, (sin + slant * cos) * aspect, zero), 1), torch.stack((-sin / aspect, cos - slant * sin, zero), 1))
        grid = functional.affine_grid(torch.stack(rows, 1), [len(images), 1, height, width], align_corners=False)
        return _sample(images, grid)


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """Bends each image along a smooth random field: a coarse grid of random moves, interpolated bicubically.

    After Simard, Steinkraus, Platt, Best practices for convolutional neural networks applied to visual document analysis, 2003, with an
    interpolated grid in the place of a Gaussian filter, which a batch computes faster.

    Attributes:
        pixels: the largest move of a point of the coarse grid, in pixels, across and down.
        points: points of the coarse grid in each direction; fewer make smoother bends.

    Raises:
        ValueError: `pixels` is not positive or `points` below 2.
    """

    pixels: float = 2.0
    points: int = 4

    def __post_init__(self) -> None:
        if self.pixels <= 0 or self.points < 2:
            raise ValueError(f"{self}: expected pixels above 0 and at least 2 points")

    @property
    def num_draws(self) -> int:
        """Two for each point of the coarse grid."""
        return 2 * self.points**2

    def apply(
        self, images: Shaped[Tensor, "batch *channels height width"], draws: Float[Tensor, "batch k"]
    ) -> Float[Tensor, "batch *channels height width"]:
        """Returns the images bent.

        Args:
            images: the images, bytes or floating point numbers.
            draws: uniform numbers in [0, 1).
        """
        images = _floating(images)
        height, width = images.shape[-2:]
        coarse = (draws.to(images.dtype) * 2 - 1).reshape(len(images), 2, self.points, self.points) * self.pixels
        moves = functional.interpolate(coarse, (height, width), mode="bicubic", align_corners=True)
        # grid_sample measures in half widths and half heights.
        moves = moves.permute(0, 2, 3, 1) * moves.new_tensor((2 / width, 2 / height))
        identity = torch.eye(2, 3, dtype=images.dtype, device=images.device)[None]
        return _sample(images, functional.affine_grid(identity, [1, 1, height, width], align_corners=False) + moves)


class Chain:
    """Applies augmentations one after the other.

    Args:
        steps: at least one augmentation; geometric ones that interpolate blur a little each time.

    Raises:
        ValueError: no step is given.
    """

    def __init__(self, *steps: Augmentation) -> None:
        if not steps:
            raise ValueError("Chain() holds no augmentation: pass augment=None for none")
        self.steps = steps

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.steps))})"

    @property
    def num_draws(self) -> int:
        """The sum over the steps."""
        return sum(step.num_draws for step in self.steps)

    def apply(
        self, images: Shaped[Tensor, "batch *channels height width"], draws: Float[Tensor, "batch k"]
    ) -> Shaped[Tensor, "batch *channels height width"]:
        """Returns the images changed by every step in turn.

        Args:
            images: the images.
            draws: uniform numbers in [0, 1), those of the first step first.
        """
        for step, rows in zip(self.steps, draws.split([step.num_draws for step in self.steps], 1), strict=True):
            images = step.apply(images, rows)
        return images


def _floating(images: Tensor) -> Tensor:
    return images if images.is_floating_point() else images.float()


def _sample(images: Tensor, grid: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    return functional.grid_sample(images.reshape(len(images), -1, height, width), grid, align_corners=False).reshape(images.shape)
