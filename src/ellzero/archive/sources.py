"""Networks as other tools leave them: where their tensors are, and those tensors one by one."""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ellzero.archive.safetensors_files import read_header, read_tensor
from ellzero.archive.torch_checkpoints import Say, is_checkpoint, read_checkpoint, say_nothing
from ellzero.codec.network.tensors import Entry, ExactTensor, Tied

# What a folder's network is called, the likelier first: by a run of `ellzero sparsify`, and by Hugging Face with safetensors and without.
_NAMES = (
    "network.safetensors",
    *(f"{stem}.safetensors{index}" for stem in ("model", "diffusion_pytorch_model") for index in (".index.json", "")),
    *(f"{stem}.bin{index}" for stem in ("pytorch_model", "diffusion_pytorch_model") for index in (".index.json", "")),
)
# Equal tensors of at least so many bytes are stored once; below that a tie costs as much as it saves.
_MIN_TIED = 64


@dataclass(frozen=True, kw_only=True)
class NetworkFiles:
    """A network in files.

    Attributes:
        named: what says which they are: the index of shards, or the file.
        parts: by file, the names of the tensors that the index says are in it.
    """

    named: Path
    parts: dict[Path, frozenset[str]]


def files_of(path: Path) -> list[Path]:
    """Lists the files from which a network is read; arguments and errors as in `find_network`."""
    source = find_network(path)
    options = path / "options.json"  # of a run, which says its architecture
    return [*dict.fromkeys((source.named, *source.parts)), *([options] if options.is_file() else [])]


def find_network(path: Path) -> NetworkFiles:
    """Finds the files of a network.

    Args:
        path: a safetensors file, a checkpoint of torch, an index of shards of either, or a folder of one of these: a run of
            `ellzero sparsify`, or a model as Hugging Face stores it.

    Raises:
        FileNotFoundError: there is nothing of the kind.
        ValueError: an index that names no files, or names some outside its folder.
    """
    if path.is_dir():
        return find_network(_in_folder(path))
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: there is no such file; expected safetensors, an index of shards, a checkpoint, or a folder of one"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a pipe or a device, and a network is read from files: write it to one first")
    return _shards(path) if path.name.endswith(".index.json") else NetworkFiles(named=path, parts={path: frozenset()})


def _in_folder(path: Path) -> Path:
    for name in _NAMES:
        if (path / name).is_file():
            return path / name
    indices = sorted((*path.glob("*.safetensors.index.json"), *path.glob("*.bin.index.json")))
    files = indices or sorted(path.glob("*.safetensors"))
    if len(files) == 1 and not re.search(r"-\d+-of-\d+\.", files[0].name):
        return files[0]
    raise FileNotFoundError(f"{path} holds no network: expected network.safetensors, model.safetensors or its index, or one *.safetensors")


def _shards(path: Path) -> NetworkFiles:
    parts: dict[str, set[str]] = {}
    try:
        table = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8"))["weight_map"])
        for name, shard in table.items():
            parts.setdefault(str(shard), set()).add(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no index of shards: expected JSON with a weight_map") from error
    if not parts or any(os.path.basename(name) != name for name in parts):
        raise ValueError(f"{path} names no shards, or some outside its folder")
    for name in sorted(parts):
        if not (path.parent / name).is_file():
            raise FileNotFoundError(f"{path} names {name!r}, which is not beside it: get all shards")
    return NetworkFiles(named=path, parts={path.parent / name: frozenset(parts[name]) for name in sorted(parts)})


def tensors_of(path: Path, say: Say = say_nothing) -> Iterator[Entry]:
    """Reads the tensors of a network, one in memory at a time (of checkpoints of torch: those of one file).

    Tensors of the same bytes, type and shape are tied: it makes no difference to anyone who loads them, and they are stored once.

    Args:
        path: as `find_network` takes it.
        say: is told, a line for each file, what it holds beside the network, which is left out.

    Raises:
        ValueError: a file is damaged or no network, or lacks a tensor that its index says is there.
        FileNotFoundError: there is no such file.
        TypeError: a tensor of a type that cannot be stored.
        ImportError: a checkpoint needs torch.
    """
    seen: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    for entry in _all_tensors(path, say):
        if entry.num_bytes < _MIN_TIED:
            yield entry
            continue
        key = (entry.dtype.value, entry.shape, hashlib.sha256(entry.words.view(np.uint8).data).digest())
        if key in seen:
            yield Tied(name=entry.name, of=seen[key])
        else:
            seen[key] = entry.name
            yield entry


def _all_tensors(path: Path, say: Say) -> Iterator[ExactTensor]:
    source = find_network(path)
    mapped = frozenset[str]().union(*source.parts.values())
    first = True
    for file, promised in source.parts.items():
        held: set[str] = set()
        unlisted: list[str] = []
        for entry in _tensors_in(file, say):
            held.add(entry.name)
            # An index says of each name which shard has it; the others may be of another time.
            if promised and entry.name not in promised:
                unlisted += [entry.name] if entry.name not in mapped else []
                continue
            width = image_width(entry.name, entry.shape) if first else 0
            first = first and len(entry.shape) < 2
            yield replace(entry, image_width=width)
        if promised - held:
            raise ValueError(f"{source.named} says that {file.name} holds {min(promised - held)!r}, which it lacks: get both again")
        if unlisted:
            more = f" and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
            say(f"{file}: left out: {unlisted[0]!r}{more}, which {source.named.name} does not list")


def _tensors_in(path: Path, say: Say) -> Iterator[ExactTensor]:
    with open(path, "rb") as file:
        beginning = file.read(9)
    return _checkpoint(path, say) if is_checkpoint(beginning, path) else _safetensors(path, say)


def _safetensors(path: Path, say: Say) -> Iterator[ExactTensor]:
    with open(path, "rb") as file:
        places, metadata = read_header(file, path)
        if left := {key: value for key, value in metadata.items() if (key, value) != ("format", "pt")}:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            say(f"{path}: left out: metadata {min(left)!r}{more}")
        for place in places:
            yield read_tensor(file, place)


def _checkpoint(path: Path, say: Say) -> Iterator[ExactTensor]:
    state = read_checkpoint(path, say)
    from ellzero.archive.torch_tensors import from_torch

    for name, tensor in state.items():
        yield from_torch(name, tensor)


def image_width(name: str, shape: tuple[int, ...]) -> int:
    """Guesses the width of the image that a network's first weight takes: its columns, where they make a square; 0 where not.

    A wrong guess costs bytes, never numbers.
    """
    if len(shape) != 2 or "emb" in name.lower() or shape[0] * shape[1] > 1 << 22:
        return 0
    side = math.isqrt(shape[1])
    return side if side * side == shape[1] and side >= 8 else 0
