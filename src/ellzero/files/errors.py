"""Errors that name a file and say what to do: one line of text."""

import errno
import io
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class FileError(OSError):
    """A file is not there, is in the way, or is not what a command can read or write.

    Attributes:
        file: the file that the message names; None where it names none, as where a standard stream is closed.
    """

    def __init__(self, message: str, *, file: Path | str | None = None) -> None:
        super().__init__(message)
        self.file = file


def printable(text: str) -> str:
    """Escapes what a terminal would obey instead of show: control characters, directions of text, and bytes that are no text.

    Names of tensors and files come from strangers and may hold any of these.
    """
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)


@contextmanager
def plain_errors(path: Path | str, done: str) -> Generator[None, None, None]:
    """Turns errors of the system into a `FileError` that names the file and says in words what is wrong; a broken pipe stays itself.

    Args:
        path: the file.
        done: what could not be done with it: read, written or removed.
    """
    try:
        yield
    except (FileError, BrokenPipeError):
        raise
    except OSError as error:
        plain = FileError(f"{path} cannot be {done}: {words_for(error, Path(path).parent, done)}", file=path)
        plain.errno = error.errno
        raise plain from error


class NamedFile(io.FileIO):
    """A file whose errors name it: a full disk is not blamed on what is read meanwhile.

    Args:
        file: its path, or an open descriptor.
        mode: as of `open`.
        name: the path for messages.
        options: further ones, as of `io.FileIO`.
    """

    def __init__(self, file: Path | str | int, mode: str, *, name: Path | str, **options: Any) -> None:
        super().__init__(str(file) if isinstance(file, Path) else file, mode, **options)
        self._named = name

    def write(self, data: Any, /) -> int:
        """Writes bytes, maybe a part of them.

        Raises:
            FileError: they cannot be written.
            BrokenPipeError: what reads them has stopped reading.
        """
        with plain_errors(self._named, "written"):
            return super().write(data)


def words_for(error: OSError, folder: Path, done: str) -> str:
    """Describes in words why something could not be `done` (read, written, removed) in a folder."""
    if isinstance(error, FileNotFoundError):
        if done != "written":
            return "there is no such file"
        return f"no file can be made in {folder}" if folder.is_dir() else f"there is no folder {folder}; make it first"
    if isinstance(error, NotADirectoryError):
        return "a part of its path is no folder"
    if isinstance(error, PermissionError):
        return "permission denied"
    if error.errno == errno.ENAMETOOLONG:
        return "its name is too long for this file system"
    return (error.strerror or str(error)).lower()
