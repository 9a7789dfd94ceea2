"""Parses the command line, and turns errors into one line on stderr and an exit status."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from ellzero import __version__
from ellzero.cli.arguments import UsageError, arrange
from ellzero.cli.bench import Bench
from ellzero.cli.compress import Cat, Compress, Decompress, Verify
from ellzero.cli.demo import Demo
from ellzero.cli.inspect import Inspect
from ellzero.cli.listing import List
from ellzero.cli.pack import Pack, Unpack
from ellzero.cli.sparsify import Sparsify

Command = Annotated[
    Annotated[Sparsify, tyro.conf.subcommand("sparsify")]
    | Annotated[Pack, tyro.conf.subcommand("pack")]
    | Annotated[Unpack, tyro.conf.subcommand("unpack")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Compress, tyro.conf.subcommand("compress")]
    | Annotated[Decompress, tyro.conf.subcommand("decompress")]
    | Annotated[Cat, tyro.conf.subcommand("cat")]
    | Annotated[Verify, tyro.conf.subcommand("test")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Demo, tyro.conf.subcommand("demo")],
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.EnumChoicesFromValues,
]
# Commands whose arguments are typed as those of xz are.
_OF_FILES = {"compress": Compress, "decompress": Decompress, "cat": Cat, "test": Verify, "list": List, "bench": Bench}


def parse(arguments: Sequence[str]) -> Any:
    """Parses a command line.

    Args:
        arguments: the words after `ellzero`.

    Returns:
        The dataclass of the command, whose `run` runs it.
    """
    words = list(arguments)
    if words and (options := _OF_FILES.get(words[0])) is not None:
        # Only this command's: those of all take a twentieth of a second.
        return tyro.cli(options, args=arrange(words[1:], options), prog=f"ellzero {words[0]}", config=(tyro.conf.EnumChoicesFromValues,))
    return tyro.cli(Command, args=words, prog="ellzero", description="The shortest description: sparse networks and small files.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: the words after `ellzero`; `sys.argv` where None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if list(words) in (["--version"], ["-V"]):
        print(f"ellzero {__version__}")
        return 0
    command = parse(words)
    try:
        return command.run() or 0
    except KeyboardInterrupt as interrupt:
        print(f"ellzero: {interrupt}" if str(interrupt) else "ellzero: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"ellzero: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
