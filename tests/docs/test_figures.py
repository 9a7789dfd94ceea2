"""The measured tables of the pages are those that the records give."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("experiments") is None:
    pytest.skip("experiments are not part of what is installed", allow_module_level=True)

from experiments.figures import MARKED, PAGES, TABLES, rendered


@pytest.mark.parametrize("page", PAGES, ids=("front", "experiments"))
def test_the_tables_of_a_page_are_those_of_the_records(page: Path):
    text = page.read_text(encoding="utf-8")
    assert MARKED.search(text)
    assert rendered(text) == text, "the records say otherwise: run `python -m experiments.figures`"


def test_every_table_stands_on_one_page():
    names = [match["name"] for page in PAGES for match in MARKED.finditer(page.read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(TABLES)


def test_a_changed_figure_is_noticed():
    text = "<!-- figures: decoded -->\n| 0 | 1,901 |\n<!-- end -->\n"
    assert "1,901" not in rendered(text)
    assert rendered(rendered(text)) == rendered(text)
