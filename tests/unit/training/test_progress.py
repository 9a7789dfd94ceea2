"""The bar of a run: one per stage, with the figures of its last epoch."""

from typing import Any

import pytest

from ellzero.training.plan import Stage
from ellzero.training.progress import ProgressBar
from ellzero.training.task import Epoch
from ellzero.types import Phase


def stage(name: str) -> Stage:
    return Stage(name=name, phase=Phase.PRELUDE, epochs=1, lr=0.1)


def entry(valid_error: float | None) -> Epoch:
    figures = {"train_loss": 0.25, "valid_loss": 0.5, "valid_error": valid_error, "nonzeros": 12_345, "live_parameters": 1, "seconds": 1.0}
    return Epoch(attempt=0, stage="prelude", phase="prelude", epoch=1, step=1, lr=0.1, alpha=None, **figures)  # type: ignore[arg-type]


@pytest.fixture
def bar() -> ProgressBar:
    """A bar as on a terminal, never drawn."""
    bar = ProgressBar(shown=True)
    bar.bar.disable = False
    return bar


def test_a_stage_has_one_bar_and_a_new_stage_another(bar: ProgressBar) -> None:
    first, second = stage("prelude"), stage("regularise")
    seen: list[Any] = []
    for now, done in ((first, 1), (first, 2), (second, 1), (second, 7)):
        bar.batch(now, done, 10)
        (task,) = bar.bar.tasks
        assert (task.description, task.completed, task.total) == (now.name, done, 10)
        seen.append(task.id)
    assert seen[0] == seen[1] != seen[2] == seen[3]


def test_the_figures_of_an_epoch_stand_beside_the_bar(bar: ProgressBar) -> None:
    bar.epoch(entry(0.0123))  # before there is a stage, nothing
    bar.batch(stage("prelude"), 1, 10)
    bar.epoch(entry(0.0123))
    assert bar.bar.tasks[0].fields["state"] == "loss 0.2500  error 1.23 %  non-zeros 12,345"
    bar.epoch(entry(None))
    assert bar.bar.tasks[0].fields["state"] == "loss 0.2500  non-zeros 12,345"


def test_nothing_is_shown_where_none_is_asked_for_or_no_terminal_is_there() -> None:
    for shown in (False, True):
        with ProgressBar(shown=shown) as bar:
            assert bar.bar.disable
            bar.batch(stage("prelude"), 1, 10)
            bar.epoch(entry(0.0123))
            assert not bar.bar.tasks
