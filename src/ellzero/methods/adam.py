"""Adam for variables that a method optimises beside the model (D. Kingma and J. Ba, "Adam: a method for stochastic optimization", 2015)."""

import math

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPS = 1e-8

_TINY = 1e-36
"""The root of an exact 0 takes ten times as long as another on a CPU; below this it is lost beside `EPS`."""


class Moments(nn.Module):
    """What Adam remembers of one tensor: first and second moment, and the number of steps, in buffers."""

    first: Tensor
    second: Tensor
    steps: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros_like(like, requires_grad=False))
        self.register_buffer("second", torch.zeros_like(like, requires_grad=False))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


@torch.no_grad()
def adam_step_(
    tensors: list[Tensor], gradients: list[Tensor], moments: list[Moments], rates: list[float], temporaries: list[Tensor]
) -> None:
    """Moves every tensor by one step of Adam, with the defaults of torch and without weight decay.

    Args:
        tensors: what is moved in place, against its gradient.
        gradients: one per tensor, not written to.
        moments: one per tensor, updated.
        rates: learning rates, one per tensor.
        temporaries: room of the same shapes; overwritten.
    """
    if not tensors:
        return
    first, second = [moment.first for moment in moments], [moment.second for moment in moments]
    roots: list[float] = []
    factors: list[float] = []
    for moment, rate in zip(moments, rates, strict=True):
        moment.steps += 1
        count = int(moment.steps)
        roots.append(math.sqrt(1.0 - BETAS[1] ** count))
        factors.append(-rate * roots[-1] / (1.0 - BETAS[0] ** count))
    torch._foreach_lerp_(first, gradients, 1.0 - BETAS[0])
    torch._foreach_mul_(second, BETAS[1])
    torch._foreach_addcmul_(second, gradients, gradients, value=1.0 - BETAS[1])
    torch._foreach_copy_(temporaries, second)
    torch._foreach_clamp_min_(temporaries, _TINY)
    torch._foreach_sqrt_(temporaries)
    # sqrt(v / root^2) + eps, times root.
    torch._foreach_add_(temporaries, [EPS * root for root in roots])
    torch._foreach_addcdiv_(tensors, first, temporaries, scalars=factors)
