"""Communication between processes: the only place that imports `torch.distributed`.

Every function here is a collective: all processes of the group call it, equally often and in the same order.
"""

import hashlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ellzero.types import Masks

_INNER = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "AveragedModel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
    "_FabricModule": "_forward_module",
}
"""Classes that wrap a model, of torch and of Lightning, and under which name each holds it."""

_LIBRARIES = ("torch.", "lightning.", "lightning_fabric.")

_CHUNK = 2**22
"""Scalars gathered at once: the temporaries of a mean take this many per process, however large the model is."""


def canonical_paths(model: nn.Module) -> dict[str, str]:
    """Maps the path of every module to its path without wrappers: what DDP, torch.compile, FSDP, Fabric and AveragedModel put before it.

    Only what such a wrapper adds is left out: a submodule that is called `module` keeps its name.

    Returns:
        Path as in `named_modules(remove_duplicate=False)` -> canonical path, both "" for the model itself.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    paths: dict[str, str] = {}
    for path in modules:
        parent, _, leaf = path.rpartition(".")
        if not path or _inner(modules[parent]) == leaf:
            paths[path] = paths[parent] if path else ""
        else:
            paths[path] = f"{paths[parent]}.{leaf}" if paths[parent] else leaf
    return paths


def canonical_names(model: nn.Module) -> dict[str, str]:
    """Maps the name of every parameter and buffer, tied ones under each name, to its name without wrappers."""
    paths = canonical_paths(model)
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    names: dict[str, str] = {}
    for name, _ in tensors:
        path, _, leaf = name.rpartition(".")
        # A checkpoint wrapper leaves its own prefix out of names already.
        own = paths.get(path, path)
        names[name] = f"{own}.{leaf}" if own else leaf
    return names


def known_name(given: str, known: Container[str]) -> str:
    """Finds which of the known names is meant by one that may carry wrappers' prefixes.

    Args:
        given: a name as it stands in the state_dict of a model, wrapped or not.
        known: canonical names.

    Returns:
        The name itself where it is known; else the known name that is left when wrappers' prefixes go, from the front first; else the name.
    """
    inner = frozenset(_INNER.values())
    parts = given.split(".")
    for start, part in enumerate(parts):
        if (rest := ".".join(parts[start:])) in known:
            return rest
        if part not in inner:
            break
    stripped = ".".join(part for part in parts if part not in inner)
    return stripped if stripped in known else given


def _inner(module: nn.Module) -> str | None:
    """Returns under which name a wrapper holds what it wraps; None for any other module."""
    for kind in type(module).__mro__:
        if kind.__name__ in _INNER and kind.__module__.startswith(_LIBRARIES):
            return _INNER[kind.__name__]
    return None


@dataclass(frozen=True)
class WorkerMean:
    """The mean over the processes of a group, for `ADMM(mean_over_workers=WorkerMean())`.

    Summed in the order of the ranks, in each tensor's own type, so that all processes hold the same bits, and the bits of one
    process that sums N copies in turn. An all-reduce leaves the order to its backend.

    Attributes:
        group: the processes; all where None.
    """

    group: dist.ProcessGroup | None = field(default=None, repr=False)

    @torch.no_grad()
    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Replaces every tensor by its mean over the processes.

        Raises:
            RuntimeError: there is no process group.
        """
        _require_group()
        for tensor in tensors:
            whole = tensor.contiguous().view(-1)
            for part in whole.split(_CHUNK):
                gathered = _gathered(part, self.group)
                part.copy_(gathered[0])
                for other in gathered[1:]:
                    part.add_(other)
                part.div_(len(gathered))
            if not tensor.is_contiguous():
                tensor.copy_(whole.view(tensor.shape))


def mean_evaluation(evaluate: Callable[[nn.Module], float], group: dist.ProcessGroup | None = None) -> Callable[[nn.Module], float]:
    """Makes an evaluation whose value is the mean over processes, each on its own data: with it TAMADE finds the same masks everywhere.

    Args:
        evaluate: model -> loss or accuracy on this process's data, the same number of data on each.
        group: the processes; all where None.
    """

    def mean(model: nn.Module) -> float:
        _require_group()
        values = _gathered(torch.tensor([evaluate(model)], dtype=torch.float64, device=_device(group)), group)
        # Summed in the order of ranks: a sum that differed in its last bit could tip a comparison on one process alone.
        return sum(value.item() for value in values) / len(values)

    return mean


def masks_hash(masks: Masks) -> str:
    """Computes a SHA-256 of names, shapes and bits of masks, independent of their order and of the device."""
    digest = hashlib.sha256()
    for name, mask in sorted(masks.items()):
        digest.update(f"{len(name)}:{name}{tuple(mask.shape)}".encode())
        digest.update((mask.detach() != 0).to("cpu", torch.uint8).contiguous().numpy().tobytes())
    return digest.hexdigest()


def assert_same_masks(masks: Masks, group: dist.ProcessGroup | None = None) -> None:
    """Checks that all processes hold the same masks.

    Args:
        masks: this process's masks: `sparsifier.masks`.
        group: the processes; all where None.

    Raises:
        AssertionError: some differ, on every process with the same message, so that none waits for another.
        RuntimeError: there is no process group.
    """
    _require_group()
    own = torch.frombuffer(bytearray.fromhex(masks_hash(masks)), dtype=torch.uint8).to(_device(group))
    hashes = [bytes(digest.tolist()).hex() for digest in _gathered(own, group)]
    if len(set(hashes)) > 1:
        by_rank = ", ".join(f"rank {rank}: {digest[:8]}" for rank, digest in enumerate(hashes))
        raise AssertionError(
            f"the masks differ between processes ({by_rank}): derive them from values that all share (WorkerMean, mean_evaluation), or"
            " broadcast those of one process"
        )


def _gathered(tensor: Tensor, group: dist.ProcessGroup | None) -> list[Tensor]:
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, tensor.clone(), group=group)
    return gathered


def _device(group: dist.ProcessGroup | None) -> torch.device:
    """Returns the device that the group's backend reads from: NCCL knows the GPU alone."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")


def _require_group() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "there is no process group: call torch.distributed.init_process_group() first, or, in a single process, leave this out"
        )
