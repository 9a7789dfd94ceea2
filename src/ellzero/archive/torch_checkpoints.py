"""Checkpoints of torch: read without running the code that they may hold, and written. Imports torch only when one is met."""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from ellzero.codec.network.tensors import ExactTensor, Tied

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt")
# Where a checkpoint of a training keeps its network, the likelier first.
_NETWORKS = ("state_dict", "model_state_dict", "model_state", "model", "module", "network", "net", "params", "weights")
_BEGINNINGS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_SHOWN = 8

Say = Callable[[str], None]
"""Is told, in one line, what a file holds and a network file will not."""


def say_nothing(text: str) -> None:
    """Says nothing."""


def is_checkpoint(beginning: bytes, path: Path) -> bool:
    """Tells whether a file is a checkpoint of torch: by its first 9 bytes, and only where they say nothing by its name.

    An archive of ZIP or a pickle is one, whatever its name; safetensors have the length of a header and then a brace.
    """
    if beginning.startswith(_BEGINNINGS):
        return True
    return beginning[8:9] != b"{" and names_checkpoint(path)


def names_checkpoint(path: Path) -> bool:
    """Tells whether a file is called as a checkpoint of torch is, such as net.pt and net.pth.tar."""
    return Path(path.name.removesuffix(".tar")).suffix in CHECKPOINTS


def read_checkpoint(path: Path, say: Say) -> "dict[str, Tensor]":
    """Reads a `state_dict`: a checkpoint's own, or the one that it holds beside what a training goes on with, which is left.

    Args:
        path: of a checkpoint of torch.
        say: is told what is left.

    Returns:
        The tensors by name.

    Raises:
        ValueError: it is damaged, holds code, several networks, or anything by a name among its tensors, which would be lost.
        ImportError: there is no torch.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ImportError(f"{path} is a checkpoint of torch: pip install 'ellzero[torch]'") from error
    try:
        # An open file, because torch takes a name that ends in .safetensors for what it promises.
        with open(path, "rb") as file, torch.serialization.safe_globals(_plain_values()):
            loaded: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile archive makes of the unpickler
        raise ValueError(
            f"{path} is no file of weights alone that torch reads: save the model's state_dict() ({_reason(error)})"
        ) from error
    state = _network_in(path, loaded, say)
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


def _plain_values() -> list[Any]:
    """Lists classes that hold values and run nothing, which trainings leave beside their networks: options and numbers of numpy."""
    scalar = np.float64(0).__reduce__()[0]  # whose module has another name in numpy 1
    return [Namespace, scalar, np.dtype, *{type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"}]


def _reason(error: Exception) -> str:
    """Names the class that an unpickler refused, where it did that, and else the kind of error."""
    refused = re.search(r"Unsupported (?:global: GLOBAL|class) ([\w.]+)", str(error))
    return type(error).__name__ if refused is None else f"it holds a {refused[1]}"


def _network_in(path: Path, loaded: Any, say: Say) -> dict[Any, Any]:
    """Finds the `state_dict` in what was loaded, and says what is beside it."""
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} holds a {type(loaded).__name__}, not a state_dict: save the model's state_dict()")
    table = cast("dict[Any, Any]", loaded)
    import torch

    networks = [name for name, value in table.items() if _is_network(value)]
    named = [name for name in _NETWORKS if isinstance(table.get(name), dict)]
    # The running mean of a network's weights stands beside it under a name of its own.
    chosen = named or [name for name in networks if not _is_average(name)] or networks
    if not chosen:
        return table
    weights = [name for name, value in table.items() if isinstance(value, torch.Tensor) and value.ndim and value.is_floating_point()]
    if not named and weights:
        return table  # whose tables are refused by name
    if beside := [*chosen[1:], *weights]:
        raise ValueError(
            f"{path} holds a network as {chosen[0]!r} and {beside[0]!r} beside it: which is meant? save one of them as a file of its own"
        )
    left = [f"{name!r} ({_described(value)})" for name, value in table.items() if name != chosen[0]]
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        say(f"{path}: {chosen[0]!r} is packed; left out: {', '.join(left[:_SHOWN])}{more}")
    return table[chosen[0]]


def _is_network(value: Any) -> bool:
    """Tells whether a value is a table of tensors by name, some of them weights."""
    import torch

    if not isinstance(value, dict):
        return False
    table = cast("dict[Any, Any]", value)
    tensors = all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in table.items())
    return tensors and any(tensor.ndim and tensor.is_floating_point() for tensor in table.values())


def _is_average(name: object) -> bool:
    return re.search(r"(?i)(^|[^a-z])(ema|swa|avg|averaged?|shadow)([^a-z]|$)", str(name)) is not None


def _described(value: Any) -> str:
    """Describes a value in a few words: numbers and short texts as they are."""
    import torch

    if _is_network(value):
        return f"another network of {len(value)} tensors: save it as a file of its own to pack it"
    if isinstance(value, torch.Tensor):
        return f"{value.item():g}" if value.numel() == 1 and not value.is_complex() else f"a tensor of shape {tuple(value.shape)}"
    if value is None or isinstance(value, bool | int | float | np.generic | str):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= 40 else text[:37] + "..."
    return type(value).__name__


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
        from ellzero.archive.torch_tensors import to_torch
    except ModuleNotFoundError as error:
        raise ImportError("a checkpoint of torch needs torch: pip install 'ellzero[torch]', or unpack to .safetensors") from error
    state: dict[str, Tensor] = {}
    for entry in entries:
        state[entry.name] = state[entry.of] if isinstance(entry, Tied) else to_torch(entry)
    save_state(state, file)
    return len(state)


def save_state(state: Mapping[str, Any], file: BinaryIO) -> None:
    """Saves a checkpoint by `torch.save`.

    Args:
        state: what it holds.
        file: where to.

    Raises:
        OSError: it cannot be written, by the file's own error: torch buries that under one of its own.
    """
    import torch

    try:
        torch.save(dict(state), file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
