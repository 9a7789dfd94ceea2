"""Saves networks as `.l0` files."""

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor, nn

from ellzero.archive.entries import SaveReport, write_entries
from ellzero.archive.sources import image_width as guessed_width
from ellzero.archive.torch_tensors import from_torch
from ellzero.codec.container import Sink
from ellzero.codec.network.tensors import Entry, Tied
from ellzero.files.whole import replacing
from ellzero.params import require_module
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
        tensors: of any type and shape; tensors that are one in memory are stored once and come back as equal ones.
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
    buffers = buffers_of(model)
    first = next((name for name, tensor in state.items() if tensor.ndim >= 2), None)
    widths = {} if first is None or state[first].ndim != 2 else {first: image_width or guessed_width(first, tuple(state[first].shape))}
    return write_entries(file, _entries(state, widths), quantise, buffers)


def buffers_of(model: nn.Module) -> set[str]:
    """Lists the names in a model's `state_dict` that are not of parameters: running statistics and the like, which no grid holds."""
    parameters = {tensor.data_ptr() for tensor in model.parameters()}
    return {name for name, tensor in model.state_dict().items() if tensor.data_ptr() not in parameters}


def _require_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is {type(tensor).__name__}, not a tensor: pass torch.as_tensor(...), or leave it out")


def _entries(tensors: Mapping[str, Tensor], widths: Mapping[str, int]) -> Iterator[Entry]:
    """Takes tensors one by one; those that are the same memory in the same shape are tied."""
    seen: dict[tuple[object, ...], str] = {}
    for name, tensor in tensors.items():
        _require_tensor(name, tensor)
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and key in seen:
            yield Tied(name=name, of=seen[key])
            continue
        seen[key] = name
        yield from_torch(name, tensor, image_width=widths.get(name, 0))
