import itertools

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ellzero.params import count_nonzeros
from ellzero.pruning.magnitude import magnitude_masks, rank

tensors = st.lists(st.lists(st.integers(-4, 4), min_size=1, max_size=12), min_size=1, max_size=4)


def named(lists, dtype=torch.float32):
    return {f"layer{i}.weight": torch.tensor(values, dtype=dtype) for i, values in enumerate(lists)}


def by_python_sort(lists, keep):
    """Keeps the first `keep` of all non-zero weights sorted by (-|w|, index)."""
    flat = list(itertools.chain(*lists))
    order = sorted((i for i, w in enumerate(flat) if w != 0), key=lambda i: (-abs(flat[i]), i))[:keep]
    kept = [i in order for i in range(len(flat))]
    ends = list(itertools.accumulate(map(len, lists), initial=0))
    return [kept[a:b] for a, b in itertools.pairwise(ends)]


@given(tensors, st.integers(0, 60), st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
@settings(deadline=None, max_examples=60)
def test_count_equals_a_python_sort_with_ties_by_index(lists, keep, dtype):
    masks = magnitude_masks(named(lists, dtype), keep=keep)
    assert [mask.tolist() for mask in masks.values()] == by_python_sort(lists, keep)


@given(tensors, st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, 9.0]))
@settings(deadline=None, max_examples=30)
def test_threshold_prunes_up_to_and_including_it(lists, threshold):
    masks = magnitude_masks(named(lists), threshold=threshold)
    assert [mask.tolist() for mask in masks.values()] == [[abs(w) > threshold for w in values] for values in lists]


@given(tensors, st.integers(0, 3), st.integers(0, 60))
@settings(deadline=None, max_examples=40)
def test_min_keep_leaves_every_tensor_its_largest_weights(lists, min_keep, extra):
    available = [min(min_keep, sum(w != 0 for w in values)) for values in lists]
    nonzeros = sum(w != 0 for values in lists for w in values)
    keep = sum(available) + extra
    masks = list(magnitude_masks(named(lists), keep=keep, min_keep=min_keep).values())
    assert sum(int(mask.sum()) for mask in masks) == min(keep, nonzeros)
    for values, mask, fewest in zip(lists, masks, available, strict=True):
        assert int(mask.sum()) >= fewest
        kept = [abs(w) for w, m in zip(values, mask.tolist(), strict=True) if m]
        pruned = [abs(w) for w, m in zip(values, mask.tolist(), strict=True) if not m]
        assert not kept or not pruned or min(kept) >= max(pruned)


def test_the_lower_index_is_kept_first_across_tensors_of_any_layout():
    first = torch.ones(2, 3).t()  # not contiguous: indices are those of the logical order
    masks = magnitude_masks({"a": first, "b": torch.ones(2)}, keep=4)
    assert masks["a"].tolist() == [[True, True], [True, True], [False, False]]
    assert masks["b"].tolist() == [False, False]


def test_more_than_there_are_keeps_every_nonzero_and_nothing_changes():
    params = {"a": torch.tensor([[1.0, 0.0], [-0.0, -2.0]])}
    before = params["a"].clone()
    assert magnitude_masks(params, keep=100)["a"].tolist() == [[True, False], [False, True]]
    assert torch.equal(params["a"], before)
    assert params["a"].signbit().tolist() == before.signbit().tolist()


def test_a_model_stands_for_its_default_selection():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    masks = magnitude_masks(model, keep=7)
    assert list(masks) == ["0.weight", "1.weight"]
    assert count_nonzeros(masks.values()) == 7


def test_masks_do_not_share_memory():
    masks = magnitude_masks({"a": torch.ones(2), "b": torch.ones(2)}, keep=2)
    assert masks["a"].untyped_storage().data_ptr() != masks["b"].untyped_storage().data_ptr()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_named(bad):
    with pytest.raises(ValueError, match=r"deep\.weight holds NaN"):
        magnitude_masks({"a": torch.ones(2), "deep.weight": torch.tensor([1.0, bad])}, keep=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"keep": 1, "threshold": 0.1}, "exactly one"),
        ({"keep": -1}, "keep is a number"),
        ({"threshold": -0.1}, "threshold is a magnitude"),
        ({"threshold": float("nan")}, "threshold is a magnitude"),
        ({"keep": 1, "min_keep": 2}, "lower min_keep"),
        ({"keep": 1, "min_keep": -1}, "cannot be negative"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        magnitude_masks({"a": torch.ones(3)}, **arguments)


def test_nothing_to_rank_is_refused():
    with pytest.raises(ValueError, match="no parameter to rank"):
        magnitude_masks({}, keep=1)


def test_the_threshold_of_a_count_is_the_largest_magnitude_pruned():
    ranking = rank({"a": torch.tensor([0.5, -3.0, 0.0, 2.0])})
    assert [ranking.largest_pruned(keep) for keep in (0, 1, 2, 3, 9)] == [3.0, 2.0, 0.5, 0.0, 0.0]
    without_zeros = rank({"a": torch.tensor([0.5, -3.0, 2.0])})
    assert [without_zeros.largest_pruned(keep) for keep in (0, 1, 2, 3, 9)] == [3.0, 2.0, 0.5, 0.0, 0.0]
