"""Tensors of torch as the codec takes them, and back, bit for bit."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.tensors import ExactTensor

_TYPES: Mapping[DType, torch.dtype] = {
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F64: torch.float64,
    DType.I64: torch.int64,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.I8: torch.int8,
    DType.U8: torch.uint8,
    DType.U16: torch.uint16,
    DType.U32: torch.uint32,
    DType.U64: torch.uint64,
    DType.BOOL: torch.bool,
    DType.F8_E4M3: torch.float8_e4m3fn,
    DType.F8_E5M2: torch.float8_e5m2,
    DType.F8_E4M3FNUZ: torch.float8_e4m3fnuz,
    DType.F8_E5M2FNUZ: torch.float8_e5m2fnuz,
    DType.C64: torch.complex64,
}
_NAMES = {kind: dtype for dtype, kind in _TYPES.items()}


def from_torch(name: str, tensor: Tensor, *, image_width: int = 0) -> ExactTensor:
    """Takes the bits of a tensor, whatever its type, device and layout.

    Args:
        name: of the tensor in its network.
        tensor: dense.
        image_width: as in `ExactTensor`.

    Raises:
        TypeError: a type or layout that no network file knows, or no numbers at all.
    """
    if tensor.dtype not in _NAMES or tensor.layout is not torch.strided:
        raise TypeError(f"{name!r} is a {tensor.layout} tensor of {tensor.dtype}, which cannot be stored: convert it first")
    if tensor.is_meta:
        raise TypeError(f"{name!r} is a tensor on the meta device, which has no numbers: load them first")
    dtype = _NAMES[tensor.dtype]
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    words = plain.reshape(-1).view(torch.uint8).numpy().view(dtype.word_type) if plain.numel() else np.zeros(0, dtype.word_type)
    return ExactTensor(name=name, dtype=dtype, shape=tuple(tensor.shape), words=words, image_width=image_width)


def to_torch(entry: ExactTensor) -> Tensor:
    """Makes a tensor of what was decoded, in memory of its own.

    Raises:
        TypeError: torch has no such type.
    """
    if entry.dtype not in _TYPES:
        raise TypeError(f"{entry.name!r} is of {entry.dtype.value}, which this torch does not have: unpack it to safetensors")
    if not entry.words.size:
        return torch.zeros(entry.shape, dtype=_TYPES[entry.dtype])
    return torch.from_numpy(entry.words.view(np.uint8).copy()).view(_TYPES[entry.dtype]).reshape(entry.shape)
