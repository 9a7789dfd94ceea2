"""`l0`: the file commands with the arguments of xz and gzip, so that `tar -I l0` works."""

import sys
from collections.abc import Sequence

from ellzero.cli.arguments import as_command
from ellzero.cli.main import main

_HELP = """l0 [OPTIONS] [FILES]: the file commands of ellzero with the arguments of xz, so that tar -I l0 works

  -z, --compress    compress: FILE becomes FILE.l0 (without any of these four)
  -d, --decompress  decompress: FILE.l0 becomes FILE
  -t, --test        decode and write nothing
  -l, --list        show what files hold

Options of one letter may be joined, as in -dc. Those of each command: ellzero compress --help, ellzero decompress --help,
ellzero test --help, ellzero list --help."""


def l0(arguments: Sequence[str] | None = None) -> int:
    """Runs `ellzero compress`, or `decompress` (-d), `test` (-t) or `list` (-l).

    Args:
        arguments: the words after `l0`; `sys.argv` where None.

    Returns:
        The exit status, as of `ellzero`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--help" in words or "-h" in words:
        print(_HELP)
        return 0
    if "--version" in words or "-V" in words:
        from ellzero import __version__

        print(f"l0 of ellzero {__version__}")
        return 0
    return main(as_command(words))
