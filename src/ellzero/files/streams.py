"""Files or standard streams that a command reads and writes: refusals that say what to do, and nothing half-written when it is stopped.

What a refusal raises is a `FileError`, an OSError with one line of text. `prepare_streams` and `flushed` stand around a whole command.
"""

import errno
import io
import os
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn, cast

from ellzero.files.errors import FileError, NamedFile, plain_errors, printable, words_for
from ellzero.files.special import is_special, open_special
from ellzero.files.whole import replacing

STANDARD = "-"


@contextmanager
def open_input(path: Path | str, *, terminal: bool = True) -> Generator[BinaryIO, None, None]:
    """Opens what a command reads.

    Args:
        path: a file, or `-` for standard input.
        terminal: whether standard input may be a terminal; False for compressed bytes, which nobody types.

    Yields:
        The file, binary and buffered. Standard input stays open.

    Raises:
        FileError: there is no such file, it is a folder, or it may not be read.
    """
    if str(path) == STANDARD:
        if not terminal and sys.stdin.isatty():
            raise FileError("compressed bytes are not read from a terminal: name a file, or redirect one with <")
        yield sys.stdin.buffer
        return
    with plain_errors(path, "read"):
        if os.path.isdir(path):
            raise FileError(f"{path} is a folder: name a file", file=path)
        file = open(path, "rb")  # noqa: SIM115  # closed below; errors while it is used are the caller's
    with file:
        yield file


@contextmanager
def open_output(
    path: Path | str,
    *,
    source: Path | str | None = None,
    others: Collection[Path] = (),
    force: bool = False,
    terminal: bool = False,
    keep: bool = False,
) -> Generator[BinaryIO, None, None]:
    """Opens what a command writes: a file appears whole at the end, or not at all.

    An exception, Ctrl-C and SIGTERM (raised as KeyboardInterrupt) leave what was there before. Where a file exists, it asks if both input
    and messages are on a terminal, and refuses elsewhere. What is no regular file, such as a device, a pipe or `/dev/stdout`, is written to
    directly; a symbolic link stays, its target is replaced.

    Args:
        path: a file, or `-` for standard output.
        source: what is read meanwhile, a file or `-`, which the output must not be.
        others: further files that are read meanwhile.
        force: whether an existing file is overwritten, and bytes go to a terminal.
        terminal: whether what is written is fit for a terminal.
        keep: whether the output takes over owner, group, permissions and times of `source`; see `replacing`.

    Yields:
        The file, binary and buffered. Standard output is flushed and stays open.

    Raises:
        FileError: the output exists, is the input, a folder, or a terminal, or its folder is not there.
        BrokenPipeError: what reads the output has stopped reading.
    """
    read = None if source is None else _status(source, 0)
    written = _status(path, 1)
    for read_path, status in ((source, read), *((other, _status(other, 0)) for other in others)):
        if status is not None and written is not None and stat.S_ISREG(status.st_mode) and os.path.samestat(status, written):
            message = (
                f"{path} is the input: name another output"
                if path == read_path
                else f"{path} is the same file as {read_path}: name another"
            )
            raise FileError(message, file=path)
    if written is not None and stat.S_ISDIR(written.st_mode):
        raise FileError(f"{path} is a folder: name a file in it", file=path)
    with ExitStack() as stack:
        stack.enter_context(stoppable())
        with plain_errors(path, "written"):
            if str(path) == STANDARD:
                file = cast(BinaryIO, sys.stdout.buffer)
                stack.callback(file.flush)
            elif is_special(path):
                file = stack.enter_context(open_special(path))
            else:
                overwrite = force or (written is not None and _agreed(path, source))
                if written is not None and not overwrite:
                    raise FileError(f"{path} exists: -f overwrites it, -o names another output", file=path)
                like = read if keep and str(source) != STANDARD else None
                file = stack.enter_context(replacing(Path(path), overwrite=overwrite, like=like))
            if file.isatty() and not (terminal or force):
                raise FileError(
                    "compressed bytes are not written to a terminal: redirect them with >, name a file with -o, or insist with -f"
                )
        yield file


@contextmanager
def stoppable() -> Generator[None, None, None]:
    """Turns SIGTERM and a hang-up into KeyboardInterrupt, as Ctrl-C is, so that what is half-written gets removed.

    Only in the main thread, and only where nothing else has been arranged for the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]
    old = {number: signal.signal(number, _stop) for number in numbers if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def temporary_file(folder: Path | None = None, *, remedy: str = "TMPDIR names another folder") -> BinaryIO:
    """Opens a file without a name, to be written and read, whose errors say where it is.

    Args:
        folder: where; the system's folder for such files where None.
        remedy: what to do where there is no room for it.

    Returns:
        A binary file; closing it removes it.

    Raises:
        OSError: it cannot be made; while it is written, a `FileError`.
    """
    with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
        name = f"a temporary file in {folder or tempfile.gettempdir()} ({remedy})"
        return cast(BinaryIO, io.BufferedRandom(NamedFile(os.dup(file.fileno()), "r+", name=name)))


@contextmanager
def flushed() -> Generator[None, None, None]:
    """Writes what standard output still holds, at the end.

    Raises:
        BrokenPipeError: what reads standard output has stopped reading.
        OSError: it cannot be written, as where a disk is full.
    """
    try:
        yield
    except BrokenPipeError:
        _give_up_output()
        raise
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            _give_up_output()
            raise


def _give_up_output() -> None:
    """Keeps Python from repeating an error of standard output, which it flushes once more at its end."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def end_by_broken_pipe() -> int:
    """Ends this process as a broken pipe ends other programs: by SIGPIPE and without a word, which tar and shells forgive.

    To be called when everything is cleaned up.

    Returns:
        The exit status 1, where the system knows no such signal.
    """
    # Python ignores the signal from its start on, so that a write raises instead.
    if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPIPE])
        os.kill(os.getpid(), signal.SIGPIPE)
    return 1


def prepare_streams() -> None:
    """Lets standard output print any name of a file, and name itself in errors; replaces standard streams that are closed (`<&-`, `>&-`).

    So no file is opened under the number of a closed one, and messages to a closed stderr go nowhere. Standard output has a buffer then,
    under `python -u` too: without one, a pipe or a full disk takes a part of what is written, and the rest is lost without an error.
    """
    # Python leaves None where a stream is closed.
    streams = cast(list[Any], [sys.stdin, sys.stdout, sys.stderr])
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            if os.open(os.devnull, os.O_RDWR) != number:
                return  # The numbers are not free in order: somebody else arranged them.
    if streams[0] is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed("standard input")))
    if streams[1] is None:
        sys.stdout = io.TextIOWrapper(cast(Any, _Closed("standard output")), write_through=True)
    elif isinstance(streams[1], io.TextIOWrapper):
        # A name that is no UTF-8 is printed as it is on disk.
        errors = "surrogateescape" if streams[1].errors == "strict" else streams[1].errors
        raw: Any = getattr(streams[1].buffer, "raw", streams[1].buffer)
        if type(raw) is io.FileIO and raw.fileno() == 1:
            streams[1].flush()
            buffer = io.BufferedWriter(NamedFile(1, "w", name="standard output", closefd=False))
            lines = streams[1].line_buffering or streams[1].write_through
            sys.stdout = io.TextIOWrapper(buffer, encoding=streams[1].encoding, errors=errors, line_buffering=lines)
        else:
            streams[1].reconfigure(errors=errors)
    if streams[2] is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # as long as the process


def check_removable(source: Path | str, *, force: bool = False) -> None:
    """Refuses, before anything is done, to remove what is no regular file, or has other names that would keep its bytes.

    Args:
        source: the input.
        force: whether a symbolic link, or one of several hard links, is removed all the same.

    Raises:
        FileError: the input is `-`, a pipe, a device, `/dev/stdin` or the like; or it is a link.
    """
    if str(source) == STANDARD or is_special(source):
        raise FileError(f"{source} is no regular file, and nothing else is removed: leave --rm out", file=source)
    try:
        status = os.lstat(source)
    except OSError:
        return  # Whoever opens it says what is wrong.
    if not force and stat.S_ISLNK(status.st_mode):
        raise FileError(f"{source} is a symbolic link, and its target would stay: leave --rm out, or -f removes the link", file=source)
    others = status.st_nlink - 1
    if not force and stat.S_ISREG(status.st_mode) and others > 0:
        named = "1 other hard link" if others == 1 else f"{others} other hard links"
        raise FileError(f"{source} has {named}, which would keep its bytes: leave --rm out, or -f removes this name", file=source)


def remove_input(source: Path | str, output: Path | str, opened: os.stat_result) -> None:
    """Removes an input whose output is a finished file, unless it has changed since it was opened.

    Args:
        source: the input.
        output: what was made of it.
        opened: what `fstat` gave of the input before it was read.

    Raises:
        FileError: one of them is `-`, or the output is no file that stands there: then the input is all there is. Or another file has
            taken the place of the input, or something was written to it meanwhile.
    """
    with plain_errors(source, "removed"):
        standing = str(output) != STANDARD and not is_special(output) and Path(output).is_file()
        if str(source) == STANDARD or not standing or os.path.samefile(source, output):
            raise FileError(f"{source} is kept: it is removed only where its output is a file of its own", file=source)
        now = os.stat(source)
        if (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) != (opened.st_dev, opened.st_ino, opened.st_size, opened.st_mtime_ns):
            raise FileError(f"{source} is kept: it has changed since it was read, and {output} holds what it was before", file=source)
        os.unlink(source)


class _Closed(io.RawIOBase):
    """Stands in the place of a closed stream: a command that does not use the stream works, any other says what is wrong."""

    def __init__(self, name: str) -> None:
        self._name = name

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, _buffer: Any, /) -> int:
        raise FileError(f"{self._name} is closed: redirect it, or name a file", file=STANDARD)

    def write(self, _data: Any, /) -> int:
        raise FileError(f"{self._name} is closed: redirect it, or name a file with -o")


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")


def _status(path: Path | str, standard: int) -> os.stat_result | None:
    """Looks up a file, following links, or a standard stream by its descriptor; None where there is none."""
    try:
        return os.fstat(standard) if str(path) == STANDARD else os.stat(path)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EBADF}:
            return None
        raise FileError(f"{path} cannot be looked at: {words_for(error, Path(path).parent, 'read')}", file=path) from error


def _agreed(path: Path | str, source: Path | str | None) -> bool:
    """Asks whether a file may be overwritten, where somebody is there to answer."""
    if str(source) == STANDARD or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{printable(str(path))} exists; overwrite it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
