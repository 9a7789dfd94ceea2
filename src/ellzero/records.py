"""One run is one record, one line of JSON. Works without torch.

Figures and tables are drawn from records, so a record holds plain JSON only, and never a NaN: most readers refuse it, and where a figure is
missing, null says so.
"""

import enum
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import ellzero
from ellzero.files.special import is_special, open_special
from ellzero.files.whole import replacing

__all__ = ["Record", "append_line", "read_json", "read_lines", "settings_of", "versions", "write_json"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run came to.

    Attributes:
        recipe: name of the recipe.
        seed: its seed.
        versions: name -> version of what computed it, see `versions`.
        parameters: trainable scalars of the dense network, tied tensors once.
        nonzeros: those that are not 0 at the end.
        stored_scalars: scalars that the file holds, buffers included.
        compression_rate: parameters / nonzeros.
        test_error_percent: error of the sparse network on the test data, None where there is no such thing.
        dense_test_error_percent: error of the dense network that it grew from.
        file_bytes: size of the network's file.
        model_bits: code length of the network, the first part of eq. 2.
        data_bits: code length of the training data given the network, the second part of eq. 2.
        seconds: duration of the run.
        details: anything else, plain JSON.
    """

    recipe: str
    seed: int
    versions: Mapping[str, str]
    parameters: int
    nonzeros: int
    stored_scalars: int
    compression_rate: float
    test_error_percent: float | None
    dense_test_error_percent: float | None
    file_bytes: int
    model_bits: float
    data_bits: float
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


def versions() -> dict[str, str]:
    """Lists the versions of ellzero, Python and the numerical libraries that are installed; imports none of them."""
    installed = {"ellzero": ellzero.__version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "numba"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def settings_of(value: object) -> Any:
    """Turns settings into plain JSON for a record: what a run was made of, to be read and compared.

    A dataclass becomes its class and the fields that its text shows, an enum its value, a function or a class `module:name`; anything else
    is named by its class, or by its own text where that says more.

    Args:
        value: a recipe, a method, a target, or whatever stands in their fields.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case enum.Enum():
            return value.value
        case Mapping():
            return {str(name): settings_of(inner) for name, inner in cast(Mapping[object, object], value).items()}
        case list() | tuple():
            return [settings_of(inner) for inner in cast(Sequence[object], value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {
                "class": _name_of(type(value)),
                **{part.name: settings_of(getattr(value, part.name)) for part in fields(value) if part.repr},
            }
        case _ if isinstance(value, type) or hasattr(value, "__qualname__"):
            return _name_of(value)
        case _:
            text = repr(value)
            return _name_of(type(value)) if " at 0x" in text or "\n" in text else text


def _name_of(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def write_json(path: str | os.PathLike[str], record: Record | Mapping[str, Any]) -> None:
    """Writes a record as a JSON file, whole or not at all: a kill at any time leaves the old file or the new one.

    Args:
        path: the file; its folder must exist.
        record: a record, or any mapping of plain JSON.

    Raises:
        TypeError, ValueError: a value is not plain JSON, or not finite; the message says which.
        OSError: the file cannot be written.
    """
    content = json.dumps(_plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with replacing(Path(path)) as file:
        file.write(content.encode())


def read_json(path: str | os.PathLike[str]) -> Record:
    """Reads a record that `write_json` wrote.

    Args:
        path: the file.

    Raises:
        ValueError: the file is no JSON, or fields are missing or unknown.
        OSError: the file cannot be read.
    """
    values = _parse(Path(path).read_bytes(), str(path))
    names = {field.name for field in fields(Record)}
    if wrong := names.symmetric_difference(values):
        raise ValueError(
            f"{path}: not a record: fields {', '.join(sorted(wrong))} are missing or unknown, expected {', '.join(sorted(names))}"
        )
    return Record(**values)


def append_line(path: str | os.PathLike[str], record: Record | Mapping[str, Any]) -> None:
    """Appends a record as one line, in a single write. A line that an earlier kill cut short is removed first.

    Args:
        path: the file, made if it is missing; one process writes to it at a time.
        record: a record, or any mapping of plain JSON.

    Raises:
        TypeError, ValueError: a value is not plain JSON, or not finite; the message says which.
        OSError: the file cannot be written.
    """
    line = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    path = Path(path)
    if is_special(path):
        with open_special(path) as file:
            file.write(line)
        return
    if path.exists():
        _mend(path)
    with path.open("ab", buffering=0) as file:
        file.write(line)


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads every line that `append_line` wrote; a last line that a kill cut short is left out.

    Args:
        path: the file.

    Raises:
        ValueError: another line is no JSON object; the message says which.
        OSError: the file cannot be read.
    """
    *whole, last = Path(path).read_bytes().split(b"\n")
    lines = [_parse(line, f"{path}, line {number}") for number, line in enumerate(whole, 1)]
    return [*lines, _parse(last, str(path))] if _is_whole(last) else lines


def _mend(path: Path) -> None:
    with path.open("r+b") as file:
        if not file.seek(0, os.SEEK_END):
            return
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        content = file.read()
        start = content.rfind(b"\n") + 1
        if _is_whole(content[start:]):
            file.write(b"\n")
        else:
            file.truncate(start)


def _is_whole(line: bytes) -> bool:
    # An object that is cut short anywhere is no JSON, for its last brace is missing.
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse(content: bytes, where: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        value = json.loads(content, parse_constant=refuse)
    except ValueError as error:
        raise ValueError(f"{where}: expected a JSON object ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {content[:40]!r}")
    return cast(dict[str, Any], value)


def _plain(record: Record | Mapping[str, Any]) -> Any:
    values = asdict(record) if isinstance(record, Record) else record
    _check(values, "")
    return values


def _check(value: object, where: str) -> None:
    match value:
        case None | bool() | int() | str():
            pass
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{where} is {value}, which JSON cannot hold: store None where a figure is missing")
        case Mapping():
            for name, inner in cast(Mapping[object, object], value).items():
                if not isinstance(name, str):
                    raise TypeError(f"{where or 'the record'} has the key {name!r} of type {type(name).__name__}, expected a string")
                _check(inner, f"{where}.{name}" if where else name)
        case list() | tuple():
            for index, inner in enumerate(cast(Sequence[object], value)):
                _check(inner, f"{where}[{index}]")
        case _:
            raise TypeError(
                f"{where} is of type {type(value).__name__}, expected plain JSON: convert it, for instance by .item() or .tolist()"
            )
