"""Which tensors share memory: tied parameters, views of one another, buffers that are parts of parameters."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Place = tuple[object, ...]
"""What is equal for two tensors that are one in memory."""


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


def kept_exact(model: nn.Module) -> set[str]:
    """Lists the names in a model's `state_dict` that no grid may hold.

    These are the names that are not of parameters (running statistics and the like), and parameters that share memory with a buffer, or
    with another parameter in part: each would have levels of its own for the same numbers, and what a file gives back would depend on the
    order of its tensors.
    """
    state = model.state_dict()
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    # Names that hooks of `state_dict` make are known by their memory.
    places = {same_numbers(parameter) for parameter in parameters.values() if not is_lazy(parameter)}
    kept = {name for name, tensor in state.items() if name in buffers or (name not in parameters and same_numbers(tensor) not in places)}
    for group in overlapping(state):
        if not kept.isdisjoint(group) or len({same_numbers(state[name]) for name in group}) > 1:
            kept.update(group)
    return kept


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
