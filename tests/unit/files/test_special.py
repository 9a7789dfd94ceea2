"""What is no regular file is written to and never replaced, by every function that writes."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import ellzero as lz
from child_processes import environment
from ellzero import records
from ellzero.cli.main import main
from ellzero.files.errors import FileError
from ellzero.files.special import is_special, open_special
from ellzero.files.streams import check_removable, open_output, remove_input
from ellzero.files.whole import replacing
from ellzero.plots import canvas
from ellzero.training import checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
linux = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system names no descriptors")


def by_replacing(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"new")


def by_command(path: Path) -> None:
    with open_output(path, force=True) as file:
        file.write(b"new")


def by_open(path: Path) -> None:
    with lz.open(path, "wb", level=1) as file:
        file.write(b"new")


WRITERS: list[Callable[[Path], object]] = [
    by_replacing,
    by_command,
    by_open,
    lambda path: lz.save_file({"w": torch.zeros(2, 2)}, path),
    lambda path: lz.save_model(torch.nn.Linear(2, 2), path),
    lambda path: records.write_json(path, {"a": 1}),
    lambda path: records.append_line(path, {"a": 1}),
    lambda path: checkpoint.save(path, {"a": 1}),
]
NAMES = ["replacing", "open_output", "open", "save_file", "save_model", "write_json", "append_line", "checkpoint"]


@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "link"])
def test_a_pipe_is_written_to_and_stays(write: Callable[[Path], object], linked: bool, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "pipe"
    if linked:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(path)
        assert len(os.read(reader, 1 << 16)) > 2
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(os.lstat(tmp_path / "pipe").st_mode)
    assert path.is_symlink() == linked
    assert set(os.listdir(tmp_path)) == {"pipe", path.name}


@linux
@pytest.mark.parametrize("write", WRITERS, ids=NAMES)
@pytest.mark.parametrize("name", ["/proc/self/fd/{}", "/proc/thread-self/fd/{}", "/dev/fd/{}", "link"])
def test_an_open_descriptor_is_written_to_where_it_stands(write: Callable[[Path], object], name: str, tmp_path: Path):
    with open(tmp_path / "all.txt", "wb") as file:
        file.write(b"what was in it\n")
    opened = os.open(tmp_path / "all.txt", os.O_WRONLY | os.O_APPEND)
    try:
        path = Path(name.format(opened))
        if name == "link":
            path = tmp_path / "link"
            (tmp_path / "further").symlink_to(f"/proc/self/fd/{opened}")
            path.symlink_to("further")
        before = os.fstat(opened).st_ino
        write(path)
        os.fstat(opened)
    finally:
        os.close(opened)
    content = (tmp_path / "all.txt").read_bytes()
    assert content.startswith(b"what was in it\n")
    assert len(content) > 17
    assert (tmp_path / "all.txt").stat().st_ino == before
    assert set(os.listdir(tmp_path)) == {"all.txt"} | ({"link", "further"} if name == "link" else set())


@linux
def test_the_descriptor_of_another_process_keeps_what_was_there(tmp_path: Path):
    script = "import sys, time; file = open(sys.argv[1], 'ab'); print(file.fileno(), flush=True); sys.stdin.read()"
    (tmp_path / "log").write_bytes(b"before\n")
    words = [sys.executable, "-c", script, str(tmp_path / "log")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        by_replacing(Path(f"/proc/{process.pid}/fd/{int(process.stdout.readline())}"))
        process.communicate()
    assert (tmp_path / "log").read_bytes() == b"before\nnew"


@linux
def test_a_socket_is_written_to_by_its_descriptor():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        by_replacing(Path(f"/proc/self/fd/{ours.fileno()}"))
        assert theirs.recv(10) == b"new"


def test_what_a_path_leads_to(tmp_path: Path):
    (tmp_path / "7").write_bytes(b"a file that is called as a descriptor is")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "null").symlink_to(os.devnull)
    server = socket.socket(socket.AF_UNIX)
    with server:
        here = os.getcwd()
        os.chdir(tmp_path)  # names of sockets must be short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        special = {name for name in os.listdir(tmp_path) if is_special(tmp_path / name)}
        assert special == {"null", "socket"}
        with pytest.raises(OSError):
            open_special(tmp_path / "socket")
        with pytest.raises(FileError, match="socket cannot be written"):
            by_command(tmp_path / "socket")
    assert is_special(os.devnull)
    assert not is_special(tmp_path / "nowhere")


@linux
def test_a_descriptor_that_is_not_open_is_an_error():
    with pytest.raises(FileError, match="/proc/self/fd/987 cannot be written: bad file descriptor"):
        by_command(Path("/proc/self/fd/987"))


COMMANDS = {
    "compress": ["compress", "-1", "-f", "doc", "-o", "{}"],
    "decompress": ["decompress", "-f", "doc.l0", "-o", "{}"],
    "pack": ["pack", "net.safetensors", "-f", "-o", "{}"],
    "unpack": ["unpack", "net.l0", "-f", "-o", "{}"],
}


@linux
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["/proc/self/fd/1", "link"])
def test_every_command_appends_to_what_its_output_was_redirected_to(command: str, name: str, tmp_path: Path):
    from safetensors.numpy import save_file

    (tmp_path / "doc").write_bytes(b"some text, some text")
    (tmp_path / "doc.l0").write_bytes(lz.compress(b"some text, some text", level=1))
    save_file({"w": np.ones((3, 4), np.float32)}, tmp_path / "net.safetensors")
    assert main(["pack", str(tmp_path / "net.safetensors"), "-q"]) == 0
    assert main(["unpack", str(tmp_path / "net.l0"), "-q", "-f"]) == 0
    (tmp_path / "all.txt").write_bytes(b"what was in it\n")
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    words = [sys.executable, "-m", "ellzero.cli", *(word.format(name) for word in COMMANDS[command])]
    with open(tmp_path / "all.txt", "ab") as out:
        inode = os.fstat(out.fileno()).st_ino
        subprocess.run(words, cwd=tmp_path, env=environment(), stdout=out, check=True)
    expected = {
        "compress": (tmp_path / "doc.l0").read_bytes(),
        "decompress": b"some text, some text",
        "pack": (tmp_path / "net.l0").read_bytes(),
        "unpack": (tmp_path / "net.safetensors").read_bytes(),
    }
    assert (tmp_path / "all.txt").read_bytes() == b"what was in it\n" + expected[command]
    assert (tmp_path / "all.txt").stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["all.txt", "doc", "doc.l0", "link", "net.l0", "net.safetensors"]


@linux
@pytest.mark.parametrize("words", [["compress", "-1"], ["decompress"], ["pack"]])
def test_what_stands_for_standard_input_gives_no_name_to_an_output(words: list[str], tmp_path: Path):
    # Opened by its name, it would be a regular file: pack would have written /proc/self/fd/0.l0.
    (tmp_path / "doc").write_bytes(b"some text")
    (tmp_path / "in").symlink_to("/proc/self/fd/0")
    with open(tmp_path / "doc", "rb") as stdin:
        line = [sys.executable, "-m", "ellzero.cli", *words, "in"]
        done = subprocess.run(line, cwd=tmp_path, env=environment(), stdin=stdin, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"name its output with -o" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["doc", "in"]


@linux
def test_no_name_of_a_descriptor_is_removed(tmp_path: Path):
    (tmp_path / "doc").write_bytes(b"some text")
    with open(tmp_path / "doc", "rb") as file:
        (tmp_path / "in").symlink_to(f"/proc/self/fd/{file.fileno()}")
        with pytest.raises(FileError, match="is no regular file, and nothing else is removed"):
            check_removable(tmp_path / "in")
        # Nor an input whose output went to one: who knows whether that is kept?
        (tmp_path / "a").write_bytes(b"precious")
        with pytest.raises(FileError, match="is kept"):
            remove_input(tmp_path / "a", tmp_path / "in", os.stat(tmp_path / "a"))
    assert sorted(os.listdir(tmp_path)) == ["a", "doc", "in"]


def test_a_plot_is_not_drawn_beside_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "doc").write_bytes(b"some text")
    assert main(["bench", str(tmp_path / "doc"), "--plot", str(tmp_path / "pipe")]) == 2
    assert "name a file, not a device or a pipe" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["doc", "pipe"]


def test_links_stay_whoever_writes(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    for number, write in enumerate(WRITERS):
        link = tmp_path / f"link{number}"
        link.symlink_to(tmp_path / "folder" / str(number))
        write(link)
        assert link.is_symlink()
        assert (tmp_path / "folder" / str(number)).stat().st_size > 2
    pytest.importorskip("matplotlib")
    (tmp_path / "a.png").symlink_to(os.devnull)
    canvas.draw(tmp_path / "a", (1.0, 1.0), lambda figure: None)
    assert (tmp_path / "a.png").is_symlink()
