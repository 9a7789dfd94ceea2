"""What is recorded of the mutants: enough of them, few that live, and a page that says so."""

import ast
import importlib.util
import json
import sys
from collections import Counter

import pytest

if importlib.util.find_spec("tools") is None or sys.platform == "win32":
    pytest.skip("tools are not part of what is installed, and mutants are tried in forks, which Windows has not", allow_module_level=True)

from tools.mutants.__main__ import PAGE, RECORDS, ROOMS, equivalent, rendered
from tools.mutants.changes import changes

KEPT = {record["name"]: record for record in map(json.loads, RECORDS.read_text(encoding="utf-8").splitlines())}


def test_the_table_is_that_of_the_records() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rendered(page, KEPT.values()) == page, "the records say otherwise: run `python -m tools.mutants --table`"


def test_there_are_enough_mutants_and_few_survive() -> None:
    counts = Counter(record["room"] for record in KEPT.values())
    assert counts.total() >= 240
    assert all(counts[room] >= 40 for room in ROOMS)
    same = equivalent()
    survivors = [name for name, record in KEPT.items() if record["verdict"] == "survived" and name not in same]
    assert len(survivors) <= 0.05 * (counts.total() - len(same.keys() & KEPT.keys()))
    assert all(len(entry["proof"]) > 40 for entry in same.values())


SOURCE = b'''
"""A file."""
LIMIT = 3

def count(values: "list[int]", *, least: int = 0) -> bool:
    """Counts."""
    assert len(values) < 4
    if not values:
        raise ValueError(f"{1}" + "none")
    values.append(min(least, 2))
    values.insert(0, least)
    return sorted(values, key=abs)[1:] == [value for value in values if value]
'''


def test_everything_that_computes_is_changed_and_nothing_else() -> None:
    found = changes("file.py", SOURCE)
    assert Counter(change.operator for change in found) == {
        "constant": 5,  # LIMIT, the default, 2, 0 and 1
        "branch": 2,
        "sign removed": 1,
        "statement removed": 2,
        "arguments swapped": 1,
        "opposite": 1,
        "keyword dropped": 1,
        "slice": 1,
        "comparison": 1,
        "filter removed": 1,
        "return value": 2,
    }
    assert {change.function for change in found} == {"", "count"}
    for change in found:
        mutant = change.applied(SOURCE)
        assert ast.dump(ast.parse(mutant)) != ast.dump(ast.parse(SOURCE))
        assert b'"""A file."""' in mutant
        assert b"assert len(values) < 4" in mutant


def test_names_of_mutants_move_with_their_function_only() -> None:
    def names(source: bytes) -> set[str]:
        return {change.name for change in changes("file.py", source)}

    assert len(names(SOURCE)) == len(changes("file.py", SOURCE))
    assert names(b"\n# A comment.\n" + SOURCE.replace(b'"""Counts."""', b'"""Counts them."""')) == names(SOURCE)
    moved = names(SOURCE.replace(b"LIMIT = 3", b"LIMIT = 4"))
    assert len(moved & names(SOURCE)) == len(names(SOURCE)) - 1
    assert len(names(SOURCE.replace(b"key=abs", b"key=None")) & names(SOURCE)) == 1


@pytest.mark.parametrize("before", ["a + b", "f(x, y)", "not x"])
def test_a_change_is_of_the_text_that_it_names(before: str) -> None:
    source = f"value = 'ä', ({before}) * 2\n".encode()
    for change in changes("file.py", source):
        assert source[change.start :].startswith(change.before.encode())
