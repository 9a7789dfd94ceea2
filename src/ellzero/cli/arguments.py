"""Lets the file commands be typed as those of xz and zstd are: `-9kf`, `-oNAME`, options before, between and after the files."""

import re
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
        options: the dataclass of the command. A level is an option of several, if it is text; a command without one ignores it.

    Returns:
        The same, as a parser of long options and separate words expects it.
    """
    defaults = {f"--{field.name.replace('_', '-')}": field.default for field in fields(options)}
    valued = {name for name, default in defaults.items() if not isinstance(default, bool)} | {"-o"}
    several = isinstance(defaults.get("--level"), str)
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
        arranged += ["--level", ",".join(levels) if several else levels[-1]]
    return [*arranged, "--", *files] if files else arranged


def as_command(words: Sequence[str]) -> list[str]:
    """Turns the arguments of `l0`, which are those of xz, into a command of `ellzero` and its arguments; -d, -t and -l say which.

    Args:
        words: what follows `l0`.

    Returns:
        What would follow `ellzero`.
    """
    command = "compress"
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            kept.extend((word, *rest))
        elif word in _LONG_MODES:
            command = _LONG_MODES[word]
        elif re.match(r"-[^-]", word):
            for option in _letters(word, rest):
                command = _MODES.get(option[0][1:], command)
                if option[0][1:] not in _MODES:
                    kept.extend(option)
        else:
            kept.append(word)
    return [command, *kept]


def num_bytes(text: str) -> int:
    """Reads a size: a number of bytes, or with k, M, G or T after it (powers of 1024; a B or iB may follow).

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"(\d+)([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is no size: give a number of bytes, such as 500000, or 512M, or 2GiB")
    return int(match[1]) << _UNITS[match[2].lower()]


def _letters(word: str, rest: Iterator[str]) -> Iterator[list[str]]:
    """Takes options of one letter apart; what follows an o is its value, or else the next word is."""
    for place, letter in enumerate(word[1:], 1):
        if letter == "o":
            yield ["-o", *([word[place + 1 :]] if word[place + 1 :] else islice(rest, 1))]
            return
        yield [f"-{letter}"]
