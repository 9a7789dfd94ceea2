"""One function of lists of tensors, two ways: a call per tensor on the CPU, a few calls per list elsewhere."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ellzero.methods import foreach
from ellzero.methods.foreach import exponential_into_, sign_into_

CASES: list[tuple[Callable[[list[Tensor], list[Tensor]], None], Callable[[Tensor], Tensor], str]] = [
    (sign_into_, torch.sign, "_foreach_sign_"),
    (lambda outputs, tensors: exponential_into_(outputs, tensors, 1.7), lambda x: torch.exp(-1.7 * x.abs()), "_foreach_exp_"),
]


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(("function", "expected"), [case[:2] for case in CASES])
def test_both_ways_compute_the_same(
    on_cpu: bool,
    function: Callable[[list[Tensor], list[Tensor]], None],
    expected: Callable[[Tensor], Tensor],
    monkeypatch: pytest.MonkeyPatch,
    generator: torch.Generator,
) -> None:
    monkeypatch.setattr(foreach, "_on_cpu", lambda _tensors: on_cpu)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5,), ())]
    outputs = [torch.full_like(tensor, torch.nan) for tensor in tensors]
    function(outputs, tensors)
    for output, tensor in zip(outputs, tensors, strict=True):
        torch.testing.assert_close(output, expected(tensor), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("function", "per_list"), [(case[0], case[2]) for case in CASES])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_elsewhere_than_on_the_cpu_calls_are_per_list(
    device: str, function: Callable[[list[Tensor], list[Tensor]], None], per_list: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    whole = getattr(torch, per_list)
    monkeypatch.setattr(torch, per_list, lambda tensors: calls.append(len(tensors)) or whole(tensors))
    tensors = [torch.ones(2, device=device), torch.ones(3, device=device)]
    function([torch.empty_like(tensor) for tensor in tensors], tensors)
    assert calls == ([] if device == "cpu" else [2])
