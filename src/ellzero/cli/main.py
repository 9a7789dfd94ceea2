"""Parses the command line, runs the command, and turns errors into one line on stderr and an exit status."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from typing import Annotated, Any, Union

import tyro

from ellzero import __version__
from ellzero.cli.options.arguments import UsageError, applicable, arrange, as_command, from_environment, without_method_options
from ellzero.files.errors import printable
from ellzero.files.streams import end_by_broken_pipe, flushed, prepare_streams

_OPTIONS, _JOBS = "ellzero.cli.options", "ellzero.cli.jobs"
COMMANDS = {
    "sparsify": (f"{_OPTIONS}.sparsify:Sparsify", f"{_JOBS}.sparsify:run_sparsify"),
    "methods": (f"{_OPTIONS}.methods:Methods", f"{_JOBS}.methods:run_methods"),
    "pack": (f"{_OPTIONS}.pack:Pack", f"{_JOBS}.pack:run_pack"),
    "unpack": (f"{_OPTIONS}.pack:Unpack", f"{_JOBS}.pack:run_unpack"),
    "inspect": (f"{_OPTIONS}.inspect:Inspect", f"{_JOBS}.inspect:run_inspect"),
    "compress": (f"{_OPTIONS}.compress:Compress", f"{_JOBS}.compress:run_compress"),
    "decompress": (f"{_OPTIONS}.compress:Decompress", f"{_JOBS}.compress:run_decompress"),
    "cat": (f"{_OPTIONS}.compress:Cat", f"{_JOBS}.compress:run_cat"),
    "test": (f"{_OPTIONS}.compress:Verify", f"{_JOBS}.compress:run_test"),
    "list": (f"{_OPTIONS}.listing:List", f"{_JOBS}.listing:run_list"),
    "bench": (f"{_OPTIONS}.bench:Bench", f"{_JOBS}.bench:run_bench"),
    "warm-up": (f"{_OPTIONS}.warm_up:WarmUp", f"{_JOBS}.warm_up:run_warm_up"),
    "demo": (f"{_OPTIONS}.demo:Demo", f"{_JOBS}.demo:run_demo"),
}
"""Each command's options and its job. Only those of the command that is asked for are imported: the others take a while."""

_WITH_ENVIRONMENT = ("compress", "decompress", "cat", "test", "list")

_L0_HELP = """l0 [OPTIONS] [FILES]: the file commands of ellzero with the arguments of xz, so that tar -I l0 works

  -z, --compress    compress: FILE becomes FILE.l0 (without any of these four)
  -d, --decompress  decompress: FILE.l0 becomes FILE
  -t, --test        decode and write nothing
  -l, --list        show what files hold

Options of one letter may be joined, as in -dc, in any order. ELLZERO_OPT holds
options that stand before all others. Those of each command: ellzero compress --help, ellzero decompress --help,
ellzero test --help, ellzero list --help."""


def parse(arguments: Sequence[str]) -> Any:
    """Parses a command line.

    Args:
        arguments: the words after `ellzero`.

    Returns:
        The options of the command, as its dataclass.

    Raises:
        UsageError: an argument is empty.
    """
    words = list(arguments)
    if any(not word or re.fullmatch(r"--[^=]+=", word) for word in words):
        raise UsageError("an argument is empty, where a name or a value was expected: a variable of the shell may not be set")
    if not words or words[0] not in COMMANDS:
        # Help, or no command: every command's options are imported, for the list of them.
        commands = tuple(Annotated[_load(options), tyro.conf.subcommand(name)] for name, (options, _) in COMMANDS.items())
        every: Any = Annotated[Union[commands], tyro.conf.OmitSubcommandPrefixes]  # noqa: UP007  # known at run time only
        return tyro.cli(every, args=words, prog="ellzero", description="The shortest description: sparse networks and small files.")
    name, *words = words
    options = _load(COMMANDS[name][0])
    names = {field.name for field in fields(options)}
    method_options: dict[str, tuple[str, ...]] = {}
    if "files" in names:
        if name in _WITH_ENVIRONMENT:
            words = [*from_environment(os.environ.get("ELLZERO_OPT", ""), options), *words]
        words = arrange(words, options)
    if "method_options" in names:
        words, method_options = without_method_options(words, options)
    parsed = tyro.cli(options, args=words, prog=f"ellzero {name}", config=(tyro.conf.EnumChoicesFromValues,))
    return replace(parsed, method_options=method_options) if method_options else parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: the words after `ellzero`; `sys.argv` where None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Where the reader of its output has stopped, the process ends
        by SIGPIPE.
    """
    return _ended(_run, sys.argv[1:] if arguments is None else arguments)


def l0(arguments: Sequence[str] | None = None) -> int:
    """Runs `ellzero compress`, or `decompress` (-d), `test` (-t) or `list` (-l), with the arguments of xz and gzip.

    Args:
        arguments: the words after `l0`; `sys.argv` where None.

    Returns:
        The exit status, as of `ellzero`.
    """
    return _ended(_run_l0, sys.argv[1:] if arguments is None else arguments)


def _ended(run: Callable[[list[str]], int], arguments: Sequence[str]) -> int:
    """Runs a program on its words, and turns errors into a line on stderr and an exit status, or the end that a signal brings."""
    try:
        prepare_streams()
        try:
            with flushed():
                return run(list(arguments))
        except BrokenPipeError:
            raise
        except KeyboardInterrupt as interrupt:
            print(f"ellzero: {interrupt}" if str(interrupt) else "ellzero: interrupted", file=sys.stderr)
            return 130
        except (ValueError, TypeError, OSError, ImportError) as error:
            print(f"ellzero: {printable(' '.join(str(error).split()))}", file=sys.stderr)
            return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:
        return end_by_broken_pipe()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # That is what rich makes of it.
            return end_by_broken_pipe()
        raise


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        print(f"ellzero {__version__}")
        return 0
    options = parse(words)
    job: Callable[[Any], int | None] = _load(COMMANDS[words[0]][1])
    return job(options) or 0


def _run_l0(words: list[str]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    if "--help" in options or "-h" in options:
        print(_L0_HELP)
        return 0
    if "--version" in options or "-V" in options:
        print(f"l0 of ellzero {__version__}")
        return 0
    command, *words = as_command(words)
    return _run([command, *applicable(words, _load(COMMANDS[command][0]))])


def _load(reference: str) -> Any:
    module, name = reference.split(":")
    return getattr(import_module(module), name)
