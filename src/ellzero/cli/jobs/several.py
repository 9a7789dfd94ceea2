"""One job for each of several files, of which a bad one does not stop the others."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ellzero.cli.jobs.messages import say
from ellzero.codec.errors import FormatError, LimitError
from ellzero.files.streams import STANDARD


def each(files: Sequence[Path], job: Callable[[Path], None]) -> int:
    """Does a job for every file, or for standard input where there is none.

    Args:
        files: their names.
        job: what to do with one; its errors are said on stderr.

    Returns:
        The exit status: 1 if any failed.
    """
    status = 0
    for file in files or (Path(STANDARD),):
        try:
            job(file)
        except (ValueError, OSError, MemoryError) as error:
            status = 1
            say(f"ellzero: {_described(file, error)}")
            if isinstance(error.__context__, BrokenPipeError):
                break  # Nobody reads what the other files would give.
    return status


@contextmanager
def naming(file: Path) -> Generator[None]:
    """Says of which file something is wrong, where that has not been said."""
    try:
        yield
    except FormatError as error:
        if shown(file) in str(error):
            raise
        raise type(error)(f"{shown(file)}: {error}") from error


def shown(file: Path) -> str:
    """Names a file, or standard input, in a message."""
    return "standard input" if str(file) == STANDARD else str(file)


def _described(file: Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        text = f"there is not enough memory ({text}); compressed at a lower level, or with --memory, a file needs less"
    if isinstance(error, LimitError):
        text += " (--memory)" if "bytes of memory" in text else " (--max-size)"
    return text if shown(file) in text else f"{shown(file)}: {text}"
