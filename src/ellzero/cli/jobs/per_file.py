"""Runs a job on each of several files: a bad file does not stop the others, and every error names its file."""

import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ellzero.cli.jobs.progress import say
from ellzero.codec.errors import FormatError, LimitError, MemoryLimitError
from ellzero.files.errors import FileError, words_for
from ellzero.files.streams import STANDARD


def for_each_file(files: Sequence[Path], job: Callable[[Path], None]) -> int:
    """Runs a job on every file, or on standard input where no file is given.

    Args:
        files: their names.
        job: what to do with a file; its errors are printed to stderr.

    Returns:
        The exit status: 1 if any failed.

    Raises:
        BrokenPipeError: what reads the output has stopped reading.
    """
    status = 0
    for file in files or (Path(STANDARD),):
        try:
            job(file)
        except BrokenPipeError:
            raise  # Nobody reads what the other files would give.
        except (ValueError, OSError, MemoryError) as error:
            status = 1
            say(f"ellzero: {_described(file, error)}")
    return status


def files_within(files: Sequence[Path], wanted: Callable[[str], bool]) -> tuple[list[Path], int]:
    """Lists files, and in place of folders the regular files in them and in their folders, in alphabetical order.

    Args:
        files: files and folders.
        wanted: tells by its name whether a file in a folder is listed; files that are named themselves always are.

    Returns:
        The files, and the exit status: 1 if a folder cannot be read, which is printed to stderr.
    """
    listed: list[Path] = []
    failures: list[OSError] = []
    for file in files:
        if not file.is_dir():
            listed.append(file)
            continue
        for folder, folders, inside in os.walk(file, onerror=failures.append):
            folders.sort()
            paths = (Path(folder, name) for name in sorted(inside) if wanted(name))
            listed += [path for path in paths if stat.S_ISREG(path.lstat().st_mode)]
    for failure in failures:
        folder = Path(str(failure.filename))
        say(f"ellzero: {folder} cannot be read: {words_for(failure, folder, 'read')}")
    return listed, int(bool(failures))


@contextmanager
def naming_file(file: Path) -> Generator[None]:
    """Adds the name of the file to a `FormatError` that does not have it yet."""
    try:
        yield
    except FormatError as error:
        if error.file is not None:
            raise
        raise type(error)(f"{shown(file)}: {error}", file=file) from error


def shown(file: Path) -> str:
    """Names a file, or standard input, in a message."""
    return "standard input" if str(file) == STANDARD else str(file)


def _described(file: Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = f"there is not enough memory ({text}); compressed at a lower level, or with --memory, a file needs less"
    if isinstance(error, LimitError):
        text += " (--memory)" if isinstance(error, MemoryLimitError) else " (--max-size)"
    return text if _names_a_file(error) else f"{shown(file)}: {text}"


def _names_a_file(error: Exception) -> bool:
    if isinstance(error, FileError | FormatError):
        return error.file is not None
    return isinstance(error, OSError) and error.filename is not None
