"""Compiles integer kernels with numba, and keeps the machine code in the user's own cache folder.

Numba's own cache lies beside the source, where an installed package may not be writable, and it does not see that a function called from
another file has changed: the caller's old machine code would go on running the old callee. Here the folder is named after everything a
kernel is made of.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, SupportsIndex, TypeVar, cast

import numba
import numpy as np
from numba.core import config as numba_config
from numba.core.options import DefaultOptions

Function = TypeVar("Function", bound=Callable[..., Any])
Integer = SupportsIndex  # what a kernel takes as a number: Python's or numpy's, of any width

# Off, no reference is counted. The option is numba's own, so it is passed only where there is one.
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

config = cast(Any, numba_config)  # its settings are made from the environment, unseen by type checkers

# kernel, by its plain function -> digest of what it is made of.
_digests: dict[Any, bytes] = {}


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
    # In tests a run-time type checker wraps every function; numba must see the function itself.
    bare = inspect.unwrap(function)
    _digests[bare] = digest = _digest(bare)
    folder = os.environ.get("NUMBA_CACHE_DIR") or _usable(cache_folder() / digest.hex()[:16])
    before = config.CACHE_DIR
    config.CACHE_DIR = folder or ""  # read when a function is decorated, by numba's own locator of caches
    try:
        return cast(Any, numba.njit)(cache=folder is not None, **_UNCOUNTED)(bare)
    finally:
        config.CACHE_DIR = before


def inlined(function: Function) -> Function:
    """Compiles a function into each kernel that calls it: for the few lines that a loop spends its time in.

    A call passes every array in seven words, and what is known about them is lost; pasted code keeps it. Compiling takes longer for each
    place that calls it.

    Args:
        function: as for `kernel`.

    Returns:
        The function for kernels to call; where NUMBA_DISABLE_JIT is set, the function itself.
    """
    bare = inspect.unwrap(function)
    _digests[bare] = _digest(bare)
    return cast(Function, numba.njit(inline="always")(bare))


def plain(function: Function) -> Function:
    """Returns the Python function of a kernel, which computes the same without a compiler.

    The kernels it calls stay compiled, unless NUMBA_DISABLE_JIT=1.
    """
    return cast(Function, getattr(function, "py_func", function))


def cache_folder() -> Path:
    """Returns the folder of the machine code: of ellzero, in the user's own cache folder. It may be deleted at any time."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ellzero" / "kernels"


def _digest(function: FunctionType) -> bytes:
    """Hashes the file of a kernel, the kernels that it calls, and the constants that it names."""
    digest = hashlib.sha256(_text(inspect.getfile(function)))
    for name in sorted(function.__code__.co_names):
        value = function.__globals__.get(name)
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType) and inner in _digests:
            digest.update(_digests[inner])
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


@cache
def _usable(folder: Path) -> str | None:
    """Makes a folder and returns its name; None where that is not allowed, so that kernels are compiled anew in each process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # Path.home raises RuntimeError where there is no home.
        return None
    return str(folder) if os.access(folder, os.W_OK) else None
