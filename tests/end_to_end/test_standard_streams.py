"""Standard streams that are closed or whose reader has gone, and Ctrl-C while a command starts: one line, and no traceback."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from child_processes import environment
from ellzero.archive._compress import compress, decompress
from ellzero.cli.main import l0, main

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
    "words",
    [
        ["--help"],
        ["compress", "--help"],
        ["methods"],
        ["list", "--json", "doc.l0"],
        ["list", "doc.l0"],
        ["inspect", "net.l0"],
        ["compress", "-c", "-1", "doc"],
        ["decompress", "-c", "doc.l0", "doc.l0"],
        ["cat", "nowhere.l0", "doc.l0"],
        ["unpack", "net.l0", "-q", "-o", "-"],
        ["unpack", "net.l0", "-q", "-o", "out.pt"],
        ["decompress", "doc.l0", "-o", "out.pt"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_ends_a_command_by_sigpipe(words: list[str], tmp_path: Path):
    # As it ends xz, gzip and zstd: tar and shells forgive that.
    (tmp_path / "doc").write_bytes(b"some text" * 99)
    (tmp_path / "doc.l0").write_bytes(compress(b"some text" * 99, level=1))
    save_file({"w": np.ones((64, 64), np.float32)}, tmp_path / "net.safetensors")
    assert main(["pack", str(tmp_path / "net.safetensors"), "-q"]) == 0
    (tmp_path / "out.pt").symlink_to("/proc/self/fd/1")
    before = sorted(os.listdir(tmp_path))
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*MODULE, *words], cwd=tmp_path, env=environment(), stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == -signal.SIGPIPE
    assert done.stderr == (b"ellzero: nowhere.l0 cannot be read: there is no such file\n" if "cat" in words else b"")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_head_is_content_with_what_it_took(unbuffered: str, tmp_path: Path):
    # Without a buffer, a pipe takes a part of a large block without an error.
    data = os.urandom(1 << 20)
    (tmp_path / "doc.l0").write_bytes(compress(data, level=1))
    line = f"set -o pipefail; {shlex.join([*MODULE, 'decompress', '-c', 'doc.l0'])} | head -c 1"
    known = environment() | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=known, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGPIPE, data[:1], b"")


def test_messages_that_nobody_reads_end_it_too(tmp_path: Path):
    (tmp_path / "doc").write_bytes(b"some text")
    read, write = os.pipe()
    os.close(read)
    words = [*MODULE, "compress", "-1v", "doc"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=write, check=False)
    os.close(write)
    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, b"")
    assert decompress((tmp_path / "doc.l0").read_bytes()) == b"some text"


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
def test_a_name_that_is_no_text_is_listed_with_its_bytes_escaped(tmp_path: Path):
    name = b"caf\xe9.l0"
    with open(os.fsencode(tmp_path) + b"/" + name, "wb") as file:
        file.write(compress(b"some text", level=1))
    words = [*MODULE, "list", name]
    environ = environment() | {"PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "200"}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\udce9.l0" in done.stdout  # some terminals obey such a byte


def test_a_pipe_has_no_name_to_call_the_output_after(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    status, out, said = shell("ellzero compress pipe", tmp_path)
    assert (status, out) == (1, b"")
    assert said == b"ellzero: pipe is no regular file: name its output with -o, or write to standard output with -c\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
