"""Looks at the site in a browser: `python tests/docs/browse.py SITE FOLDER` writes a picture per page, width and colour scheme to FOLDER.

A page that is wider than its window, an error in its console, a request to anywhere else, and a search without a result are mistakes,
and end it with status 1.
"""

import functools
import http.server
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

WINDOWS = ((1280, 900), (390, 844))
SCHEMES = ("light", "dark")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Drops the line."""


def browser() -> str | None:
    """Returns the Chromium of the system, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pages(site: Path) -> list[str]:
    """Lists the pages to look at: all that are written by hand, and of the API the overviews and every tenth page."""
    every = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    api = [page for page in every if page.startswith("api/")]
    return [page for page in every if page not in api] + [page for page in api if page.endswith("index.html")] + api[::10]


def results(page: Any, address: str, word: str) -> int:
    """Returns how many results the search box shows for a word."""
    page.goto(address)
    box = page.locator("input[aria-label=Search]")
    for _ in range(20):  # the key does nothing until the page's script has run
        page.keyboard.press("Control+k")
        page.wait_for_timeout(500)
        if box.is_visible():
            break
    box.fill(word, timeout=10_000)
    shown = page.get_by_text(re.compile(r"^\s*(No|\d+) results?"))
    shown.first.wait_for(timeout=20_000)
    number = re.match(r"\s*\d+", shown.first.inner_text())
    return int(number[0]) if number else 0


def mistakes(site: Path, folder: Path | None) -> list[str]:
    """Opens the pages in both widths and both schemes, and lists what is wrong."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}/"
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
            for width, height in WINDOWS:
                for scheme in SCHEMES:
                    page = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
                    said: list[str] = []
                    page.on("console", lambda message, said=said: said.append(message.text) if message.type == "error" else None)
                    page.on("pageerror", lambda error, said=said: said.append(str(error)))
                    page.on(
                        "request",
                        lambda request, said=said: (
                            None if request.url.startswith((root, "data:", "blob:")) else said.append(f"asks for {request.url}")
                        ),
                    )
                    for name in pages(site):
                        said.clear()
                        page.goto(root + name)
                        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                        where = f"{name} at {width} pixels, {scheme}"
                        wrong += [f"{where}: {wider} pixels too wide"] if wider > 0 else []
                        wrong += [f"{where}: {text}" for text in said]
                        if folder:
                            page.screenshot(path=folder / f"{name.replace('/', '-')}-{width}-{scheme}.png", full_page=True)
            wrong += [] if results(chromium.new_page(), root + "index.html", "sparsify") else ["a search for sparsify shows no result"]
            chromium.close()
        server.shutdown()
    return wrong


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    listed = mistakes(Path(sys.argv[1]), target)
    print("\n".join(listed) or "nothing is too wide, nothing is missing")
    sys.exit(1 if listed else 0)
