"""What is regularised: selects parameters by role, names them canonically, counts tied tensors once, finds what shares memory."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from ellzero.distributed import canonical_names, canonical_paths
from ellzero.types import Masks, Params

Selector = Callable[[str, nn.Module, Tensor], bool]
"""(canonical name, module that owns it, tensor) -> whether the method regularises this trainable parameter."""

Place = tuple[object, ...]
"""What is equal for two tensors that are one in memory."""

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Normalisation may have a weight of several dimensions, which is a scale all the same: `LayerNorm((3, 8, 8))`."""


def weights(name: str, module: nn.Module, parameter: Tensor) -> bool:
    """Selects weights of two and more dimensions, embeddings, biases and normalisation excepted: the default."""
    leaf = name.rsplit(".", 1)[-1]
    return parameter.ndim >= 2 and not leaf.endswith("bias") and not isinstance(module, (nn.Embedding, nn.EmbeddingBag, *_NORMS))


def everything(name: str, module: nn.Module, parameter: Tensor) -> bool:
    """Selects every trainable parameter, biases, normalisation and embeddings included: the paper's setting."""
    return True


def require_module(model: object) -> None:
    """Checks that a model is a module, because people pass `model.parameters()`.

    Raises:
        TypeError: `model` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected an nn.Module, got {type(model).__name__}: pass the model itself, not model.parameters()")


def duplicate(model: nn.Module) -> nn.Module:
    """Copies a model whose tensors are its own: `deepcopy`, which names no culprit where it fails.

    Raises:
        TypeError: `model` is not a module.
        ValueError: a module keeps a tensor that it has computed from others, as torch.nn.utils.prune and the older weight_norm do.
    """
    require_module(model)
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                raise ValueError(
                    f"{path or 'the model'} ({type(module).__name__}) keeps {name!r}, computed from other tensors, so it cannot be copied:"
                    " make it permanent first (torch.nn.utils.prune.remove, remove_weight_norm), or delete the attribute"
                )
    copied = copy.deepcopy(model)
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
        TypeError: `model` is not a module, or a selected parameter is complex.
        ValueError: nothing is selected, or a lazy module has no weights yet.
    """
    require_module(model)
    owners: dict[Tensor, str] = {parameter: name for name, (_, parameter) in named_parameters(model).items()}
    for parameter, name in owners.items():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(f"{name} has no shape yet, as its module is lazy: run a batch through the model first")
    paths = canonical_paths(model)
    chosen: set[str] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        for leaf, parameter in module.named_parameters(recurse=False):
            if parameter in owners and select(_joined(paths[path], leaf), module, parameter):
                chosen.add(owners[parameter])
    selected = {name: parameter for parameter, name in owners.items() if name in chosen}
    if not selected:
        raise ValueError("no parameter is selected, so nothing would be pruned: pass select=lz.everything or a rule that fits this model")
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
    return sum(int(torch.count_nonzero(tensor.detach())) for tensor in tensors)


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


def same_numbers(tensor: Tensor) -> Place | None:
    """Returns what is equal for two tensors that are the same numbers in the same memory; None where it has no memory of its own.

    A conjugated or negated view lies in the memory of its original, and is other numbers.
    """
    if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    address = tensor.data_ptr()
    if address == 0 or tensor.numel() == 0:
        return None
    return tensor.device, address, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()


def overlapping(tensors: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """Groups the names of tensors whose memory overlaps, from the first byte to the last; a tensor alone is in no group."""
    spans = sorted((*_span(tensor), name) for name, tensor in tensors.items() if same_numbers(tensor) is not None)
    group: list[str] = []
    device, end = "", 0
    for own_device, start, stop, name in spans:
        if group and (own_device != device or start >= end):
            if len(group) > 1:
                yield group
            group = []
        end = max(end, stop) if group else stop
        device = own_device
        group.append(name)
    if len(group) > 1:
        yield group


def without_own_memory(missing: Iterable[str], present: Collection[str], tensors: Mapping[str, Tensor]) -> set[str]:
    """Finds the tensors that need no values of their own: all their memory is that of one that is present.

    A file of `safetensors.torch.save_model` has one name for tensors that share memory, the one that covers all of it.

    Args:
        missing: names without values.
        present: names with values.
        tensors: of the network.
    """
    given = [tensor for name, tensor in tensors.items() if name in present and same_numbers(tensor) is not None]
    places = {same_numbers(tensor) for tensor in given}
    spans = [_span(tensor) for tensor in given if tensor.is_contiguous()]
    found: set[str] = set()
    for name in missing:
        place = same_numbers(tensors[name])
        if place is None:
            continue
        device, start, stop = _span(tensors[name])
        if place in places or any(device == other and first <= start and stop <= last for other, first, last in spans):
            found.add(name)
    return found


def _span(tensor: Tensor) -> tuple[str, int, int]:
    """Returns the device and the first byte of a tensor that is not empty, and the one after its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    start = tensor.data_ptr()
    return str(tensor.device), start, start + reach * tensor.element_size()
