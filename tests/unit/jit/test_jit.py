import gc
import importlib
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import ellzero
from ellzero.jit import kernels
from ellzero.jit.kernels import Kernel, kernel, plain, specialised

ROOT = Path(__file__).parents[3]

# What is computed, how often machine code was found; without the word "run", only where it would be looked for, which compiles nothing.
USE = """
import sys
sys.modules["torch"] = None
from upper import twice
if sys.argv[1:] == ["run"]:
    print(twice(20), sum(twice.compiled.stats.cache_hits.values()) if hasattr(twice, "compiled") else "uncompiled")
else:
    assert "numba" not in sys.modules
    print(twice.compiled.stats.cache_path)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two files with kernels, one of which calls the other's."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "lower.py").write_text("from ellzero.jit.kernels import kernel\n@kernel\ndef once(x):\n    return x + 1\n")
    (folder / "constants.py").write_text("STEP = 100\n")
    (folder / "upper.py").write_text(
        textwrap.dedent(
            """
            from ellzero.jit.kernels import kernel
            from constants import STEP
            from lower import once
            @kernel
            def twice(x):
                return once(once(x)) + STEP
            """
        )
    )
    return folder


def run(folder: Path, cache: Path, *words: str, **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(folder))), "PYTHONDONTWRITEBYTECODE": "1"}
    # The user's cache folder on each system.
    environment |= {"XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache), "HOME": str(cache)} | variables
    done = subprocess.run([sys.executable, "-W", "error", "-c", USE, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_machine_code_is_kept_in_the_users_folder_and_only_there(package: Path, tmp_path: Path):
    before = sorted(package.rglob("*"))
    assert run(package, tmp_path / "cache", "run") == ["122", "0"]
    assert run(package, tmp_path / "cache", "run") == ["122", "1"]
    assert sorted(package.rglob("*")) == before
    (place,) = run(package, tmp_path / "cache")
    assert Path(place).is_relative_to(tmp_path / "cache")
    assert list(Path(place).glob("*.nbi"))


def test_a_change_in_what_a_kernel_calls_or_names_is_noticed(package: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    places = [run(package, cache)]
    lower, constants = package / "lower.py", package / "constants.py"
    lower.write_text(lower.read_text().replace("+ 1", "+ 2"))
    places.append(run(package, cache))
    constants.write_text("STEP = 200\n")
    places.append(run(package, cache))
    assert len({place for (place,) in places}) == 3
    constants.write_text("STEP = 100\n")
    assert run(package, cache) == places[1]


def test_a_named_cache_folder_is_one_per_source_as_well(package: Path, tmp_path: Path):
    mine = {"NUMBA_CACHE_DIR": str(tmp_path / "mine")}
    assert run(package, tmp_path, "run", **mine) == ["122", "0"]
    assert run(package, tmp_path, "run", **mine) == ["122", "1"]
    (package / "constants.py").write_text("STEP = 200\n")
    assert run(package, tmp_path, "run", **mine) == ["222", "0"]


class Ahead(NamedTuple):
    first: np.ndarray
    second: np.ndarray


Behind = NamedTuple("Ahead", [("second", np.ndarray), ("first", np.ndarray)])  # noqa: UP014  # the same name, other fields


def test_the_order_of_fields_is_a_part_of_what_a_kernel_is_made_of():
    def of(kind: type) -> bytes:
        def take(pair):
            return pair.first[0]

        take.__annotations__["pair"] = kind
        return cast(Any, kernel(take)).digest

    assert of(Ahead) == of(Ahead)
    assert of(Ahead) != of(Behind)


WIDE = True


@kernel
def width(x: int) -> int:
    return 2 * x if WIDE else x


@kernel
def total(x: int) -> int:
    return width(x) + 1


def test_a_kernel_with_other_constants_is_another():
    narrow = cast(Any, specialised(total, WIDE=False))
    assert (total(5), narrow(5), plain(narrow)(5)) == (11, 6, 11)
    assert narrow.digest != cast(Any, total).digest
    assert specialised(total, UNHEARD_OF=3) is total


def test_every_kernel_lets_other_threads_run():
    for module in pkgutil.walk_packages(ellzero.__path__, "ellzero."):
        if "__main__" not in module.name and not module.name.startswith("ellzero.integrations."):  # those need frameworks
            importlib.import_module(module.name)
    # Some objects of torch warn where isinstance asks for their class.
    kernels = [value for value in gc.get_objects() if issubclass(type(value), Kernel) and value.__module__.startswith("ellzero.")]
    names = {value.__name__ for value in kernels}
    assert {"code_piece", "find_repeats", "change_x86_calls"} < names
    for value in kernels:
        if not value._inlined:
            assert value.compiled.targetoptions["nogil"], value.__name__
            assert value.called.targetoptions["nogil"], value.__name__


def test_without_a_folder_it_compiles_anew(package: Path, tmp_path: Path):
    (tmp_path / "file").touch()
    assert run(package, tmp_path / "file", "run") == ["122", "0"]


def test_the_variables_of_numba_are_heeded(package: Path, tmp_path: Path):
    mine = tmp_path / "mine"
    (place,) = run(package, tmp_path / "cache", NUMBA_CACHE_DIR=str(mine))
    assert Path(place).is_relative_to(mine)
    assert not (tmp_path / "cache").exists()
    assert run(package, tmp_path / "cache", "run", NUMBA_DISABLE_JIT="1") == ["122", "uncompiled"]


def test_who_asks_several_times_is_told_once_that_something_is_compiled(monkeypatch: pytest.MonkeyPatch):
    """A command asks for each of its files, and what is compiled for a later one is no news."""
    monkeypatch.setattr(kernels, "_listeners", {})
    told: list[bool] = []
    for kept in (True, False):
        for _ in range(3):
            kernels.before_compiling(told.append)
        kernels.announce_compiling(kept=kept)
    assert told == [True]
