"""Which weights are worth their price, against all masks."""

from itertools import product

import pytest
import torch
from torch import Tensor

from ellzero.pruning.least_squares import damped, eliminate, mask_after, refit, squared_error
from ellzero.pruning.priced import SHORT, _cheapest_prefix, _search, objective, priced_mask

EVERY = torch.tensor(list(product([False, True], repeat=6)))


def row(generator: torch.Generator, n: int = 6, rows: int = 1) -> tuple[Tensor, Tensor]:
    """Draws weights and a badly conditioned Gram matrix."""
    inputs = torch.randn(n, n, generator=generator, dtype=torch.float64) @ torch.randn(n, 5 * n, generator=generator, dtype=torch.float64)
    return torch.randn(rows, n, generator=generator, dtype=torch.float64), damped(inputs @ inputs.T, 1e-10)


def found(weight: Tensor, gram: Tensor, alpha: float, prunable: Tensor | None = None) -> Tensor:
    prunable = torch.ones(weight.shape[1], dtype=torch.bool) if prunable is None else prunable
    return priced_mask(weight, gram, eliminate(weight, gram, prunable), prunable, alpha)


def test_the_gap_to_the_minimum_of_eq_38_is_what_the_guide_states():
    generator = torch.Generator().manual_seed(0)
    prunable = torch.ones(6, dtype=torch.bool)
    gaps: list[float] = []
    prefixes: list[float] = []
    for _ in range(300):
        weight, gram = row(generator)
        alpha = 0.15 * float(squared_error(weight, gram)) * float(torch.rand((), generator=generator))
        best = float(objective(weight.expand(64, 6), gram, EVERY, prunable, alpha).min())
        elimination = eliminate(weight, gram, prunable)
        greedy = mask_after(elimination, (elimination.cost.cummax(1).values <= alpha).sum(1), 6)
        prefixes.append(float(objective(weight, gram, greedy, prunable, alpha)) / best - 1)
        gaps.append(float(objective(weight, gram, found(weight, gram, alpha), prunable, alpha)) / best - 1)
    assert min(gaps) > -1e-6
    assert sum(gap > 0.01 for gap in gaps) <= 0.04 * len(gaps)
    assert sum(gaps) <= 0.004 * len(gaps)
    assert max(gaps) < 0.3
    assert sum(gap > 0.01 for gap in prefixes) > 0.2 * len(gaps)  # elimination alone, as before


@pytest.mark.parametrize("n", [8, SHORT])
def test_no_flip_and_no_exchange_improves_on_it(n: int):
    generator = torch.Generator().manual_seed(1)
    weight, gram = row(generator, n, rows=4)
    prunable = torch.arange(n) != 2
    alpha = 0.02 * float(squared_error(weight, gram).mean())
    mask = found(weight, gram, alpha, prunable)
    assert bool(mask[:, 2].all())
    assert 4 < int(mask.sum()) < mask.numel()
    now = objective(weight, gram, mask, prunable, alpha)
    flips = torch.eye(n, dtype=torch.bool)[prunable]
    for index in range(len(weight)):
        moves = torch.cat([flips, *(flips | flip for flip in flips)]) ^ mask[index]
        several = objective(weight[index].expand(len(moves), n), gram, moves, prunable, alpha)
        exchanged = moves.sum(1) == mask[index].sum()
        single = (moves ^ mask[index]).sum(1) == 1
        assert float(several[exchanged | single].min()) >= float(now[index]) * (1 - 1e-7)


def test_rows_of_all_groups_are_searched_as_if_alone():
    generator = torch.Generator().manual_seed(2)
    parts = [row(generator, 7, rows=3) for _ in range(2)]
    alpha = 3.0
    weight, gram = torch.cat([part for part, _ in parts]), torch.stack([part for _, part in parts])
    alone = [found(part[None], own, alpha) for weights, own in parts for part in weights]
    assert torch.equal(found(weight, gram, alpha), torch.cat(alone))


def test_a_dear_weight_goes_where_that_makes_others_free():
    """Two inputs that are nearly one, with opposite weights: either alone is dear to remove, both together are not."""
    gram = torch.tensor([[1.0, 0.99], [0.99, 1.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    # Removing one adds 1 - 0.99^2 = 0.0199, both 0.02.
    assert found(weight, gram, 0.009).all()
    assert not found(weight, gram, 0.011).any()


def test_long_rows_get_no_worse_by_the_search():
    generator = torch.Generator().manual_seed(3)
    n = 2 * SHORT
    weight, gram = row(generator, n, rows=3)
    prunable = torch.ones(n, dtype=torch.bool)
    alpha = 0.01 * float(squared_error(weight, gram).mean())
    elimination = eliminate(weight, gram, prunable)
    before = min(
        float(objective(weight, gram, mask_after(elimination, torch.full((3,), count), n), prunable, alpha).sum()) for count in range(n + 1)
    )
    assert float(objective(weight, gram, found(weight, gram, alpha), prunable, alpha).sum()) < before


@pytest.mark.parametrize("alpha", [0.0, 1e9])
def test_free_weights_stay_and_unaffordable_ones_go(alpha: float):
    weight, gram = row(torch.Generator().manual_seed(4), 9, rows=2)
    assert bool((found(weight, gram, alpha) == (alpha == 0)).all())


def test_a_row_without_outputs_and_inputs_that_are_always_0_keep_nothing():
    weight, gram = row(torch.Generator().manual_seed(5), 6, rows=2)
    weight[1] = 0
    gram[3] = gram[:, 3] = 0
    mask = found(weight, damped(gram, 1e-9), 1e-4)
    assert not mask[1].any()
    assert not mask[:, 3].any()
    assert mask[0].any()


def test_several_starts_never_cost_and_often_gain():
    generator = torch.Generator().manual_seed(6)
    prunable = torch.ones(8, dtype=torch.bool)
    gained = 0
    for _ in range(60):
        weight, gram = row(generator, 8)
        alpha = 0.15 * float(squared_error(weight, gram)) * float(torch.rand((), generator=generator))
        start = mask_after(elimination := eliminate(weight, gram, prunable), _cheapest_prefix(elimination, alpha), 8)
        single = float(objective(weight, gram, _search(weight, gram, start, prunable, alpha), prunable, alpha))
        several = float(objective(weight, gram, found(weight, gram, alpha), prunable, alpha))
        assert several <= single * (1 + 1e-9)
        gained += several < single * (1 - 1e-6)
    assert gained >= 5


@pytest.mark.parametrize("entries", [1, 1000])
def test_rows_in_chunks_are_as_rows_at_once(entries: int, monkeypatch: pytest.MonkeyPatch):
    weight, gram = row(torch.Generator().manual_seed(7), 7, rows=5)
    alpha = 0.05 * float(squared_error(weight, gram).mean())
    prunable = torch.ones(7, dtype=torch.bool)
    mask = found(weight, gram, alpha)
    elimination, fitted = eliminate(weight, gram, prunable), refit(gram, weight @ gram, mask)
    for module in ("priced", "least_squares"):
        monkeypatch.setattr(f"ellzero.pruning.{module}._CHUNK_ENTRIES", entries)
    again = eliminate(weight, gram, prunable)
    assert torch.equal(again.order, elimination.order)
    torch.testing.assert_close(again.cost, elimination.cost, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(refit(gram, weight @ gram, mask), fitted, rtol=1e-9, atol=1e-12)
    assert torch.equal(found(weight, gram, alpha), mask)
