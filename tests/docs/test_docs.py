"""What the documentation shows works: Python blocks run, commands parse, commands marked for it run.

The blocks of a file share one namespace, in a temporary folder, seeded, without real data. Before a block may stand:

    <!-- no-run: the reason -->   a python block that is not run
    <!-- run -->                  a console block whose commands are run; those of any other one are only parsed
"""

import os
import pkgutil
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
FENCE = re.compile(
    r"(?:<!--(?P<note>[^>]*)-->\s*)?^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, the comment before it, and where it stands."""

    info: str
    note: str
    body: str
    line: int

    @property
    def runs(self) -> bool:
        return self.note == "run"


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("body")) + 1
        found.append(Block(info=match["info"].strip(), note=(match["note"] or "").strip(), body=body, line=line))
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of every `$ ellzero ...` line, continued lines joined, comments dropped."""
    lines = block.body.replace("\\\n", " ").splitlines()
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ellzero")]


def excluded(block: Block) -> bool:
    return re.fullmatch(r"no-run: \S.*", block.note, re.DOTALL) is not None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_written_as_these_tests_and_the_site_read_them(page: Path):
    text = page.read_text(encoding="utf-8")
    for block in blocks(text):
        where = f"{page.name}:{block.line}"
        assert re.fullmatch(r"[a-z]*", block.info), (
            f"{where}: the site reads one word after the fence, not {block.info!r}; put a note in a comment before"
        )
        assert not block.note.startswith("no-run") or excluded(block), (
            f"{where}: a block that is not run needs a reason, as in <!-- no-run: it downloads -->"
        )
    fences = len(re.findall(r"^ *```", text, re.MULTILINE))
    assert fences == 2 * len(blocks(text)), f"{page.name} has {fences} fences, some of which pair with none"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELLZERO_DATA", raising=False)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.info == "python" and not excluded(block):
            # Empty lines before the code make a traceback name the line of the page.
            exec(compile("\n" * (block.line - 1) + block.body, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_parse(page: Path):
    from ellzero.cli.main import parse

    for block in blocks(page.read_text(encoding="utf-8")):
        for words in commands(block) if block.info == "console" else []:
            if "--help" in words or len(words) == 1:
                continue
            try:
                parse(words[1:])
            except SystemExit:
                pytest.fail(f"{page.name}:{block.line}: `{shlex.join(words)}` is no command line that ellzero accepts")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_marked_to_run_do(page: Path, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "ELLZERO_DATA"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), environment.get("PYTHONPATH")]))
    for block in blocks(page.read_text(encoding="utf-8")):
        for words in commands(block) if block.runs and block.info == "console" else []:
            line = [sys.executable, "-m", "ellzero.cli", *words[1:]]
            done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, (
                f"{page.name}:{block.line}: `{shlex.join(words)}` ended with {done.returncode}:\n{done.stderr[-2000:]}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_of_the_package_in_the_text_exist(page: Path):
    for name in set(re.findall(r"`(ellzero(?:\.\w+)+)`", page.read_text(encoding="utf-8"))):
        module, _, own = name.rpartition(".")
        source = ROOT / "src" / module.replace(".", "/")
        if module.startswith("ellzero.integrations."):  # needs a framework that may not be here
            assert re.search(rf"^class {own}\b", source.with_suffix(".py").read_text(encoding="utf-8"), re.MULTILINE), name
            continue
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{page.name} names `{name}`, which does not exist: {error}")


SAMPLE = """
Words.
<!-- no-run: it downloads -->
```python
raise RuntimeError
```

<!-- run -->
```console
$ ellzero demo \\
    --seed 3  # a comment
done
$ ls
```
- an item
  ```python
  x = 1
  if x:
      x = 2
  ```
"""


def test_blocks_are_found_with_their_notes_lines_and_indentation():
    first, second, third = blocks(SAMPLE)
    assert (first.info, first.line, excluded(first), first.runs) == ("python", 5, True, False)
    assert second.runs
    assert commands(second) == [["ellzero", "demo", "--seed", "3"]]
    assert (third.body, third.note, excluded(third)) == ("x = 1\nif x:\n    x = 2\n", "", False)


def test_an_exclusion_without_a_reason_excludes_nothing():
    assert not excluded(blocks("<!-- no-run: -->\n```python\n1\n```\n")[0])
