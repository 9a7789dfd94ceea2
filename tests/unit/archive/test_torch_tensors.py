"""Tensors to entries and back: the same bits, in memory of their own."""

import pytest
import torch

from ellzero.archive.torch_tensors import from_torch, to_torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_tensor_made_of_an_entry_has_memory_of_its_own(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype)
    entry = from_torch("x", tensor)
    before = entry.words.tobytes()
    first, second = to_torch(entry), to_torch(entry)
    assert (first.dtype, first.shape) == (dtype, tensor.shape)
    assert torch.equal(first, tensor)
    first.zero_()
    assert torch.equal(second, tensor)
    assert entry.words.tobytes() == before


def test_an_entry_that_may_not_be_written_makes_a_tensor_that_may() -> None:
    entry = from_torch("x", torch.arange(4.0))
    entry.words.setflags(write=False)
    assert to_torch(entry).add_(1.0).tolist() == [1.0, 2.0, 3.0, 4.0]
