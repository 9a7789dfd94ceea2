"""The built site in a browser; `make test-browser` builds it first."""

import importlib.util
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSE = runpy.run_path(str(Path(__file__).with_name("browse.py")))


@pytest.mark.slow
def test_no_page_of_the_site_is_wider_than_its_window_or_misses_anything():
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed: it is in the extra browser")
    if BROWSE["browser"]() is None:
        pytest.skip("there is no Chromium on this system")
    site = ROOT / "site"
    if not (site / "index.html").exists():
        pytest.skip("the site is not built: make docs")
    assert BROWSE["mistakes"](site, None) == []
