import itertools
import math

import pytest

from ellzero.methods import DRR, RL1, Cosine, geometric
from ellzero.training.distill import Distill
from ellzero.training.plan import FinalPrune, Plan, Truncate, prelude_stage, sparse_stages, value_of
from ellzero.training.recipe import Anneal, Cycles, Epochs, GridTraining, Recipe, Saturation, Warm
from ellzero.types import Phase

DRR_HERE, RL1_HERE = DRR(alpha=1e-4, proximal=True), RL1(alpha=1e-4, proximal=True)


def plan(**changes) -> Plan:
    own = {name: changes.pop(name) for name in ("keep", "limit", "grid_training") if name in changes}
    return Plan(method=changes.pop("method", DRR_HERE), recipe=Recipe(**changes), **own)


def test_plain_plan_is_the_papers_three_phases():
    stages = [prelude_stage(Recipe()), *sparse_stages(plan())]
    assert [stage.phase for stage in stages] == [Phase.PRELUDE, Phase.REGULARISE, Phase.FINE_TUNE]
    assert isinstance(stages[2].before, FinalPrune)
    assert stages[2].frozen
    assert not stages[1].frozen


def test_full_plan_has_every_stretch_in_order():
    stages = sparse_stages(plan(keep=500, warm=Warm(method=RL1_HERE), cycles=Cycles(start=4000, count=4), anneal=Anneal()))
    assert [stage.name for stage in stages] == ["warm", "regularise", "cycle 1", "cycle 2", "cycle 3", "cycle 4", "anneal", "finish"]
    counts = [stage.before.keep for stage in stages if isinstance(stage.before, Truncate)]
    assert counts == [4000, 2000, 1000, 500]
    assert stages[-2].phase is Phase.REGULARISE  # the penalty stays on during the anneal
    assert stages[-1].phase is Phase.FINE_TUNE


def method_of_anneal(**changes):
    return next(stage.method for stage in sparse_stages(plan(keep=500, **changes)) if stage.name == "anneal")


def test_anneal_regularises_by_its_own_method_where_it_has_one():
    assert method_of_anneal(anneal=Anneal(method=RL1_HERE)) == RL1_HERE
    assert method_of_anneal(anneal=Anneal(method=RL1_HERE), cycles=Cycles(method=RL1_HERE)) == RL1_HERE


def test_anneal_without_a_method_keeps_the_one_before_as_its_schedule_left_it():
    rising = DRR(alpha=geometric(1e-5, 1e-4), proximal=True)
    assert method_of_anneal(anneal=Anneal()) == DRR_HERE
    assert method_of_anneal(anneal=Anneal(), method=rising).alpha == pytest.approx(1e-4)
    assert method_of_anneal(anneal=Anneal(), cycles=Cycles(method=rising)).alpha == pytest.approx(1e-4)


def test_a_schedule_moves_over_all_cycles_or_within_each():
    falling = DRR(alpha=geometric(1e-3, 1e-5), proximal=True)
    methods = {
        restarts: [
            stage.method
            for stage in sparse_stages(plan(keep=500, cycles=Cycles(count=3, method=falling, restarts=restarts), anneal=Anneal()))
            if stage.name.startswith(("cycle", "anneal"))
        ]
        for restarts in (False, True)
    }
    assert [method.alpha for method in methods[False]] == pytest.approx([1e-3, 1e-4, 1e-5, 1e-5])
    assert methods[True][:3] == [falling] * 3
    assert methods[True][3].alpha == pytest.approx(1e-5)


@pytest.mark.parametrize(("saves", "before"), [(0.0, 900), (0.1, 1000)])
def test_the_mask_takes_what_the_price_of_bits_is_to_save(saves, before):
    stages = sparse_stages(plan(keep=500, limit=900, grid_training=GridTraining(saves=saves)))
    assert [stage.before.limit for stage in stages if isinstance(stage.before, FinalPrune)] == [before]


@pytest.mark.parametrize("saves", [-0.1, 1.0, math.nan])
def test_a_share_that_is_none_is_refused(saves):
    with pytest.raises(ValueError, match="share of the file"):
        GridTraining(saves=saves)


def test_cycles_need_a_number_to_arrive_at():
    with pytest.raises(ValueError, match="NonZeros"):
        sparse_stages(plan(cycles=Cycles()))


def test_cycle_counts_fall_geometrically_and_end_on_the_target():
    counts = Cycles(start=7000, count=10).counts(1000)
    assert counts[0] == 7000
    assert counts[-1] == 1000
    ratios = [after / before for before, after in itertools.pairwise(counts)]
    assert max(ratios) - min(ratios) < 0.002
    assert Cycles(start=500, count=3).counts(1000) == [1000, 1000, 1000]


def test_cosine_begins_at_the_start_and_ends_at_the_end():
    rate = Cosine(first=2.0, last=1.0)
    assert [value_of(rate, progress) for progress in (0.0, 0.5, 1.0, 2.0)] == [2.0, 1.5, 1.0, 1.0]
    assert math.isclose(value_of(rate, 0.25), 1.5 + 0.5 * math.cos(math.pi / 4))
    assert value_of(0.1, 0.7) == 0.1


def test_negative_epochs_are_refused():
    with pytest.raises(ValueError, match="prelude=-1"):
        Epochs(prelude=-1)


@pytest.mark.parametrize(
    ("make", "bad", "good"),
    [
        (Cycles, {"start": 0}, {"start": 1}),
        (Cycles, {"count": 0}, {"count": 1}),
        (Cycles, {"epochs": -1}, {"epochs": 0}),
        (Cycles, {"regrow": -0.1}, {"regrow": 0.0}),
        (Saturation, {"window": 4}, {"window": 6}),
        (Saturation, {"window": 7}, {"window": 8}),
        (Saturation, {"every": 0}, {"every": 1}),
        (GridTraining, {"epochs": 0}, {"epochs": 1}),
        (GridTraining, {"saves": 1.0}, {"saves": 0.0}),
        (Epochs, {"regularise": -1}, {"regularise": 0}),
        (Epochs, {"fine_tune": -1}, {"fine_tune": 0}),
        (Distill, {"weight": -0.1}, {"weight": 0.0}),
        (Distill, {"weight": 1.1}, {"weight": 1.0}),
        (Distill, {"temperature": 0.0}, {"temperature": 0.1}),
    ],
    ids=repr,
)
def test_each_number_is_refused_below_its_least_and_taken_there(make, bad, good):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=rf"{make.__name__}\(.*{name}={value}"):
        make(**bad)
    make(**good)
