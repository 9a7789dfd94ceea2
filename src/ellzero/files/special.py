"""What is no regular file: devices, pipes, sockets, and open descriptors by their names, such as `/dev/stdout` and `/proc/self/fd/3`.

Such a name stands for something that is open or that others hold, so it is written to and never replaced: a file renamed over it would take
the place of the device for every program, or lose what a shell has redirected to it.
"""

import io
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, cast

from ellzero.files.errors import NamedFile

_LINKS = 40  # as many as Linux follows


def is_special(path: Path | str) -> bool:
    """Tells whether a path leads to something that is there and is neither a regular file by a name of its own nor a folder.

    Args:
        path: any path; links are followed.
    """
    if _descriptor_folder(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def open_special(path: Path | str) -> BinaryIO:
    """Opens for writing what `is_special`: a descriptor where it stands, with what was written to it before, anything else as it is.

    Args:
        path: of a device, a pipe, or a descriptor.

    Returns:
        A binary file; closing it leaves a descriptor open.

    Raises:
        OSError: it cannot be opened, or no such descriptor is open.
    """
    found = _descriptor_folder(path)
    file: Path | str | int = path
    mode = "w"
    if found is not None:
        folder, number = found
        mode = "a"
        if folder == "/dev/fd" or re.fullmatch(re.escape(os.path.realpath("/proc/self")) + r"(/task/\d+)?/fd", folder):
            # Opened anew by its name it would be cut, and written from its beginning.
            file, mode = os.dup(number), "w"
    return cast(BinaryIO, io.BufferedWriter(NamedFile(file, mode, name=path)))


def _descriptor_folder(path: Path | str) -> tuple[str, int] | None:
    """Follows links to the name of an open descriptor.

    Returns:
        The folder of descriptors of a process, and the number; None where the path leads elsewhere.
    """
    place = os.path.abspath(path)
    for _ in range(_LINKS):
        folder, name = os.path.split(place)
        # The last part is followed by hand: what a descriptor's name leads to is the name of its file, if it has one.
        folder = os.path.realpath(folder)
        if name.isdecimal() and re.fullmatch(r"/dev/fd|/proc/[^/]+(/task/\d+)?/fd", folder):
            return folder, int(name)
        try:
            place = os.path.join(folder, os.readlink(os.path.join(folder, name)))
        except OSError:
            return None
    return None
