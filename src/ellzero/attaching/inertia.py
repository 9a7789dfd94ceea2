"""Whether the penalty has any effect: its gradient, compared with the data's at intervals."""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ellzero.methods.protocol import Method
from ellzero.types import At, Params

CHECKS = 10
"""Number of comparisons of the gradients before the verdict."""

INERT_RATIO = 1e-6
"""Below this ratio of the norms the penalty is lost in the rounding of float32."""


@dataclass(frozen=True, kw_only=True)
class Norms:
    """Euclidean norms of two gradients over the regularised parameters.

    Attributes:
        step: optimizer steps done before the measured step.
        penalty: norm of the penalty's gradient.
        data: norm of the data loss's gradient, before masks and without a gradient scaler's factor.
    """

    step: int
    penalty: float
    data: float

    @property
    def ratio(self) -> float:
        """The penalty's norm over the data's; infinite where the data gradient is 0."""
        return self.penalty / self.data if self.data > 0 else float("inf")


def measure(method: Method, params: Params, state: nn.Module, at: At, scale: float = 1.0) -> Norms:
    """Compares the penalty's gradient, by autograd from its definition, with what `.grad` holds.

    Args:
        method: the penalty.
        params: parameters with the data gradient in `.grad`.
        state: the method's state.
        at: where training stands.
        scale: the factor by which a gradient scaler has multiplied `.grad`.
    """
    with torch.enable_grad():
        gradients = torch.autograd.grad(method.penalty(params, state, at), list(params.values()), allow_unused=True, materialize_grads=True)
    data = [_values(parameter.grad) for parameter in params.values() if parameter.grad is not None]
    return Norms(
        step=at.step,
        penalty=float(torch.nn.utils.get_total_norm(gradients)),
        data=float(torch.nn.utils.get_total_norm(data)) / scale if data else 0.0,
    )


def _values(gradient: Tensor) -> Tensor:
    """Returns what a gradient holds; that of an embedding may be sparse."""
    return gradient if gradient.layout is torch.strided else gradient.coalesce().values()


class Watch:
    """Warns once where the penalty has been too weak to matter at every check.

    Args:
        inert_after: regularised steps before the verdict; None never warns.
    """

    def __init__(self, inert_after: int | None) -> None:
        if inert_after is not None and inert_after < 1:
            raise ValueError(f"inert_after must be at least 1 or None, got {inert_after}")
        self.inert_after = inert_after
        self.steps = 0
        self.inert = True

    def due(self) -> bool:
        """Tells whether the gradients are to be compared at this regularised step."""
        return self.inert_after is not None and self.steps % max(1, self.inert_after // CHECKS) == 0

    def record(self, norms: Norms) -> None:
        """Records a comparison."""
        self.inert = self.inert and norms.penalty <= INERT_RATIO * norms.data

    def step(self, method: Method, *, may_rise: bool) -> None:
        """Counts a regularised step and warns where the verdict is due.

        Args:
            method: named in the warning, with its hyperparameters.
            may_rise: the hyperparameters still move, so that it is too early to judge.
        """
        self.steps += 1
        if self.inert and not may_rise and self.inert_after is not None and self.steps >= self.inert_after:
            self.inert = False
            warnings.warn(
                f"after {self.steps} regularised steps the penalty's gradient has stayed below {INERT_RATIO:g} of the data gradient:"
                f" alpha is too small to prune anything ({method}); raise alpha, or check that the loss is a mean and not a sum",
                UserWarning,
                stacklevel=2,
            )
