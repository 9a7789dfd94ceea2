"""Saves networks as `.l0` files."""

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor, nn

from ellzero.archive.entries import SaveReport, write_entries
from ellzero.archive.sources import image_width as guessed_width
from ellzero.archive.torch_tensors import from_torch, require_storable
from ellzero.codec.container import Sink
from ellzero.codec.network.tensors import Entry, Tied
from ellzero.files.whole import replacing
from ellzero.params import Place, kept_exact, require_module, same_numbers
from ellzero.quantise.calibrate import Calibrated
from ellzero.quantise.grids import Quantiser


def save_file(
    tensors: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    *,
    quantise: Quantiser | None = None,
    image_width: Mapping[str, int] | None = None,
) -> SaveReport:
    """Saves tensors by name, as `safetensors.torch.save_file` does, in a smaller file.

    Args:
        tensors: of any type and shape; tensors that are one in memory are stored once and come back as equal ones. Names are text.
        path: the file; one that is there gives way when the new one is complete.
        quantise: moves floating-point tensors to a grid, which loses what lies between its values; without it the file is lossless.
        image_width: by name of a weight whose input is an image, the image's width, so that positions are coded as places in it.

    Returns:
        Sizes.

    Raises:
        ValueError: a tensor that is to be quantised is not finite, or a name cannot be stored.
        TypeError: a tensor of a type that cannot be stored.
        OSError: the file cannot be written.
    """
    widths = image_width or {}
    with replacing(Path(path)) as file:
        return write_entries(file, _entries(tensors, widths), quantise)


def save_model(
    model: nn.Module, path: str | os.PathLike[str], *, quantise: Quantiser | Calibrated | None = None, image_width: int = 0
) -> SaveReport:
    """Saves the `state_dict` of a model; see `save_file`.

    Only parameters are moved to a grid: running statistics and counters come back bit for bit.

    Args:
        model: any module.
        path: the file.
        quantise: as in `save_file`, or `Calibrated` by unlabelled inputs; the model itself is not changed.
        image_width: width of the images that the first weight takes, where each of its columns is a pixel; found by itself for networks
            that begin with a linear layer of h * w inputs in a square image.

    Raises:
        ValueError, TypeError, OSError: as in `save_file`.
    """
    require_module(model)
    if isinstance(quantise, Calibrated):
        model, quantise = quantise.apply(model)
    with replacing(Path(path)) as file:
        return write_model(file, model, quantise, image_width)


def model_bytes(model: nn.Module, *, quantise: Quantiser | None = None) -> bytes:
    """Returns what `save_model` would write.

    Raises:
        ValueError, TypeError: as in `save_file`.
    """
    file = io.BytesIO()
    write_model(file, model, quantise, 0)
    return file.getvalue()


def write_model(file: Sink, model: nn.Module, quantise: Quantiser | None = None, image_width: int = 0) -> SaveReport:
    """Writes a model to an open file; arguments as in `save_model`."""
    state = model.state_dict()
    for name, tensor in state.items():
        _require_tensor(name, tensor)
    kept = kept_exact(model)
    if quantise is not None and (sharing := kept.intersection(name for name, _ in model.named_parameters(remove_duplicate=False))):
        others = f" and {len(sharing) - 1} more" if len(sharing) > 1 else ""
        warnings.warn(
            f"stored exactly, not quantised, because of memory shared with other tensors of the network: {min(sharing)!r}{others}; "
            "give parameters memory of their own to have them quantised",
            stacklevel=3,
        )
    first = next((name for name, tensor in state.items() if tensor.ndim >= 2), None)
    widths = {} if first is None or state[first].ndim != 2 else {first: image_width or guessed_width(first, tuple(state[first].shape))}
    return write_entries(file, _entries(state, widths), quantise, kept)


def _require_tensor(name: object, tensor: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} is {type(name).__name__}, not text: call the tensor by a str")
    if isinstance(tensor, Mapping):
        raise TypeError(f"{name!r} is {type(tensor).__name__}, not a tensor: call what is in it {name + '.NAME'!r}, or leave it out")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name!r} is {type(tensor).__name__}, not a tensor: pass torch.as_tensor(...), or leave it out")
    require_storable(name, tensor)


def _entries(tensors: Mapping[str, Tensor], widths: Mapping[str, int]) -> Iterator[Entry]:
    """Takes tensors one by one; those that are the same memory in the same shape are tied."""
    seen: dict[Place | None, str] = {}
    for name, tensor in tensors.items():
        _require_tensor(name, tensor)
        place = same_numbers(tensor)
        if place in seen:
            yield Tied(name=name, of=seen[place])
            continue
        if place is not None:
            seen[place] = name
        yield from_torch(name, tensor, image_width=widths.get(name, 0))
