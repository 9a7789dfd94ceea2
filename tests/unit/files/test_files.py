import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from child_processes import environment
from ellzero.archive._compress import open as ellzero_open
from ellzero.files.errors import FileError
from ellzero.files.streams import check_removable, open_input, open_output, remove_input
from ellzero.files.whole import replacing

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files or signals")

COPY = """
import sys
sys.modules["torch"] = None
from ellzero.files.streams import open_input, open_output
source, target, *words = sys.argv[1:]
try:
    with open_input(source, terminal=False) as reader:
        with open_output(target, source=source, force="-f" in words, terminal="-t" in words) as writer:
            while data := reader.read(1 << 16):
                writer.write(data)
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def copy(*words: str | Path, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", COPY, *map(str, words)], cwd=cwd, env=environment(), input=stdin, capture_output=True, check=False
    )


def write(path: Path | str, data: bytes = b"new", **options: object) -> None:
    with open_output(path, **options) as file:
        file.write(data)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole(tmp_path: Path):
    with open_output(tmp_path / "a") as file:
        file.write(b"some bytes")
        file.flush()
        assert names(tmp_path) != ["a"]
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"some bytes"


@posix
def test_nobody_else_reads_an_unfinished_file(tmp_path: Path):
    with open_output(tmp_path / "a"):
        (unfinished,) = tmp_path.iterdir()
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask


def test_files_story_01_the_input_is_never_the_output(tmp_path: Path):
    source = tmp_path / "a"
    source.write_bytes(b"precious")
    (tmp_path / "hard").hardlink_to(source)
    (tmp_path / "soft").symlink_to(source)
    for other in (source, tmp_path / "hard", tmp_path / "soft", tmp_path / "." / "a"):
        for force in (False, True):
            with pytest.raises(FileError, match=r"is the input|is the same file as .*name another"):
                write(other, source=source, force=force)
            with pytest.raises(FileError, match=r"is the input|is the same file as .*name another"):
                write(source, source=other, force=force)
    assert source.read_bytes() == b"precious"
    assert names(tmp_path) == ["a", "hard", "soft"]


@posix
def test_files_story_01_also_through_standard_streams(tmp_path: Path):
    source = tmp_path / "a"
    source.write_bytes(b"precious")
    with source.open("rb") as stdin:
        words = [sys.executable, "-c", COPY, "-", "a", "-f"]
        done = subprocess.run(words, cwd=tmp_path, env=environment(), stdin=stdin, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"a is the same file as -: name another\n")
    with source.open("ab") as stdout:
        words = [sys.executable, "-c", COPY, "a", "-", "-f"]
        done = subprocess.run(words, cwd=tmp_path, env=environment(), stdout=stdout, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"- is the same file as a: name another\n")
    assert source.read_bytes() == b"precious"


STOPPED = """
import sys, time
from ellzero.files.streams import open_output
with open_output(sys.argv[1], force=True) as file:
    file.write(b"half")
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("before", [None, b"old"])
def test_files_story_02_a_signal_leaves_what_was_there(number: signal.Signals, before: bytes | None, tmp_path: Path):
    target = tmp_path / "a"
    if before is not None:
        target.write_bytes(before)
    words = [sys.executable, "-c", STOPPED, str(target)]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert len(names(tmp_path)) == 1 + (before is not None)
        process.send_signal(number)
        assert process.wait(20) != 0
        assert process.stderr is not None
        assert b"KeyboardInterrupt" in process.stderr.read()
    assert names(tmp_path) == ([] if before is None else ["a"])
    assert before is None or target.read_bytes() == before


@posix
@pytest.mark.parametrize("before", [None, b"old"])
def test_files_story_02_a_kill_leaves_what_was_there(before: bytes | None, tmp_path: Path):
    target = tmp_path / "a"
    if before is not None:
        target.write_bytes(before)
    with subprocess.Popen([sys.executable, "-c", STOPPED, str(target)], env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait(20)
    assert target.exists() == (before is not None)
    assert before is None or target.read_bytes() == before


@posix
def test_signals_are_as_they_were_afterwards(tmp_path: Path):
    def mine(*_: object) -> None:
        seen.append(1)

    seen: list[int] = []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    write(tmp_path / "a")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, mine)
    try:
        with open_output(tmp_path / "b") as file:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            file.write(b"whole")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert seen == [1]
    assert (tmp_path / "b").read_bytes() == b"whole"


def test_an_exception_leaves_what_was_there(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")

    def fail(path: Path) -> None:
        with open_output(path, force=True) as file:
            file.write(b"half")
            raise ZeroDivisionError

    for name in ("a", "b"):
        with pytest.raises(ZeroDivisionError):
            fail(tmp_path / name)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_files_story_03_inputs_are_removed_only_where_their_output_stands(tmp_path: Path):
    source, output = tmp_path / "a", tmp_path / "a.l0"
    source.write_bytes(b"precious")
    opened = source.stat()
    for other in ("-", output, source, tmp_path):
        with pytest.raises(FileError, match="is kept: it is removed only where its output is a file of its own"):
            remove_input(source, other, opened)
    with pytest.raises(FileError, match="- is kept"):
        remove_input("-", source, opened)
    output.write_bytes(b"coded")
    remove_input(source, output, opened)
    assert names(tmp_path) == ["a.l0"]
    with pytest.raises(FileError, match="a cannot be removed: there is no such file"):
        remove_input(source, output, opened)


def replace(source: Path) -> None:
    newer = source.with_name("newer")
    newer.write_bytes(source.read_bytes())
    status = source.stat()
    os.utime(newer, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(newer, source)


def append(source: Path) -> None:
    status = source.stat()
    with source.open("ab") as file:
        file.write(b"more")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))


def rewrite(source: Path) -> None:
    os.utime(source, ns=(0, source.stat().st_mtime_ns + 1000))


@pytest.mark.parametrize("change", [replace, append, rewrite])
def test_an_input_that_has_changed_is_kept(change: Callable[[Path], None], tmp_path: Path):
    source, output = tmp_path / "a", tmp_path / "a.l0"
    source.write_bytes(b"precious")
    output.write_bytes(b"coded")
    with open_input(source) as file:
        opened = os.fstat(file.fileno())
        change(source)
    with pytest.raises(FileError, match=r"a is kept: it has changed since it was read, and .*a.l0 holds what it was before"):
        remove_input(source, output, opened)
    assert names(tmp_path) == ["a", "a.l0"]


@posix
def test_what_is_no_regular_file_is_not_removed(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", os.devnull, "-"):
        with pytest.raises(FileError, match="is no regular file, and nothing else is removed: leave --rm out"):
            check_removable(name)
    (tmp_path / "a").touch()
    check_removable(tmp_path / "a")


def test_files_story_05_existing_files_are_overwritten_on_request_only(tmp_path: Path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(FileError, match=r"a exists: -f overwrites it, -o names another output"):
        write(target)
    assert target.read_bytes() == b"old"
    write(target, force=True)
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_a_file_made_in_the_meantime_stays(tmp_path: Path):
    target = tmp_path / "a"

    def meet() -> None:
        with open_output(target) as file:
            file.write(b"new")
            target.write_bytes(b"theirs")

    with pytest.raises(FileExistsError, match="made by somebody else in the meantime"):
        meet()
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]


@posix
@pytest.mark.parametrize(("answer", "expected"), [(b"y\n", b"new"), (b"\n", b"old"), (b"no\n", b"old")])
def test_files_story_05_it_asks_on_a_terminal_only(answer: bytes, expected: bytes, tmp_path: Path):
    import pty

    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "a").write_bytes(b"old")
    mine, theirs = pty.openpty()
    os.write(mine, answer)
    words = [sys.executable, "-c", COPY, "new", "a"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, check=False)
    said = os.read(mine, 1000)
    os.close(mine)
    os.close(theirs)
    assert b"a exists; overwrite it? [y/N]" in said
    assert done.returncode == (0 if expected == b"new" else 1)
    assert (tmp_path / "a").read_bytes() == expected


@posix
def test_files_story_20_bytes_go_through_pipes_unchanged_and_not_to_terminals(tmp_path: Path):
    import pty

    data = bytes(range(256)) * 300 + b"\r\n\x1a\n"
    done = copy("-", "-", cwd=tmp_path, stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")
    (tmp_path / "in").write_bytes(b"\x00")
    for words, code in ((["in", "-"], 1), (["in", "-", "-f"], 0), (["in", "-", "-t"], 0)):
        mine, theirs = pty.openpty()
        line = [sys.executable, "-c", COPY, *words]
        ended = subprocess.run(line, cwd=tmp_path, env=environment(), stdout=theirs, stderr=subprocess.PIPE, check=False)
        os.close(theirs)
        os.close(mine)
        assert ended.returncode == code, ended.stderr
        assert code == 0 or b"compressed bytes are not written to a terminal: redirect them with >" in ended.stderr
    mine, theirs = pty.openpty()
    line = [sys.executable, "-c", COPY, "-", "out"]
    ended = subprocess.run(line, cwd=tmp_path, env=environment(), stdin=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    os.close(mine)
    assert (ended.returncode, b"not read from a terminal" in ended.stderr) == (1, True)
    assert names(tmp_path) == ["in"]


BROKEN = """
import sys
from ellzero.files.streams import end_by_broken_pipe, open_output
try:
    with open_output("whole") as whole, open_output("-", terminal=True) as file:
        whole.write(b"begun")
        for _ in range(100):
            file.write(bytes(1 << 16))
except BrokenPipeError:
    print("cleaned up", file=sys.stderr)
    end_by_broken_pipe()
"""


@posix
def test_a_reader_that_stops_ends_by_sigpipe_when_all_is_cleaned_up(tmp_path: Path):
    line = [sys.executable, "-c", BROKEN]
    with subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"cleaned up\n"
        assert process.wait(20) == -signal.SIGPIPE
    assert names(tmp_path) == []


def test_files_story_24_an_empty_file_is_a_file(tmp_path: Path):
    (tmp_path / "empty").touch()
    assert copy("empty", "out", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_what_is_in_the_way_is_said(tmp_path: Path):
    with pytest.raises(FileError, match="nowhere cannot be read: there is no such file"), open_input(tmp_path / "nowhere"):
        pass
    with pytest.raises(FileError, match="is a folder: name a file"), open_input(tmp_path):
        pass
    with pytest.raises(FileError, match="is a folder: name a file in it"):
        write(tmp_path, force=True)
    with pytest.raises(FileError, match=r"there is no folder .*none; make it first"):
        write(tmp_path / "none" / "a")
    (tmp_path / "a").touch()
    with pytest.raises(FileError, match="a part of its path is no folder"):
        write(tmp_path / "a" / "b")
    assert names(tmp_path) == ["a"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no folder that takes no files")
def test_a_folder_that_takes_no_files_is_no_missing_folder():
    with pytest.raises(FileError, match=r"/proc/x cannot be written: no file can be made in /proc$"):
        write("/proc/x")


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="the superuser may read and write everything")
def test_missing_permissions_are_said(tmp_path: Path):
    (tmp_path / "a").touch(mode=0)
    with pytest.raises(FileError, match="cannot be read: permission denied"), open_input(tmp_path / "a"):
        pass
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="cannot be written: permission denied"):
        write(tmp_path / "b")


@posix
def test_links_stay_and_devices_are_written_to(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "real")
    write(tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "real").read_bytes() == b"new"
    write(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe")
    assert os.read(reader, 10) == b"new"
    os.close(reader)


@posix
def test_permissions_and_times_are_kept_on_request(tmp_path: Path):
    source = tmp_path / "a"
    source.write_bytes(b"old")
    source.chmod(0o4640)
    os.utime(source, ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    write(tmp_path / "b", source=source, keep=True)
    kept = (tmp_path / "b").stat()
    assert stat.S_IMODE(kept.st_mode) == 0o640
    assert (kept.st_atime_ns, kept.st_mtime_ns) == (1_000_000_000_123_456_789, 1_100_000_000_987_654_321)
    write(tmp_path / "c", source=source)
    assert (tmp_path / "c").stat().st_mtime_ns != kept.st_mtime_ns


@posix
def possible(path: Path) -> bool:
    """Tells whether the system takes a name; whatever else prevents a file is an error."""
    try:
        path.touch()
    except OSError as error:
        if error.errno not in (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL):
            raise
        return False
    return True


@pytest.mark.parametrize("letter", ["n", "\N{SNOWMAN}", "\udcff"], ids=["ascii", "three bytes", "no text"])
def test_names_may_be_as_long_as_the_system_allows(letter: str, tmp_path: Path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    size = len(os.fsencode(letter))
    for length in range(longest - 15, longest + 1):
        name = letter * (length // size) + "x" * (length % size)
        if not possible(tmp_path / name):
            pytest.skip("this system has other rules for names")
        write(tmp_path / name, force=True)
        assert (tmp_path / name).read_bytes() == b"new"
    assert len(names(tmp_path)) == 16
    # Said at once, not when the work is done.
    with pytest.raises(FileError, match="its name is too long for this file system"), open_output(tmp_path / ("x" * (longest + 1))):
        pytest.fail("it was opened")
    with pytest.raises(FileError, match="cannot be read: its name is too long"), open_input(tmp_path / ("x" * (longest + 1))):
        pass


def test_replacing_still_overwrites(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


INTERRUPTED = """
import itertools, os, sys
from pathlib import Path
from ellzero.files import replacing
target, overwrite = Path(sys.argv[1]), sys.argv[2] == "overwrite"
for when in itertools.count(1):
    left = when
    def stop(frame, event, argument):
        global left
        left -= event in ("call", "line")
        if left == 0:
            raise KeyboardInterrupt
        return stop
    try:
        sys.settrace(stop)
        with replacing(target, overwrite=overwrite) as file:
            file.write(b"new")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    if left > 0:
        break
    assert os.listdir(target.parent) in ([], [target.name]), (when, os.listdir(target.parent))
    target.unlink(missing_ok=True)
print(when)
"""


@pytest.mark.parametrize("words", ["overwrite", "refuse"])
def test_files_story_02_an_interruption_at_any_line_leaves_no_temporary_file(words: str, tmp_path: Path):
    # A signal comes when it will, also while the file is being made: here at every line that is run, one after the other.
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "a"), words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def refuse(*_: object) -> None:
    raise PermissionError


@posix
@pytest.mark.parametrize(
    ("mode", "left"), [(0o640, 0o600), (0o644, 0o644), (0o664, 0o644), (0o660, 0o600), (0o604, 0o600), (0o755, 0o755), (0o751, 0o711)]
)
def test_a_group_that_cannot_be_kept_takes_its_permissions_with_it(mode: int, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The group of this process must read no more than both the file's group and others did.
    source = tmp_path / "a"
    source.write_bytes(b"old")
    source.chmod(mode)
    monkeypatch.setattr(os, "fchown", refuse)
    status = source.stat()
    times = {"st_atime_ns": status.st_atime_ns, "st_mtime_ns": status.st_mtime_ns}
    of_others = os.stat_result((*status[:4], os.getuid() + 1, os.getgid() + 1, *status[6:]), times)
    with replacing(tmp_path / "b", like=of_others) as file:
        file.write(b"new")
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == left


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only the superuser gives files away")
def test_owner_and_group_are_kept_with_the_permissions(tmp_path: Path):
    source = tmp_path / "a"
    source.write_bytes(b"old")
    os.chown(source, 1234, 4321)
    source.chmod(0o640)
    write(tmp_path / "b", source=source, keep=True)
    with replacing(source) as file:
        file.write(b"new")
    for path in (source, tmp_path / "b"):
        kept = path.stat()
        assert (kept.st_uid, kept.st_gid, stat.S_IMODE(kept.st_mode)) == (1234, 4321, 0o640)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(mode: int, tmp_path: Path):
    for linked in (False, True):
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(mode)
        if linked:
            (tmp_path / "link").symlink_to("a")
        before = (tmp_path / "a").stat().st_mtime_ns
        write(tmp_path / ("link" if linked else "a"), force=True)
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
        assert (tmp_path / "a").stat().st_mtime_ns >= before
    with ellzero_open(tmp_path / "a", "wb", level=1) as file:
        file.write(b"newer")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


@posix
def test_links_are_said_before_one_is_removed(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"precious")
    (tmp_path / "soft").symlink_to("a")
    check_removable(tmp_path / "a")
    check_removable(tmp_path / "nowhere")
    (tmp_path / "hard").hardlink_to(tmp_path / "a")
    for path in (tmp_path / "a", tmp_path / "hard"):
        with pytest.raises(FileError, match="has 1 other hard link, which would keep its bytes"):
            check_removable(path)
    (tmp_path / "harder").hardlink_to(tmp_path / "a")
    with pytest.raises(FileError, match="has 2 other hard links"):
        check_removable(tmp_path / "a")
    with pytest.raises(FileError, match="soft is a symbolic link, and its target would stay"):
        check_removable(tmp_path / "soft")
    for path in ("a", "hard", "soft"):
        check_removable(tmp_path / path, force=True)
