"""Closed forms against the sum over all gates, and Proposition 2.2."""

import itertools

import pytest
import torch
from hypothesis import given, strategies as st

from gates import all_gates, expectation_by_enumeration, expected_l0, expected_layer_squared_error, expected_squared_error


def problem(seed: int, samples: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y, w = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (samples, n))
    X = torch.randn(samples, n, generator=generator, dtype=torch.float64)
    return y, X, w, torch.rand(n, generator=generator, dtype=torch.float64)


def test_all_gates_are_the_corners_of_the_cube_each_once():
    expected = {tuple(map(float, corner)) for corner in itertools.product((0, 1), repeat=4)}
    gates = all_gates(4)
    assert len(gates) == 16
    assert {tuple(row.tolist()) for row in gates} == expected
    assert gates[1].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("n", [-1, 21])
def test_a_number_of_gates_that_cannot_be_enumerated_is_refused(n: int):
    with pytest.raises(ValueError, match=f"{n} gates cannot be enumerated"):
        all_gates(n)


def test_the_enumeration_agrees_with_sampling_by_hand():
    gamma = torch.tensor([0.25, 0.5], dtype=torch.float64)
    g = torch.tensor([[3.0, 5.0], [7.0, 11.0]], dtype=torch.float64)  # g[z0, z1]
    by_hand = 0.75 * 0.5 * 3 + 0.75 * 0.5 * 5 + 0.25 * 0.5 * 7 + 0.25 * 0.5 * 11
    value = expectation_by_enumeration(lambda z: g[z[:, 0].long(), z[:, 1].long()], gamma)
    assert value.item() == pytest.approx(by_hand, rel=1e-15)


@given(seed=st.integers(0, 2**31), n=st.integers(1, 10))
def test_expected_l0_is_the_enumerated_one(seed: int, n: int):
    *_, gamma = problem(seed, 1, n)
    enumerated = expectation_by_enumeration(lambda z: (z != 0).sum(dim=1).to(z.dtype), gamma)
    torch.testing.assert_close(expected_l0(gamma), enumerated)


@given(seed=st.integers(0, 2**31), samples=st.integers(1, 5), n=st.integers(1, 8))
def test_lemma_2_3_is_the_enumerated_error_and_has_its_gradients(seed: int, samples: int, n: int):
    y, X, w, gamma = problem(seed, samples, n)
    w.requires_grad_()
    gamma.requires_grad_()
    closed = expected_squared_error(y, X, w, gamma)
    enumerated = expectation_by_enumeration(lambda z: (y - (z * w) @ X.T).square().sum(dim=1), gamma)
    torch.testing.assert_close(closed, enumerated)
    for ours, reference in zip(torch.autograd.grad(closed, (w, gamma)), torch.autograd.grad(enumerated, (w, gamma)), strict=True):
        torch.testing.assert_close(ours, reference)


@given(seed=st.integers(0, 2**31), outputs=st.integers(1, 3), inputs=st.integers(1, 4), samples=st.integers(1, 5))
def test_equation_38_is_the_enumerated_error_of_a_layer(seed: int, outputs: int, inputs: int, samples: int):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randn(outputs, samples, generator=generator, dtype=torch.float64)
    X = torch.randn(inputs, samples, generator=generator, dtype=torch.float64)
    w = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
    gamma = torch.rand(outputs, inputs, generator=generator, dtype=torch.float64)
    enumerated = expectation_by_enumeration(
        lambda z: (y - (z.reshape(-1, outputs, inputs) * w) @ X).square().sum(dim=(1, 2)), gamma.flatten()
    )
    torch.testing.assert_close(expected_layer_squared_error(y, X, w, gamma), enumerated)


def test_where_every_gate_is_decided_nothing_is_added_to_the_plain_error():
    y, X, w, gamma = problem(0, 6, 5)
    z = gamma.round()
    torch.testing.assert_close(expected_squared_error(y, X, w, z), (y - X @ (w * z)).square().sum())


@given(values=st.lists(st.floats(-10, 10), min_size=8, max_size=8), point=st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_proposition_2_2_no_point_of_the_cube_is_below_the_best_corner(values: list[float], point: list[float]):
    table = torch.tensor(values, dtype=torch.float64)

    def g(z: torch.Tensor) -> torch.Tensor:
        return table[(z @ torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).long()]

    corners = torch.stack([expectation_by_enumeration(g, corner) for corner in all_gates(3)])
    torch.testing.assert_close(corners, table)
    assert expectation_by_enumeration(g, torch.tensor(point, dtype=torch.float64)) >= table.min() - 1e-12


@given(
    values=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    point=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=3),
)
def test_proposition_2_2_the_minima_are_exactly_the_points_whose_possible_gates_tie(values: list[int], point: list[float]):
    """A vertex attains the minimum, and other points do only where all gates that they may draw are minima of g."""
    table, gamma = torch.tensor(values, dtype=torch.float64), torch.tensor(point, dtype=torch.float64)

    def value(gamma: torch.Tensor) -> float:
        return expectation_by_enumeration(lambda z: table[(z @ torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).long()], gamma).item()

    possible = torch.where(all_gates(3).bool(), gamma > 0, gamma < 1).all(dim=1)
    # Quarters and small integers are exact, so that equality is.
    assert (value(gamma) == min(values)) == bool((table[possible] == min(values)).all())
    assert value(all_gates(3)[table.argmin()]) == min(values)


def test_in_a_tie_gamma_between_0_and_1_is_a_minimum_too():
    """Proposition 2.2 says that every minimum is decided; it is not where g does not depend on a gate at its minimum."""
    table = torch.tensor([2.0, 1.0, 3.0, 1.0], dtype=torch.float64)  # g(z0, z1) in binary counting: 1 wherever z0 is open

    def value(*gamma: float) -> float:
        pair = torch.tensor([1.0, 2.0], dtype=torch.float64)
        return expectation_by_enumeration(lambda z: table[(z @ pair).long()], torch.tensor(gamma, dtype=torch.float64)).item()

    assert value(1.0, 0.3) == value(1.0, 0.0) == value(1.0, 1.0) == 1.0
    assert value(0.9, 0.3) > 1.0


@given(seed=st.integers(0, 2**31), n=st.integers(1, 6))
def test_proposition_2_2_rounding_one_gate_after_the_other_reaches_a_corner_and_never_rises(seed: int, n: int):
    """The proof of C.1 as a procedure: linear in each gamma_k, so that one end of its interval is no worse."""
    generator = torch.Generator().manual_seed(seed)
    table, gamma = torch.randn(2**n, generator=generator, dtype=torch.float64), torch.rand(n, generator=generator, dtype=torch.float64)
    powers = 2.0 ** torch.arange(n, dtype=torch.float64)

    def value(gamma: torch.Tensor) -> float:
        return expectation_by_enumeration(lambda z: table[(z @ powers).long()], gamma).item()

    before = value(gamma)
    for k in range(n):
        ends = [torch.where(torch.arange(n) == k, torch.tensor(end, dtype=torch.float64), gamma) for end in (0.0, 1.0)]
        middle = torch.where(torch.arange(n) == k, torch.tensor(0.5, dtype=torch.float64), gamma)
        assert value(middle) == pytest.approx(sum(map(value, ends)) / 2, abs=1e-12)
        gamma = min(ends, key=value)
        assert value(gamma) <= before + 1e-12
        before = value(gamma)
    assert set(gamma.tolist()) <= {0.0, 1.0}
    assert before == pytest.approx(table[int(gamma @ powers)].item())


def test_equation_38_has_the_gradients_of_the_enumerated_error_and_takes_biases_as_a_row_of_ones():
    generator = torch.Generator().manual_seed(0)
    y, w = torch.randn(2, 5, generator=generator, dtype=torch.float64), torch.randn(2, 4, generator=generator, dtype=torch.float64)
    X = torch.cat([torch.randn(3, 5, generator=generator, dtype=torch.float64), torch.ones(1, 5, dtype=torch.float64)])
    gamma = torch.rand(2, 4, generator=generator, dtype=torch.float64).requires_grad_()
    w.requires_grad_()

    def error(z: torch.Tensor) -> torch.Tensor:
        theta = z.reshape(-1, 2, 4) * w
        return (y - theta[:, :, :3] @ X[:3] - theta[:, :, 3:]).square().sum(dim=(1, 2))

    closed, enumerated = expected_layer_squared_error(y, X, w, gamma), expectation_by_enumeration(error, gamma.flatten())
    torch.testing.assert_close(closed, enumerated)
    for ours, reference in zip(torch.autograd.grad(closed, (w, gamma)), torch.autograd.grad(enumerated, (w, gamma)), strict=True):
        torch.testing.assert_close(ours, reference)
