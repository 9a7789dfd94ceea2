"""The pages about the command line name every command, every option, every method and its options, and no other."""

import re
from pathlib import Path

import pytest

from ellzero.cli.jobs.methods import method_class, option_fields
from ellzero.cli.main import COMMANDS, parse
from ellzero.cli.options.methods import METHODS

PAGES = "\n".join(
    (Path(__file__).parents[2] / "docs" / "guides" / page).read_text(encoding="utf-8") for page in ("cli.md", "files.md", "packing.md")
)
NAMED = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", PAGES))


def options_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])", capsys.readouterr().out))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_are_on_the_pages(command: str, capsys: pytest.CaptureFixture[str]):
    assert f"`{command}`" in PAGES
    options = options_of(command, capsys) - {"--help"}
    assert {option for option in options if option not in NAMED and not option.startswith("--no-")} == set()


def test_options_on_the_pages_exist(capsys: pytest.CaptureFixture[str]):
    known = {option for command in COMMANDS for option in options_of(command, capsys)}
    of_methods = {f"--{field.name.replace('_', '-')}" for name in METHODS.values() for field in option_fields(method_class(name))}
    of_methods |= {f"--no-{option.removeprefix('--')}" for option in of_methods}
    assert known | of_methods >= NAMED


@pytest.mark.parametrize("name", METHODS)
def test_the_options_of_a_method_are_in_its_row(name: str):
    kind = method_class(name)
    row = next(line for line in PAGES.splitlines() if line.startswith(f"| `{name}` |"))
    flags = [f"`--{field.name.replace('_', '-')}`" for field in option_fields(kind)]
    assert row == f"| `{name}` | `{kind.__name__}` | {', '.join(flags)} |".replace("|  |", "| |")
