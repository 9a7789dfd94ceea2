"""Loads networks from `.l0` files."""

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

import torch
from torch import Tensor, nn

from ellzero.archive.entries import Budget
from ellzero.archive.torch_tensors import to_torch
from ellzero.codec.container import DEFAULT_LIMIT
from ellzero.codec.network.group import Accept
from ellzero.codec.network.network_file import accept_all, read_network
from ellzero.codec.network.tensors import Description, Tied
from ellzero.params import Place, require_module, same_numbers, without_own_memory

ModelT = TypeVar("ModelT", bound=nn.Module)


class NetworkFile:
    """A network file open for reading; iterating over it gives names and tensors, one tensor in memory at a time."""

    def __init__(self, file: BinaryIO, max_size: int, accept: Accept) -> None:
        self._file = file
        self._max_size = max_size
        self._accept = accept

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Reads from the beginning.

        Raises:
            FormatError: the file is damaged, or holds no network. What came before is then to be thrown away.
            LimitError: a tensor takes more than `max_size` bytes.
        """
        self._file.seek(0)
        for entry in read_network(self._file, max_bytes=self._max_size, accept=self._accept):
            yield (entry.name, self.tensor(entry.of)) if isinstance(entry, Tied) else (entry.name, to_torch(entry))

    def tensor(self, name: str) -> Tensor:
        """Reads one tensor, and what comes before it.

        Raises:
            KeyError: the file has no tensor of that name.
            FormatError, LimitError: as in iterating.
        """
        position = self._file.tell()
        try:
            self._file.seek(0)
            for entry in read_network(self._file, max_bytes=self._max_size):
                if entry.name == name:
                    return self.tensor(entry.of) if isinstance(entry, Tied) else to_torch(entry)
        finally:
            self._file.seek(position)
        raise KeyError(f"the file has no tensor {name!r}")


@contextmanager
def open_file(path: str | os.PathLike[str], *, max_size: int = DEFAULT_LIMIT) -> Generator[NetworkFile]:
    """Opens a network file, to take its tensors one at a time.

    Args:
        path: the file.
        max_size: the most bytes that one tensor may take.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        yield NetworkFile(file, max_size, accept_all)


def load_file(path: str | os.PathLike[str], *, max_size: int = DEFAULT_LIMIT) -> dict[str, Tensor]:
    """Loads all tensors of a network file, as `safetensors.torch.load_file` does.

    Args:
        path: the file.
        max_size: the most bytes that all tensors together may take.

    Returns:
        Tensors by name, with their types and shapes; tied ones are one tensor.

    Raises:
        FormatError: the file is damaged, or holds no network.
        LimitError: its tensors take more than `max_size`.
        OSError: the file cannot be read.
    """
    return _load(path, max_size, accept_all)


def load_model(model: ModelT, path: str | os.PathLike[str], *, strict: bool = True) -> ModelT:
    """Loads a network file into a model; either all of it or, where anything is wrong, nothing.

    A tensor of the model whose memory is that of another may be missing, as in a file packed from one of `safetensors.torch.save_model`.

    Args:
        model: of the architecture that was saved; every shape is checked against it before memory is taken.
        path: the file.
        strict: whether names missing on either side are an error.

    Returns:
        The model, with its parameters and buffers overwritten.

    Raises:
        FormatError: the file is damaged, or holds no network.
        ValueError: names or shapes are not those of the model, or tensors that are one in the model differ in the file.
        OSError: the file cannot be read.
    """
    require_module(model)
    state = model.state_dict()

    def accept(description: Description) -> None:
        if description.name not in state:
            if strict:
                raise ValueError(f"{os.fspath(path)} has a tensor {description.name!r}, the model has none: load it into its own model")
        elif tuple(state[description.name].shape) != description.shape:
            raise ValueError(
                f"{description.name!r} has the shape {description.shape} in {os.fspath(path)} and "
                f"{tuple(state[description.name].shape)} in the model: load it into its own model"
            )

    size = sum(tensor.numel() * max(tensor.element_size(), 8) for tensor in state.values())
    loaded = _load(path, max(size, 1 << 20) if strict else DEFAULT_LIMIT, accept)
    missing = [name for name in state if name not in loaded]
    shared = without_own_memory(missing, loaded.keys(), state)
    missing = [name for name in missing if name not in shared]
    if strict and missing:
        others = f" and {len(missing) - 1} more tensors" if len(missing) > 1 else ""
        raise ValueError(f"{os.fspath(path)} lacks {missing[0]!r}{others} of the model: load it into its own model")
    _check_ties(loaded, state, path)
    # What may be missing has been checked, and torch itself knows nothing of shared memory.
    model.load_state_dict(loaded, strict=False)
    return model


def _check_ties(loaded: Mapping[str, Tensor], state: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Raises ValueError where a file has different numbers for what is one tensor in the model, of which it would keep the last."""
    first: dict[Place, str] = {}
    for name, tensor in state.items():
        place = same_numbers(tensor)
        if place is None or name not in loaded:
            continue
        other = first.setdefault(place, name)
        if loaded[other] is not loaded[name] and not _same_bits(loaded[other], loaded[name]):
            raise ValueError(
                f"{other!r} and {name!r} are one tensor in the model and two in {os.fspath(path)}: "
                "load it into a model that does not tie them"
            )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(
        one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8)
    )


def _load(path: str | os.PathLike[str], max_size: int, accept: Accept) -> dict[str, Tensor]:
    limited = Budget(max_size, f"{os.fspath(path)} takes more than {max_size} bytes: raise max_size", accept)
    tensors: dict[str, Tensor] = {}
    with open(path, "rb") as file:
        for entry in read_network(file, max_bytes=max_size, accept=limited):
            tensors[entry.name] = tensors[entry.of] if isinstance(entry, Tied) else to_torch(entry)
    return tensors
