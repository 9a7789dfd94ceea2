"""Runs some tests in a fork of this process, on a copy of the tree; notes which functions each test calls.

A fork takes milliseconds, imports take seconds: most changes are made in a fork that has imported and collected everything, in the code of
the function that they are in. What is outside of functions needs the package to be imported anew.
"""

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.main import pytest_runtestloop
from tools.mutants.changes import Change

_BROKEN = 99

MEMORY = 8 << 30
"""Bytes that a trial may take: a mutant may ask for anything."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of some tests.

    Attributes:
        passed: whether all of them passed.
        broken: whether the trial itself went wrong.
        timed_out: whether they were ended because they took too long.
        by: the first test that failed; empty where it was the collection.
        seconds: how long it took.
        output: what they printed.
    """

    passed: bool
    broken: bool
    timed_out: bool
    by: str
    seconds: float
    output: str


class Chosen:
    """A plugin of pytest that runs some tests in a given order, and notes the first that fails."""

    def __init__(self, names: list[str] | None, note: Path) -> None:
        self.order = None if names is None else {name: index for index, name in enumerate(names)}
        self.note = note

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out what was not chosen."""
        if self.order is not None:
            order = self.order
            items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first failure."""
        if report.failed and not self.note.exists():
            self.note.write_text(report.nodeid)
            print(report.nodeid, report.longreprtext)


class Calls:
    """A plugin of pytest that notes which functions of the package each test calls, in Python or by a kernel."""

    def __init__(self, source: Path, result: Path) -> None:
        self.source, self.result = str(source / "src") + os.sep, result
        self.tests: dict[str, dict[str, Any]] = {}
        self.called: set[str] = set()
        self.codes: dict[CodeType, str | None] = {}
        self.kernels: dict[Any, set[str]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watches one test."""
        self.called = set()
        start = time.perf_counter()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        self.tests[item.nodeid] = {"seconds": round(time.perf_counter() - start, 3), "calls": sorted(self.called)}

    def pytest_sessionfinish(self) -> None:
        """Writes what was noted."""
        self.result.write_text(json.dumps(self.tests))

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in self.codes:
            own = code.co_filename.startswith(self.source)
            self.codes[code] = f"{code.co_filename[len(self.source) - 4 :]}:{code.co_qualname}" if own else None
        name = self.codes[code]
        if name is not None:
            self.called.add(name)
            if code.co_name == "__call__" and "/jit/" in name:
                self.called |= self._inside(frame.f_locals["self"].py_func)
        elif code.co_filename == "<string>" and code.co_name == "__init__":  # of a dataclass
            made = type(frame.f_locals.get("self"))
            if made.__module__.startswith("ellzero."):
                self.called.add(f"src/{made.__module__.replace('.', '/')}.py:{made.__qualname__}")

    def _inside(self, kernel: Any) -> set[str]:
        """Names the kernels that a kernel is made of, which are compiled and call nothing that Python sees."""
        if kernel not in self.kernels:
            codes = [function.__code__ for function in within(kernel)]
            self.kernels[kernel] = {f"{code.co_filename[len(self.source) - 4 :]}:{code.co_qualname}" for code in codes}
        return self.kernels[kernel]


class Warm:
    """A plugin of pytest that collects tests once and then runs some of them in forks, each on functions changed in memory.

    Args:
        work: what to do when everything is imported; it is given the plugin.
        tree: the copy of the repository.
    """

    def __init__(self, work: Callable[["Warm"], None], tree: Path) -> None:
        self.work, self.tree = work, tree
        self.functions: dict[tuple[str, str], list[FunctionType]] = {}
        self.kernels: list[Any] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Works instead of running the tests."""
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        kernel = sys.modules["ellzero.jit.kernels"].Kernel
        source = str(self.tree / "src")
        for value in gc.get_objects():
            # By type: isinstance asks for __class__, which some objects warn about.
            if type(value) is FunctionType and value.__code__.co_filename.startswith(source):
                self.functions.setdefault((value.__code__.co_filename, value.__code__.co_qualname), []).append(value)
            elif issubclass(type(value), kernel):
                self.kernels.append(value)
        gc.freeze()
        self.work(self)
        return True

    def changes(self, change: Change) -> bool:
        """Tells whether a change can be made in memory: it is in the body of one function that is imported."""
        source = (self.tree / change.file).read_bytes()
        before, after = (codes(compile(text, "", "exec")).get(change.function, []) for text in (source, change.applied(source)))
        return len(before) == 1 and before != after and (str(self.tree / change.file), change.function) in self.functions

    def run(self, names: list[str], limit: float, change: Change | None = None, calls: "Calls | None" = None) -> Outcome:
        """Runs tests in a fork, with one change where one is given."""

        def child(note: Path) -> int:
            if change is not None:
                self._apply_(change)
            manager = self.session.config.pluginmanager
            manager.register(Chosen(None, note))
            if calls is not None:
                manager.register(calls)
            else:
                self.session.config.option.maxfail = 1
            self.session.items = [self.items[name] for name in names if name in self.items]
            try:
                pytest_runtestloop(self.session)
            except (pytest.Session.Failed, pytest.Session.Interrupted):
                return 1
            if calls is not None:
                calls.pytest_sessionfinish()
            return int(self.session.testsfailed > 0)

        return forked(self.tree, child, limit)

    def _apply_(self, change: Change) -> None:
        path = self.tree / change.file
        (code,) = codes(compile(change.applied(path.read_bytes()), str(path), "exec"))[change.function]
        functions = self.functions[str(path), change.function]
        for kernel in self.kernels:
            if any(function in within(kernel.py_func) for function in functions):
                # The digest names the folder of the machine code, and is of the file that was imported.
                kernel.digest = hashlib.sha256(kernel.digest + change.name.encode()).digest()
                # What a file of tests has compiled when it was imported.
                kernel.__dict__.pop("compiled", None)
                kernel.__dict__["_codes"] = {}
        for function in functions:
            function.__code__ = code


def codes(module: CodeType) -> dict[str, list[CodeType]]:
    """Lists the functions of a compiled module, by their qualified names."""
    found: dict[str, list[CodeType]] = {}
    for value in module.co_consts:
        if isinstance(value, CodeType):
            found.setdefault(value.co_qualname, []).append(value)
            for name, inner in codes(value).items():
                found.setdefault(name, []).extend(inner)
    return found


def within(kernel: Any) -> set[Any]:
    """Lists the functions that a kernel is made of: itself and those that it calls."""
    found, waiting = {kernel}, [kernel]
    while waiting:
        function = waiting.pop()
        for name in function.__code__.co_names:
            inner = getattr(function.__globals__.get(name), "py_func", None)
            if inner is not None and inner not in found:
                found.add(inner)
                waiting.append(inner)
    return found


def preload() -> None:
    """Imports what takes long and is not the package."""
    import numba
    import numpy
    import safetensors.torch
    import scipy.optimize
    import torch

    torch.set_num_threads(1)
    del numba, numpy, safetensors, scipy


def in_tree(tree: Path, files: list[str], plugins: list[object], options: list[str]) -> int:
    """Runs pytest on the copy of the repository, in this process."""
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree / "src"), "XDG_CACHE_HOME": str(tree / ".cache"), "PYTHONHASHSEED": "0"}
    os.environ.pop("ELLZERO_DATA", None)
    others = [path for path in sys.path if Path(path or ".").resolve().name not in ("src", "tests")]
    sys.path[:] = [str(tree / "src"), str(tree / "tests"), *others]
    always = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "--basetemp", str(tree / ".temporary")]
    return int(pytest.main([*always, *options, *files], plugins=plugins))


def run(tree: Path, names: list[str], limit: float) -> Outcome:
    """Imports everything anew in a fork and runs tests there."""
    files = list(dict.fromkeys(name.split("::")[0] for name in names))
    return forked(tree, lambda note: in_tree(tree, files, [Chosen(names, note)], ["-x"]), limit)


def forked(tree: Path, child: Callable[[Path], int], limit: float) -> Outcome:
    """Runs something in a fork.

    Args:
        tree: where the first failure is noted, and the output.
        child: what to run, given where the first failure is to be noted; it returns 0 where all tests pass.
        limit: seconds.
    """
    note, log = tree / ".failed", tree / ".output"
    note.unlink(missing_ok=True)
    start = time.monotonic()
    process = os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = child(note)
        except BaseException:
            traceback.print_exc()
            code = _BROKEN
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    status, timed_out = None, False
    while status is None:
        ended, value = os.waitpid(process, os.WNOHANG)
        if ended:
            status = value
        elif time.monotonic() - start > limit and not timed_out:
            timed_out = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)  # what the tests may have left running
    return Outcome(
        passed=status == 0,
        broken=os.WIFEXITED(status) and os.WEXITSTATUS(status) in (_BROKEN, 5),  # of pytest, 5: no test was collected
        timed_out=timed_out,
        by=note.read_text() if note.exists() else "",
        seconds=round(time.monotonic() - start, 1),
        output=log.read_text(errors="replace"),
    )


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a folder for this process.

    Raises:
        BlockingIOError: another process holds it.
    """
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
