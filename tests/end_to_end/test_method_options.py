"""`--method` and the options that belong to one method: parsed without torch, handed on, refused where they mean nothing."""

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from ellzero.cli.jobs.methods import chosen_method
from ellzero.cli.jobs.sparsify import run_and_measure
from ellzero.cli.main import main, parse
from ellzero.cli.options.methods import METHODS
from ellzero.cli.options.sparsify import Sparsify
from ellzero.methods import (
    ADMM,
    DRR,
    PMMP,
    RL1,
    Alternating,
    ExactGates,
    Gaussian,
    Geometric,
    Laws,
    Method,
    PerStage,
    Schedule,
    Simultaneous,
    Unregularised,
)
from ellzero.methods.protocol import no_after_step_, no_gradient_, no_masks_, no_state
from ellzero.training import Epochs
from ellzero.training.presets import DataTreatment, Preset, fast, paper
from ellzero.types import At, Params, Scalar


def parsed(*words: str) -> Sparsify:
    command = parse(["sparsify", "digits-mlp", "-o", "run", *words])
    assert isinstance(command, Sparsify)
    return command


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("", DRR(alpha=1e-4, beta=5.0, proximal=True)),
        ("--alpha 2e-3 --beta 7", DRR(alpha=2e-3, beta=7.0, proximal=True)),
        ("--method none", Unregularised()),
        ("--method rl1", RL1(alpha=1e-4, proximal=True)),
        ("--method drr", DRR(alpha=1e-4, beta=5.0, proximal=True)),
        ("--method pmmp", PMMP(alpha=1e-4)),
        ("--alpha 1e-3 --p-init 0.5 --method pmmp --multiplier 10", PMMP(alpha=1e-3, p_init=0.5, multiplier=10.0)),
        ("--method pmmp --updates alternating --u-init 0.1", PMMP(alpha=1e-4, u_init=0.1, updates=Alternating())),
        ("--method pmmp --updates simultaneous", PMMP(alpha=1e-4, updates=Simultaneous())),
        ("--method admm", ADMM(alpha=1e-4)),
        ("--tau 0.5 0.1 --every 5 --method admm --alpha 1e-3", ADMM(alpha=1e-3, tau=Geometric(0.5, 0.1), every=5)),
        ("--method admm --settle 0.8", ADMM(alpha=1e-4, settle=0.8)),
        ("--method pmmp --u 1", PMMP(alpha=1e-4, u=1.0)),
        ("--no-proximal --relaxation gaussian --alpha 1e-3 1e-5", DRR(alpha=Geometric(1e-3, 1e-5), relaxation=Gaussian())),
        ("--normalise=per-stage --proximal false", DRR(alpha=1e-4, normalise=PerStage())),
        ("--updates exact --u 1e-3 0.1 --method pmmp", PMMP(alpha=1e-4, u=Geometric(1e-3, 0.1), updates=ExactGates())),
    ],
)
def test_options_come_in_any_order_and_say_which_method_it_is(words: str, method: Method):
    assert chosen_method(fast().method, parsed(*words.split())) == method


def test_another_method_begins_with_the_recipes_alpha_and_keeps_its_form():
    assert chosen_method(paper().method, parsed("--method", "rl1")) == RL1(alpha=3e-5, proximal=False)
    assert chosen_method(paper().method, parsed("--method", "pmmp")) == PMMP(alpha=3e-5)
    assert chosen_method(paper().method, parsed("--method", "admm")) == ADMM(alpha=3e-5)
    own = PMMP(alpha=0.5, p_init=0.0)
    assert chosen_method(own, parsed("--method", "pmmp", "--u-init", "1")) == PMMP(alpha=0.5, p_init=0.0, u_init=1.0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--p-init 1", "--p-init means nothing to DRR"),
        ("--method rl1 --beta 3", "--beta means nothing to RL1"),
        ("--method none --alpha 1", "--alpha means nothing to Unregularised"),
        ("--method pmmp --beta 3", "--beta means nothing to PMMP"),
        ("--method drr --updates exact", "--updates means nothing to DRR"),
        ("--method pmmp --p-init 2", "p_init is a probability"),
        ("--method pmmp --updates exact", "u = 0 the exact step closes every gate"),
        ("--method pmmp --tau 1 0.1", "--tau means nothing to PMMP"),
        ("--method admm --p-init 1", "--p-init means nothing to ADMM"),
        ("--method admm --every 0", "every counts steps"),
        ("--method admm --settle 2", "settle is a progress"),
        ("--method pmmp --u 0 1", "geometric schedule needs positive"),
    ],
)
def test_options_of_another_method_and_impossible_values_are_refused(words: str, says: str):
    with pytest.raises(ValueError, match=says):
        chosen_method(fast().method, parsed(*words.split()))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--method magic", "no method has this name: expected none, rl1, drr, pmmp, admm, or module:Class"),
        ("--method math:pi", "math:pi is no dataclass"),
        ("--method ellzero.training:Epochs", "ellzero.training:Epochs is no method"),
        ("--method pmmp --updates sometimes", "--updates sometimes: expected simultaneous, or alternating, or exact"),
        ("--method pmmp --u 1 2 3", "--u 1 2 3: expected a number, or FIRST LAST, or none"),
        ("--method admm --every 2.5", "--every 2.5: expected a whole number"),
        ("--alpha", "--alpha: expected a number, or FIRST LAST"),
        ("--proximal maybe", "--proximal maybe: expected nothing, true or false"),
        ("--sede 3", "--sede means nothing to DRR"),
        ("--sede 3", "did you mean --seed?"),
    ],
)
def test_what_is_no_option_is_wrong_usage(words: str, says: str, capsys: pytest.CaptureFixture[str]):
    assert main(["sparsify", "digits-mlp", "-o", "run", *words.split()]) == 2
    assert says in capsys.readouterr().err


class Moment(enum.Enum):
    EARLY = "early"
    LATE = "late"


@dataclass(frozen=True, kw_only=True)
class Strange:
    """Has one field of every type that the command line reads.

    Attributes:
        strength: has no default,
            and two lines.
        shape: several whole numbers.
    """

    strength: float
    steps: int | None = 3
    name: str = "a"
    moment: Moment = Moment.EARLY
    form: Literal["flat", "round"] = "flat"
    shape: tuple[int, ...] = ()
    pair: tuple[float, str] = (0.0, "b")
    forced: bool = True
    schedule: float | Schedule = 0.0
    folder: Path = Path("x")
    thing: object = None
    alpha: float = 1.0

    laws = Laws()
    proximal = False
    init, add_gradient_, after_step_, masks_ = no_state, no_gradient_, no_after_step_, no_masks_

    def penalty(self, params: Params, state: nn.Module, at: At) -> Scalar:
        return torch.zeros(())


def test_a_method_of_ones_own_has_its_fields_as_options(capsys: pytest.CaptureFixture[str]):
    name = f"{__name__}:Strange"
    words = "--strength 2 --steps none --name 7 --moment late --form round --shape 3 4 --pair 1 2 --no-forced --schedule 1 0.1 --folder a/b"
    method = chosen_method(fast().method, parsed("--method", name, *words.split(), "--thing", "fractions:Fraction"))
    assert method == Strange(
        strength=2.0,
        steps=None,
        name="7",
        moment=Moment.LATE,
        form="round",
        shape=(3, 4),
        pair=(1.0, "2"),
        forced=False,
        schedule=Geometric(1.0, 0.1),
        folder=Path("a/b"),
        thing=Fraction(),
    )
    assert main(["sparsify", "digits-mlp", "-o", "run", "--method", name]) == 2
    assert "Strange needs --strength" in capsys.readouterr().err


def test_methods_and_their_options_are_listed(capsys: pytest.CaptureFixture[str]):
    assert main(["methods", f"{__name__}:Strange"]) == 0
    said = capsys.readouterr().out
    assert "Strange: Has one field of every type" in said
    assert "has no default, and two lines. (required)" in said
    assert "--form (flat, or round)" in said
    assert main(["methods"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:-1] == list(METHODS)
    for name in METHODS:
        assert main(["methods", name]) == 0


def test_parsing_and_listing_the_options_of_methods_needs_no_torch():
    script = """
import sys
from ellzero.cli.main import main, parse
parse("sparsify digits-mlp -o run --method pmmp --p-init 0.5 --u 1e-3 1 --updates exact".split()).settings()
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_run_by_pmmp_records_its_options_and_a_resumed_one_must_repeat_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "ellzero.cli.jobs.outcome.draw", lambda *anything: ()
    )  # the pictures take longer than the run, and have tests of their own
    recipe = Preset(data=DataTreatment(batch_size=32, validation=300)).with_recipe(
        epochs=Epochs(prelude=2, regularise=3, fine_tune=1), lr=2e-3
    )
    words = ("--method", "pmmp", "--updates", "exact", "--u", "1e-2", "1", "--alpha", "1e-4", "--quiet")
    options = parsed(*words, "--output", str(tmp_path / "run"))
    outcome = run_and_measure(options, recipe)
    assert outcome.record.nonzeros < outcome.record.parameters
    said = json.loads((tmp_path / "run/options.json").read_text())
    assert said["method"] == "pmmp"
    assert said["method_options"] == {"updates": "exact", "u": [0.01, 1], "alpha": 1e-4}
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["details"]["options"] == said
    method = record["details"]["settings"]["method"]
    assert (method["class"], method["alpha"]) == ("ellzero.methods.pmmp.method:PMMP", 1e-4)
    (tmp_path / "run/record.json").unlink()
    with pytest.raises(ValueError, match=r"updates 'exact' -> 'alternating'"):
        run_and_measure(parsed(*words, "--updates", "alternating", "--resume", "--output", str(tmp_path / "run")), recipe)
