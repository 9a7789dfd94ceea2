"""Parses the command line, and turns errors into one line on stderr and an exit status."""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from ellzero.cli.demo import Demo
from ellzero.cli.inspect import Inspect
from ellzero.cli.pack import Pack, Unpack
from ellzero.cli.sparsify import Sparsify

Command = Annotated[
    Annotated[Sparsify, tyro.conf.subcommand("sparsify")]
    | Annotated[Pack, tyro.conf.subcommand("pack")]
    | Annotated[Unpack, tyro.conf.subcommand("unpack")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Demo, tyro.conf.subcommand("demo")],
    tyro.conf.OmitSubcommandPrefixes,
    tyro.conf.EnumChoicesFromValues,
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: the words after `ellzero`; `sys.argv` where None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """
    command = tyro.cli(
        Command,
        args=arguments,
        prog="ellzero",
        description="The shortest description: sparse networks and small files.",
    )
    try:
        command.run()
    except KeyboardInterrupt as interrupt:
        print(f"ellzero: {interrupt}" if str(interrupt) else "ellzero: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"ellzero: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0
