"""What holds of the tests themselves: a skip hides no exception, and `make slow` looks at examples that nobody has seen."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parents[1]


def hiding(source: str) -> Iterator[str]:
    """Lists the skips that an exception leads to: an error in the code under test would be one too, and the test would say nothing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and re.search(r"\b(skip|skipTest|xfail|SkipTest)$", ast.unparse(inner.func)):
                    yield f"line {inner.lineno}: {ast.unparse(inner)}"
        elif isinstance(node, ast.Call) and re.match(r"pytest\.importorskip\(.(ellzero|experiments|tools|tests)\b", ast.unparse(node)):
            # Of our own: it takes what fails within a module for a module that is not there.
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_a_skip_hides_no_exception() -> None:
    found = {file.name: lines for file in TESTS.rglob("*.py") if (lines := list(hiding(file.read_text(encoding="utf-8"))))}
    assert not found, "ask whether the thing is there (importlib.util.find_spec, a path, a platform) instead of catching what comes"


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept Exception as error:\n    pytest.skip(str(error))",
        "try:\n    f()\nexcept OSError:\n    if x:\n        raise unittest.SkipTest('')",
        "try:\n    f()\nexcept OSError:\n    pytest.xfail('')",
        "module = pytest.importorskip('experiments.figures', reason='')",
    ],
)
def test_what_hides_exceptions_is_seen(source: str) -> None:
    assert len(list(hiding(source))) == 1


def test_slow_properties_are_tried_on_new_examples() -> None:
    random, same = settings.get_profile("random"), settings.get_profile("ellzero")
    assert (random.derandomize, same.derandomize) == (False, True)
    assert random.max_examples > same.max_examples
    makefile = TESTS.parent / "Makefile"
    slow = re.search(r"^slow:.*\n((?:\t.*\n)+)", makefile.read_text(encoding="utf-8"), re.MULTILINE)
    assert slow is not None
    assert '-m "slow or hypothesis" --hypothesis-profile=random' in slow[1]
