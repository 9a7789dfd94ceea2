"""Rearranges the words of a command line for a parser of long options.

The file commands are typed as those of xz and zstd are: `-9kf`, `-oNAME`, options before, between and after the files. `ellzero sparsify`
takes options of its own and of a method, which nobody knows before the method is imported.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

_LETTERS = {
    "o": "output",
    "c": "stdout",
    "k": "keep",
    "f": "force",
    "q": "quiet",
    "v": "verbose",
    "r": "recursive",
    "S": "suffix",
}
"""Options of one letter, by the fields that they are of."""
_VALUED = "oST"
# What xz and gzip have and what changes nothing here: one thread computes, -9 is as small as it gets, and no name is stored.
_IGNORED = ("-T", "--threads", "-e", "--extreme", "-n", "--no-name")
_LEVELS = {"--fast": "1", "--best": "9"}
_MODES = {"d": "decompress", "t": "test", "l": "list", "z": "compress"}
_LONG_MODES = {"--decompress": "decompress", "--uncompress": "decompress", "--test": "test", "--list": "list", "--compress": "compress"}
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class UsageError(ValueError):
    """A command line that parses and means nothing; the exit status is 2."""


def arrange(words: Sequence[str], options: type[Any]) -> list[str]:
    """Puts a file command's options first and its files last, options of one letter apart, and its level into words.

    Args:
        words: what follows the name of the command.
        options: the dataclass of the command. It takes several levels where its option `level` is text; without that option, levels are
            ignored.

    Returns:
        The same words, as a parser of long options and separate words expects them, without those of xz and gzip that change nothing.

    Raises:
        UsageError: no number of threads follows -T.
    """
    defaults = {f"--{field.name.replace('_', '-')}": field.default for field in fields(options)}
    valued = {name for name, default in defaults.items() if not isinstance(default, bool)} | {"-o"}
    many_levels = isinstance(defaults.get("--level"), str)
    arranged: list[str] = []
    files: list[str] = []
    levels: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            files.extend(rest)
        elif word == "-" or not word.startswith("-"):
            files.append(word)
        elif (name := word.partition("=")[0].replace("_", "-")) in _LEVELS:
            levels.append(_LEVELS[name])
        elif word.startswith("--") and not (name in _IGNORED and name not in defaults):
            arranged.append(word)
            if word.replace("_", "-") in valued:
                arranged.extend(islice(rest, 1))
        else:
            for option in [[word]] if word.startswith("--") else _letters(word, rest):
                if option[0][1:].isdecimal():
                    levels.append(option[0][1:])
                elif (name := option[0].partition("=")[0]) not in _IGNORED:
                    arranged.extend(option)
                elif name in ("-T", "--threads"):
                    _check_threads(option, rest)
    if levels and "--level" in defaults:
        arranged += ["--level", ",".join(levels) if many_levels else levels[-1]]
    return [*arranged, "--", *files] if files else arranged


def as_command(words: Sequence[str]) -> list[str]:
    """Turns the arguments of `l0`, which are those of xz, into a command of `ellzero` and its arguments; -d, -t and -l say which.

    Their order does not matter: to list is less than to test, and that is less than to decompress.

    Args:
        words: what follows `l0`.

    Returns:
        What would follow `ellzero`.
    """
    commands: set[str] = set()
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            others.extend((word, *rest))
        elif word in _LONG_MODES:
            commands.add(_LONG_MODES[word])
        elif re.match(r"-[^-]", word):
            for option in _letters(word, rest):
                if option[0][1:] in _MODES:
                    commands.add(_MODES[option[0][1:]])
                else:
                    others.extend(option)
        else:
            others.append(word)
    return [next((command for command in ("list", "test", "decompress") if command in commands), "compress"), *others]


def levels_of(text: str) -> list[str]:
    """Reads levels with commas between them.

    Raises:
        UsageError: there is no such level.
    """
    levels = text.split(",")
    if not all(level in set("123456789") for level in levels):
        raise UsageError(f"--level {text}: levels are 1 (fast) to 9 (small), with commas between several")
    return levels


def applicable(words: Sequence[str], options: type[Any]) -> list[str]:
    """Leaves out the options that other file commands have and this one has not, as xz accepts every option whatever it does.

    Args:
        words: of a command line, or of ELLZERO_OPT.
        options: the dataclass of the command.
    """
    from ellzero.cli.options.compress import Compress, Decompress

    own = {field.name for field in fields(options)}
    others = {field.name: field.default for kind in (Compress, Decompress) for field in fields(kind) if field.name not in own}
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        if word == "--":
            kept += [word, *rest]
        elif word.startswith("--") and name.removeprefix("no_") in others:
            if not equals and not isinstance(others[name.removeprefix("no_")], bool):
                next(rest, None)
        elif re.match(r"-[^-]", word):
            letters = [option for option in _letters(word, rest) if _LETTERS.get(option[0][1:]) not in others]
            kept += [part for option in letters for part in option]
        else:
            kept.append(word)
    return kept


def from_environment(text: str, options: type[Any]) -> list[str]:
    """Reads options from ELLZERO_OPT, which stand before those of the command line.

    Args:
        text: options of the file commands, with spaces between them; those that the command has not are left out.
        options: the dataclass of the command.

    Raises:
        UsageError: it holds something else, such as the name of a file.
    """
    words = applicable(text.split(), options)
    if "--" in words or "--" in arrange(words, options):
        raise UsageError(f"ELLZERO_OPT={text}: it holds options only, and no names of files")
    return words


def without_method_options(words: Sequence[str], options: type[Any]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Takes the options that a command does not have out of its words: they are the method's.

    Args:
        words: what follows the name of the command.
        options: the dataclass of the command; its options of one letter but -q take a value.

    Returns:
        The other words, and the words of each option taken out, by its name with underscores. The first word after an option is its
        value, unless it is an option too; more words are its values where they are numbers.
    """
    defaults = {f"--{field.name.replace('_', '-')}": field.default for field in fields(options)}
    own: list[str] = []
    taken: dict[str, tuple[str, ...]] = {}
    rest = deque(words)
    while rest:
        word = rest.popleft()
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if word == "--":
            own += [word, *rest]
            break
        if not _is_option(word) or name in ("-q", "-h", "--help") or isinstance(defaults.get(name), bool):
            own.append(word)
        elif name in defaults or not name.startswith("--"):
            own.append(word)
            if not equals and rest:
                own.append(rest.popleft())
        else:
            values = [value] if equals else []
            while not equals and rest and not _is_option(rest[0]) and (not values or _is_number(rest[0])):
                values.append(rest.popleft())
            taken[name.removeprefix("--").replace("-", "_")] = tuple(values)
    return own, taken


def number(word: str) -> int | float | str:
    """Turns a word that is a number into that number."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def num_bytes(text: str) -> int:
    """Reads a size: a number of bytes, or a number with k, M, G or T after it (powers of 1024; B or iB may follow).

    Raises:
        UsageError: the text is no size.
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is no size: give a number of bytes, such as 500000, or 512M, or 2GiB")
    return int(match[1]) << _UNITS[match[2].lower()]


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _is_number(word)


def _is_number(word: str) -> bool:
    return not isinstance(number(word), str)


def _letters(word: str, rest: Iterator[str]) -> Iterator[list[str]]:
    """Takes options of one letter apart; the value of -o, -S and -T is what follows the letter, or else the next word."""
    for place, letter in enumerate(word[1:], 1):
        if letter in _VALUED:
            yield [f"-{letter}", *([word[place + 1 :]] if word[place + 1 :] else islice(rest, 1))]
            return
        yield [f"-{letter}"]


def _check_threads(option: Sequence[str], rest: Iterator[str]) -> None:
    """Checks that a number of threads is one, so that no name of a file is taken for it."""
    name, equals, value = option[0].partition("=")
    value = value if equals else option[1] if len(option) > 1 else next(rest, "")
    if not value.isdecimal():
        raise UsageError(f"{name} {value}: expected a number of threads, which changes nothing: one computes")
