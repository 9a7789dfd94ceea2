"""Networks as other tools leave them: where their tensors are, and those tensors one by one."""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import numpy as np

from ellzero.archive.safetensors_files import read_header, read_tensor
from ellzero.codec.network.tensors import Entry, Exact, Tied

CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt")
# Equal tensors of at least so many bytes are stored once; below that a tie costs as much as it saves.
_MIN_TIED = 64


def network_files(path: Path) -> list[Path]:
    """Finds the files of a network.

    Args:
        path: a safetensors file, an index of shards, a checkpoint of torch, or a folder of one of these: a run of `ellzero sparsify`, or a
            model as Hugging Face stores it.

    Raises:
        FileNotFoundError: there is nothing of the kind.
        ValueError: an index that names no files, or names some outside its folder.
    """
    if path.is_dir():
        for name in ("network.safetensors", "model.safetensors.index.json", "model.safetensors", "pytorch_model.bin"):
            if (path / name).is_file():
                return network_files(path / name)
        found = sorted(path.glob("*.safetensors"))
        if len(found) == 1:
            return found
        raise FileNotFoundError(
            f"{path} holds no network: expected network.safetensors, model.safetensors or its index, or one *.safetensors"
        )
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: there is no such file; expected safetensors, an index of shards, a checkpoint, or a folder of one"
        )
    return _shards(path) if path.name.endswith(".index.json") else [path]


def _shards(path: Path) -> list[Path]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in cast("dict[str, Any]", table).values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no index of shards: expected JSON with a weight_map") from error
    if not names or any(os.path.basename(name) != name for name in names):
        raise ValueError(f"{path} names no shards, or some outside its folder")
    for name in names:
        if not (path.parent / name).is_file():
            raise FileNotFoundError(f"{path} names {name}, which is not beside it: get all shards")
    return [path.parent / name for name in names]


def tensors_of(path: Path) -> Iterator[Entry]:
    """Reads the tensors of a network, one in memory at a time (a checkpoint of torch: all).

    Tensors of the same bytes, type and shape are tied: it makes no difference to anyone who loads them, and they are stored once.

    Args:
        path: as `network_files` takes it.

    Raises:
        ValueError: a file is damaged, or no network.
        FileNotFoundError: there is no such file.
        ImportError: a checkpoint needs torch.
    """
    seen: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    for entry in _all_tensors(path):
        if entry.num_bytes < _MIN_TIED:
            yield entry
            continue
        key = (entry.dtype.value, entry.shape, hashlib.sha256(entry.words.view(np.uint8).data).digest())
        if key in seen:
            yield Tied(name=entry.name, of=seen[key])
        else:
            seen[key] = entry.name
            yield entry


def _all_tensors(path: Path) -> Iterator[Exact]:
    files = network_files(path)
    if files[0].suffix in CHECKPOINTS:
        yield from _checkpoint(files[0])
        return
    with ExitStack() as stack:
        first = True
        for one in files:
            file = stack.enter_context(open(one, "rb"))
            for place in read_header(file, one)[0]:
                width = image_width(place.name, place.shape) if first else 0
                first = first and len(place.shape) < 2
                yield read_tensor(file, place, image_width=width)


def _checkpoint(path: Path) -> Iterator[Exact]:
    try:
        import torch

        from ellzero.archive.torch_tensors import from_torch
    except ModuleNotFoundError as error:
        raise ImportError(f"{path} is a checkpoint of torch: pip install 'ellzero[torch]'") from error
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile archive makes of the unpickler
        raise ValueError(
            f"{path} is no file of weights alone that torch reads: save the model's state_dict() ({type(error).__name__})"
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(cast("dict[str, Any]", loaded).get(key), dict):
            loaded = cast("dict[str, Any]", loaded)[key]
            break
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} holds a {type(loaded).__name__}, not a state_dict: save the model's state_dict()")
    state = {str(name): value for name, value in cast("dict[Any, Any]", loaded).items() if isinstance(value, torch.Tensor)}
    if not state:
        raise ValueError(f"{path} holds no tensors by name: save the model's state_dict()")
    first = True
    for name, tensor in state.items():
        width = image_width(name, tuple(tensor.shape)) if first else 0
        first = first and tensor.ndim < 2
        yield from_torch(name, tensor, image_width=width)


def image_width(name: str, shape: tuple[int, ...]) -> int:
    """Guesses the width of the image that a network's first weight takes: its columns, where they make a square; 0 where not.

    A wrong guess costs bytes, never numbers.
    """
    if len(shape) != 2 or "emb" in name.lower() or shape[0] * shape[1] > 1 << 22:
        return 0
    side = math.isqrt(shape[1])
    return side if side * side == shape[1] and side >= 8 else 0
