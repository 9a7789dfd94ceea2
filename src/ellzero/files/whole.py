"""Writes whole files or none; what is no regular file is written to."""

import io
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from ellzero.files.errors import FileError, NamedFile, plain_errors
from ellzero.files.special import is_special, open_special


@contextmanager
def replacing(path: Path, *, overwrite: bool = True, like: os.stat_result | None = None) -> Generator[BinaryIO, None, None]:
    """Opens a temporary file beside `path` for writing and renames it over `path` at the end.

    A kill at any time leaves the old file or the new one; an exception leaves the old one and no temporary file. A symbolic link stays, and
    what it points to is replaced. What is no regular file (`special.is_special`: a device, a pipe, `/dev/stdout`) is written to directly.

    Args:
        path: the file to write; its folder must exist.
        overwrite: whether an existing file is replaced, also one that was made in the meantime.
        like: the `stat` of another file, whose owner, group, permissions and times the new file takes over; without it those of the
            file that it replaces, but for the times. Where the group cannot be kept, the new group and others get only what both had.

    Yields:
        The temporary file, binary, to be written and read, which nobody else can read until it is finished; or what is no regular file,
        to be written only.

    Raises:
        FileExistsError: a file is there and `overwrite` is False.
        OSError: the folder is missing or not writable, or a folder is in the way; while it is written, a `FileError` that names `path`.
    """
    if is_special(path):
        with open_special(path) as file:
            yield file
        return
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder: name a file in it", file=path)
    name, path = path, Path(os.path.realpath(path))
    # The name is known before the file is there, unlike that of `tempfile.mkstemp`: whatever interrupts the making of it finds what to
    # remove. Of a long name only the beginning is there: 40 letters have at most 160 bytes, and most systems allow 255.
    temporary = path.parent / f".{path.name[:40]}.{os.urandom(8).hex()}.tmp"
    try:
        try:
            raw = NamedFile(temporary, "x+", name=name, opener=_private)
        except OSError as error:
            error.filename = str(name)
            raise
        with io.BufferedRandom(raw) as file:
            yield cast(BinaryIO, file)
            file.flush()
            with plain_errors(name, "written"):
                os.fsync(file.fileno())
            before = _stat(path) if like is None else like
            if sys.platform != "win32" and before is not None:
                os.fchmod(file.fileno(), _kept_mode(file.fileno(), before))
        if before is None or sys.platform == "win32":
            os.chmod(temporary, 0o666 & ~_umask() if before is None else stat.S_IMODE(before.st_mode) & 0o777)
        if like is not None:
            os.utime(temporary, ns=(like.st_atime_ns, like.st_mtime_ns))
        if overwrite:
            os.replace(temporary, path)
        else:
            _rename_to_new(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    """Opens a file that only its owner reads; a finished one gets what the process would give a plain `open`."""
    return os.open(path, flags, 0o600)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


if sys.platform != "win32":

    def _kept_mode(descriptor: int, like: os.stat_result) -> int:
        """Gives a file the owner and group of another, as far as the system lets it.

        Returns:
            The permissions for it: those of the other file, less what another group or others must not get. As xz has it.
        """
        mode, own = stat.S_IMODE(like.st_mode) & 0o777, os.fstat(descriptor)
        if own.st_uid != like.st_uid:
            with suppress(OSError):  # Only the superuser gives files away; whoever may not keeps it, with the owner's permissions.
                os.fchown(descriptor, like.st_uid, -1)
        if own.st_gid != like.st_gid:
            try:
                os.fchown(descriptor, -1, like.st_gid)
            except OSError:
                both = mode >> 3 & mode & 0o007
                mode = mode & 0o700 | both << 3 | both
        return mode


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _rename_to_new(temporary: Path, path: Path) -> None:
    """Renames a file, unless the name is taken."""
    if sys.platform == "win32":
        os.rename(temporary, path)
        return
    try:
        # Unlike a rename, a link fails where the name is taken.
        os.link(temporary, path)
    except FileExistsError:
        raise FileExistsError(f"{path} was made by somebody else in the meantime and stays as it is") from None
    except OSError:  # A file system without hard links.
        os.replace(temporary, path)
    else:
        os.unlink(temporary)
