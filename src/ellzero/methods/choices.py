"""The words by which a command line names the objects that a field of a method may hold."""

from collections.abc import Callable, Mapping
from dataclasses import Field
from typing import Any

_KEY = "ellzero.choices"


def choices(**makers: Callable[[], object]) -> Mapping[str, Any]:
    """Declares such words, as the metadata of a dataclass field.

    With `updates: Updates = field(default_factory=Simultaneous, metadata=choices(exact=ExactGates))` the command line reads
    `--updates exact`. An underscore in a word is typed as a hyphen.

    Args:
        makers: word -> the function, called without arguments, that makes the object.
    """
    return {_KEY: {word.replace("_", "-"): maker for word, maker in makers.items()}}


def choices_of(field: "Field[Any]") -> Mapping[str, Callable[[], object]]:
    """Returns the words declared for a field, with the functions that make their objects; empty where none are declared."""
    return field.metadata.get(_KEY, {})
