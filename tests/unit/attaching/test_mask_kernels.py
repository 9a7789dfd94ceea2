"""Penalties and masks by compiled kernels: what torch's own operations give, and only where a kernel can take the tensors."""

import math
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
from ellzero.attaching.mask_kernels import Places, addresses, exponential_of_two, fits, is_like, keep_, pull_and_keep_
from ellzero.attaching.masking import Keep
from ellzero.jit.kernels import kernel, plain
from ellzero.methods import DRR, RL1, Gaussian, PerModule, ramp
from ellzero.methods.protocol import Method
from ellzero.params import everything
from ellzero.types import At, Phase

FLOATS = st.floats(width=32, allow_infinity=True, allow_nan=True)
WEIGHTS = st.one_of(st.floats(-30, 30, width=32), st.sampled_from([0.0, -0.0, 1e-38, -1e-45]))


def place(*arrays: Any) -> Any:
    return addresses([array.ctypes.data for array in arrays])


@kernel
def powers_(values: Any) -> None:
    for i in range(values.size):
        values[i] = exponential_of_two(values[i])


@given(hnp.arrays(np.float32, 37, elements=FLOATS), hnp.arrays(np.bool_, 37), st.integers(0, 37))
def test_what_is_not_kept_becomes_0_and_the_rest_stays(values: Any, kept: Any, cut: int) -> None:
    expected = np.where(kept, values, np.float32(0))
    by_python = values.copy()
    for run, own in ((keep_, values), (plain(keep_), by_python)):
        run(place(own[:cut], own[cut:]), place(kept[:cut], kept[cut:]), addresses([cut, 37 - cut]))
        np.testing.assert_array_equal(own, expected)


def test_powers_of_two_are_exact_to_a_few_units_in_the_last_place() -> None:
    values = np.concatenate([np.linspace(-100, 0, 200_001), -np.arange(101.0), [-1e30, -0.0]]).astype(np.float32)
    expected = np.exp2(np.maximum(values.astype(np.float64), -100))
    powers_(values)
    np.testing.assert_allclose(values, expected, rtol=2.5e-7)
    assert values[-1] == 1


@given(
    hnp.arrays(np.float32, 37, elements=st.floats(-1e3, 1e3, width=32)),
    hnp.arrays(np.float32, 37, elements=WEIGHTS),
    hnp.arrays(np.bool_, 37),
    st.integers(0, 37),
    st.sampled_from([0.0, 0.5, 5.0]),
)
def test_the_pull_is_added_where_a_weight_is_kept(gradients: Any, weights: Any, kept: Any, cut: int, decay: float) -> None:
    """Two tensors, of which the first has a mask."""
    price = np.float32(0.3)
    pull = float(price) * np.sign(weights.astype(np.float64)) * np.exp(-decay * np.abs(weights.astype(np.float64)))
    expected = gradients + pull
    expected[:cut] *= kept[:cut]
    masks, by_python = addresses([kept.ctypes.data, 0]), gradients.copy()
    exponent = np.float32(-decay * math.log2(math.e))
    for run, own in ((pull_and_keep_, gradients), (plain(pull_and_keep_), by_python)):
        run(place(own[:cut], own[cut:]), place(weights[:cut], weights[cut:]), masks, addresses([cut, 37 - cut]), price, exponent)
        np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(gradients, by_python)


def trained(method: Method, optimizer_name: str, share: float) -> list[Tensor]:
    """Momentum from before the freeze, an unmasked bias, an end without the penalty."""
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


@pytest.mark.parametrize("method", [RL1(alpha=1e-2), RL1(alpha=ramp(1e-3, 1e-2)), DRR(alpha=1e-2)], ids=repr)
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("share", [0.12, 0.7])
def test_a_run_is_what_the_method_itself_makes_of_it(
    optimizer_name: str, method: RL1 | DRR, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[int]] = []

    def counted(*given: Any) -> None:
        calls.append(given[3].tolist())
        pull_and_keep_(*given)

    monkeypatch.setattr(masking, "pull_and_keep_", counted)
    by_kernel = trained(method, optimizer_name, share)
    assert calls == [[1024, 64, 4096, 64]] * 9
    monkeypatch.setattr(mask_kernels, "LARGEST", -1)
    by_torch = trained(method, optimizer_name, share)
    assert len(calls) == 9
    if isinstance(method, RL1):
        assert all(torch.equal(own, other) for own, other in zip(by_kernel, by_torch, strict=True))
    elif optimizer_name not in ("lion",):  # a sign of a gradient close to 0 is another
        for own, other in zip(by_kernel, by_torch, strict=True):
            torch.testing.assert_close(own, other, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        DRR(proximal=True),
        DRR(rho=1e-3),
        DRR(normalise=PerModule()),
        DRR(relaxation=Gaussian()),
        RL1(proximal=True),
    ],
    ids=repr,
)
def test_other_forms_have_no_exponential_pull(method: DRR | RL1) -> None:
    assert method.exponential_pull(At()) is None


@pytest.mark.parametrize("method", [RL1(alpha=ramp(0.0, 2e-3)), DRR(alpha=ramp(0.0, 2e-3), beta=ramp(1.0, 9.0))], ids=repr)
def test_the_pull_is_the_gradient_that_the_method_adds(method: RL1 | DRR) -> None:
    weight = nn.Parameter(torch.linspace(-2, 2, 101, dtype=torch.float64))
    at = At(progress=0.25)
    method.add_gradient_({"w": weight}, method.init({"w": weight}), at)
    pull = method.exponential_pull(at)
    assert pull is not None
    assert weight.grad is not None
    price, decay = pull
    torch.testing.assert_close(weight.grad, price * weight.detach().sign() * torch.exp(-decay * weight.detach().abs()))


def test_which_tensors_the_kernels_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(torch.zeros(64, 64))
    assert fits(nn.Parameter(torch.zeros(3, 5)))
    assert not fits(torch.zeros(mask_kernels.LARGEST + 1))
    assert not fits(torch.zeros(64, 64, dtype=torch.float64))
    assert not fits(torch.zeros(64, 65).t())
    assert not fits(torch.zeros(64, 64).to_sparse())
    assert not fits(torch.zeros(64, 64, device="meta"))
    weight = torch.zeros(64, 64)
    assert is_like(torch.zeros(64, 64), weight)
    assert not is_like(None, weight)
    assert not is_like(torch.zeros(64, 65).t(), torch.zeros(65, 64))
    assert not is_like(torch.zeros(64, 64).to_sparse(), weight)
    assert not is_like(torch.zeros(64, 64, dtype=torch.float64), weight)
    monkeypatch.setattr(mask_kernels.config, "DISABLE_JIT", True)
    assert not fits(torch.zeros(64, 64))


def test_a_weight_that_has_moved_in_memory_is_found_again() -> None:
    weight, keep = nn.Parameter(torch.ones(64, 64)), Keep({"w": torch.eye(64) == 0})
    params = {"w": weight}
    places = Places(params, {}, ())
    assert places.hold(params)
    assert not places.hold({"w": weight})
    keep.apply_to_weights_(params)
    kept = []
    for data in (torch.full((64, 64), 2.0), torch.full((64, 64), 3.0, dtype=torch.float64), torch.arange(4096.0).view(64, 64).t()):
        weight.data = data
        assert not places.hold(params)
        keep.apply_to_weights_(params)
        kept.append(torch.equal(weight.detach(), data * (torch.eye(64) == 0)) and not weight.detach().diagonal().any())
    assert kept == [True] * 3


def test_a_weight_that_is_turned_where_it_lies_is_read_in_its_new_order() -> None:
    weight = nn.Parameter(torch.arange(9.0).view(3, 3) + 1)
    params, mask = {"w": weight}, torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    places = Places(params, {}, ())
    weight.data = weight.data.t()
    assert not places.hold(params)
    Keep({"w": mask}).apply_to_weights_(params)
    assert torch.equal(weight != 0, mask)


def test_a_weight_that_is_cut_where_it_lies_is_not_written_beyond() -> None:
    """The address stays; gradient and mask may be of either size."""
    storage = torch.ones(8)
    weight, method = nn.Parameter(storage), RL1(alpha=0.5)
    params, keep = {"w": weight}, Keep({}, method)
    weight.grad = torch.zeros(8)
    keep.add_gradient_(params, method.init(params), At(), 1.0)
    room = torch.zeros(8)
    weight.grad = None
    weight.data = storage[:2]
    weight.grad = room[:2]
    assert keep.add_gradient_(params, method.init(params), At(), 1.0) == ["w"]
    assert room.tolist() == [0.5, 0.5, 0, 0, 0, 0, 0, 0]
    assert not is_like(room, weight)
    masked = Keep({"w": torch.tensor([True, False])}, method)
    masked.apply_to_weights_(params)
    weight.data = storage  # longer than its mask
    with pytest.raises(RuntimeError):
        masked.apply_to_weights_(params)
    assert storage.tolist() == [1, 0, 1, 1, 1, 1, 1, 1]


def halves(first: float, second: float) -> Tensor:
    return torch.tensor([first, second]).repeat_interleave(4096)


def test_autograd_hears_of_the_change() -> None:
    weight = nn.Parameter(halves(1.0, 1.0))
    weight.grad = halves(1.0, 1.0)
    method = RL1(alpha=0.5)
    keep = Keep({"w": halves(1, 0) != 0}, method)
    before, gradient = weight._version, weight.grad._version
    keep.apply_to_weights_({"w": weight})
    keep.add_gradient_({"w": weight}, method.init({"w": weight}), At(), 1.0)
    assert weight._version > before
    assert weight.grad._version > gradient
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
    weight, double, turned = (
        nn.Parameter(halves(1.0, -1.0)),
        nn.Parameter(torch.ones(4, dtype=torch.float64)),
        nn.Parameter(torch.ones(2, 2)),
    )
    weight.grad, double.grad, turned.grad = halves(0.0, 0.0), torch.zeros(4, dtype=torch.float64), torch.zeros(2, 2).t()
    params: dict[str, Tensor] = {"w": weight, "x": double, "y": turned, "z": nn.Parameter(torch.ones(2))}
    method = RL1(alpha=0.5)
    keep = Keep({"w": halves(0, 1) != 0, "x": torch.tensor([True, False, True, True])}, method)
    assert keep.add_gradient_(params, method.init(params), At(), 1.0) == ["w"]
    assert torch.equal(weight.grad, halves(0.0, -0.5))
    assert double.grad.tolist() == [0.5] * 4  # its mask is applied afterwards, with all others
    assert turned.grad.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert params["z"].grad is not None
    assert params["z"].grad.tolist() == [0.5, 0.5]
    keep.apply_to_gradients_(params, but=["w"])
    assert double.grad.tolist() == [0.5, 0.0, 0.5, 0.5]


def test_without_masks_all_gradients_are_pulled_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*given: Any) -> None:
        calls.append(given[0].size)
        pull_and_keep_(*given)

    monkeypatch.setattr(masking, "pull_and_keep_", counted)
    params: dict[str, Tensor] = {f"w{i}": nn.Parameter(torch.full((4,), -1.0)) for i in range(40)}
    for parameter in params.values():
        parameter.grad = torch.zeros(4)
    method = RL1(alpha=0.5)
    assert Keep({}, method).add_gradient_(params, method.init(params), At(), 1.0) == list(params)
    assert calls == [40]
    assert all(parameter.grad.tolist() == [-0.5] * 4 for parameter in params.values())  # type: ignore[union-attr]
