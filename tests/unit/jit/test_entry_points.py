"""Kernels that Python calls: the same numbers with and without numba, and machine code that is only ever what the source says."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ellzero.jit import machine
from ellzero.jit.entry_points import Entry, entry
from ellzero.jit.kernels import kernel, plain

ROOT = Path(__file__).parents[3]
portable = pytest.mark.skipif(sys.platform != "linux", reason="numba loads its own machine code on this system")


class Pair(NamedTuple):
    bytes: np.ndarray
    words: np.ndarray


@kernel
def halved(value: np.int64) -> np.int64:
    return value >> np.int64(1)


@entry
def gather(pair: Pair, grid: np.ndarray, pick: bool, step: int) -> np.int64:
    total = np.int64(0)
    for i in range(pair.bytes.size):
        total += np.int64(pair.bytes[i])
        pair.bytes[i] = np.uint8(i)
    for row in range(grid.shape[0]):
        for column in range(grid.shape[1]):
            total += np.int64(grid[row, column]) * np.int64(row - column)
    pair.words[0] = np.uint32(total & np.int64(0xFFFFFFFF))
    return halved(total) * np.int64(step) if pick else -total


@entry
def wide(value: np.uint64) -> np.uint64:
    return np.uint64(value) - np.uint64(1)


@entry
def is_odd(value: int) -> bool:
    return (np.int64(value) & np.int64(1)) == np.int64(1)


@entry
def divide(values: np.ndarray, divisor: int) -> None:
    for i in range(values.size):
        values[i] = values[i] // np.int64(divisor)


@given(st.lists(st.integers(0, 255), min_size=1), st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(-(2**20), 2**20))
def test_it_computes_what_its_source_says(numbers: list[int], rows: int, columns: int, pick: bool, step: int):
    grid = np.arange(rows * columns, dtype=np.int16).reshape(rows, columns) - 7
    found = []
    for function in (gather, plain(gather)):
        pair = Pair(np.array(numbers, np.uint8), np.zeros(1, np.uint32))
        found.append((int(function(pair, grid, pick, step)), pair.bytes.tolist(), pair.words.tolist()))
    assert found[0] == found[1]


def test_numbers_of_every_kind_come_back_as_python_has_them():
    assert wide(np.uint64(0)) == 2**64 - 1
    assert wide(np.uint64(2**64 - 1)) == 2**64 - 2
    assert is_odd(-3) is True
    assert is_odd(np.uint8(4)) is False
    values = np.array([9, -9])
    assert divide(values, np.int32(2)) is None
    assert values.tolist() == [4, -5]


def test_what_only_numba_takes_goes_its_way():
    values = np.arange(10)[::2]
    divide(values, 2)
    assert values.tolist() == [0, 1, 2, 3, 4]
    values = np.arange(3.0)
    divide(values, 2)
    assert values.tolist() == [0, 0, 1]


def test_memory_that_may_not_be_written_is_not():
    values = np.frombuffer(bytes(16), np.int64)
    with pytest.raises(Exception, match=r"readonly|immutable|Cannot modify"):
        divide(values, 2)


@portable
def test_a_failure_is_an_error():
    assert divide(np.array([4]), 2) is None
    with pytest.raises(RuntimeError, match="divide failed"):
        divide(np.array([4]), 0)


def test_what_is_returned_has_to_be_said():
    for returned in (float, np.int32):

        def wrong(value: int):
            return value

        wrong.__annotations__["return"] = returned
        with pytest.raises(TypeError, match="wrong returns"):
            entry(wrong)
    del wrong.__annotations__["return"]
    with pytest.raises(TypeError, match="wrong returns"):
        entry(wrong)


@pytest.mark.parametrize("broken", ["identity", "emit", "load", "read"])
def test_without_the_machine_code_numba_computes(broken: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fail(*_: object) -> None:
        raise AttributeError("another release has no such function")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, broken, fail)
    again = Entry(plain(wide))
    assert again(5) == 4


def test_code_that_calls_what_may_be_missing_is_not_kept():
    with pytest.raises(RuntimeError, match="a kernel calls cosine"):
        machine.emit("declare double @cosine(double)\ndefine void @f() {\n  call double @cosine(double 0.0)\n  ret void\n}")


# What is computed, and whether numba was needed.
USE = """
import sys
sys.modules["torch"] = None
import numpy as np
from upper import twice
values = np.arange(3)
print(twice(values, 20), *values, "numba" in sys.modules)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two files with kernels, one of which calls the other's."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "lower.py").write_text("from ellzero.jit.kernels import kernel\n@kernel\ndef once(x):\n    return x + 1\n")
    (folder / "upper.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from ellzero.jit.entry_points import entry
            from lower import once
            @entry
            def twice(values, x) -> np.int64:
                values[0] = x
                return once(once(x))
            """
        )
    )
    return folder


def run(folder: Path, cache: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(folder))), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache), "HOME": str(cache)} | variables
    done = subprocess.run([sys.executable, "-W", "error", "-c", USE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@portable
def test_the_second_process_does_without_numba_until_something_changes(package: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    assert run(package, cache) == "22 20 1 2 True"
    assert run(package, cache) == "22 20 1 2 False"
    # Another processor, or another setting of the compiler, has machine code of its own.
    assert run(package, cache, NUMBA_CPU_NAME="generic") == "22 20 1 2 True"
    lower = package / "lower.py"
    lower.write_text(lower.read_text().replace("+ 1", "+ 2"))
    assert run(package, cache) == "24 20 1 2 True"
    # What is damaged is made anew.
    files = list(cache.rglob("*.code"))
    assert len(files) == 3
    for file in files:
        file.write_bytes(file.read_bytes()[:-100])
    assert run(package, cache) == "24 20 1 2 True"
    assert run(package, cache) == "24 20 1 2 False"


@portable
def test_a_named_cache_folder_gives_no_code_of_another_source(package: Path, tmp_path: Path):
    mine = {"NUMBA_CACHE_DIR": str(tmp_path / "mine")}
    assert run(package, tmp_path, **mine) == "22 20 1 2 True"
    assert run(package, tmp_path, **mine) == "22 20 1 2 False"
    lower = package / "lower.py"
    lower.write_text(lower.read_text().replace("+ 1", "+ 2"))
    assert run(package, tmp_path, **mine) == "24 20 1 2 True"


@portable
def test_other_threads_run_while_a_kernel_does():
    values, ticks, done = np.ones(1 << 21, np.int64), 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    divide(values, 1)  # compiled
    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    # Some tenths of a second. Where Python's lock is held, the thread does not tick while a call lasts, and each wakes it once at most.
    for _ in range(10):
        divide(values, 1)
    counted = ticks - before
    done.set()
    thread.join()
    assert counted > 11


def test_it_computes_without_a_compiler_and_without_a_folder(package: Path, tmp_path: Path):
    assert run(package, tmp_path / "cache", NUMBA_DISABLE_JIT="1") == "22 20 1 2 False"
    (tmp_path / "file").touch()
    assert run(package, tmp_path / "file") == "22 20 1 2 True"
    mine = tmp_path / "mine"
    assert run(package, tmp_path / "cache", NUMBA_CACHE_DIR=str(mine)) == "22 20 1 2 True"
    assert not (tmp_path / "cache").exists()
    assert list(mine.rglob("*.*"))
