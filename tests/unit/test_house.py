"""Rules of the house that no other tool checks."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
# The folders of somebody's machine. /usr and /bin, which start scripts, are everyone's.
MACHINE_PATH = re.compile(r"(?<![\w.~$}>-])/(?:home|root|work|tmp|mnt|Users|farm)/\w|\b[A-Z]:\\\\?Users\b")


def tracked() -> list[Path]:
    """The files under version control, or all of an unpacked source archive."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def texts() -> dict[str, str]:
    found: dict[str, str] = {}
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            found[path.relative_to(ROOT).as_posix()] = data.decode("utf-8")
    return found


def dependency_lines(pyproject: str) -> list[str]:
    """Every line of pyproject.toml that names a package, within the tables that list dependencies."""
    tables = re.findall(
        r"^(?:requires|dependencies|torch|plots|test|check|[a-z]+) = \[(?:[^\n]*\]|\n.*?^\])[^\n]*", pyproject, re.MULTILINE | re.DOTALL
    )
    lines = [line for table in tables for line in table.splitlines()]
    return [line for line in lines if re.search(r'"[A-Za-z0-9_.-]+(?:\[[^\]]*\])?\s*[<>=!~]', line)]


def test_every_dependency_has_the_reason_for_its_bound_beside_it():
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = dependency_lines(pyproject)
    project = tomllib.loads(pyproject)
    extras = project["project"]["optional-dependencies"].values()
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"], *(name for extra in extras for name in extra)]
    bounded = [name for name in named if not name.startswith("ellzero[")]
    assert len(lines) == len(bounded), "a dependency stands on a line with another, or without a bound"
    assert [line for line in lines if not re.search(r"\s#\s*\S.{5,}", line)] == []


def test_constraints_pin_every_dependency_and_the_torch_that_results_were_measured_with():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    assert "torch==2.13.0" in pins
    names = {line.split("==")[0] for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in ("torch", "plots", "bench", "coders", "test", "check") for name in project["optional-dependencies"][extra]),
    ]
    assert {re.split(r"[\[<>=!~ ]", name)[0] for name in wanted} - {"ellzero"} <= names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_source_files_are_finished(path: Path):
    assert re.findall(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplementedError)\b", path.read_text(encoding="utf-8")) == []


def test_no_tracked_file_names_a_folder_of_somebodys_machine():
    found = {name: match[0] for name, text in texts().items() if (match := MACHINE_PATH.search(text))}
    assert found == {}


@pytest.mark.parametrize("text", ["see " + "/home" + "/me/x", '"' + "/tmp" + '/x"', "=" + "/work" + "/main", "C:" + "\\Users\\me"])
def test_the_search_for_machine_paths_finds_them(text: str):
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["/usr/bin/env", "docs/work/x", "../tmp/x", "$HOME/tmp/x", "~/work/x", "and/or /home page"])
def test_the_search_for_machine_paths_leaves_others_alone(text: str):
    assert not MACHINE_PATH.search(text)
