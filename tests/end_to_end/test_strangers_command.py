"""A method in a file of the user's own, on the command line: its options are the fields of its dataclass, and its runs resume."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ellzero.training.driver as driver
from ellzero.cli import main

STRANGER = '''
"""A log penalty with an option of each kind."""

from dataclasses import dataclass

import torch

from ellzero.methods import Hyperparameter, Laws, value_at
from ellzero.methods.protocol import no_after_step_, no_masks_, no_state, replace_alpha


@dataclass(frozen=True, kw_only=True)
class LogPenalty:
    """Adds `alpha * sum_i ln(1 + |theta_i| / width)`."""

    alpha: Hyperparameter = 1e-3
    width: float = 0.1
    capped: bool = False

    laws = Laws()
    proximal = False

    def penalty(self, params, state, at):
        return value_at(self.alpha, at) * torch.stack([torch.log1p(p.abs() / self.width).sum() for p in params.values()]).sum()

    @torch.no_grad()
    def add_gradient_(self, params, state, at, scale=1.0):
        for p in params.values():
            pull = value_at(self.alpha, at) * scale * p.sign() / (p.abs() + self.width)
            p.grad = pull if p.grad is None else p.grad.add_(pull)

    init = no_state
    after_step_ = no_after_step_
    masks_ = no_masks_
    with_alpha = replace_alpha
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "strangers.py").write_text(STRANGER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr("ellzero.cli.jobs.outcome.draw", lambda *anything: ())  # pictures have tests of their own
    return tmp_path


def sparsify(*words: str) -> int:
    return main(["sparsify", "digits-mlp", "-q", "--method", "strangers:LogPenalty", *words])


def test_a_strangers_method_runs_with_its_own_options(folder: Path) -> None:
    assert sparsify("--alpha", "1e-4", "2e-3", "--width", "0.05", "--capped", "--nonzeros", "700", "-o", "run") == 0
    record = json.loads((folder / "run/record.json").read_text())
    method = record["details"]["settings"]["method"]
    assert (method["class"], method["width"], method["capped"]) == ("strangers:LogPenalty", 0.05, True)
    assert (method["alpha"]["first"], method["alpha"]["last"]) == (1e-4, 2e-3)
    assert record["nonzeros"] <= 700
    assert [json.loads(line)["alpha"] for line in (folder / "run/log.jsonl").read_text().splitlines()][-1] is None


def test_an_option_that_it_does_not_have_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sparsify("--beta", "5", "-o", "run") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--beta" in said
    assert "width" in said
    assert not (folder / "run").exists()


def test_its_run_resumes_to_the_same_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--alpha", "1e-3", "--nonzeros", "700")
    assert sparsify(*words, "-o", "whole") == 0
    save, saves = driver.save, []

    def interrupted(path: Path, state: Any) -> None:
        save(path, state)
        saves.append(path)
        raise KeyboardInterrupt("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "save", interrupted)
        patch.setattr("ellzero.training.checkpoint.Clock.due", lambda clock: clock.before or driver.Clock.seconds(clock) > 0.7)
        assert sparsify(*words, "-o", "run") == 130
    assert len(saves) == 1
    assert sparsify(*words, "-o", "run", "--resume") == 0
    assert (folder / "run/network.safetensors").read_bytes() == (folder / "whole/network.safetensors").read_bytes()
