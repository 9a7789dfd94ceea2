"""The first use: what is compiled is said at once, also where nobody watches, and can be compiled beforehand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILING = "ellzero: compiling once, which takes some seconds; `ellzero warm-up` does it beforehand\n"


def ellzero(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(cache), "HOME": str(cache), "LOCALAPPDATA": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "ellzero.cli", *words], env=environment, capture_output=True, text=True, errors="replace", check=False
    )


def test_what_was_warmed_up_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"to be or not to be, that is 1 of 2 questions\n" * 20)
    warmed = ellzero("warm-up", "--level", "1", "--no-networks", cache=tmp_path)
    assert warmed.returncode == 0, warmed.stderr
    assert warmed.stderr.startswith("ellzero: level 1 is ready, after ")
    done = ellzero("compress", "-1", str(tmp_path / "a"), cache=tmp_path)
    assert (done.returncode, "compiling" in done.stderr) == (0, False)


def test_compiling_is_said_once_and_off_a_terminal(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"to be or not to be " * 20)
    loud = ellzero("compress", "-1", str(tmp_path / "a"), str(tmp_path / "b"), cache=tmp_path / "first")
    assert loud.returncode == 0
    assert loud.stderr.count(COMPILING) == 1


def test_quiet_says_nothing_and_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"to be or not to be " * 20)
    (tmp_path / "file").touch()  # no folder can be made in it, whoever asks
    told = ellzero("compress", "-1", "-c", str(tmp_path / "a"), cache=tmp_path / "file")
    assert "takes some seconds each time" in told.stderr
    assert "NUMBA_CACHE_DIR names another folder" in told.stderr
    assert ellzero("compress", "-1", "-q", str(tmp_path / "a"), cache=tmp_path / "file").stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits of processes")
def test_a_cache_that_is_full_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """The limit refuses the next byte as a full disk does; what is compressed is smaller."""
    (tmp_path / "a").write_bytes(b"to be or not to be " * 20)
    limited = (
        "import resource, sys; from ellzero.cli.main import main; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); sys.exit(main())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    words = [sys.executable, "-c", limited, "compress", "-1", "-q", str(tmp_path / "a")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.l0").exists()


def test_what_cannot_be_warmed_up_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = ellzero("warm-up", cache=tmp_path / "file")
    assert refused.returncode == 1
    assert "so nothing can be kept: name another in NUMBA_CACHE_DIR" in refused.stderr
    assert refused.stderr.count("\n") == 1
    wrong = ellzero("warm-up", "--level", "0,x", cache=tmp_path)
    assert (wrong.returncode, wrong.stderr) == (2, "ellzero: --level 0,x: levels are 1 (fast) to 9 (small), with commas between several\n")
