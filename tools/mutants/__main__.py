"""The command: copies the tree, learns which test calls what, tries the mutants that are drawn, writes a record for each."""

import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.mutants import trial
from tools.mutants.changes import Change, changes

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "tools/mutants/records.jsonl"
EQUIVALENT = ROOT / "tools/mutants/equivalent.toml"
PAGE = ROOT / "CONTRIBUTING.md"
WORK = ROOT / ".mutants"
LIVE = WORK / "records.jsonl"
TREE = WORK / "tree"

ROOMS = ("methods", "pruning", "training", "archive", "codec")
BESIDE = {"archive": ("pack_command", "pack_sources", "pack_model_command")}
"""Tests from end to end that are a room's, too: they call the commands in their own process."""

PER_ROOM = 50
SEED = 20250517

QUICK, LIMIT = 6.0, 30.0
"""Seconds of tests that are run first, and altogether."""


def drawn() -> dict[str, list[Change]]:
    """Draws the mutants of each room."""
    chosen: dict[str, list[Change]] = {}
    for room in ROOMS:
        sources = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted((ROOT / "src/ellzero" / room).rglob("*.py"))}
        possible = [change for file, source in sources.items() for change in changes(file, source)]
        possible.sort(key=lambda change: hashlib.sha256(f"{SEED}:{change.name}".encode()).digest())
        chosen[room] = []
        for change in possible:
            if len(chosen[room]) < PER_ROOM and _compiles(change.applied(sources[change.file])):
                chosen[room].append(change)
    return chosen


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def copy_tree() -> None:
    """Brings the copy of the tree up to date; files that have not changed keep their times, by which compiled code is known."""
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (WORK / "commit").write_text(commit.strip())
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.splitlines() if (ROOT / name).is_file()}
    for name in wanted:
        source, target = ROOT / name, TREE / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for folder in ("src", "tests", "tools", "experiments"):
        for path in (TREE / folder).rglob("*.py"):
            if path.relative_to(TREE).as_posix() not in wanted:
                path.unlink()


def test_files(room: str) -> list[str]:
    """Lists the files of a room's tests."""
    files = [path.relative_to(TREE).as_posix() for path in sorted((TREE / "tests/unit" / room).rglob("test_*.py"))]
    return [*files, *(f"tests/end_to_end/test_{name}.py" for name in BESIDE.get(room, ()))]


def learn(warm: trial.Warm, file: str) -> dict[str, dict[str, Any]]:
    """Returns the tests of a file with their seconds and the functions that each calls; a file is run where it has changed."""
    folder = WORK / "calls"
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / f"{file.replace('/', '-')}-{hashlib.sha256((TREE / file).read_bytes()).hexdigest()[:16]}.json"
    if not result.exists():
        names = [name for name in warm.items if name.startswith(f"{file}::")]
        outcome = warm.run(names, 900.0, calls=trial.Calls(TREE, result))
        print(f"{file}: {outcome.seconds} s{'' if outcome.passed else ', fails: ' + outcome.output[-2000:]}", flush=True)
        if not outcome.passed:
            result.unlink(missing_ok=True)
            return {}
    return json.loads(result.read_text())


def tests_of(change: Change, known: dict[str, dict[str, Any]]) -> list[str]:
    """Lists the tests that call what a change is in: the short ones first, and those likely to fail.

    Likely are tests of the room itself, those that have noticed another mutant of the folder, and those that compare with a reference.
    """
    prefix = f"{change.file}:"
    within = f"{prefix}{change.function}"

    def reaches(calls: Iterable[str], name: str) -> bool:
        return any(call == name or call.startswith(f"{name}.") for call in calls)

    names = [name for name, test in known.items() if change.function and reaches(test["calls"], within)]
    names = names or [name for name, test in known.items() if any(call.startswith(prefix) for call in test["calls"])]
    own = tuple(test_files(change.file.split("/")[2]))
    names = names or [name for name in known if name.startswith(own)]
    folder = change.file.rpartition("/")[0]
    kills = Counter(record["by"] for record in recorded().values() if record["file"].startswith(folder))

    def cost(name: str) -> float:
        likely = (1 + 4 * kills[name]) * (1 if name.startswith(own) else 0.25) * (5 if "reference" in name else 1)
        return known[name]["seconds"] / likely

    return sorted(names, key=cost)


def tried(change: Change, known: dict[str, dict[str, Any]], warm: trial.Warm | None, limit: float = LIMIT) -> dict[str, Any]:
    """Tries a mutant, unless it is known to compute the same; in memory, or anew without `warm`.

    The quick tests come first, then others that call it, up to a number of seconds.
    """
    if change.name in equivalent():
        return {"verdict": "equivalent", "by": "", "tests": 0, "anew": warm is None, "seconds": 0.0}
    names = tests_of(change, known)
    kernels = TREE / ".cache/ellzero/kernels"
    before = set(kernels.iterdir()) if kernels.exists() else set()
    outcome, seconds = None, 0.0
    with contextlib.nullcontext() if warm else written(change):
        for part in _parts(names, known, limit):
            allowed = 60.0 + 5 * sum(known[name]["seconds"] for name in part)
            outcome = warm.run(part, allowed, change) if warm else trial.run(TREE, part, allowed)
            seconds += outcome.seconds
            if not outcome.passed:
                break
    for folder in set(kernels.iterdir()) - before if kernels.exists() else ():
        shutil.rmtree(folder, ignore_errors=True)
    (WORK / "outputs").mkdir(exist_ok=True)
    (WORK / "outputs" / change.name).write_text("no tests" if outcome is None else outcome.output)
    verdict = (
        "survived" if outcome is None or outcome.passed else "timed out" if outcome.timed_out else "broken" if outcome.broken else "killed"
    )
    return {
        "verdict": verdict,
        "by": outcome.by if outcome else "",
        "tests": len(names),
        "anew": warm is None,
        "seconds": round(seconds, 1),
    }


@contextlib.contextmanager
def written(change: Change) -> Iterator[None]:
    """Writes a change into the copy of the tree, and puts the file back."""
    target = TREE / change.file
    original, times = target.read_bytes(), target.stat()
    try:
        target.write_bytes(change.applied(original))
        os.utime(
            target, (times.st_atime, times.st_mtime + 1_000_000 + int(change.name[:5], 16))
        )  # compiled code is known by it, in seconds
        yield
    finally:
        target.write_bytes(original)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def _parts(names: list[str], known: dict[str, dict[str, Any]], limit: float) -> list[list[str]]:
    """Divides tests into those that are run first and those that are run where none of these fails."""
    ends = list(itertools.accumulate(known[name]["seconds"] for name in names))
    first, all_of_them = (max(1, sum(end <= seconds for end in ends)) for seconds in (QUICK, limit))
    return [part for part in (names[:first], names[first:all_of_them]) if part]


def recorded() -> dict[str, dict[str, Any]]:
    """Reads the records, by the mutants' names: of a run that goes on or was interrupted here, or else the ones kept in the repository."""
    path = LIVE if LIVE.exists() else RECORDS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def equivalent() -> dict[str, dict[str, str]]:
    """Reads the mutants that compute the same, with the proofs."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}


def write(records: Iterable[dict[str, Any]], path: Path = LIVE) -> None:
    """Writes the records, in the order of files and lines."""
    ordered = sorted(records, key=lambda record: (ROOMS.index(record["room"]), record["file"], record["line"], record["name"]))
    path.write_text("".join(json.dumps(record) + "\n" for record in ordered), encoding="utf-8")


def table(records: Iterable[dict[str, Any]]) -> str:
    """Renders what came of the mutants, one row per room."""
    counts = {room: Counter() for room in ROOMS}
    for record in records:
        counts[record["room"]]["equivalent" if record["name"] in equivalent() else record["verdict"]] += 1
    counts["together"] = sum(counts.values(), Counter())
    lines = ["| room | mutants | killed | timed out | equivalent | survived |", "| --- | --: | --: | --: | --: | --: |"]
    lines += [
        f"| {room} | {count.total()} | {count['killed']} | {count['timed out']} | {count['equivalent']} | {count['survived']} |"
        for room, count in counts.items()
    ]
    return "\n".join(lines) + "\n"


def rendered(page: str, records: Iterable[dict[str, Any]]) -> str:
    """Returns the page with the table that the records give."""
    before, rest = page.split("<!-- mutants -->\n")
    _, after = rest.split("<!-- end -->")
    return f"{before}<!-- mutants -->\n{table(records)}<!-- end -->{after}"


def main(arguments: list[str]) -> None:
    """Tries what is drawn: in memory what can be, then the others with everything imported anew."""
    if "--table" not in arguments:
        TREE.mkdir(parents=True, exist_ok=True)
        with trial.alone(WORK):
            _try_all(again="--survivors" in arguments)
    write(recorded().values(), RECORDS)
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), recorded().values()), encoding="utf-8")
    print(table(recorded().values()))


def _try_all(*, again: bool) -> None:
    """Tries every mutant that has no record, or `again` those that have survived, with all tests that call them."""
    limit = math.inf if again else LIMIT

    def waiting(change: Change) -> bool:
        old = recorded().get(change.name)
        return old is None or (again and old["verdict"] == "survived" and change.name not in equivalent())

    trial.preload()
    copy_tree()
    draw = drawn()
    names = {change.name for chosen in draw.values() for change in chosen}
    write(record for name, record in recorded().items() if name in names)

    def in_memory(warm: trial.Warm) -> None:
        known: dict[str, dict[str, Any]] = {}
        for file in test_files("stories"):
            known |= learn(warm, file)
        for room, chosen in draw.items():
            if any(map(waiting, chosen)):
                for file in test_files(room):
                    known |= learn(warm, file)
            for change in chosen:
                if waiting(change) and warm.changes(change):
                    _record(room, change, tried(change, known, warm, limit))

    # In a process of its own, so that this one has not imported the package.
    process = os.fork()
    if process == 0:
        os._exit(
            trial.in_tree(TREE, [file for room in ("stories", *ROOMS) for file in test_files(room)], [trial.Warm(in_memory, TREE)], [])
        )
    assert os.waitpid(process, 0)[1] == 0
    results = (WORK / "calls").glob("*.json")
    known = {name: test for result in results for name, test in json.loads(result.read_text(encoding="utf-8")).items()}
    for room, chosen in draw.items():
        for change in chosen:
            old = recorded().get(change.name)
            if waiting(change) and (old is None or old["anew"]):
                _record(room, change, tried(change, known, None, limit))


def _record(room: str, change: Change, outcome: dict[str, Any]) -> None:
    print(f"{outcome['verdict']} in {outcome['seconds']} s: {change.file}:{change.line} {change.operator}", flush=True)
    if outcome["verdict"] == "broken":
        print((WORK / "outputs" / change.name).read_text()[-3000:], flush=True)
        return
    records = recorded()
    records[change.name] = {
        "name": change.name,
        "commit": (WORK / "commit").read_text(),
        "room": room,
        "file": change.file,
        "function": change.function,
        "line": change.line,
        "operator": change.operator,
        "before": " ".join(change.before.split()),
        "after": " ".join(change.after.split()),
    } | outcome
    write(records.values())


if __name__ == "__main__":
    main(sys.argv[1:])
