"""The page of slips points at tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_of_slips_names_exists():
    page = (ROOT / "docs/theory/slips.md").read_text(encoding="utf-8")
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 10
    assert not named - defined
    for file in re.findall(r"`((?:tests|experiments)/[\w/]+\.py)`", page):
        assert (ROOT / file).is_file(), file
