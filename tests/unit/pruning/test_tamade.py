import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ellzero.params import apply_masks_, count_nonzeros, everything, select_parameters
from ellzero.pruning._tamade import tamade
from ellzero.pruning.accept import Better, ShortestDescription, Within
from ellzero.pruning.magnitude import magnitude_masks


class Tensors(nn.Module):
    """A model that is nothing but its parameters."""

    def __init__(self, lists, dtype=torch.float32):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.tensor(values, dtype=dtype)) for values in lists])


def of_count(values):
    """An evaluation that depends on the number of non-zeros only."""
    return lambda model: values[count_nonzeros(model)]


def bits_of(model):
    return [parameter.detach().clone().view(torch.int32) for parameter in model.parameters()]


weights_with_ties_and_zeros = st.lists(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=20), min_size=1, max_size=4).filter(
    lambda lists: any(w != 0 for values in lists for w in values)
)


@given(weights_with_ties_and_zeros, st.data())
@settings(deadline=None, max_examples=60)
def test_equals_the_exhaustive_scan_for_every_monotone_evaluation(lists, data):
    model = Tensors(lists)
    n = count_nonzeros(model)
    # Fewer weights, never a smaller loss; plateaus and jumps of any size.
    steps = data.draw(st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0]), min_size=n, max_size=n))
    losses = [1.0 + sum(steps[kept:]) for kept in range(n + 1)]
    tolerated = data.draw(st.sampled_from([0.0, 0.25, 0.5, 2.0]))
    before = bits_of(model)
    result = tamade(model, of_count(losses), accept=Within(relative=tolerated), select=everything)
    scan = min(kept for kept in range(1, n + 1) if losses[kept] <= 1.0 + tolerated)
    assert result.kept == scan
    assert result.evaluations <= math.ceil(math.log2(n)) + 1
    assert result.value == losses[scan]
    assert all(torch.equal(a, b) for a, b in zip(before, bits_of(model), strict=True))
    expected = magnitude_masks(select_parameters(model, everything), keep=scan)
    assert all(torch.equal(result.masks[name], mask) for name, mask in expected.items())


@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.0, 0.001, 0.01, 0.2]))
@settings(deadline=None, max_examples=40)
def test_number_of_evaluations_and_distance_from_the_optimum(n, where, tolerance):
    model = Tensors([list(range(1, n + 1))])
    fewest = max(1, round(where * n))
    result = tamade(
        model,
        lambda m: float(count_nonzeros(m) >= fewest),
        accept=Within(absolute=0.0, better=Better.HIGHER),
        select=everything,
        tolerance=tolerance,
    )
    assert fewest <= result.kept <= fewest + tolerance * n
    assert result.evaluations == len(result.tried) <= math.ceil(math.log2(n)) + 1
    if tolerance >= 0.001:
        assert result.evaluations <= 12


@given(st.lists(st.floats(0, 2), min_size=2, max_size=40), st.integers(0, 100))
@settings(deadline=None, max_examples=40)
def test_whatever_the_evaluation_the_masks_were_evaluated_and_passed(noise, seed):
    model = Tensors([torch.randn(len(noise), generator=torch.Generator().manual_seed(seed)).tolist()])
    n = count_nonzeros(model)
    values = [1.0, *noise][: n + 1]
    values[n] = 1.0
    rule = Within(relative=0.1)
    result = tamade(model, of_count(values), accept=rule, select=everything)
    assert rule.accepts(result.value, result.reference)
    assert (result.kept, result.value) in result.tried
    apply_masks_(select_parameters(model, everything), result.masks)
    assert count_nonzeros(model) == result.kept
    assert values[result.kept] == result.value


def algorithm_1(params, loss, target, tolerated, resolution):
    """Transcribes Algorithm 1 of appendix E: bisects the threshold itself."""
    low, high = 0.0, max(float(p.abs().max()) for p in params)
    best = low
    while abs(high - low) > resolution:
        middle = (low + high) / 2
        if loss([torch.where(p.abs() <= middle, 0.0, p) for p in params]) <= (1 + tolerated) * target:
            best = low = middle
        else:
            high = middle
    return best


@given(st.lists(st.lists(st.integers(1, 10**6), min_size=1, max_size=15), min_size=1, max_size=3), st.integers(0, 99), st.floats(0.001, 3))
@settings(deadline=None, max_examples=60)
def test_agrees_with_algorithm_1_on_distinct_magnitudes(lists, seed, tolerated):
    generator = torch.Generator().manual_seed(seed)
    size = sum(map(len, lists))
    distinct = torch.randperm(10 * size, generator=generator)[:size].double().add(1).mul(1e-2)
    signed = distinct * torch.randint(0, 2, (size,), generator=generator).mul(2).sub(1)
    model = Tensors([part.tolist() for part in signed.split([len(values) for values in lists])], torch.float64)
    params = [p.detach().clone() for p in model.parameters()]

    def loss(tensors):
        return 1.0 + float(sum((a - b).square().sum() for a, b in zip(params, tensors, strict=True))) / float(signed.square().mean())

    epsilon = algorithm_1(params, loss, loss(params), tolerated, 1e-7)
    result = tamade(model, lambda m: loss([p.detach() for p in m.parameters()]), accept=Within(relative=tolerated), select=everything)
    for p, mask in zip(params, result.masks.values(), strict=True):
        assert mask.tolist() == (p.abs() > epsilon).tolist()
    assert result.threshold <= epsilon


def test_algorithm_1_on_a_network():
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    x = torch.randn(64, 6, generator=generator, dtype=torch.float64)
    y = model(x).detach() + torch.randn(64, 3, generator=generator, dtype=torch.float64)
    names = list(select_parameters(model))

    def loss(tensors):
        outputs = torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), (x,))
        return float((outputs - y).square().mean().detach())

    params = [p.detach().clone() for p in select_parameters(model).values()]
    result = tamade(model, lambda m: float((m(x) - y).square().mean()), accept=Within(relative=0.1))
    epsilon = algorithm_1(params, loss, loss(params), 0.1, 1e-9)
    assert [mask.tolist() for mask in result.masks.values()] == [(p.abs() > epsilon).tolist() for p in params]
    assert 0 < result.kept < count_nonzeros(params)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_bit_for_bit_when_the_evaluation_raises(error, dtype):
    model = Tensors([[1e-30, -0.0, 3.0, 1 / 3], [0.1, 0.2]], dtype)
    before = [p.detach().clone() for p in model.parameters()]
    calls = []

    def evaluate(m):
        calls.append(count_nonzeros(m))
        if len(calls) == 3:
            raise error
        return 1.0

    with pytest.raises(error):
        tamade(model, evaluate, accept=Within(relative=0.1), select=everything)
    assert calls[0] > calls[1] > calls[2]
    for a, b in zip(before, model.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.signbit(), b.signbit())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_accepted(bad):
    model = Tensors([[1.0, 2.0, 3.0, 4.0]])
    for rule in (
        Within(absolute=9.0, better=Better.LOWER),
        Within(absolute=9.0, better=Better.HIGHER),
        ShortestDescription(bits_per_weight=1, samples=1),
    ):
        result = tamade(model, lambda m: 1.0 if count_nonzeros(m) >= 3 else bad, accept=rule, select=everything)
        assert result.kept == 3
    with pytest.raises(ValueError, match="before anything is pruned"):
        tamade(model, lambda m: bad, accept=Within(relative=0.1), select=everything)


def test_a_relative_tolerance_needs_a_positive_reference():
    for reference in (0.0, -1.0):
        with pytest.raises(ValueError, match="use Within\\(absolute="):
            tamade(Tensors([[1.0, 2.0]]), lambda m, r=reference: r, accept=Within(relative=0.1), select=everything)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"relative": 0.1, "absolute": 0.1},
        {"absolute": 0.1},
        {"relative": -0.1},
        {"relative": math.nan},
        {"relative": 0.1, "better": Better.HIGHER},
    ],
)
def test_rules_that_mean_nothing_are_refused(arguments):
    with pytest.raises(ValueError, match=r"exactly one|needs better|not negative|lower is better"):
        Within(**arguments)


def test_directions():
    assert Within(absolute=0.5, better=Better.LOWER).accepts(1.5, 1.0)
    assert not Within(absolute=0.5, better=Better.LOWER).accepts(1.6, 1.0)
    assert Within(absolute=0.5, better=Better.HIGHER).accepts(0.5, 1.0)
    assert not Within(absolute=0.5, better=Better.HIGHER).accepts(0.4, 1.0)
    assert Within(relative=0.5).accepts(1.5, 1.0)
    assert not Within(relative=0.5).accepts(1.6, 1.0)


@given(st.integers(1, 400), st.floats(0.5, 60), st.floats(0.01, 3), st.floats(1, 300))
@settings(deadline=None, max_examples=60)
def test_the_shortest_description_of_a_convex_trade_off_is_found_exactly(n, bits_per_weight, power, samples):
    rule = ShortestDescription(bits_per_weight=bits_per_weight, samples=samples)
    losses = [math.inf, *(float(kept) ** -power for kept in range(1, n + 1))]
    total = [rule.total_bits(kept, loss) for kept, loss in enumerate(losses)]
    result = tamade(Tensors([list(range(1, n + 1))]), of_count(losses), accept=rule, select=everything)
    assert total[result.kept] == pytest.approx(min(total), rel=1e-12)
    assert result.evaluations <= 3 * math.log2(n) + 4


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60))
@settings(deadline=None, max_examples=40)
def test_the_shortest_description_is_the_best_that_was_evaluated(losses):
    n = len(losses)
    rule = ShortestDescription(bits_per_weight=1.0, samples=20)
    result = tamade(Tensors([list(range(1, n + 1))]), of_count([math.inf, *losses]), accept=rule, select=everything)
    assert (result.kept, result.value) in result.tried
    assert rule.total_bits(result.kept, result.value) == min(rule.total_bits(*trial) for trial in result.tried)


def test_bits_are_the_papers_equation_2():
    assert ShortestDescription(bits_per_weight=16, samples=100).total_bits(10, math.log(2)) == pytest.approx(16 * 10 + 100)


@pytest.mark.parametrize("arguments", [{"bits_per_weight": 0, "samples": 1}, {"bits_per_weight": 1, "samples": math.nan}])
def test_a_description_without_a_price_is_refused(arguments):
    with pytest.raises(ValueError, match="positive and finite"):
        ShortestDescription(**arguments)


def test_min_keep_is_respected_whatever_is_accepted():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        model[1].weight.mul_(1e-6)
    free = tamade(model, lambda m: 1.0, accept=Within(relative=0.1))
    kept = tamade(model, lambda m: 1.0, accept=Within(relative=0.1), min_keep=2)
    assert free.kept == 1
    assert [int(mask.sum()) for mask in kept.masks.values()] == [2, 2]


def test_evaluations_see_no_gradients_and_the_callers_mode():
    model = nn.Linear(3, 3).train()
    seen = []
    tamade(model, lambda m: seen.append((torch.is_grad_enabled(), m.training)) or 1.0, accept=Within(relative=0.1))
    assert set(seen) == {(False, True)}
    assert torch.is_grad_enabled()
    assert model.weight.requires_grad


def test_nothing_left_to_prune_and_bad_tolerances_are_refused():
    model = Tensors([[0.0, 0.0]])
    with pytest.raises(ValueError, match="already zero"):
        tamade(model, lambda m: 1.0, accept=Within(relative=0.1), select=everything)
    for tolerance in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance is a fraction"):
            tamade(model, lambda m: 1.0, accept=Within(relative=0.1), tolerance=tolerance, select=everything)


def test_a_tied_weight_is_ranked_and_restored_once():
    model = nn.Module()
    model.a, model.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    model.b.weight = model.a.weight
    result = tamade(model, lambda m: 1.0, accept=Within(relative=0.0))
    assert list(result.masks) == ["a.weight"]
    assert result.tried[0].kept == 9


def test_the_result_is_its_masks_for_whoever_takes_masks():
    model = nn.Linear(4, 3)
    result = tamade(model, lambda network: float(network.weight.abs().sum()) + 1.0, accept=Within(relative=10.0))
    assert dict(result) == dict(result.masks)
    assert list(result) == ["weight"]
    apply_masks_({"weight": model.weight}, result)
    assert torch.equal(model.weight != 0, result["weight"])
