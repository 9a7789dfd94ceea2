"""The parameters of a model under canonical names, tied tensors once: selected, counted, masked."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ellzero.distributed import canonical_names, canonical_paths
from ellzero.params.memory import overlapping
from ellzero.params.parametrizations import check_zeros_survive, hooked_weights, parametrized_owners
from ellzero.params.roles import Selector, weights
from ellzero.types import Masks, Params


def require_module(model: object) -> None:
    """Checks that a model is a module, because people pass `model.parameters()`.

    Raises:
        TypeError: `model` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected an nn.Module, got {type(model).__name__}: pass the model itself, not model.parameters()")


def duplicate(model: nn.Module, *, recompute: bool = False) -> nn.Module:
    """Copies a model whose tensors are its own: `deepcopy`, which names no culprit where it fails.

    Args:
        model: the model.
        recompute: copy also what hooks of torch compute before each call (torch.nn.utils.prune, the older weight_norm and spectral_norm):
            the copy computes it anew from its own parameters.

    Raises:
        TypeError: `model` is not a module.
        ValueError: a module keeps a tensor that it has computed from others; a parameter is stored sparsely.
    """
    require_module(model)
    for name, parameter in model.named_parameters():
        if parameter.layout is not torch.strided:
            raise ValueError(f"{name} is stored sparsely ({parameter.layout}), so it cannot be copied: replace it by its to_dense()")
    memo: dict[int, Any] = {}
    for path, module in model.named_modules():
        recomputed = hooked_weights(module) if recompute else set[str]()
        for name, value in vars(module).items():
            if not isinstance(value, Tensor) or value.is_leaf:
                continue
            if name not in recomputed:
                raise ValueError(
                    f"{path or 'the model'} ({type(module).__name__}) keeps {name!r}, computed from other tensors, so it cannot be copied:"
                    " make it permanent first (torch.nn.utils.prune.remove, remove_weight_norm), or delete the attribute"
                )
            memo[id(value)] = value.detach().clone()
    copied = copy.deepcopy(model, memo)
    _share_memory_(copied, model)
    return copied


def _share_memory_(copied: nn.Module, model: nn.Module) -> None:
    """Makes tensors of a copy views of one another where those of its original are, which `deepcopy` forgets of parameters."""
    originals, copies = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (model, copied))
    storages: dict[int, torch.UntypedStorage] = {}
    with torch.no_grad():
        for name in (name for group in overlapping(originals) for name in group):
            original = originals[name]
            if original.is_conj() or original.is_neg():
                continue
            storage = original.untyped_storage()
            memory = storages.setdefault(storage.data_ptr(), storage.clone())
            view = torch.empty(0, dtype=original.dtype, device=original.device)
            copies[name].data = view.set_(memory, original.storage_offset(), original.shape, original.stride())


def named_parameters(model: nn.Module) -> dict[str, tuple[nn.Module, Tensor]]:
    """Lists trainable parameters under canonical names with a module that owns each, tied tensors once (their first name)."""
    paths = canonical_paths(model)
    owned: dict[str, tuple[nn.Module, Tensor]] = {}
    seen: set[Tensor] = set()
    for path, module in model.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                owned[_joined(paths[path], leaf)] = (module, parameter)
    return owned


def aliases(model: nn.Module) -> dict[str, str]:
    """Maps every further canonical name of a tied parameter to the name it is listed under."""
    names = canonical_names(model)
    first: dict[Tensor, str] = {}
    others: dict[str, str] = {}
    for given, parameter in model.named_parameters(remove_duplicate=False):
        name = names[given]
        if first.setdefault(parameter, name) != name:
            others[name] = first[parameter]
    return others


def select_parameters(model: nn.Module, select: Selector = weights) -> dict[str, Tensor]:
    """Selects the parameters that a method regularises.

    A tied tensor is selected where any of its owners is: an embedding that is also the output head counts as a weight.

    Args:
        model: any module, wrapped (DDP, torch.compile, AveragedModel) or not.
        select: the rule, `weights` by default.

    Returns:
        Canonical name -> parameter, in the model's order, tied tensors once.

    Raises:
        TypeError: `model` is not a module, or a selected parameter is complex or stored sparsely.
        ValueError: nothing is selected; a lazy module has no weights yet; a parametrization turns zeros of a selected parameter into
            something else.
    """
    require_module(model)
    owners: dict[Tensor, str] = {parameter: name for name, (_, parameter) in named_parameters(model).items()}
    for parameter, name in owners.items():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(f"{name} has no shape yet, as its module is lazy: run a batch through the model first")
    paths = canonical_paths(model)
    users = parametrized_owners(model)
    chosen: set[str] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        for leaf, parameter in module.named_parameters(recurse=False):
            if parameter in owners and select(_joined(paths[path], leaf), users.get(module, module), parameter):
                chosen.add(owners[parameter])
    selected = {name: parameter for parameter, name in owners.items() if name in chosen}
    if not selected:
        raise ValueError("no parameter is selected, so nothing would be pruned: pass select=lz.everything or a rule that fits this model")
    for name, parameter in selected.items():
        if parameter.layout is not torch.strided:
            raise TypeError(
                f"{name} is stored sparsely ({parameter.layout}), and its zeros are not there to be trained: replace it by its to_dense(),"
                " or leave it out with select="
            )
    check_zeros_survive(model, selected)
    for name, parameter in selected.items():
        if parameter.is_complex():
            raise TypeError(f"{name} is complex: penalties are defined for real parameters; exclude it with select=")
    return selected


def _joined(path: str, leaf: str) -> str:
    return f"{path}.{leaf}" if path else leaf


def count_parameters(model: nn.Module) -> int:
    """Counts trainable scalars, tied tensors once.

    Raises:
        TypeError: `model` is not a module.
    """
    require_module(model)
    return sum(parameter.numel() for _, parameter in named_parameters(model).values())


def count_nonzeros(tensors: Iterable[Tensor] | nn.Module) -> int:
    """Counts non-zero scalars of the tensors given, or of a model's trainable parameters (tied tensors once)."""
    if isinstance(tensors, nn.Module):
        tensors = [parameter for _, parameter in named_parameters(tensors).values()]
    return sum(int(torch.count_nonzero(_stored(tensor.detach()))) for tensor in tensors)


def _stored(tensor: Tensor) -> Tensor:
    """Returns the values that a tensor stores, whatever its layout."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()


def masks_from_zeros(params: Params) -> dict[str, Tensor]:
    """Infers masks from exact zeros: True where a parameter is not 0."""
    return {name: parameter.detach() != 0 for name, parameter in params.items()}


@torch.no_grad()
def apply_masks_(params: Params, masks: Masks) -> None:
    """Sets parameters to exactly 0 where their mask is False.

    Raises:
        KeyError: a mask has no parameter of its name.
    """
    for name, mask in masks.items():
        if name not in params:
            raise KeyError(f"no parameter is named {name!r}: the masks belong to another model (it has {', '.join(list(params)[:5])}, ...)")
        params[name].masked_fill_(~mask.to(params[name].device), 0)
