"""Keeps the machine code of a compiled function in a file, and loads it with LLVM alone.

What numba compiles and what loads it again are the same library, llvmlite: so the code is no other than numba's own, but for what it calls
when a function fails, which is not there without numba and is replaced by functions that do nothing.
"""

import ctypes
import hashlib
import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding

llvm: Any = binding  # untyped

_OF_FAILURE = ("numba_", "NRT_", "Py", "_Py")
"""How functions and variables are named that only code for failures and for counting references calls."""

_HASH_SIZE = 32

# What is loaded stays loaded, and with it what it was loaded by.
_engines: list[Any] = []


def identity() -> bytes:
    """Returns what machine code depends on beside its source: the processor, LLVM, numba and the variables that change what it compiles."""
    numba = importlib.util.find_spec("numba")  # finds and does not import
    status = None if numba is None or numba.origin is None else os.stat(numba.origin)
    parts = [llvmlite.__version__, _target_machine().triple, *_processor()]
    parts += [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR"]
    parts += [] if status is None else [str(status.st_size), str(status.st_mtime_ns)]
    return "\n".join(parts).encode()


def emit(assembly: str) -> bytes:
    """Compiles LLVM's assembly, optimised already, to an object file that refers to nothing but the C library.

    Raises:
        RuntimeError: it calls something else.
    """
    module = llvm.parse_assembly(assembly)
    stubs = [f'target triple = "{module.triple}"', f'target datalayout = "{module.data_layout}"']
    for value in (*module.functions, *module.global_variables):
        name = value.name
        if not value.is_declaration or name.startswith("llvm."):
            continue
        if not name.startswith(_OF_FAILURE):
            raise RuntimeError(f"a kernel calls {name}")
        stubs.append(_stub(name, str(value.global_value_type)))
    module.link_in(llvm.parse_assembly("\n".join(stubs)))
    return _target_machine().emit_object(module)


def load(code: bytes, symbol: str) -> Callable[[int, int], None]:
    """Loads an object file into this process.

    Args:
        code: the object file.
        symbol: the name of a function in it, which takes two addresses and returns nothing.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(fresh=True))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(f"no {symbol} in the machine code")
    _engines.append(engine)
    # Python's lock is released meanwhile: no kernel touches an object of Python.
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)


def read(path: Path) -> tuple[bytes, str] | None:
    """Reads what `write` wrote: an object file and the name of its function; None where there is none, or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head, rest = content[:_HASH_SIZE], content[_HASH_SIZE:]
    if hashlib.sha256(rest).digest() != head:
        return None
    symbol, _, code = rest.partition(b"\n")
    return code, symbol.decode()


def write(path: Path, code: bytes, symbol: str) -> None:
    """Writes a file, whole or not at all."""
    rest = symbol.encode() + b"\n" + code
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    # A folder that is full costs the next process its time and nothing else.
    with suppress(OSError):
        temporary.write_bytes(hashlib.sha256(rest).digest() + rest)
        temporary.replace(path)


def _stub(name: str, kind: str) -> str:
    """Defines a function that returns zeros, or a variable of zeros, in LLVM's assembly."""
    result, parenthesis, parameters = kind.partition(" (")
    if not parenthesis:
        return f'@"{name}" = linkonce_odr global {kind} zeroinitializer'
    value = "void" if result == "void" else f"{result} zeroinitializer"
    return f'define linkonce_odr {result} @"{name}"({parameters} {{ ret {value} }}'


@cache
def _processor() -> tuple[str, str]:
    """Returns the name of the processor that is compiled for, and its features."""
    name, features = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = "" if name else llvm.get_host_cpu_features().flatten()
    return name or llvm.get_host_cpu_name(), features


def _target_machine(*, fresh: bool = False) -> Any:
    """Returns what LLVM compiles for, set as numba sets it. An engine takes the machine that it is given for its own."""
    return _new_machine() if fresh else _shared_machine()


@cache
def _shared_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return _new_machine()


def _new_machine() -> Any:
    name, features = _processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=3, jit=True, reloc="default", codemodel="jitdefault")
