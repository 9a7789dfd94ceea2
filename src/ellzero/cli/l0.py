"""`l0`: the file commands with the arguments of xz and gzip, so that `tar -I l0` works."""

import sys
from collections.abc import Sequence

from ellzero.cli.arguments import as_command
from ellzero.cli.main import main


def l0(arguments: Sequence[str] | None = None) -> int:
    """Runs `ellzero compress`, or `decompress` (-d), `test` (-t) or `list` (-l).

    Args:
        arguments: the words after `l0`; `sys.argv` where None.

    Returns:
        The exit status, as of `ellzero`.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if "--version" in words or "-V" in words:
        from ellzero import __version__

        print(f"l0 of ellzero {__version__}")
        return 0
    return main(as_command(words))
