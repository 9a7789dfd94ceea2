"""Whether inputs are like those of the training: what batch normalisation remembers of these, against what comes to it."""

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.surgery.known_modules import NORMS, known

MAX_SHIFT = 0.06
"""The distance of inputs that are warned of. ResNets on CIFAR-10: 0.02 for training images, 0.10 in -1..1 and 0.35 in 0..1 instead."""

_NOISE = 1.5
"""Expected distance of n independent samples of normal inputs, times n: 1 for the mean, 1/2 for the standard deviation."""


def distance_from(norm: Any, mean: Float[Tensor, " channels"], variance: Float[Tensor, " channels"]) -> Tensor:
    """Measures how far means and standard deviations of channels are from those remembered, squared, in units of the latter.

    Args:
        norm: a batch normalisation with running statistics.
        mean: of what comes to it.
        variance: of what comes to it.
    """
    remembered = norm.running_var + norm.eps
    means = (mean - norm.running_mean).square() / remembered
    deviations = (variance.add(norm.eps).sqrt() - remembered.sqrt()).square() / remembered
    return (means + deviations).mean()


@dataclass
class _Seen:
    count: int = 0
    samples: int = 0
    total: Tensor | float = 0.0
    squares: Tensor | float = 0.0


class BatchStatistics:
    """Watches what comes to the batch normalisation of a model in eval mode, within a `with` block.

    Normalisation that remembers nothing, fresh or folded, says nothing.

    Args:
        model: the model; only running statistics are looked at.
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = {name: module for name, module in model.named_modules() if isinstance(module, NORMS) and _remembers(module)}
        self._seen = {name: _Seen() for name in self._norms}
        self._hooks = ExitStack()

    def __enter__(self) -> "BatchStatistics":
        for name, norm in self._norms.items():
            self._hooks.callback(norm.register_forward_pre_hook(partial(self._watch, name)).remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    @torch.no_grad()
    def _watch(self, name: str, _module: nn.Module, arguments: Any) -> None:
        columns = arguments[0].detach().transpose(0, 1).flatten(1)
        seen = self._seen[name]
        variance, mean = torch.var_mean(columns, 1, correction=0)
        seen.count += columns.shape[1]
        seen.samples += len(arguments[0])
        seen.total = seen.total + columns.shape[1] * mean.double()
        seen.squares = seen.squares + columns.shape[1] * (variance.double() + mean.double().square())

    def distance(self) -> float | None:
        """Computes the median distance over all normalisations, less what so few samples are expected to show; None without any."""
        distances = [distance_from(self._norms[name], *moments) - _NOISE / samples for name, (samples, *moments) in self._moments().items()]
        return float(torch.stack(distances).median()) if distances else None

    def warn_if_far(self, limit: float, *, stacklevel: int) -> None:
        """Warns where inputs are farther than `limit` from what is remembered, and says what the first normalisation sees."""
        distance = self.distance()
        if distance is None or distance <= limit:
            return
        name, (_, mean, variance) = next(iter(self._moments().items()))
        norm: Any = self._norms[name]
        deviation = norm.running_var.sqrt()
        ratio = float((variance.sqrt() / deviation.clamp_min(1e-12)).clamp_min(1e-12).log().mean().exp())
        shift = float(((mean - norm.running_mean) / deviation.clamp_min(1e-12)).abs().mean())
        warnings.warn(
            f"the inputs are not like those that the network was trained on, by {distance:.2g} (max_shift {limit:g}): what comes to "
            f"{name!r} has {ratio:.2g} times the standard deviation that it remembers, and means {shift:.2g} of them off; scale the inputs "
            "as in training",
            stacklevel=stacklevel + 1,
        )

    def _moments(self) -> dict[str, tuple[int, Tensor, Tensor]]:
        """Returns samples, means and variances of what came to each normalisation that was called, in the order of the modules."""
        moments: dict[str, tuple[int, Tensor, Tensor]] = {}
        for name, seen in self._seen.items():
            if seen.count and isinstance(seen.total, Tensor) and isinstance(seen.squares, Tensor):
                mean = seen.total / seen.count
                moments[name] = (seen.samples, mean, (seen.squares / seen.count - mean.square()).clamp_min(0))
        return moments


def _remembers(norm: Any) -> bool:
    """Tells whether a normalisation has statistics of a training: not those that it begins with, or that folding leaves."""
    if not known(norm) or norm.running_mean is None or norm.running_var is None or norm.running_var.numel() == 0:
        return False
    return bool(norm.running_mean.any()) or bool((norm.running_var != norm.running_var[0]).any())
