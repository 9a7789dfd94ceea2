"""Tensors of torch as the codec takes them, and back, bit for bit."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ellzero.codec.network.dtypes import DType
from ellzero.codec.network.tensors import ExactTensor

_TYPES: dict[DType, torch.dtype] = {
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
if hasattr(torch, "float8_e8m0fnu"):  # since 2.7
    _TYPES[DType.F8_E8M0] = torch.float8_e8m0fnu
_NAMES = {kind: dtype for dtype, kind in _TYPES.items()}
# By the end of their names, because not every torch has them.
_REMEDIES: Mapping[str, str] = {
    "float4_e2m1fn_x2": "store its view(torch.uint8), which holds two numbers per byte",
    "complex32": "store its view_as_real(), of torch.float16",
    "complex128": "store its view_as_real(), of torch.float64",
    **dict.fromkeys(("qint8", "quint8", "qint32"), "store its dequantize(), or its int_repr(), scale and zero point"),
}


def require_storable(name: str, tensor: Tensor) -> None:
    """Checks that a tensor has numbers in memory, of a type and layout that a file knows.

    Raises:
        TypeError: it has not; the message says what to do.
    """
    if is_lazy(tensor):
        raise TypeError(f"{name!r} has no shape yet: run the model on a batch first")
    if is_traceable_wrapper_subclass(tensor):
        raise TypeError(
            f"{name!r} is a {type(tensor).__name__}, made of other tensors: store a plain one, as full_tensor() of a distributed tensor "
            "and dequantize() of a quantised tensor return"
        )
    if tensor.is_nested:
        raise TypeError(f"{name!r} is a nested tensor, which cannot be stored: store its unbind() by names of their own")
    if tensor.layout is not torch.strided:
        raise TypeError(
            f"{name!r} is a {tensor.layout} tensor, which cannot be stored: store its to_dense(), where zeros cost next to nothing"
        )
    if tensor.dtype not in _NAMES:
        remedy = _REMEDIES.get(str(tensor.dtype).removeprefix("torch."), "convert it first")
        raise TypeError(f"{name!r} is of {tensor.dtype}, which cannot be stored: {remedy}")
    if tensor.is_meta:
        raise TypeError(f"{name!r} is a tensor on the meta device, which has no numbers: load them first")


def from_torch(name: str, tensor: Tensor, *, image_width: int = 0) -> ExactTensor:
    """Takes the bits of a tensor, whatever its type, device and layout.

    Args:
        name: of the tensor in its network.
        tensor: dense.
        image_width: as in `ExactTensor`.

    Raises:
        TypeError: a type or layout that no network file knows, or no numbers at all.
    """
    require_storable(name, tensor)
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
