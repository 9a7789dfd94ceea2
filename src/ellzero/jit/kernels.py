"""Compiles integer kernels with numba, and keeps the machine code in the user's own cache folder.

Numba's own cache lies beside the source, where an installed package may not be writable, and it does not see that a function called from
another file has changed: the caller's old machine code would go on running the old callee. Here the folder is named after everything a
kernel is made of.

Numba is imported when a kernel is first compiled or loaded by it, because its import alone takes longer than small files do. What Python
calls often is an `entry` (`ellzero.jit.entry_points`), which needs numba only once.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, SupportsIndex, TypeVar, cast

import numpy as np

from ellzero.jit.intrinsics import Intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Integer = SupportsIndex  # what a kernel takes as a number: Python's or numpy's, of any width

# kernel, by its plain function -> digest of what it is made of.
_digests: dict[Any, bytes] = {}
_preparations: dict[Callable[[], None], None] = {}
# what is to be done just before something is compiled -> whether it has been done.
_listeners: dict[Callable[[bool], None], bool] = {}
lock = RLock()


def kernel(function: Function) -> Function:
    """Compiles a function when it is first called; its machine code is kept for the next process.

    The decorator of every kernel of the codec. A kernel casts each operand to one explicit type, because numba's rules for mixed ones
    (uint64 + 1) are not numpy's, and gives the same result undecorated (NUMBA_DISABLE_JIT=1). It calls other kernels by names imported
    directly (`from ... import encode_bit`), not through their module: the names are how changes in them are noticed. It allocates
    nothing but writes into arrays that it is given, which spares counting references to them: that took a third of a coder's time.

    Args:
        function: the kernel. Annotations are for readers; numba compiles it for the types that it is called with.

    Returns:
        The compiled function; where NUMBA_DISABLE_JIT is set, the function itself. `plain` returns the undecorated one.
    """
    bare = bare_of(function)
    return function_itself(bare) if disabled() else cast(Function, Kernel(bare, inlined=False))


def inlined(function: Function) -> Function:
    """Compiles a function into each kernel that calls it: for the few lines that a loop spends its time in.

    A call passes every array in seven words, and what is known about them is lost; pasted code keeps it. Compiling takes longer for each
    place that calls it.

    Args:
        function: as for `kernel`.

    Returns:
        The function for kernels to call; where NUMBA_DISABLE_JIT is set, the function itself.
    """
    bare = bare_of(function)
    return function_itself(bare) if disabled() else cast(Function, Kernel(bare, inlined=True))


def specialised(function: Function, **constants: bool | int) -> Function:
    """Returns a kernel that is compiled with other constants, also in the kernels that it calls: for parts that some calls never need.

    Numba leaves out what stands behind an `if` whose condition is a constant, so that there is less to compile. What the kernel computes
    must not depend on it: without a compiler, and in `plain`, the constants are those of the source.

    Args:
        function: a kernel or an entry.
        constants: values in place of the global names of the source, wherever a kernel uses them.

    Returns:
        The other kernel; where NUMBA_DISABLE_JIT is set, the function itself.
    """
    return cast(Function, function.specialised(constants)) if isinstance(function, Kernel) else function


class Kernel:
    """A function that numba compiles when it is first called.

    Args:
        function: what it computes.
        inlined: whether it is compiled into each kernel that calls it.
        constants: in place of the global names of the source; see `specialised`.
    """

    def __init__(self, function: FunctionType, *, inlined: bool, constants: Mapping[str, int] | None = None) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.constants = dict(constants or {})
        self.digest = _digest(function)
        if constants:
            self.digest = hashlib.sha256(self.digest + repr(sorted(self.constants.items())).encode()).digest()
        else:
            _digests[function] = self.digest
        self._inlined = inlined
        self._specialised: dict[tuple[tuple[str, int], ...], Kernel] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Computes."""
        return self.compiled(*arguments)

    @cached_property
    def bound(self) -> FunctionType:
        """The function, with numba's own in the place of the kernels that it calls, and with its constants."""
        # The kernels have to be known to numba as its own when it reads the function; nothing is changed in the module.
        scope = dict(self.py_func.__globals__)
        for name in self.py_func.__code__.co_names:
            if name in self.constants:
                scope[name] = self.constants[name]
            elif isinstance(value := scope.get(name), Kernel):
                scope[name] = value.specialised(self.constants).called
            elif isinstance(value, Intrinsic):
                scope[name] = value.compiled
        own = FunctionType(self.py_func.__code__, scope, self.py_func.__name__, self.py_func.__defaults__, self.py_func.__closure__)
        own.__qualname__, own.__doc__ = self.py_func.__qualname__, self.py_func.__doc__
        return own

    @cached_property
    def compiled(self) -> Any:
        """Numba's own function, for Python to call."""
        return self._compiled(self.folder)

    @cached_property
    def called(self) -> Any:
        """The same for other kernels to call: what Python would need to call it takes a good part of the time of compiling it."""
        if self._inlined:
            return _numba()[0].njit(inline="always")(self.bound)
        folder = self.folder
        return self._compiled(folder and usable_folder(Path(folder) / "called"), no_cpython_wrapper=True, no_cfunc_wrapper=True)

    def _compiled(self, folder: str | None, **more: bool) -> Any:
        numba, config, options = _numba()
        with lock:
            before = config.CACHE_DIR
            config.CACHE_DIR = folder or ""  # read when a function is decorated, by numba's own locator of caches
            try:
                compiled = numba.njit(cache=folder is not None, **options, **more)(self.bound)
            finally:
                config.CACHE_DIR = before
        if folder is not None:
            _forgive_full_folder(compiled)
        return compiled

    def specialised(self, constants: Mapping[str, int]) -> "Kernel":
        """Returns the kernel with some constants; itself where neither it nor what it calls names one of them."""
        named = tuple(sorted((name, value) for name, value in constants.items() if name in self._names))
        if not named or dict(named) == self.constants:
            return self
        with lock:
            if named not in self._specialised:
                self._specialised[named] = type(self)(self.py_func, inlined=self._inlined, constants=dict(named))
            return self._specialised[named]

    @cached_property
    def _names(self) -> set[str]:
        """The global names of the kernel and of those that it calls."""
        names = set(self.py_func.__code__.co_names)
        called = [value for name in names if isinstance(value := self.py_func.__globals__.get(name), Kernel)]
        return names.union(*(kernel._names for kernel in called))

    @property
    def folder(self) -> str | None:
        """Where machine code is kept; None where no folder is writable, so that it is compiled anew in each process."""
        return usable_folder(cache_folder() / self.digest.hex()[:16])


def plain(function: Function) -> Function:
    """Returns the Python function of a kernel, which computes the same without a compiler.

    The kernels it calls stay compiled, unless NUMBA_DISABLE_JIT=1.
    """
    return cast(Function, getattr(function, "py_func", function))


def before_numba(prepare: Callable[[], None]) -> None:
    """Has something done just before a kernel first needs numba; nothing where none does."""
    _preparations[prepare] = None


def before_compiling(tell: Callable[[bool], None]) -> None:
    """Has something done just before something is compiled, once in a process; it is told whether the machine code can be kept."""
    _listeners.setdefault(tell, False)


def announce_compiling(*, kept: bool) -> None:
    """Tells those who want to know, and do not know yet, that something is about to be compiled."""
    for tell, told in list(_listeners.items()):
        if not told:
            _listeners[tell] = True
            tell(kept)


def cache_folder() -> Path:
    """Returns the folder of the machine code: NUMBA_CACHE_DIR, or that of ellzero in the user's own cache folder.

    It may be deleted at any time. Within it, each kernel has a folder that is named after everything it is made of.
    """
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ellzero" / "kernels"


def disabled() -> bool:
    """Tells whether nothing is to be compiled."""
    return os.environ.get("NUMBA_DISABLE_JIT", "").strip() not in ("", "0")


def bare_of(function: Callable[..., Any]) -> FunctionType:
    """Returns a function without what is wrapped around it: in tests a run-time type checker is, and numba must see the function itself."""
    return cast(FunctionType, inspect.unwrap(function))


def function_itself(function: FunctionType) -> Any:
    """Returns a function that is not compiled, and notes what it is made of."""
    _digests[function] = _digest(function)
    return function


@cache
def _numba() -> tuple[Any, Any, dict[str, Any]]:
    """Imports numba, its settings, which are made from the environment, and the options of every kernel."""
    for prepare in _preparations:
        prepare()
    import numba
    from numba.core import config
    from numba.core.options import DefaultOptions

    # Other threads run while a kernel does. Without `_nrt` no reference is counted: numba's own option, passed only where there is one.
    return numba, config, {"nogil": True} | ({"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {})


def __getattr__(name: str) -> Any:
    """Resolves `config`, numba's settings, which need numba."""
    if name == "config":
        return _numba()[1]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _digest(function: FunctionType) -> bytes:
    """Hashes the file of a kernel, the kernels that it calls, the constants that it names, and the fields of the tuples that it takes."""
    digest = hashlib.sha256(_text(inspect.getfile(function)))
    for annotation in inspect.get_annotations(function).values():
        digest.update(repr(getattr(annotation, "_fields", ())).encode())
    for name in sorted(function.__code__.co_names):
        value = function.__globals__.get(name)
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType) and inner in _digests:
            digest.update(_digests[inner])
        elif isinstance(value, Intrinsic):
            digest.update(_text(inspect.getfile(Intrinsic)))
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, ModuleType) and value.__name__.startswith("ellzero"):
            digest.update(_text(cast(str, value.__file__)))
        elif isinstance(value, (int, float, tuple, np.generic)):
            digest.update(f"{name}={value!r}".encode())
    return digest.digest()


@cache
def _text(path: str) -> bytes:
    return Path(path).read_bytes()


def _forgive_full_folder(compiled: Any) -> None:
    """Has numba go on where machine code cannot be kept: a folder that is full costs the next process its time and nothing else."""
    keep = compiled._cache.save_overload

    def keep_if_possible(*given: Any) -> None:
        with suppress(OSError):
            keep(*given)

    compiled._cache.save_overload = keep_if_possible


@cache
def usable_folder(folder: Path) -> str | None:
    """Makes a folder and returns its name; None where that is not allowed, so that kernels are compiled anew in each process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # Path.home raises RuntimeError where there is no home.
        return None
    return str(folder) if os.access(folder, os.W_OK) else None
