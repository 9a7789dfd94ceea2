"""`--method` and the options that belong to one method: parsed without torch, handed on, refused where they mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from ellzero.cli.commands import Command
from ellzero.cli.jobs.method import chosen_method
from ellzero.cli.jobs.sparsify import run_sparsify
from ellzero.cli.options.sparsify import Sparsify
from ellzero.methods import ADMM, DRR, PMMP, RL1, Alternating, ExactGates, Geometric, Method, Simultaneous, Unregularised
from ellzero.training import Epochs
from ellzero.training.presets import DataTreatment, Preset, fast, paper


def parsed(*words: str) -> Sparsify:
    command = tyro.cli(Command, args=["sparsify", "digits-mlp", "-o", "run", *words], prog="ellzero")
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


@pytest.mark.parametrize("words", ["--method magic", "--updates sometimes", "--u 1"])
def test_what_is_no_option_is_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        parsed(*words.split())
    assert stop.value.code == 2
    assert words.split()[0] in capsys.readouterr().err


def test_parsing_and_listing_the_options_of_methods_needs_no_torch():
    script = """
import sys, tyro
from ellzero.cli.commands import Command
words = "sparsify digits-mlp -o run --method pmmp --p-init 0.5 --u 1e-3 1 --updates exact".split()
tyro.cli(Command, args=words).settings()
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
    outcome = run_sparsify(options, recipe)
    assert outcome.record.nonzeros < outcome.record.parameters
    said = json.loads((tmp_path / "run/options.json").read_text())
    assert {name: said[name] for name in ("method", "updates", "u", "p_init")} == {
        "method": "pmmp",
        "updates": "exact",
        "u": [0.01, 1.0],
        "p_init": None,
    }
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["details"]["options"] == said
    method = record["details"]["settings"]["method"]
    assert (method["class"], method["alpha"]) == ("ellzero.methods.pmmp.method:PMMP", 1e-4)
    (tmp_path / "run/record.json").unlink()
    with pytest.raises(ValueError, match=r"updates 'exact' -> 'alternating'"):
        run_sparsify(parsed(*words, "--updates", "alternating", "--resume", "--output", str(tmp_path / "run")), recipe)
