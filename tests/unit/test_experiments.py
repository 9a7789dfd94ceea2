"""The commands of the experiments: what is run, recorded, kept and refused. They are no part of the package."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments import increases, lenet5, lenet300, pmmp
from experiments.commands import CommandLine, Networks, picture, records

from ellzero.methods import Unregularised
from ellzero.records import append_line, read_lines
from ellzero.targets import Bytes
from ellzero.training import Epochs
from ellzero.training.presets import DataTreatment, Preset

ROOT = Path(__file__).parents[2]
EXPERIMENTS = {"lenet300": lenet300, "lenet5": lenet5, "pmmp": pmmp}

# A run that trains nothing: it writes how it was called, and waits until as many runs are under way as its seed says.
STUB = """
import os, sys, time
from pathlib import Path

name, seed = sys.argv[2:4]
with open("calls", "a") as file:
    file.write(" ".join([os.environ["OMP_NUM_THREADS"], *sys.argv[1:]]) + "\\n")
Path(f"{name}-under-way").touch()
for _ in range(600):
    if len(list(Path().glob("*-under-way"))) >= int(seed):
        break
    time.sleep(0.05)
else:
    sys.exit("alone")
sys.exit(3 if name.startswith("bad") else 0)
"""


def tiny() -> Preset:
    preset = Preset(data=DataTreatment(batch_size=500, validation=300), method=Unregularised())
    return preset.with_recipe(epochs=Epochs(prelude=1, regularise=0, fine_tune=0))


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Networks:
    """An experiment in an empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stub.py").write_text(STUB)
    names = ("good", "better", "bad", "worse")
    return Networks(
        module="stub",
        model="digits-mlp",
        results=tmp_path / "results" / "stub.jsonl",
        configurations=lambda: dict.fromkeys(names, tiny),
        seeds=(0, 1),
        details=lambda preset: {"kept_aside": preset.data.batch_size},
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def refused(call: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a refused command prints."""
    with pytest.raises(SystemExit) as ended:
        call()
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    return err


def test_a_subcommand_is_called_with_its_arguments_alone(capsys: pytest.CaptureFixture[str]):
    heard: list[Any] = []
    line = CommandLine("What it does.", table=lambda: heard.append("table"))
    line.add("run", lambda given: heard.append(given.seeds)).add_argument("--seeds", nargs="+", type=int)
    line.run(["run", "--seeds", "1", "2"])
    line.run(["table"])
    assert heard == [[1, 2], "table"]
    with pytest.raises(SystemExit):
        line.run(["--help"])
    assert "What it does." in capsys.readouterr().out


def test_what_is_not_recorded_is_run_every_first_seed_first_with_one_thread(
    networks: Networks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    networks.results.parent.mkdir()
    append_line(networks.results, {"recipe": "good", "seed": 0})
    before = networks.results.read_bytes()
    networks.command_line(None).run(["run", "--configurations", "good", "better", "--jobs", "1"])
    assert calls(tmp_path) == ["1 one better 0", "1 one good 1", "1 one better 1"]
    assert networks.results.read_bytes() == before
    assert capsys.readouterr().out.splitlines() == ["better seed 0: done", "good seed 1: done", "better seed 1: done", "0 failed runs"]


def test_runs_that_fail_are_counted_and_do_not_stop_the_others(networks: Networks, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        networks.run(["bad", "good"], [0, 1], jobs=1)
    assert ended.value.code == 1
    assert len(calls(tmp_path)) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bad seed 0: failed with status 3"
    assert lines[-1] == "2 failed runs"


def test_as_many_run_at_once_as_jobs_says(networks: Networks, tmp_path: Path):
    networks.run(["good", "better"], [2], jobs=2)  # neither ends before both are under way
    assert sorted(calls(tmp_path)) == ["1 one better 2", "1 one good 2"]


def test_the_folder_to_keep_runs_in_reaches_each_run(networks: Networks, tmp_path: Path):
    networks.command_line(None).run(["run", "--configurations", "good", "--seeds", "0", "--keep", "runs"])
    assert calls(tmp_path) == ["1 one good 0 --keep runs"]


@pytest.mark.parametrize("module", EXPERIMENTS.values(), ids=EXPERIMENTS.keys())
@pytest.mark.parametrize("words", ["run --configurations dense typo admm --seeds 0", "one typo 0"])
def test_an_unknown_configuration_is_named_before_anything_runs(module: Any, words: str, capsys: pytest.CaptureFixture[str]):
    told = refused(lambda: module.NETWORKS.command_line(None).run(words.split()), capsys)
    assert "typo" in told.split(":")[0]
    assert all(name in told.split(":")[1] for name in module.configurations())


def test_no_jobs_and_folders_that_exist_are_refused(networks: Networks, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "--jobs 0" in refused(lambda: networks.run(["good"], [0], jobs=0), capsys)
    (tmp_path / "runs" / "good-1").mkdir(parents=True)
    assert "good-1" in refused(lambda: networks.run(["good"], [0, 1], jobs=1, keep=Path("runs")), capsys)
    assert "good-1" in refused(lambda: networks.one("good", 1, Path("runs")), capsys)
    assert not (tmp_path / "calls").exists()


def test_a_run_is_recorded_once_and_kept_where_asked(networks: Networks, tmp_path: Path):
    networks.one("good", 3)
    (record,) = read_lines(networks.results)
    assert (record["recipe"], record["seed"], record["details"]["kept_aside"]) == ("good", 3, 500)
    assert list(networks.recorded()) == [("good", 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "stub.py"]

    before = networks.results.read_bytes()
    networks.command_line(None).run(["one", "good", "3", "--keep", "runs"])
    assert networks.results.read_bytes() == before
    kept = tmp_path / "runs" / "good-3"
    assert {"network.safetensors", "network.l0", "quantised.l0", "record.json"} <= {path.name for path in kept.iterdir()}


def test_data_that_are_missing_are_said_in_a_line(networks: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setenv("ELLZERO_DATA", str(tmp_path / "nowhere"))
    assert "nowhere" in refused(lambda: replace(networks, model="lenet-300-100").one("good", 0), capsys)
    assert records(networks.results) == []


def test_a_picture_is_written_both_ways(tmp_path: Path):
    with picture(tmp_path / "drawn", (2.0, 1.0)) as drawing:
        drawing.add_subplot().plot([0, 1])
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "drawn.svg").read_text()


def test_the_smaller_file_restarts_the_schedule_in_each_cycle():
    configurations = lenet300.configurations()
    smaller = configurations["bytes-1650"]()
    assert smaller.target == Bytes(1650)
    assert smaller.recipe.cycles == replace(configurations["bytes-1900"]().recipe.cycles, restarts=True)


def test_configurations_that_the_documents_name_exist():
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "experiments/README.md", "experiments/decoded.py")]
    texts += [module.__doc__ or "" for module in EXPERIMENTS.values()]
    named = re.findall(r"experiments\.(\w+) run --configurations ([a-z0-9 -]+?)(?= --|`|\n)", "\n".join(texts))
    assert {module for module, _ in named} == set(EXPERIMENTS)
    for module, names in named:
        assert set(names.split()) <= set(EXPERIMENTS[module].configurations()), names


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_table_has_a_row_for_each_configuration_that_is_recorded(name: str, capsys: pytest.CaptureFixture[str]):
    recorded = {recipe for recipe, _ in EXPERIMENTS[name].NETWORKS.recorded()}
    EXPERIMENTS[name].table()
    assert recorded <= set(re.findall(r"^\| ([\w-]+) \|", capsys.readouterr().out, re.MULTILINE))


def test_error_increases_have_standard_errors_over_images_and_over_seeds():
    def line(*wrong: int) -> dict[str, Any]:
        return {"details": {"wrong_images": list(wrong), "dense_wrong_images": [0, 1], "settings": {"augment": None}}}

    own, plain = {0: line(0, 1, 2, 3), 1: line(0, 5)}, {0: line(0, 9), 1: line(0, 5, 6)}
    over_plain, alike, begun = increases.three(own, plain, {0: line(), 1: line()})
    assert over_plain == alike  # images as they are
    # Reference: the differences per image, +1, 0 or -1, their mean and its standard error.
    differences = np.zeros((2, increases.TEST_IMAGES))
    differences[0, [1, 2, 3]], differences[0, 9], differences[1, 6] = 1, -1, -1
    means, errors = 100 * differences.mean(1), 100 * differences.std(1) / increases.TEST_IMAGES**0.5
    np.testing.assert_allclose(over_plain, np.stack([means, errors], axis=1), rtol=1e-12)
    assert increases.over_images(over_plain) == pytest.approx(np.hypot(*errors) / 2)
    assert increases.over_seeds(over_plain) == pytest.approx(means.std(ddof=1) / 2**0.5)
    assert increases.over_seeds(over_plain[:1]) is None
    assert [increase for increase, _ in begun] == pytest.approx([0.02, 0.0])


def test_shifted_runs_are_compared_with_dense_networks_on_shifted_images():
    def line(*wrong: int) -> dict[str, Any]:
        return {"details": {"wrong_images": list(wrong), "dense_wrong_images": [], "settings": {"augment": "Shifts(pixels=1)"}}}

    over_plain, alike, _ = increases.three({0: line(1, 2)}, {0: line(1)}, {0: line(3, 4, 5)})
    assert [value for value, _ in over_plain] == pytest.approx([0.01])
    assert [value for value, _ in alike] == pytest.approx([-0.01])
