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
        The same words, as a parser of long options and separate words expects them.
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
        elif word.startswith("--"):
            arranged.append(word)
            if word.replace("_", "-") in valued:
                arranged.extend(islice(rest, 1))
        else:
            for option in _letters(word, rest):
                if option[0][1:].isdecimal():
                    levels.append(option[0][1:])
                else:
                    arranged.extend(option)
    if levels and "--level" in defaults:
        arranged += ["--level", ",".join(levels) if many_levels else levels[-1]]
    return [*arranged, "--", *files] if files else arranged


def as_command(words: Sequence[str]) -> list[str]:
    """Turns the arguments of `l0`, which are those of xz, into a command of `ellzero` and its arguments; -d, -t and -l say which.

    Args:
        words: what follows `l0`.

    Returns:
        What would follow `ellzero`.
    """
    command = "compress"
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            others.extend((word, *rest))
        elif word in _LONG_MODES:
            command = _LONG_MODES[word]
        elif re.match(r"-[^-]", word):
            for option in _letters(word, rest):
                command = _MODES.get(option[0][1:], command)
                if option[0][1:] not in _MODES:
                    others.extend(option)
        else:
            others.append(word)
    return [command, *others]


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
    """Takes options of one letter apart; the value of -o is what follows the o, or else the next word."""
    for place, letter in enumerate(word[1:], 1):
        if letter == "o":
            yield ["-o", *([word[place + 1 :]] if word[place + 1 :] else islice(rest, 1))]
            return
        yield [f"-{letter}"]
