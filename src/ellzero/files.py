"""File manners, the same for everything that writes: whole files or none."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO, None, None]:
    """Opens a temporary file beside `path` for writing and renames it over `path` at the end.

    A kill at any time leaves the old file or the new one; an exception leaves the old one and no temporary file.

    Args:
        path: the file to write; its folder must exist.

    Yields:
        The temporary file, binary.

    Raises:
        OSError: the folder is missing or not writable.
    """
    # mkstemp makes files that only their owner reads; a finished file gets what the process would give a plain `open`.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
