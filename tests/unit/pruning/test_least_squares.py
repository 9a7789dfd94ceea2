"""Sparse least squares against enumeration of all masks, and against numpy."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from ellzero.pruning.least_squares import damped, eliminate, mask_after, refit, squared_error


def problem(seed: int, n: int, samples: int = 40, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated inputs [n, samples] and weights [rows, n]."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(n, n, generator=generator, dtype=torch.float64) + torch.eye(n, dtype=torch.float64)
    return mix @ torch.randn(n, samples, generator=generator, dtype=torch.float64), torch.randn(
        rows, n, generator=generator, dtype=torch.float64
    )


def best_error(inputs: torch.Tensor, weight: torch.Tensor, keep: int) -> float:
    """The least squared error of one row with `keep` weights, by trying every mask."""
    target, errors = (weight @ inputs).numpy(), []
    for columns in combinations(range(len(weight)), keep):
        design = inputs[list(columns)].numpy().T
        solution = np.linalg.lstsq(design, target, rcond=None)[0]
        errors.append(float(((design @ solution - target) ** 2).sum()))
    return min(errors)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 6), keep=st.integers(0, 5))
def test_a_refit_is_numpys_least_squares(seed: int, n: int, keep: int):
    inputs, weight = problem(seed, n)
    kept = torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)) < keep / 5
    solution = refit(inputs @ inputs.T, weight @ inputs @ inputs.T, kept)
    assert not solution[~kept].any()
    for row, mask, target in zip(solution, kept, weight @ inputs, strict=True):
        expected = np.linalg.lstsq(inputs[mask].numpy().T, target.numpy(), rcond=None)[0]
        np.testing.assert_allclose(row[mask].numpy(), expected, rtol=1e-6, atol=1e-8)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 6))
def test_the_first_and_the_last_but_one_mask_are_the_best_single_choices_and_costs_add_up(seed: int, n: int):
    inputs, weight = problem(seed, n)
    gram = inputs @ inputs.T
    elimination = eliminate(weight, gram, torch.ones(n, dtype=torch.bool))
    assert torch.equal(elimination.order.sort(1).values, torch.arange(n).expand(len(weight), n))
    for removed in range(n + 1):
        kept = mask_after(elimination, torch.full((len(weight),), removed), n)
        assert (~kept).sum(1).tolist() == [removed] * len(weight)
        error = squared_error(refit(gram, weight @ gram, kept) - weight, gram)
        torch.testing.assert_close(elimination.cost[:, :removed].sum(1), error, rtol=1e-6, atol=1e-7 * float(gram.diagonal().max()))
        for row in range(len(weight)):
            optimum = best_error(inputs, weight[row], n - removed)
            assert error[row] >= optimum - 1e-6 * (1 + optimum)
            if removed in (0, 1, n):
                assert float(error[row]) == pytest.approx(optimum, rel=1e-6, abs=1e-7)


def test_the_gap_to_the_best_of_all_masks_is_small():
    ratios: list[float] = []
    for seed in range(30):
        inputs, weight = problem(seed, 8, rows=2)
        gram = inputs @ inputs.T
        kept = mask_after(eliminate(weight, gram, torch.ones(8, dtype=torch.bool)), torch.full((2,), 4), 8)
        error = squared_error(refit(gram, weight @ gram, kept) - weight, gram)
        ratios += [float(error[row]) / best_error(inputs, weight[row], 4) for row in range(2)]
    ratios.sort()
    print(f"error over the best of 70 masks, 60 rows: median {ratios[30]:.3f}, mean {sum(ratios) / 60:.3f}, largest {ratios[-1]:.2f}")
    assert ratios[0] >= 1 - 1e-9
    assert ratios[30] < 1.02
    assert sum(ratios) / 60 < 1.75


@pytest.mark.parametrize("n", [5, 63, 64, 65, 150])
def test_blocks_and_chunks_of_rows_change_nothing(n: int, monkeypatch: pytest.MonkeyPatch):
    inputs, weight = problem(1, n, samples=3 * n)
    gram = damped(inputs @ inputs.T, 1e-3)
    prunable = torch.arange(n) != 2
    whole = eliminate(weight, gram, prunable)
    monkeypatch.setattr("ellzero.pruning.least_squares._BLOCK", 3)
    monkeypatch.setattr("ellzero.pruning.least_squares._CHUNK_ENTRIES", 1)
    parts = eliminate(weight, gram, prunable)
    assert torch.equal(whole.order, parts.order)
    torch.testing.assert_close(whole.cost, parts.cost, rtol=1e-6, atol=1e-6)
    assert not (whole.order == 2).any()
    assert whole.order.shape == (3, n - 1)


def test_zeros_go_first_and_cost_nothing():
    inputs, weight = problem(3, 6)
    weight[0, [1, 4]] = 0
    elimination = eliminate(weight, inputs @ inputs.T, torch.ones(6, dtype=torch.bool))
    assert set(elimination.order[0, :2].tolist()) == {1, 4}
    assert not elimination.cost[0, :2].any()
    assert (elimination.cost[1:] > 0).all()


def test_inputs_that_are_always_0_can_be_inverted():
    inputs, weight = problem(4, 5)
    inputs[2] = 0
    elimination = eliminate(torch.ones_like(weight), damped(inputs @ inputs.T, 1e-6), torch.ones(5, dtype=torch.bool))
    assert elimination.order[:, 0].tolist() == [2, 2, 2]
    assert torch.equal(damped(torch.zeros(2, 2, dtype=torch.float64), 0.5), torch.eye(2, dtype=torch.float64) / 2)


def test_with_nothing_prunable_nothing_is_removed():
    inputs, weight = problem(4, 5)
    elimination = eliminate(weight, inputs @ inputs.T, torch.zeros(5, dtype=torch.bool))
    assert elimination.order.shape == elimination.cost.shape == (3, 0)
    assert mask_after(elimination, torch.zeros(3, dtype=torch.int64), 5).all()
