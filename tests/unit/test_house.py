"""Rules of the house that no other tool checks."""

import ast
import graphlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}

HOUSE = (
    "cli > (report) | (integrations) | (zoo) > plots > training > archive > quantise > pruning > attaching | surgery > methods"
    " > description | codec > jit > data | models > params | targets | records > distributed > types > files"
)
"""The rooms, from the roof to the cellar: imports only go down. Those in parentheses may be absent."""
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
        *(
            name
            for extra in ("torch", "plots", "bench", "coders", "test", "check", "docs", "browser")
            for name in project["optional-dependencies"][extra]
        ),
    ]
    assert {re.split(r"[\[<>=!~ ]", name)[0] for name in wanted} - {"ellzero"} <= names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_source_files_are_finished(path: Path):
    assert re.findall(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplementedError)\b", path.read_text(encoding="utf-8")) == []


def imports(path: Path) -> Iterator[str]:
    """Lists what a file imports, within functions too: modules of ellzero as modules, anything else as it is written."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{path}: write imports in full"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def test_the_layers_are_those_of_the_house():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["name"] == "imports go one way")
    assert layers["type"] == "layers"
    assert layers["containers"] == ["ellzero"]
    assert layers["exhaustive"] is True
    assert " > ".join(layers["layers"]) == HOUSE
    rooms = {module.split(".")[1] for module in MODULES if module not in ("ellzero", "ellzero.__main__")}
    assert rooms == set(re.findall(r"\w+", HOUSE)) - {room for room in re.findall(r"\((\w+)\)", HOUSE) if f"ellzero.{room}" not in MODULES}


def test_imports_go_down_only():
    height = {room: -level for level, storey in enumerate(HOUSE.split(" > ")) for room in re.findall(r"\w+", storey)}
    wrong = []
    for module, path in MODULES.items():
        own = module.split(".")[1] if "." in module else None
        for imported in imports(path):
            room = imported.split(".")[1] if imported.startswith("ellzero.") else None
            if own in height and room in height and own != room and height[room] >= height[own]:
                wrong.append((module, imported))
    assert wrong == []


def test_there_is_no_circle_of_imports():
    # A package that imports its own modules to re-export them is a table of contents, which they do not read.
    graph = {module: {imported for imported in imports(path) if imported in MODULES} for module, path in MODULES.items()}
    graph["ellzero"] = set()  # resolves names when they are used
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert len(order) == len(MODULES)


def test_one_file_knows_torch_distributed():
    knows = [module for module, path in MODULES.items() if any(name.startswith("torch.distributed") for name in imports(path))]
    assert knows == ["ellzero.distributed"]


# Appends a line; leaves a cache that anyone may lose; asks the system for the peak of its memory anew.
WRITES_ITSELF = {"ellzero.records", "ellzero.jit.machine", "ellzero.cli.jobs.bench_run"}


def writes(path: Path) -> Iterator[str]:
    """Lists the calls of a file that open another for writing, or give one a name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            words = [word.value for word in (*node.args, *(word.value for word in node.keywords)) if isinstance(word, ast.Constant)]
            modes = [word for word in words if isinstance(word, str) and re.fullmatch(r"[rwax][bt]?\+?[bt]?", word)]
            opened = called.split(".")[-1] == "open" and any(mode not in ("r", "rb", "rt") for mode in modes)
            if (
                opened
                or called.split(".")[-1] in ("write_text", "write_bytes", "NamedFile")
                or called in ("os.replace", "os.rename", "os.open")
            ):
                yield called


def test_one_room_opens_what_is_written():
    # So that nothing is renamed over a device, whoever writes.
    assert {module for module, path in MODULES.items() if [*writes(path)]} - WRITES_ITSELF == {
        "ellzero.files.special",
        "ellzero.files.streams",
        "ellzero.files.whole",
    }


@pytest.mark.parametrize("package", [module for module, path in MODULES.items() if path.name == "__init__.py" and module != "ellzero"])
def test_no_module_is_shadowed_by_what_its_package_exports(package: str):
    tree = ast.parse(MODULES[package].read_text(encoding="utf-8"))
    exported = {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(name for name in exported if f"{package}.{name}" in MODULES) == []


def test_no_tracked_file_names_a_folder_of_somebodys_machine():
    found = {name: match[0] for name, text in texts().items() if (match := MACHINE_PATH.search(text))}
    assert found == {}


@pytest.mark.parametrize("text", ["see " + "/home" + "/me/x", '"' + "/tmp" + '/x"', "=" + "/work" + "/main", "C:" + "\\Users\\me"])
def test_the_search_for_machine_paths_finds_them(text: str):
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["/usr/bin/env", "docs/work/x", "../tmp/x", "$HOME/tmp/x", "~/work/x", "and/or /home page"])
def test_the_search_for_machine_paths_leaves_others_alone(text: str):
    assert not MACHINE_PATH.search(text)
