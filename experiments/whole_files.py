"""Whole files, everything counted: compressed by the command, decompressed by the command in another process from the archive alone.

    python -m experiments.whole_files run --sets enwik silesia calgary canterbury trivial --levels 9 5 1
    python -m experiments.whole_files table

A file at a level is one line of `results/whole_files.jsonl`; what is recorded is not run again, unless the coder has changed since. Files
come from the folder ELLZERO_DATA names. Seconds are processor seconds of the whole command, starting included; memory is the most that
either process held at once. `ellzero bench` measures other coders.
"""

import hashlib
import json
import lzma
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.commands import FOLDER, CommandLine, records, refuse

RESULTS = FOLDER / "results" / "whole_files.jsonl"
ENWIK = (1_000_000, 4_096_000, 16_384_000)
SILESIA = ("dickens", "xml", "nci", "ooffice")

File = tuple[str, Callable[[], bytes]]


def enwik(data: Path) -> Iterator[File]:
    """Yields beginnings of the English Wikipedia text."""

    def beginning(size: int) -> bytes:
        with lzma.open(data / "wiki" / "enwiki.train.txt.xz") as file:
            return file.read(size)

    for size in ENWIK:
        yield f"enwik.{size}", lambda size=size: beginning(size)


def silesia(data: Path) -> Iterator[File]:
    """Yields four files of the Silesia corpus."""
    for name in SILESIA:
        yield f"silesia/{name}", lambda name=name: lzma.decompress((data / "corpora" / "silesia" / f"{name}.xz").read_bytes())


def collection(data: Path, folder: str) -> Iterator[File]:
    """Yields the files of a folder of the Canterbury and Calgary collection."""
    path = data / "corpora" / "canterbury-calgary-collection.tar.xz"

    def member(name: str) -> bytes:
        with tarfile.open(path) as archive:
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

    with tarfile.open(path) as archive:
        members = [entry.name for entry in archive if entry.isfile() and entry.name.startswith(f"{folder}/")]
    names = sorted(name for name in members if "SHA1SUM" not in name)
    for name in names:
        yield name, lambda name=name: member(name)


def trivial(data: Path) -> Iterator[File]:
    """Yields what does not compress: an empty file, random bytes, and a compressed archive."""

    def zipped() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "archive.zip"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(zipfile.ZipInfo("text"), next(enwik(data))[1](), zipfile.ZIP_DEFLATED)
            return path.read_bytes()

    yield "trivial/empty", lambda: b""
    yield "trivial/random", lambda: random.Random(0).randbytes(1_000_000)
    yield "trivial/zip", zipped


SETS: dict[str, Callable[[Path], Iterator[File]]] = {
    "enwik": enwik,
    "silesia": silesia,
    "calgary": lambda data: collection(data, "calgary"),
    "canterbury": lambda data: collection(data, "canterbury"),
    "trivial": trivial,
}


def coder_version() -> str:
    """Identifies the coder by the sources that decide its output."""
    import ellzero.codec

    folder = Path(ellzero.codec.__file__).parent
    sources = [*sorted(folder.glob("*.py")), *sorted((folder / "bytes").glob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def command(*words: object) -> tuple[float, int]:
    """Runs `ellzero` in a process of its own; returns its processor seconds and the most bytes it held."""
    process = subprocess.Popen([sys.executable, "-m", "ellzero", *map(str, words)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"ellzero {' '.join(map(str, words))} failed with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit


def measure(name: str, content: bytes, level: int) -> dict[str, Any]:
    """Compresses a file, restores it, compares, and returns the record."""
    with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as back:
        source, archive, restored = Path(there) / "file", Path(back) / "file.l0", Path(back) / "restored"
        source.write_bytes(content)
        forward, held = command("compress", f"-{level}", "--no-verify", "-q", "-o", archive, source)
        source.unlink()  # the decoder gets the archive alone
        stated = json.loads(subprocess.run([sys.executable, "-m", "ellzero", "list", "--json", str(archive)], capture_output=True).stdout)
        backward, held_back = command("decompress", "-q", "-o", restored, archive)
        if restored.read_bytes() != content:
            raise SystemExit(f"{name} does not come back")
        return {
            "file": name,
            "level": level,
            "coder": coder_version(),
            "bytes": len(content),
            "compressed": archive.stat().st_size,
            "compress_seconds": round(forward, 2),
            "decompress_seconds": round(backward, 2),
            "held_bytes": max(held, held_back),
            "stated_bytes": (stated[0] if isinstance(stated, list) else stated)["memory_bytes"],
        }


def run(sets: list[str], levels: list[int]) -> None:
    """Measures what is not recorded yet for this coder."""
    place = os.environ.get("ELLZERO_DATA")
    if not place:
        refuse("ELLZERO_DATA is not set: it names the folder that holds wiki/ and corpora/")
    version = coder_version()
    done = {(line["file"], line["level"]) for line in recorded() if line["coder"] == version}
    for level in levels:
        for collected in sets:
            for name, read in SETS[collected](Path(place)):
                if (name, level) in done:
                    continue
                line = measure(name, read(), level)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{name} -{level}: {line['bytes']:,} -> {line['compressed']:,}", flush=True)


def recorded() -> list[dict[str, Any]]:
    """Reads the records; of a file and level measured several times, the last."""
    return list({(line["file"], line["level"]): line for line in records(RESULTS)}.values())


def table() -> None:
    """Prints a Markdown table: bytes by level, microseconds per byte of every level, and the totals of the two corpora."""
    lines = {(line["file"], line["level"]): line for line in recorded()}
    levels = sorted({level for _, level in lines}, reverse=True)
    files = list(dict.fromkeys(name for name, _ in lines))
    print(f"| file | bytes | {' | '.join(f'-{level}' for level in levels)} | {' | '.join(f'-{level}, µs per byte' for level in levels)} |")
    print("|" + " --- |" * (2 + 2 * len(levels)))
    for name in [*files, "calgary/", "canterbury/"]:
        whole = name.endswith("/")
        own = {level: [lines[file, level] for file in files if file.startswith(name) and (file, level) in lines] for level in levels}
        own = {level: measured for level, measured in own.items() if whole or measured}
        count = max((len(measured) for measured in own.values()), default=0)
        if count == 0:
            continue
        cells = [f"{name} ({count} files)" if whole else name]
        cells.append(f"{max(sum(line['bytes'] for line in measured) for measured in own.values()):,}")
        complete = {level: measured for level, measured in own.items() if len(measured) == count}
        cells += [f"{sum(line['compressed'] for line in complete[level]):,}" if level in complete else "" for level in levels]
        for level in levels:
            measured, size = complete.get(level, []), sum(line["bytes"] for line in complete.get(level, []))
            seconds = [sum(line[key] for line in measured) for key in ("compress_seconds", "decompress_seconds")]
            cells.append(f"{1e6 * seconds[0] / size:.1f}, {1e6 * seconds[1] / size:.1f}" if size >= 1_000_000 else "")
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Parses the command line."""
    line = CommandLine(__doc__, table=table)
    runs = line.add("run", lambda given: run(given.sets, given.levels))
    runs.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    runs.add_argument("--levels", nargs="+", type=int, default=[9, 5, 1])
    line.run()


if __name__ == "__main__":
    main()
