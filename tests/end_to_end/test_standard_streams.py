"""Standard streams that are closed or whose reader has gone, and Ctrl-C while a command starts: one line, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from child_processes import environment
from ellzero.archive._compress import compress
from ellzero.cli.main import l0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows closes no streams like this")
MODULE = [sys.executable, "-m", "ellzero.cli"]


def shell(line: str, folder: Path) -> tuple[int, bytes, bytes]:
    """Runs a line of sh, in which $0 and what follows stand for `ellzero`."""
    words = ["sh", "-c", line.replace("ellzero", '"$0" "$@"'), *MODULE]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("ellzero compress -o x.l0 <&-", 1, b"ellzero: standard input is closed: redirect it, or name a file\n"),
        ("ellzero compress -1 -c doc >&-", 1, b"ellzero: doc: standard output is closed: redirect it, or name a file with -o\n"),
        ("ellzero compress -1 doc >&-", 0, b""),
        ("ellzero list doc2.l0 >&-", 1, b"ellzero: standard output is closed: redirect it, or name a file with -o\n"),
        ("ellzero --help >&-", 1, b"ellzero: standard output is closed: redirect it, or name a file with -o\n"),
        ("ellzero test doc2.l0 2>&-", 0, b""),
        ("ellzero compress -1 doc <&- >&- 2>&-", 0, b""),
    ],
)
def test_closed_streams_are_said_where_they_are_needed(line: str, status: int, said: bytes, tmp_path: Path):
    (tmp_path / "doc").write_bytes(b"some text, some text")
    (tmp_path / "doc2.l0").write_bytes(compress(b"other text", level=1))
    assert shell(line, tmp_path) == (status, b"", said)
    assert (tmp_path / "doc").read_bytes() == b"some text, some text"
    assert (tmp_path / "doc.l0").exists() == ("-1 doc" in line)
    assert not (tmp_path / "x.l0").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], b"ellzero: what reads standard output has stopped reading\n"),
        (["list", "--json", "doc.l0"], b"ellzero: what reads standard output has stopped reading\n"),
        (["list", "doc.l0"], b""),  # What prints tables ends by itself.
    ],
)
def test_a_reader_that_has_gone_is_one_line_at_most(words: list[str], said: bytes, tmp_path: Path):
    (tmp_path / "doc.l0").write_bytes(compress(b"some text", level=1))
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*MODULE, *words], cwd=tmp_path, env=environment(), stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, said)


def test_an_interruption_while_it_starts_has_the_status_130(tmp_path: Path):
    # Whatever is imported first is interrupted.
    (tmp_path / "tyro.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n")
    known = environment()
    known["PYTHONPATH"] = os.pathsep.join((str(tmp_path), known["PYTHONPATH"]))
    handled = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from ellzero.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", handled], env=known, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"ellzero: interrupted\n")


def test_l0_says_what_its_own_options_are(capsys: pytest.CaptureFixture[str]):
    assert l0(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(option in said for option in ("-d, --decompress", "-t, --test", "-l, --list", "-z, --compress"))


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_a_name_that_is_no_text_is_listed_as_it_is(tmp_path: Path):
    name = b"caf\xe9.l0"
    with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
        file.write(compress(b"some text", level=1))
    words = [*MODULE, "list", name]
    environ = environment() | {"PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "200"}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\xe9" in done.stdout


def test_a_pipe_has_no_name_to_call_the_output_after(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    status, out, said = shell("ellzero compress pipe", tmp_path)
    assert (status, out) == (1, b"")
    assert said == b"ellzero: pipe is no regular file: name its output with -o, or write to standard output with -c\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
