"""Loads networks from `.l0` files."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

from torch import Tensor, nn

from ellzero.archive.entries import Budget
from ellzero.archive.torch_tensors import to_torch
from ellzero.codec.container import DEFAULT_LIMIT
from ellzero.codec.network.group import Accept
from ellzero.codec.network.network_file import accept_all, read_network
from ellzero.codec.network.tensors import Description, Tied
from ellzero.params import require_module

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

    Args:
        model: of the architecture that was saved; every shape is checked against it before memory is taken.
        path: the file.
        strict: whether names missing on either side are an error.

    Returns:
        The model, with its parameters and buffers overwritten.

    Raises:
        FormatError: the file is damaged, or holds no network.
        ValueError: names or shapes are not those of the model.
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
    if strict and (missing := [name for name in state if name not in loaded]):
        raise ValueError(
            f"{os.fspath(path)} lacks {missing[0]!r} and {len(missing) - 1} more tensors of the model: load it into its own model"
        )
    model.load_state_dict(loaded, strict=strict)
    return model


def _load(path: str | os.PathLike[str], max_size: int, accept: Accept) -> dict[str, Tensor]:
    limited = Budget(max_size, f"{os.fspath(path)} takes more than {max_size} bytes: raise max_size", accept)
    tensors: dict[str, Tensor] = {}
    with open(path, "rb") as file:
        for entry in read_network(file, max_bytes=max_size, accept=limited):
            tensors[entry.name] = tensors[entry.of] if isinstance(entry, Tied) else to_torch(entry)
    return tensors
