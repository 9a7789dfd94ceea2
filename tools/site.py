"""Builds the documentation site: `python tools/site.py` writes `site/`, which needs no network to be read.

The pages of `docs/` are copied beside generated ones: a page per public name (the names are read from the sources), and
`experiments/README.md` with its pictures. Formulas (fences of `math`) become MathML. Zensical renders the copy, and then every link,
anchor and file that a page asks for is looked up; anything missing, or fetched from elsewhere, is an error.
"""

import ast
import html
import logging
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import griffe
import yaml
from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
STAGE = ROOT / ".site"
SITE = ROOT / "site"

PAGE = """---
title: {name}
---

::: {path}
    options:
      heading: {full}
      toc_label: {name}
"""

FIRST = ("methods", "data", "models", "description", "plots", "records")
"""The order of the namespaces on the site; further ones follow in the order of the package."""


def assigned(tree: ast.Module, name: str) -> Any:
    """Returns the literal assigned to `name` at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return ast.literal_eval(node.value)
    raise LookupError(f"ellzero assigns no {name}")


def target(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """Returns what a name stands for, through all re-exports."""
    return member.final_target if isinstance(member, griffe.Alias) else member


def exported(room: griffe.Object | griffe.Alias) -> dict[str, griffe.Object]:
    """Lists the public names of a room: those it exports, or those without an underscore that it defines."""
    if room.exports:
        return {str(name): target(room[str(name)]) for name in room.exports}
    return {
        name: target(member)
        for name, member in room.members.items()
        if not name.startswith("_") and not member.is_alias and not member.is_module and member.has_docstring
    }


def public_names() -> dict[str, dict[str, griffe.Object]]:
    """Lists the public names by namespace, `lz` first; a name that `lz` has stands in no other namespace."""
    package = griffe.load("ellzero", search_paths=[ROOT / "src"], resolve_aliases=True)
    tree = ast.parse((ROOT / "src/ellzero/__init__.py").read_text(encoding="utf-8"))
    homes: dict[str, tuple[str, ...]] = assigned(tree, "_HOMES")
    top = {name: target(package[f"{home.removeprefix('ellzero.')}.{name}"]) for home, names in homes.items() for name in names}
    names = {"lz": dict(sorted(top.items(), key=lambda item: item[0].lower()))}
    documented = {value.path for value in top.values()}
    rooms = assigned(tree, "_NAMESPACES")
    for room in sorted(rooms, key=lambda room: (FIRST.index(room) if room in FIRST else len(FIRST), rooms.index(room))):
        own = {name: value for name, value in exported(package[room]).items() if value.path not in documented}
        documented |= {value.path for value in own.values()}
        if own:
            names[f"lz.{room}"] = dict(sorted(own.items(), key=lambda item: item[0].lower()))
    return names


class Warned(logging.Handler):
    """Collects what griffe says about docstrings."""

    def __init__(self) -> None:
        """Starts with nothing said."""
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Notes one message."""
        self.messages.append(record.getMessage())


def wrong_docstrings() -> list[str]:
    """Lists what docstrings name that the signature does not have, and whatever else griffe warns of, in the whole package."""
    warned = Warned()
    logger = logging.getLogger("griffe")
    logger.addHandler(warned)
    logger.propagate = False
    waiting: list[griffe.Object | griffe.Alias] = [
        griffe.load("ellzero", search_paths=[ROOT / "src"], resolve_aliases=True, docstring_parser="google")
    ]
    while waiting:
        value = waiting.pop()
        if value.is_alias:
            continue
        if value.docstring:
            _ = value.docstring.parsed  # griffe warns while it parses
        waiting += value.members.values()
    logger.removeHandler(warned)
    return sorted(warned.messages)


def sentence(value: griffe.Object) -> str:
    """Returns the first line of a docstring, for a table."""
    return value.docstring.value.strip().splitlines()[0].replace("|", "\\|") if value.docstring else ""


def write_api(folder: Path) -> list[Any]:
    """Writes a page per public name and one per namespace, and returns their navigation."""
    navigation: list[Any] = ["api/index.md"]
    overview = [
        "# API",
        "",
        "`import ellzero as lz`. What most programs need is at the top; the rest stands in the namespaces of its rooms, such as `lz.data`.",
        "Every page is rendered from the docstring.",
        "",
    ]
    for namespace, names in public_names().items():
        own = folder / namespace.replace(".", "-")
        own.mkdir(parents=True)
        rows: list[str] = []
        entries: list[Any] = [f"api/{own.name}/index.md"]
        taken = {"index"}
        for name, value in names.items():
            stem = name if name.lower() not in taken else f"{name}_"  # file systems that ignore case keep both
            taken.add(stem.lower())
            (own / f"{stem}.md").write_text(PAGE.format(name=name, full=f"{namespace}.{name}", path=value.path), encoding="utf-8")
            rows.append(f"| [`{name}`]({stem}.md) | {sentence(value)} |")
            entries.append({name: f"api/{own.name}/{stem}.md"})
        table = ["| name | what it is |", "| --- | --- |", *rows]
        (own / "index.md").write_text("\n".join([f"# `{namespace}`", "", *table, ""]), encoding="utf-8")
        overview += [f"- [`{namespace}`]({own.name}/index.md): {', '.join(f'`{name}`' for name in names)}"]
        navigation.append({namespace: entries})
    (folder / "index.md").write_text("\n".join([*overview, ""]), encoding="utf-8")
    return navigation


VERBATIM = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ ]*$|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`)", re.MULTILINE | re.DOTALL)
"""What stands in a page as it is: fences of code, and code within a line."""

FORMULA = re.compile(r"\$\$(?P<block>.+?)\$\$|(?<![\w$])\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$(?![\w$])", re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """Returns a formula as MathML; the converter needs to be told which bars enclose something, and of the space after `ln`."""
    latex = re.sub(r"(?<!\\left)\\lvert\b", r"\\left\\lvert", re.sub(r"(?<!\\right)\\rvert\b", r"\\right\\rvert", latex))
    return convert(latex.replace(r"\ln ", r"\ln\, "), display=display)


def typeset(text: str) -> str:
    """Turns formulas into MathML, which browsers show without a script or a font from elsewhere.

    A formula is a fence of `math`, or stands between dollars outside of code: `$...$` in a line, `$$...$$` by itself.
    """

    def block(latex: str) -> str:
        lines = [line.removesuffix("\\\\") for line in latex.strip().split("\\\\\n")]
        shown = "".join(f"<div>{mathml(line, 'block')}</div>" for line in lines)
        return f'<div class="formula" tabindex="0">{shown}</div>'

    def formula(match: re.Match[str]) -> str:
        if match["block"]:
            return block(match["block"])
        return f"<span>{mathml(' '.join(match['inline'].split()), 'inline')}</span>"  # a line that began with <math> would be a block

    text = re.sub(r"^```math\n(.*?)^```$", lambda match: block(match[1]), text, flags=re.MULTILINE | re.DOTALL)
    parts: list[str] = []
    end = 0
    for code in VERBATIM.finditer(text):
        parts += [FORMULA.sub(formula, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, FORMULA.sub(formula, text[end:])])


def write_experiments(folder: Path) -> None:
    """Copies the page of experiments and the pictures of all of them, with links turned to their places on the site."""
    folder.mkdir()
    page = (ROOT / "experiments/README.md").read_text(encoding="utf-8")
    (folder / "index.md").write_text(page.replace("](../docs/", "](../"), encoding="utf-8")
    for picture in [*(ROOT / "experiments").glob("*.png"), *(ROOT / "experiments").glob("*.svg")]:
        shutil.copyfile(picture, folder / picture.name)


def stage() -> Path:
    """Writes the sources of the site to a folder of their own and returns its configuration."""
    shutil.rmtree(STAGE, ignore_errors=True)
    docs = STAGE / "docs"
    shutil.copytree(ROOT / "docs", docs)
    write_experiments(docs / "experiments")
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    api = write_api(docs / "api")
    configuration["nav"] = [{"API": api} if section == {"API": "api/index.md"} else section for section in configuration["nav"]]
    for plugin in configuration["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = ["../src"]
    for page in docs.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        text = text.replace("](../../experiments/README.md", "](../experiments/index.md").replace(
            "](../../experiments/", "](../experiments/"
        )
        page.write_text(typeset(text), encoding="utf-8")
    file = STAGE / "mkdocs.yml"
    file.write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    return file


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        """Parses `text`."""
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what one tag defines or asks for."""
        given = dict(attrs)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        if tag in ("script", "img", "source", "iframe") and given.get("src"):
            self.loads.add(str(given["src"]))
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect") and given.get("href"):
            self.loads.add(str(given["href"]))


def check(site: Path) -> list[str]:
    """Lists every link of the site that leads nowhere, and everything it would load from elsewhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    wrong: list[str] = []
    for path, page in pages.items():
        where = path.relative_to(site.resolve()).as_posix()
        for address in sorted(page.links | page.loads):
            parts = urlsplit(html.unescape(address))
            if parts.scheme or parts.netloc:
                if address in page.loads and parts.scheme != "data":
                    wrong.append(f"{where} loads {address}")
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file():
                wrong.append(f"{where} links to {address}, which does not exist")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors | {"__skip"}:
                wrong.append(f"{where} links to {address}, whose anchor does not exist")
        unresolved = re.findall(
            r"\[[^\]\n<]*\]\[[^\]\n<]*\]", re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text("utf-8"), flags=re.DOTALL)
        )
        wrong += [f"{where} has an unresolved reference {reference}" for reference in unresolved]
    return wrong


def main() -> int:
    """Builds the site and returns 1 if anything in it is missing."""
    file = stage()
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--clean", "--strict", "--config-file", file], cwd=STAGE, check=False)
    if built.returncode:
        return 1
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.move(STAGE / "site", SITE)  # zensical writes only below its configuration
    wrong = [*wrong_docstrings(), *check(SITE)]
    print("\n".join(wrong), file=sys.stderr)
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE.relative_to(ROOT)}/, {len(wrong)} mistakes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
