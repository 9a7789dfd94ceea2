"""Masks by compiled kernels: the same bits as by torch's own operations, and only where a kernel can take the tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from attach_support import OPTIMIZERS
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from test_survivors import backward, everything_of, few, matrices, network
from torch import Tensor, nn

from ellzero.attaching import mask_kernels, masking
from ellzero.attaching._attach import attach
from ellzero.attaching.mask_kernels import Rows, add_sign_and_keep_, fits, keep_
from ellzero.attaching.masking import Keep
from ellzero.methods import RL1, ramp
from ellzero.params import everything
from ellzero.types import At, Phase

FLOATS = st.floats(width=32, allow_infinity=True, allow_nan=True)


@given(hnp.arrays(np.float32, 37, elements=FLOATS), hnp.arrays(np.bool_, 37))
def test_what_is_not_kept_becomes_0_and_the_rest_stays(values: Any, kept: Any) -> None:
    expected = np.where(kept, values, np.float32(0))
    keep_(values, kept)
    np.testing.assert_array_equal(values, expected)


@given(
    hnp.arrays(np.float32, 37, elements=st.floats(-1e3, 1e3, width=32)),
    hnp.arrays(np.float32, 37, elements=st.sampled_from([0.0, -0.0, 1.5, -2.5, 1e-38, -1e-45])),
    hnp.arrays(np.bool_, 37),
)
def test_the_sign_is_added_where_a_weight_is_kept(gradients: Any, weights: Any, kept: Any) -> None:
    alpha = np.float32(0.3)
    tensor = torch.from_numpy(gradients.copy()).add_(torch.from_numpy(weights).sign(), alpha=float(alpha))
    expected = np.where(kept, tensor.numpy(), np.float32(0))
    add_sign_and_keep_(gradients, weights, kept, alpha)
    np.testing.assert_array_equal(gradients, expected)


@pytest.mark.parametrize("method", [RL1(alpha=1e-2), RL1(alpha=ramp(1e-3, 1e-2))], ids=repr)
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("share", [0.12, 0.7])
def test_a_masked_run_has_the_same_bits(optimizer_name: str, method: RL1, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Momentum from before the freeze, an unmasked bias, an end without the penalty."""
    calls: list[int] = []

    def counted(gradients: Any, weights: Any, kept: Any, alpha: Any) -> None:
        calls.append(gradients.size)
        add_sign_and_keep_(gradients, weights, kept, alpha)

    monkeypatch.setattr(masking, "add_sign_and_keep_", counted)

    def run() -> list[Tensor]:
        model = network()
        optimizer = OPTIMIZERS[optimizer_name](list(model.parameters()))
        sparsifier = attach(optimizer, model, method, select=everything, total_steps=12)
        for step in range(12):
            if step == 3:
                sparsifier.freeze(few(matrices(model), seed=1, share=share), penalty=True)
            if step == 9:
                sparsifier.set_phase(Phase.FINE_TUNE)
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
            if step >= 3:
                sparsifier.assert_sparse()
        return everything_of(model, optimizer)

    by_kernel = run()
    assert calls == [1024, 64, 4096, 64] * 6
    monkeypatch.setattr(mask_kernels, "LARGEST", -1)
    by_torch = run()
    assert len(calls) == 24
    assert all(torch.equal(one, other) for one, other in zip(by_kernel, by_torch, strict=True))


def test_which_tensors_the_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(torch.zeros(64, 64))
    assert fits(nn.Parameter(torch.zeros(64, 65)))
    assert not fits(torch.zeros(63, 65))
    assert not fits(torch.zeros(mask_kernels.LARGEST + 1))
    assert not fits(torch.zeros(64, 64, dtype=torch.float64))
    assert not fits(torch.zeros(64, 65).t())
    assert not fits(torch.zeros(64, 64).to_sparse())
    assert not fits(torch.zeros(64, 64, device="meta"))
    monkeypatch.setattr(mask_kernels.config, "DISABLE_JIT", True)
    assert not fits(torch.zeros(64, 64))


def test_a_weight_that_has_moved_in_memory_is_found_again() -> None:
    rows, weight = Rows(), nn.Parameter(torch.ones(64, 64))
    first = rows.of("w", weight)
    assert first is not None
    assert rows.of("w", weight) is first
    weight.data = torch.full((64, 64), 2.0)
    second = rows.of("w", weight)
    assert second is not None
    np.testing.assert_array_equal(second, np.full(4096, 2.0, np.float32))
    weight.data = torch.full((64, 64), 3.0, dtype=torch.float64)
    assert rows.of("w", weight) is None


def halves(first: float, second: float) -> Tensor:
    return torch.tensor([first, second]).repeat_interleave(4096)


def test_autograd_hears_of_the_change() -> None:
    weight = nn.Parameter(halves(1.0, 1.0))
    keep = Keep({"w": halves(1, 0) != 0})
    before = weight._version
    keep.apply_to_weights_({"w": weight})
    assert weight._version > before
    assert torch.equal(weight, halves(1.0, 0.0))


def test_pruned_weights_and_gradients_that_are_nan_become_0() -> None:
    weight = nn.Parameter(halves(torch.nan, 1.0))
    weight.grad = halves(torch.nan, 1.0)
    method = RL1(alpha=0.5)
    keep = Keep({"w": halves(0, 1) != 0}, method)
    assert keep.add_gradient_({"w": weight}, method.init({"w": weight}), At(), 2.0) == ["w"]
    keep.apply_to_weights_({"w": weight})
    assert torch.equal(weight.grad, halves(0.0, 2.0))
    assert torch.equal(weight, halves(0.0, 1.0))


def test_what_no_kernel_takes_is_left_to_the_method() -> None:
    weight, double = nn.Parameter(halves(1.0, -1.0)), nn.Parameter(torch.ones(4, dtype=torch.float64))
    weight.grad, double.grad = halves(0.0, 0.0), torch.zeros(4, dtype=torch.float64)
    params: dict[str, Tensor] = {"w": weight, "x": double}
    method = RL1(alpha=0.5)
    keep = Keep({"w": halves(0, 1) != 0, "x": torch.tensor([True, False, True, True])}, method)
    assert keep.add_gradient_(params, method.init(params), At(), 1.0) == ["w"]
    assert torch.equal(weight.grad, halves(0.0, -0.5))
    assert double.grad.tolist() == [0.5] * 4  # its mask is applied afterwards, with all others
    keep.apply_to_gradients_(params, but=["w"])
    assert double.grad.tolist() == [0.5, 0.0, 0.5, 0.5]


def test_many_small_tensors_share_one_operation() -> None:
    params: dict[str, Tensor] = {f"w{i}": nn.Parameter(torch.ones(4)) for i in range(mask_kernels.FEW + 1)}
    for parameter in params.values():
        parameter.grad = torch.zeros(4)
    mask, method = torch.tensor([True, False, True, True]), RL1(alpha=0.5)
    assert not Keep(dict.fromkeys(params, mask), method).add_gradient_(params, method.init(params), At(), 1.0)
    few = dict(list(params.items())[:2])
    assert Keep(dict.fromkeys(few, mask), method).add_gradient_(few, method.init(few), At(), 1.0) == ["w0", "w1"]
    assert [parameter.grad.tolist() for parameter in few.values()] == [[0.5, 0.0, 0.5, 0.5]] * 2
