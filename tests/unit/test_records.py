import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ellzero.records import Record, append_line, read_json, read_lines, versions, write_json

RECORD = Record(
    recipe="fast",
    seed=3,
    versions={"ellzero": "0.1.0"},
    parameters=266_610,
    nonzeros=1_590,
    stored_scalars=1_590,
    compression_rate=266_610 / 1_590,
    test_error_percent=1.74,
    dense_test_error_percent=None,
    file_bytes=5_000,
    model_bits=39_000.5,
    data_bits=1e5,
    seconds=63.2,
    details={"tries": [{"alpha": 1e-5, "passed": True}], "name": "größer", "nothing": None},
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def test_a_record_round_trips_with_the_names_that_readers_expect(tmp_path: Path):
    path = tmp_path / "record.json"
    write_json(path, RECORD)
    assert read_json(path) == RECORD
    names = (
        "recipe seed versions parameters nonzeros stored_scalars compression_rate test_error_percent dense_test_error_percent file_bytes"
    )
    assert set(json.loads(path.read_text("utf-8"))) == {*names.split(), "model_bits", "data_bits", "seconds", "details"}
    append_line(tmp_path / "runs.jsonl", RECORD)
    assert read_lines(tmp_path / "runs.jsonl") == [asdict(RECORD)]


@given(lines=st.lists(OBJECTS, min_size=1, max_size=4))
def test_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, object]]):
    path = tmp_path_factory.mktemp("lines") / "log.jsonl"
    for line in lines:
        append_line(path, line)
    assert read_lines(path) == lines
    assert path.read_bytes().count(b"\n") == len(lines)


def test_a_line_cut_short_anywhere_is_left_out_and_does_not_spoil_the_next(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    first, second, third = {"step": 1, "deep": {"a": [1]}}, {"step": 12, "name": "ß"}, {"step": 3}
    append_line(path, first)
    start = path.stat().st_size
    append_line(path, second)
    content = path.read_bytes()
    for length in range(start, len(content) + 1):
        path.write_bytes(content[:length])
        # Only the line break is missing at one byte before the end: the line itself is whole.
        expected = [first, second] if length >= len(content) - 1 else [first]
        assert read_lines(path) == expected
        append_line(path, third)
        assert read_lines(path) == [*expected, third]


def test_a_damaged_line_before_the_last_is_refused(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: expected a JSON object"):
        read_lines(path)
    path.write_bytes(b'{"a": 1}\n[1]\n')
    with pytest.raises(ValueError, match=r"line 2: expected a JSON object, got"):
        read_lines(path)
    path.write_bytes(b'{"a": NaN}\n')
    with pytest.raises(ValueError, match=r"line 1: .*NaN is no JSON"):
        read_lines(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name_and_nothing_is_written(tmp_path: Path, value: float):
    path = tmp_path / "record.json"
    write_json(path, RECORD)
    with pytest.raises(ValueError, match=r"seconds is .*store None"):
        write_json(path, replace(RECORD, seconds=value))
    with pytest.raises(ValueError, match=r"details\.tries\[1\]\.alpha is"):
        append_line(path, replace(RECORD, details={"tries": [{}, {"alpha": value}]}))
    assert read_json(path) == RECORD
    assert os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize("value", [np.int64(3), np.zeros(2), {1}, b"x", Path("x")])
def test_what_is_no_json_is_refused_by_name(tmp_path: Path, value: object):
    with pytest.raises(TypeError, match=r"details\.figure is of type"):
        append_line(tmp_path / "x", replace(RECORD, details={"figure": value}))
    with pytest.raises(TypeError, match="details has the key 1 of type int, expected a string"):
        append_line(tmp_path / "x", {"details": {1: 2}})
    assert not os.listdir(tmp_path)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "record.json"
    write_json(path, RECORD)

    def fail(*paths: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, replace(RECORD, seed=4))
    assert read_json(path) == RECORD
    assert os.listdir(tmp_path) == ["record.json"]


def test_other_files_are_not_taken_for_records(tmp_path: Path):
    path = tmp_path / "record.json"
    write_json(path, {name: value for name, value in asdict(RECORD).items() if name != "seed"} | {"sede": 3})
    with pytest.raises(ValueError, match="fields sede, seed are missing or unknown"):
        read_json(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"record\.json: expected a JSON object"):
        read_json(path)


def test_versions_name_what_computed():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == importlib.metadata.version("torch")
    assert {"ellzero", "numpy"} <= set(found)


def test_records_work_where_torch_cannot_be_imported(tmp_path: Path):
    program = """
import sys
sys.modules["torch"] = None
from ellzero.records import append_line, read_lines, versions, write_json
append_line(sys.argv[1], versions())
write_json(sys.argv[1] + ".json", versions())
assert read_lines(sys.argv[1]) == [versions()] and "torch" in versions()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "log.jsonl")], check=True, env={**os.environ, "PYTHONPATH": "src"})
