"""Parameters that a network does not use as they are: whether zeros in them are zeros of the weights computed from them."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm as _OldWeightNorm

from ellzero.distributed import canonical_paths
from ellzero.types import Params


@dataclass(frozen=True, kw_only=True)
class WeightNorm:
    """A weight `g * v / ||v||` (T. Salimans and D. Kingma, "Weight normalization", 2016).

    Attributes:
        norms: name of g.
        dim: the dimension of v whose entries have a norm each; -1 for one norm of all.
    """

    norms: str
    dim: int


@dataclass(frozen=True, kw_only=True)
class _Parametrized:
    """A tensor that a module computes from a list of parametrizations."""

    prefix: str
    leaf: str
    functions: ParametrizationList

    def originals(self) -> dict[str, Tensor]:
        """Lists what is trained, by canonical name."""
        return {
            f"{self.prefix}parametrizations.{self.leaf}.{key}": tensor
            for key, tensor in self.functions._parameters.items()
            if tensor is not None
        }


def weight_norms(model: nn.Module) -> dict[str, WeightNorm]:
    """Lists the directions v of weight-normalised weights, in the older form with hooks and in the newer, by canonical name."""
    normed: dict[str, WeightNorm] = {}
    for prefix, module in _modules(model):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, _OldWeightNorm):
                normed[f"{prefix}{hook.name}_v"] = WeightNorm(norms=f"{prefix}{hook.name}_g", dim=hook.dim)
    for parametrized in _parametrized(model):
        first = parametrized.functions[0]
        if isinstance(first, _WeightNorm):
            path = f"{parametrized.prefix}parametrizations.{parametrized.leaf}."
            dim = cast("int | None", first.dim)
            normed[f"{path}original1"] = WeightNorm(norms=f"{path}original0", dim=-1 if dim is None else dim)
    return normed


def hooked_weights(module: nn.Module) -> set[str]:
    """Names the attributes that hooks of torch compute before each call of a module: of prune, weight_norm and spectral_norm."""
    names: set[str] = set()
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, _OldWeightNorm | SpectralNorm):
            names.add(hook.name)
        elif isinstance(hook, BasePruningMethod):
            names.add(hook._tensor_name)
    return names


def check_zeros_survive(model: nn.Module, selected: Params) -> None:
    """Checks that a zero in a selected parameter is a zero of the weight that the network uses.

    Each parametrization is applied to a copy in which every second element is 0. Originals of another shape than the weight are not
    looked at: they are factors, such as the norms of weight_norm.

    Raises:
        ValueError: the zeros do not survive, as in orthogonal matrices or in a sum with another one.
    """
    for name, parametrized, (zeros, _, with_zeros) in _probes(model, selected):
        if bool((with_zeros[zeros] != 0).any()):
            raise ValueError(
                f"{name} is parametrized by {_kinds(parametrized)}, under which a 0 in it is no 0 in the weight, so nothing would be"
                f" pruned: call torch.nn.utils.parametrize.remove_parametrizations(module, {parametrized.leaf!r}) first, or leave it out"
                " with select="
            )


def rescaled(model: nn.Module, selected: Params) -> dict[str, str]:
    """Lists selected parameters whose zeros survive, but whose other elements are changed by them: spectral_norm, in both forms.

    weight_norm is not among them, as `attach` takes care of it.

    Returns:
        Canonical name -> what rescales it.
    """
    found: dict[str, str] = {}
    for prefix, module in _modules(model):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and (name := f"{prefix}{hook.name}_orig") in selected:
                found[name] = "spectral_norm"
    for name, parametrized, (zeros, whole, with_zeros) in _probes(model, selected):
        if not torch.allclose(whole[~zeros], with_zeros[~zeros], rtol=1e-4, equal_nan=True):
            found[name] = _kinds(parametrized)
    return found


def parametrized_owners(model: nn.Module) -> Mapping[nn.Module, nn.Module]:
    """Maps the module that holds the originals of a parametrized tensor to the module that uses the tensor."""
    return {functions: module for _, module in _modules(model) for functions in _lists(module).values()}


def _probes(model: nn.Module, selected: Params) -> Iterator[tuple[str, _Parametrized, tuple[Tensor, Tensor, Tensor]]]:
    """Probes every selected original, but those of weight_norm."""
    for parametrized in _parametrized(model):
        if isinstance(parametrized.functions[0], _WeightNorm):
            continue
        for name in parametrized.originals():
            if name in selected and (probed := _probe(parametrized, name)):
                yield name, parametrized, probed


def _probe(parametrized: _Parametrized, name: str) -> tuple[Tensor, Tensor, Tensor] | None:
    """Computes a weight from the original as it is and with every second element 0.

    Returns:
        The places of those zeros and both weights; None where the original has another shape than the weight, or no values.
    """
    functions = copy.deepcopy(parametrized.functions).eval()
    original = functions._parameters[name.rpartition(".")[2]]
    assert original is not None
    if original.is_meta or original.numel() < 2:
        return None
    with torch.no_grad():
        whole = functions.forward().clone()
        if whole.shape != original.shape:
            return None
        zeros = (torch.arange(original.numel(), device=original.device) % 2 == 1).view(original.shape)
        original.masked_fill_(zeros, 0)
        return zeros, whole, functions.forward()


def _parametrized(model: nn.Module) -> Iterator[_Parametrized]:
    for prefix, module in _modules(model):
        for leaf, functions in _lists(module).items():
            yield _Parametrized(prefix=prefix, leaf=leaf, functions=functions)


def _lists(module: nn.Module) -> dict[str, ParametrizationList]:
    held = None if isinstance(module, torch.jit.ScriptModule) else module._modules.get("parametrizations")
    if not isinstance(held, nn.ModuleDict):
        return {}
    return {leaf: functions for leaf, functions in held.items() if isinstance(functions, ParametrizationList)}


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Lists modules with the prefix of their parameters' canonical names."""
    paths = canonical_paths(model)
    for path, module in model.named_modules():
        yield (f"{paths[path]}." if paths[path] else "", module)


def _kinds(parametrized: _Parametrized) -> str:
    return ", ".join(type(function).__name__.lstrip("_") for function in parametrized.functions)
