"""The picture of the rooms is what the sources say."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_of_the_house_is_what_its_script_draws():
    house = runpy.run_path(str(ROOT / "tools/house.py"))
    assert house["PICTURE"].read_text(encoding="utf-8") == house["draw"](), "rooms or imports have changed: run `make house`"
