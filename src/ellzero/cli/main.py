"""Parses the command line, and turns errors into one line on stderr and an exit status."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import tyro

from ellzero import __version__
from ellzero.cli.arguments import UsageError, arrange
from ellzero.cli.streams import flushed, prepare_streams

# Commands whose arguments are typed as those of xz are, and where each is. No other's are read, which takes a while.
_OF_FILES = {
    "compress": ("ellzero.cli.options.compress", "Compress"),
    "decompress": ("ellzero.cli.options.compress", "Decompress"),
    "cat": ("ellzero.cli.options.compress", "Cat"),
    "test": ("ellzero.cli.options.compress", "Verify"),
    "list": ("ellzero.cli.jobs.listing", "List"),
    "bench": ("ellzero.cli.jobs.bench", "Bench"),
}


def parse(arguments: Sequence[str]) -> Any:
    """Parses a command line.

    Args:
        arguments: the words after `ellzero`.

    Returns:
        The dataclass of the command, whose `run` runs it.
    """
    words = list(arguments)
    if words and words[0] in _OF_FILES:
        module, name = _OF_FILES[words[0]]
        options = getattr(import_module(module), name)
        return tyro.cli(options, args=arrange(words[1:], options), prog=f"ellzero {words[0]}", config=(tyro.conf.EnumChoicesFromValues,))
    from ellzero.cli.commands import Command

    return tyro.cli(Command, args=words, prog="ellzero", description="The shortest description: sparse networks and small files.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: the words after `ellzero`; `sys.argv` where None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    prepare_streams()
    try:
        with flushed():
            return _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt as interrupt:
        print(f"ellzero: {interrupt}" if str(interrupt) else "ellzero: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"ellzero: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _run(words: Sequence[str]) -> int:
    if list(words) in (["--version"], ["-V"]):
        print(f"ellzero {__version__}")
        return 0
    return parse(words).run() or 0
