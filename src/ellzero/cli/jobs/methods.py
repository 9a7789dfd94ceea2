"""Methods by name or `module:Class`, with options that are the fields of the method's dataclass; what `ellzero methods` does."""

import enum
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ellzero.cli.jobs.by_name import imported
from ellzero.cli.options.arguments import UsageError, number
from ellzero.cli.options.methods import METHODS, Methods
from ellzero.cli.options.sparsify import Sparsify
from ellzero.methods import Method, Schedule, geometric
from ellzero.methods.choices import choices_of
from ellzero.methods.protocol import HasStrength


def chosen_method(method: Method, options: Sparsify) -> Method:
    """Replaces the recipe's method, or fields of it, by what the command line says.

    A method by name begins with the alpha and the form, proximal or not, of the recipe's method, of which a method of the user's own knows
    nothing: that one begins with its own defaults.

    Args:
        method: the recipe's.
        options: the command line.

    Raises:
        UsageError: no such method, or an option that it does not have or cannot be read.
        ValueError: a value is refused by the method.
    """
    kind = type(method) if options.method is None else method_class(options.method)
    values = _values(kind, options.method_options)
    if kind is type(method):
        # All at once, as an option may need another: exact updates need u.
        return replace(method, **values) if values else method  # pyright: ignore[reportArgumentType]
    if options.method in METHODS:
        values = _shared_with(method, kind) | values
    missing = [_flag(field) for field in option_fields(kind) if _is_required(field) and field.name not in values]
    if missing:
        raise UsageError(f"{kind.__name__} needs {' and '.join(missing)}: see `ellzero methods {options.method}`")
    chosen = kind(**values)
    if not isinstance(chosen, Method):
        raise UsageError(f"{options.method} is no method: it lacks members of ellzero.methods.Method")
    return chosen


def run_methods(options: Methods) -> None:
    """Lists methods by name, or the options of a method.

    Raises:
        UsageError: no such method.
    """
    if options.method is None:
        for name, reference in METHODS.items():
            print(f"{name:8}{_summary(method_class(reference))}")
        print("ellzero methods NAME lists the options of a method; any other method is module:Class")
        return
    kind = method_class(options.method)
    print(_summary(kind))
    described = _attributes(kind)
    for field in option_fields(kind):
        print(f"\n  {_flag(field)} {_values_text(kind, field)}")
        default = "required" if _is_required(field) else f"default: {_default(field)!r}"
        text = described.get(field.name)
        print("      " + (f"{text} ({default})" if text else default))


def method_class(name: str) -> type[Any]:
    """Finds the dataclass of a method.

    Args:
        name: one of `METHODS`, or `module:Class`.

    Raises:
        UsageError: no such name, module or class, or the class is no dataclass.
    """
    if name not in METHODS and ":" not in name:
        raise UsageError(f"--method {name}: no method has this name: expected {', '.join(METHODS)}, or module:Class")
    try:
        kind = imported(METHODS.get(name, name))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise UsageError(f"{name} is no dataclass: expected the class of a method, whose fields are its options")
    return kind


def option_fields(kind: type[Any]) -> "list[Field[Any]]":
    """Lists the fields of a dataclass that its constructor takes."""
    return [field for field in fields(kind) if field.init]


def _values(kind: type[Any], options: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    known = {field.name: field for field in option_fields(kind)}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, words in options.items():
        field, negated = known.get(name), known.get(name.removeprefix("no_"))
        if field is not None:
            values[name] = _value(field, hints[name], words)
        elif negated is not None and not words and bool in _alternatives(hints[negated.name]):
            values[negated.name] = False
        else:
            raise UsageError(_unknown(kind, name))
    return values


def _unknown(kind: type[Any], name: str) -> str:
    flag = f"--{name.replace('_', '-')}"
    flags = [_flag(field) for field in option_fields(kind)]
    own = [f"--{field.name.replace('_', '-')}" for field in fields(Sparsify)]
    close = get_close_matches(flag, own + flags, n=1, cutoff=0.75)
    text = f"{flag} means nothing to {kind.__name__}: leave it out, or choose another --method"
    text += f"; {kind.__name__} has {', '.join(flags) or 'no options'}"
    return f"{text}; did you mean {close[0]}?" if close else text


def _value(field: "Field[Any]", hint: Any, words: Sequence[str]) -> Any:
    """Reads the words after an option as a value of the field's type."""
    makers = choices_of(field)
    if len(words) == 1 and words[0] in makers:
        return makers[words[0]]()
    for kind in _alternatives(hint):
        value = _read(kind, words)
        if value is not MISSING:
            return value
    given = f" {' '.join(words)}" if words else ""
    expected = _expected(hint, makers)
    raise UsageError(f"{_flag(field)}{given}: expected {expected or 'module:function that makes the object'}")


def _read(kind: Any, words: Sequence[str]) -> Any:
    """Reads words as a value of a type; MISSING where they are none."""
    if get_origin(kind) is tuple:
        return _read_tuple(get_args(kind), words)
    if kind is Schedule and len(words) == 2:
        first, last = (number(word) for word in words)
        return MISSING if isinstance(first, str) or isinstance(last, str) else geometric(first, last)
    if kind is bool and not words:
        return True
    return _read_word(kind, words[0]) if len(words) == 1 else MISSING


def _read_word(kind: Any, word: str) -> Any:
    """Reads a word as a value of a type; MISSING where it is none."""
    if kind in (bool, types.NoneType):
        return {bool: {"true": True, "false": False}, types.NoneType: {"none": None}}[kind].get(word, MISSING)
    if kind in (str, Path):
        return kind(word)
    if kind in (int, float):
        value = number(word)
        return kind(value) if isinstance(value, int | kind) else MISSING
    if get_origin(kind) is Literal:
        return next((choice for choice in get_args(kind) if str(choice) == word), MISSING)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next((member for member in kind if word in (str(member.value), member.name.lower())), MISSING)
    return imported(word)() if ":" in word else MISSING


def _read_tuple(kinds: tuple[Any, ...], words: Sequence[str]) -> Any:
    if kinds[-1:] == (...,):
        kinds = (kinds[0],) * len(words)
    values = [_read(kind, [word]) for kind, word in zip(kinds, words, strict=False)]
    return MISSING if len(kinds) != len(words) or MISSING in values else tuple(values)


def _alternatives(hint: Any) -> Iterator[Any]:
    """Lists the types of a union, text last: any word can be read as text."""
    kinds = [kind for part in get_args(hint) for kind in _alternatives(part)] if get_origin(hint) in (Union, types.UnionType) else [hint]
    yield from sorted(kinds, key=lambda kind: kind is str)


def _expected(hint: Any, makers: Mapping[str, Any]) -> str:
    """Describes what may follow an option, for help and messages; empty where nothing but `module:function` may."""
    names: dict[Any, str] = {float: "a number", int: "a whole number", Schedule: "FIRST LAST", str: "text", Path: "a path"}
    names |= {bool: "nothing, true or false", types.NoneType: "none"}
    texts = list(makers)
    for kind in _alternatives(hint):
        if kind in names:
            texts.append(names[kind])
        elif get_origin(kind) is Literal:
            texts += map(str, get_args(kind))
        elif get_origin(kind) is tuple:
            texts.append("values")
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            texts += [str(member.value) for member in kind]
    return ", or ".join(texts)


def _values_text(kind: type[Any], field: "Field[Any]") -> str:
    hint = get_type_hints(kind)[field.name]
    return f"({_expected(hint, choices_of(field)) or 'module:function'})"


def _shared_with(method: Method, kind: type[Any]) -> dict[str, Any]:
    """Lists what a method by name takes over from the recipe's."""
    names = {field.name for field in option_fields(kind)}
    shared: dict[str, Any] = {"proximal": method.proximal}
    if isinstance(method, HasStrength):
        shared["alpha"] = method.alpha
    return {name: value for name, value in shared.items() if name in names}


def _flag(field: "Field[Any]") -> str:
    return f"--{field.name.replace('_', '-')}"


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _summary(kind: type[Any]) -> str:
    return f"{kind.__name__}: {(inspect.getdoc(kind) or '').partition(chr(10))[0]}"


def _attributes(kind: type[Any]) -> dict[str, str]:
    """Reads the section "Attributes" of a docstring: what it says about each field, on one line."""
    _, _, section = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    described = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in described}
