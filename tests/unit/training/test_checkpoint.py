import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from ellzero.data import Shifts
from ellzero.methods import DRR, RL1
from ellzero.params import everything
from ellzero.targets import ErrorIncrease, NonZeros
from ellzero.training import Anneal, Checkpoint, Cycles, Distill, Epochs, GridTraining, Recipe, Warm, classification_loss, sparsify
from ellzero.training.checkpoint import Clock, load, save
from training_problems import digits_batches, equal, small_network

EVERYTHING = {
    "warm": Warm(method=RL1(alpha=1e-4, proximal=True), epochs=1),
    "cycles": Cycles(start=900, count=2, epochs=1),
    "anneal": Anneal(epochs=1, finish_epochs=1),
    "grid_training": GridTraining(epochs=1, bit_price=1e-5),
}
pytestmark = pytest.mark.filterwarnings("ignore:every alpha tried was accepted")

PLANS = {"full": (NonZeros(250), EVERYTHING), "search": (ErrorIncrease(0.1, tries=2), {})}


def run(path: Path | None, *, resume: bool = False, plan: str = "full"):
    train, valid = digits_batches()
    target, more = PLANS[plan]
    checkpoint = None if path is None else Checkpoint(path=path, seconds=0.0, resume=resume)
    return sparsify(
        small_network(),
        classification_loss,
        train=train,
        valid=valid,
        method=DRR(alpha=1e-3, proximal=True),
        checkpoint=checkpoint,
        progress=False,
        target=target,
        recipe=Recipe(
            **more,
            epochs=Epochs(prelude=1, regularise=2, fine_tune=1),
            lr=3e-3,
            select=everything,
            augment=Shifts(pixels=1),
            distill=Distill(),
        ),
    )


def kill_after(path: Path, saves: int, plan: str) -> None:
    """Runs in another process that kills itself right after a number of saves, between any two batches of any stage."""
    script = f"""
        import os, signal, sys
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
        import torch
        torch.set_num_threads(1)
        import ellzero.training.driver as driver
        import test_checkpoint
        saves, whole = 0, driver.save
        def save(path, state):
            global saves
            whole(path, state)
            saves += 1
            if saves == {saves}:
                os.kill(os.getpid(), signal.SIGKILL)
        driver.save = save
        from pathlib import Path
        test_checkpoint.run(Path({str(path)!r}), plan={plan!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, env={**os.environ, "JAXTYPING_DISABLE": "1"}
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture(scope="module")
def uninterrupted():
    return {plan: run(None, plan=plan) for plan in PLANS}


# An epoch has 10 batches and every stage one save more at its end: 11 a stage of one epoch. The prelude ends with save 11,
# warm with 22, regularise (two epochs) with 43, the cycles with 54 and 65, the anneal with 76, and finish with 87.
@pytest.mark.parametrize(
    ("saves", "stage"),
    [
        (5, "prelude"),
        (11, "prelude's end"),
        (17, "warm"),
        (32, "regularise's epoch end"),
        (38, "regularise"),
        (60, "cycle 2"),
        (70, "anneal"),
        (80, "finish"),
    ],
)
def test_a_run_killed_in_any_stage_resumes_to_the_same_bits(tmp_path, uninterrupted, saves, stage):
    path = tmp_path / "checkpoint.pt"
    kill_after(path, saves, "full")
    resumed = run(path, resume=True)
    expected = uninterrupted["full"]
    assert equal(resumed.model, expected.model)
    assert [(e.stage, e.step, e.train_loss, e.nonzeros) for e in resumed.history] == [
        (e.stage, e.step, e.train_loss, e.nonzeros) for e in expected.history
    ]


@pytest.mark.parametrize("saves", [15, 38, 52])
def test_a_search_killed_in_any_try_resumes_to_the_same_bits(tmp_path, uninterrupted, saves):
    path = tmp_path / "checkpoint.pt"
    kill_after(path, saves, "search")
    resumed = run(path, resume=True, plan="search")
    assert equal(resumed.model, uninterrupted["search"].model)
    assert resumed.tries == uninterrupted["search"].tries


def test_other_arguments_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    run(path)
    with pytest.raises(ValueError, match="other arguments"):
        run(path, resume=True, plan="search")


def test_a_finished_run_resumes_to_itself(tmp_path, uninterrupted):
    path = tmp_path / "checkpoint.pt"
    run(path)
    assert equal(run(path, resume=True).model, uninterrupted["full"].model)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 torn"])
def test_damaged_files_are_refused_without_unpickling(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        load(path, "x")


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.system, ("echo trapped",))

    path = tmp_path / "checkpoint.pt"
    torch.save({"fingerprint": "x", "trap": Trap()}, path)
    with pytest.raises(ValueError, match="damaged"):
        load(path, "x")


def test_a_failed_save_leaves_the_old_checkpoint_and_nothing_else(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save(path, {"fingerprint": "x", "value": 1})
    with pytest.raises(AttributeError, match="pickle"):
        save(path, {"fingerprint": "x", "value": lambda: None})
    assert load(path, "x")["value"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_clock_counts_resumed_seconds():
    clock = Clock(1000.0, seconds=5.0)
    assert 5.0 <= clock.seconds() < 6.0
    assert not clock.due()
    assert Clock(0.0).due()
