"""Every test that the page of stories names exists, and every test of a story stands on it."""

import re
from pathlib import Path

UNIT = Path(__file__).parents[1]
PAGE = (UNIT.parents[1] / "docs/guides/stories.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| F?\d", line)]
# Tests of tools for networks are under tests/unit; those of tools for files are end to end as well, under names and numbers of their own.
END_TO_END = UNIT.parent / "end_to_end"


def names_in(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_test_named_exists() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        named = re.findall(r"`([\w/.]+\.py)::(test_\w+)`", row)
        assert named, f"no test stands in: {row}"
        for file, name in named:
            folder = UNIT.parent if file.startswith("end_to_end/") else UNIT
            assert name in names_in(folder / file), f"{file} has no {name}"


def test_every_story_tested_is_on_the_page_under_its_own_number() -> None:
    for file in (*UNIT.rglob("test_*.py"), *END_TO_END.glob("test_*.py")):
        for name in names_in(file):
            if match := re.match(r"test_(files_)?stor(?:y|ies)(_\d+(?:_and_\d+)*)_", name):
                for number in re.findall(r"\d+", match[2]):
                    start = f"| {'F' if match[1] else ''}{int(number)} |"
                    assert any(row.startswith(start) for row in ROWS), f"{name} is missing from docs/guides/stories.md"
