"""Checkpoints of torch: read without running the code that they may hold, and written. Imports torch only when one is met."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ellzero.codec.network.tensors import ExactTensor, Tied

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt")
# Where a checkpoint of a training keeps its network.
_NETWORKS = ("state_dict", "model_state_dict", "model")


def read_checkpoint(path: Path) -> "dict[str, Tensor]":
    """Reads a `state_dict`: a checkpoint's own, or the one that it holds beside what a training goes on with, which is left.

    Args:
        path: of a checkpoint of torch.

    Returns:
        The tensors by name.

    Raises:
        ValueError: it is damaged, holds code, or holds anything by a name beside its tensors, which would be lost.
        ImportError: there is no torch.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ImportError(f"{path} is a checkpoint of torch: pip install 'ellzero[torch]'") from error
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile archive makes of the unpickler
        raise ValueError(
            f"{path} is no file of weights alone that torch reads: save the model's state_dict() ({type(error).__name__})"
        ) from error
    state = _network_in(path, loaded)
    for name, value in state.items():
        if not isinstance(name, str):
            raise ValueError(f"{path}: the name {name!r} is {type(name).__name__}, not text: save the model's state_dict()")
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"{path}: {name!r} is {type(value).__name__}, not a tensor, and would be lost: save a state_dict() of tensors alone"
            )
    if not state:
        raise ValueError(f"{path} holds no tensors by name: save the model's state_dict()")
    return cast("dict[str, Tensor]", state)


def _network_in(path: Path, loaded: Any) -> dict[Any, Any]:
    """Finds the `state_dict` in what was loaded."""
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} holds a {type(loaded).__name__}, not a state_dict: save the model's state_dict()")
    table = cast("dict[Any, Any]", loaded)
    networks = [name for name in _NETWORKS if isinstance(table.get(name), dict)]
    if not networks:
        return table
    import torch

    beside = [name for name, value in table.items() if isinstance(value, torch.Tensor) or name in networks[1:]]
    if beside:
        raise ValueError(f"{path} holds a network as {networks[0]!r} and {beside[0]!r} beside it: save one state_dict()")
    return table[networks[0]]


def write_checkpoint(file: BinaryIO, entries: Iterable[ExactTensor | Tied]) -> int:
    """Writes tensors as a checkpoint of torch, which needs all of them in memory.

    Args:
        file: where to.
        entries: the tensors.

    Returns:
        Their number.

    Raises:
        ImportError: there is no torch.
    """
    try:
        import torch

        from ellzero.archive.torch_tensors import to_torch
    except ModuleNotFoundError as error:
        raise ImportError("a checkpoint of torch needs torch: pip install 'ellzero[torch]', or unpack to .safetensors") from error
    state: dict[str, Tensor] = {}
    for entry in entries:
        state[entry.name] = state[entry.of] if isinstance(entry, Tied) else to_torch(entry)
    torch.save(state, file)
    return len(state)
