"""The modules and functions that the analysis of channels knows."""

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.fx.node import Node
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ellzero.params import duplicate, overlapping, require_module
from ellzero.surgery.selected_linear import SelectedLinear
from ellzero.surgery.trace import describe

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
DROPOUTS: Final = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
ACTIVATIONS: Final = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Softshrink),
    *(nn.Hardshrink, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Tanhshrink, nn.Threshold),
)
ELEMENTWISE: Final = frozenset(
    [
        *("relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "softshrink", "hardshrink"),
        *("hardtanh", "hardswish", "hardsigmoid", "sigmoid", "logsigmoid", "log_sigmoid", "tanh", "tanhshrink", "threshold"),
        *("abs", "neg", "exp", "square", "sqrt", "pow", "clamp", "clamp_min", "clamp_max", "positive", "float", "double", "contiguous"),
        *("add", "sub", "mul", "div", "truediv", "maximum", "minimum", "iadd", "isub", "imul", "itruediv"),
    ]
)
CONSTANT_POOLS: Final = frozenset(f"{kind}{n}d" for kind in ("max_pool", "adaptive_max_pool", "adaptive_avg_pool") for n in (1, 2, 3))
AVERAGE_POOLS: Final = frozenset(f"avg_pool{n}d" for n in (1, 2, 3))
DROPOUT_FUNCTIONS: Final = frozenset(f"{kind}dropout{n}" for kind in ("", "alpha_", "feature_alpha_") for n in ("", "1d", "2d", "3d"))
NAMESPACES: Final = (torch, functional, torch._C._nn, operator)  # pyright: ignore[reportAttributeAccessIssue]  # built at run time
MAX_POOLS: Final = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)
AVG_POOLS: Final = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
MIXERS: Final = (nn.LayerNorm, nn.GroupNorm, nn.Softmax, nn.LogSoftmax)
_KNOWN: Final = (*CONVOLUTIONS, *NORMS, *DROPOUTS, *ACTIVATIONS, *MAX_POOLS, *AVG_POOLS, *MIXERS, nn.Linear, nn.Flatten)


def known(module: nn.Module) -> bool:
    """Says whether a module computes what one of the known classes computes: subclasses may not override its forward."""
    if type(module) is SelectedLinear:
        return True
    for kind in _KNOWN:
        if isinstance(module, kind):
            own = type(module)
            return all(getattr(own, name, None) is getattr(kind, name, None) for name in ("forward", "_conv_forward"))
    return False


def copied(model: nn.Module) -> nn.Module:
    """Copies a model whose weights are parameters.

    Raises:
        ValueError: a layer computes its weight from other tensors, as torch.nn.utils.prune does; the message names it.
        TypeError: `model` is not a module.
    """
    check_weights(model)
    return duplicate(model)


def check_weights(model: nn.Module) -> None:
    """Raises ValueError for what cannot be traced or sliced: a layer that computes its weight, a compiled module, a sparse weight."""
    require_module(model)
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{path or 'the model'} is compiled by torch.jit, so what it computes cannot be seen: pass the module that it was made from"
            )
        for leaf, parameter in module.named_parameters(recurse=False):
            if parameter.layout is not torch.strided:
                name = describe(path, module)
                raise ValueError(f"the {leaf} of {name} is stored sparsely ({parameter.layout}): replace it by its to_dense()")
        if isinstance(module, (nn.Linear, *CONVOLUTIONS)) and known(module) and "weight" not in module._parameters:
            name = describe(path, module)
            raise ValueError(f"{name} computes its weight from other tensors: make it permanent first ({_remedy(module)})")


def _remedy(module: nn.Module) -> str:
    """Names the call that makes a computed weight a parameter."""
    if parametrize.is_parametrized(module, "weight"):
        return 'torch.nn.utils.parametrize.remove_parametrizations(module, "weight")'
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm | SpectralNorm):
            return f"torch.nn.utils.{'remove_weight_norm' if isinstance(hook, WeightNorm) else 'remove_spectral_norm'}(module)"
    return 'torch.nn.utils.prune.remove(module, "weight")'


def shared_modules(root: nn.Module, nodes: Iterable[Node]) -> set[nn.Module]:
    """Finds modules with a parameter that is used more than once: changing it for one use would change the other."""
    uses: Counter[int] = Counter(id(parameter) for _, parameter in root.named_parameters(remove_duplicate=False))
    calls = Counter(str(node.target) for node in nodes if node.op == "call_module")
    for node in nodes:
        if node.op == "get_attr":
            attribute: Any = root
            for part in str(node.target).split("."):
                attribute = getattr(attribute, part)
            uses[id(attribute)] += 1
    shared: set[nn.Module] = set()
    for name, count in calls.items():
        module = root.get_submodule(name)
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if tensors and (count > 1 or any(uses[id(tensor)] > 1 for tensor in tensors)):
            shared.add(module)
    return shared


def shared_parameters(model: nn.Module) -> set[str]:
    """Names the modules with a parameter that another module has, too, or whose memory another tensor of the model shares."""
    owners: dict[int, list[str]] = {}
    tensors: dict[str, Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(path)
                tensors[f"{path}.{name}"] = parameter
        tensors |= {f"{path}.{name}": buffer for name, buffer in module._buffers.items() if buffer is not None}
    shared = {path for paths in owners.values() if len(paths) > 1 for path in paths}
    return shared | {name.rpartition(".")[0] for group in overlapping(tensors) for name in group}


def name_of(node: Node) -> str:
    """Names the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def keeps_numbers(node: Node) -> bool:
    """Says whether a call of `to` leaves numbers what they are: it names a layout in memory or a floating type, or both."""
    named = [*node.args[1:], *node.kwargs.values()]
    return all(
        isinstance(argument, torch.memory_format) or (isinstance(argument, torch.dtype) and argument.is_floating_point)
        for argument in named
    )


def any_of(size: Any) -> bool:
    """Tells whether a size such as padding, one number or one per dimension, is not 0 anywhere."""
    return any(size) if isinstance(size, (tuple, list)) else bool(size)
