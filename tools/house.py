"""Draws the house: the rooms of the package in their layers, and which ones each imports.

    python tools/house.py        writes docs/house.svg

The layers are those of the contract in pyproject.toml, which `lint-imports` checks; imports are those of the sources, within functions
too; the sentence of a room is the first of its own docstring.
"""

import ast
import html
import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/house.svg"
WIDTH, MARGIN, GAP = 960, 16, 12
LINE = 17

STYLE = """
.room { fill: #eef2ff; stroke: #4f5bd5; } .name { font: bold 15px sans-serif; fill: #1e2a78; }
.text { font: 12px sans-serif; fill: #333; } .paper { fill: #fff; } .count { font: 11px sans-serif; fill: #666; }
@media (prefers-color-scheme: dark) {
  .room { fill: #20264a; stroke: #8c97ff; } .name { fill: #cdd3ff; } .text { fill: #ddd; } .paper { fill: #16181d; } .count { fill: #aaa; }
}
"""


def layers() -> list[list[str]]:
    """Lists the rooms of each layer that exist, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    named = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    there = [[room for room in re.findall(r"\w+", layer) if place(room).exists()] for layer in named]
    return [layer for layer in there if layer]


def place(room: str) -> Path:
    """Returns the file that holds the docstring of a room."""
    folder = ROOT / "src/ellzero" / room
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def sentence(room: str) -> str:
    """Returns the first sentence of a room's docstring."""
    words = ast.get_docstring(ast.parse(place(room).read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.?!])\s", " ".join(words.replace("`", "").split()))[0]


def imported_rooms(file: Path) -> set[str]:
    """Lists the rooms that a module imports from."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module.split(".")[1] for module in modules if module.startswith("ellzero.")}


def draw() -> str:
    """Returns the picture as SVG."""
    rooms = [room for layer in layers() for room in layer]

    def reads(room: str) -> list[str]:
        files = [place(room), *place(room).parent.rglob("*.py")] if place(room).name == "__init__.py" else [place(room)]
        below = {other for file in files for other in imported_rooms(file)}
        return [other for other in rooms if other in below and other != room]

    parts: list[str] = []
    y = MARGIN
    for layer in layers():
        width = (WIDTH - 2 * MARGIN - GAP * (len(layer) - 1)) // len(layer)
        texts: dict[str, list[tuple[str, str]]] = {}
        for room in layer:
            words = [("text", line) for line in textwrap.wrap(sentence(room), int((width - 24) / 6.6))]
            imported = textwrap.wrap("imports " + ", ".join(reads(room)), int((width - 24) / 5.8)) if reads(room) else []
            texts[room] = words + [("count", line) for line in imported]
        height = 34 + LINE * max(len(lines) for lines in texts.values())
        for place_of, room in enumerate(layer):
            x = MARGIN + place_of * (width + GAP)
            parts.append(f'<rect class="room" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
            parts.append(f'<text class="name" x="{x + 12}" y="{y + 22}">{room}</text>')
            for row, (kind, line) in enumerate(texts[room]):
                parts.append(f'<text class="{kind}" x="{x + 12}" y="{y + 41 + LINE * row}">{html.escape(line)}</text>')
        y += height + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="the rooms of ellzero in their layers">'
    )
    paper = f'<rect class="paper" width="{WIDTH}" height="{y}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
