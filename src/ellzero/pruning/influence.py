"""Turns a network into one whose gradients show what can reach what, whatever the values of its weights.

A gradient at the real weights says too little: a ReLU unit that is off on this input, a saturated tanh and the losers of a max-pool
pass nothing back, and yet matter on another input. So weights become positive numbers of bounded size on the same support, and what
chooses or saturates also passes on a part of all its inputs. Then no influence is switched off and none cancels another.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_LEAK = 0.3
"""How much of its input an operation passes on besides its own result: more than any activation function ever descends."""

_POINTWISE = frozenset(
    {"relu", "relu6", "leaky_relu", "rrelu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "logsigmoid", "softsign"}
    | {"tanh", "sigmoid", "hardtanh", "hardsigmoid", "hardswish", "hardshrink", "softshrink"}
    | {"threshold", "_threshold", "clamp", "clamp_min", "clamp_max", "clip"}
)
_POOLS: dict[str, Callable[..., Tensor]] = {
    "max_pool1d": functional.avg_pool1d,
    "max_pool2d": functional.avg_pool2d,
    "max_pool3d": functional.avg_pool3d,
    "max_pool1d_with_indices": functional.avg_pool1d,
    "max_pool2d_with_indices": functional.avg_pool2d,
    "max_pool3d_with_indices": functional.avg_pool3d,
}
_ADAPTIVE: dict[str, Callable[..., Tensor]] = {
    "adaptive_max_pool1d": functional.adaptive_avg_pool1d,
    "adaptive_max_pool2d": functional.adaptive_avg_pool2d,
    "adaptive_max_pool3d": functional.adaptive_avg_pool3d,
}
_SLICES = frozenset({"__getitem__", "index_select", "narrow", "select", "take"})


class PassInfluence(TorchFunctionMode):
    """Makes operations that choose, saturate or look up pass on a part of everything they could have passed on."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs `func`, and adds to its result what it may have hidden."""
        kwargs = kwargs or {}
        name: str = getattr(func, "__name__", "")
        name = name if name.startswith("__") else name.rstrip("_")  # relu_ is relu, in place
        if name in {"embedding", "embedding_bag"}:
            table = args[1] if len(args) > 1 else kwargs["weight"]
            return func(*args, **kwargs) + table.mean(0)  # rows that these tokens do not look up
        if not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
            return func(*args, **kwargs)
        return _influenced(name, func, args, kwargs)


def _influenced(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a function whose first argument is a floating-point tensor, and adds to its result what it may have hidden."""
    x: Tensor = args[0]
    if name in _POINTWISE:
        return _leaky(func, x, args[1:], kwargs)
    if name in {"max", "min", "amax", "amin", "maximum", "minimum"}:
        return _extreme(func, x, args[1:], kwargs)
    result = func(*args, **kwargs)
    if name == "prelu":
        return result + 0.5 * func(-x, *args[1:], **kwargs)  # both the slope and the identity, whatever the sign
    if name in _POOLS:
        return _add(result, _LEAK * _average(_POOLS[name], *args, **kwargs))
    if name in _ADAPTIVE:
        return _add(result, _LEAK * _ADAPTIVE[name](x, args[1] if len(args) > 1 else kwargs["output_size"]))
    if name in _SLICES and isinstance(x, nn.Parameter):
        return result + x.mean()  # a table of positions, say, of which shorter inputs use a part
    return result


def _leaky(func: Any, x: Tensor, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    before = x.clone()
    result = func(before, *rest, **kwargs)
    if result is before:  # in place: the caller may go on with x rather than with what is returned
        return x.copy_(result + _LEAK * x)
    return result + _LEAK * x


def _average(
    pool: Callable[..., Tensor],
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    *rest: Any,
    **kwargs: Any,
) -> Tensor:
    """Averages over the windows of a max-pool; over the whole image where they are dilated, which reaches at least as far."""
    dilated = dilation != 1 and any(step != 1 for step in ([dilation] if isinstance(dilation, int) else dilation))
    if dilated:
        dims = tuple(range(-1, -1 - {functional.avg_pool1d: 1, functional.avg_pool2d: 2, functional.avg_pool3d: 3}[pool], -1))
        return x.mean(dims, keepdim=True)
    ceil_mode = rest[0] if rest else kwargs.get("ceil_mode", False)
    return pool(x, kernel_size, stride, padding, ceil_mode)


def _extreme(func: Any, x: Tensor, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a maximum or minimum over everything, over dimensions, or of two tensors."""
    result = func(x, *rest, **kwargs)
    other = rest[0] if rest else kwargs.get("other", kwargs.get("dim"))
    if isinstance(other, Tensor):
        return result + _LEAK * (x + other)
    if other is None:
        return result + _LEAK * x.mean()
    keepdim = rest[1] if len(rest) > 1 else kwargs.get("keepdim", False)
    return _add(result, _LEAK * x.mean(other, keepdim=keepdim))


def _add(result: Any, extra: Tensor) -> Any:
    """Adds to a tensor, or to the values of a pair of values and indices."""
    if isinstance(result, Tensor):
        return result + extra
    values, indices = result
    # torch.return_types keeps `.values` and `.indices` for the caller.
    return type(result)((values + extra, indices))


@torch.no_grad()
def randomise_support_(model: nn.Module, generator: torch.Generator) -> None:
    """Replaces every non-zero parameter by a random positive number, every zero staying zero.

    Rows sum to at most one half, so that activations neither saturate nor overflow however wide the layers are.
    Normalisation by running statistics becomes one with the same support: a mean that is not zero is a constant input.
    """

    def draw(like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=generator, dtype=torch.float64).to(like.device).mul_(0.25).add_(0.25)

    for parameter in model.parameters():
        if parameter.is_floating_point():
            alive = parameter != 0
            rows = alive.flatten(1).sum(1).clamp(min=1).view(-1, *[1] * (parameter.ndim - 1)) if parameter.ndim > 1 else 1
            parameter.copy_(torch.where(alive, draw(parameter) / rows, 0.0))
    for name, buffer in model.named_buffers():
        if name.rsplit(".", 1)[-1] == "running_mean":
            buffer.copy_(torch.where(buffer != 0, -draw(buffer), 0.0))
        elif name.rsplit(".", 1)[-1] == "running_var":
            buffer.fill_(1.0)
