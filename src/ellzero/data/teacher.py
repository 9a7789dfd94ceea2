"""Samples of a teacher: data whose shortest description is known to be a small network (section 3.2)."""

import torch
from torch import nn

from ellzero.data.resident import Samples


@torch.no_grad()
def teacher_samples(teacher: nn.Module, samples: int, *, seed: int, features: int = 2, noise: float = 0.08) -> Samples:
    """Draws x uniformly from [-1, 1] and y = teacher(x) + noise * standard normal.

    The paper calls 0.08 a variance in places; in its experiments it is the standard deviation. Give training, validation and test data
    seeds of their own: a smaller set is not a part of a larger one.

    Args:
        teacher: the network; it is evaluated in eval mode and left in its own.
        samples: how many.
        seed: decides inputs and noise.
        features: numbers in each input.
        noise: standard deviation of the noise, sigma.

    Returns:
        Inputs [samples, features] and targets, float32.

    Raises:
        ValueError: fewer than one sample or feature, or negative noise.
    """
    if samples < 1 or features < 1 or not noise >= 0:
        raise ValueError(f"samples={samples}, features={features}, noise={noise}: expected at least 1, at least 1, and not negative")
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand(samples, features, generator=generator) * 2 - 1
    training = teacher.training
    teacher.eval()
    means = teacher(inputs)
    teacher.train(training)
    return Samples(inputs, means + noise * torch.randn(means.shape, generator=generator))
