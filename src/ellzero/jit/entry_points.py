"""Kernels that Python calls, for which numba is needed only once: later processes load their machine code without it.

Numba's import and its reading of its own cache take most of a second, longer than small files do. So a kernel is compiled once for each
combination of types, to a function of C (numba's `cfunc`) that takes two tables, of arrays and of numbers. LLVM makes an object file of it,
which `ellzero.jit.machine` keeps and loads. Whatever does not go this way goes numba's, and computes the same.
"""

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

from ellzero.jit.kernels import Function, Kernel, announce_compiling, bare_of, disabled, function_itself, lock

_PORTABLE = sys.platform == "linux"
"""Where this has been tried."""

_RESULTS = {None: None, np.int64: np.int64, np.uint64: np.uint64, bool: np.bool_}
_LAYOUT = b"1"
"""Changes whenever the tables or the files do."""

_DONE, _RESULT, _FIRST = range(3)
"""In the table of numbers: whether the kernel came to its end, what it returned, and its first number."""

_WORD = (1 << 64) - 1


def entry(function: Function) -> Function:
    """Compiles a kernel that Python calls, as `kernel` does, and spares later processes numba.

    Args:
        function: as for `kernel`. It takes arrays, numbers, and tuples of these, returns what its annotation says (nothing, an int64, a
            uint64 or a bool), and does not fail: that it did is all that the caller learns.

    Returns:
        The compiled function; where NUMBA_DISABLE_JIT is set, the function itself.

    Raises:
        TypeError: the kernel says that it returns something else.
    """
    bare = bare_of(function)
    return function_itself(bare) if disabled() else cast(Function, Entry(bare, inlined=False))


class UnsupportedError(TypeError):
    """An argument that only numba takes."""


class Entry(Kernel):
    """A kernel whose machine code is loaded without numba.

    Args:
        function: what it computes.
        inlined: False.
        constants: as for `Kernel`.

    Raises:
        TypeError: it says that it returns neither nothing nor a number of 64 bits.
    """

    def __init__(self, function: FunctionType, *, inlined: bool = False, constants: Mapping[str, int] | None = None) -> None:
        super().__init__(function, inlined=inlined, constants=constants)
        result = inspect.get_annotations(function).get("return", inspect.Parameter.empty)
        if result not in _RESULTS:
            raise TypeError(f"{function.__name__} returns {result}; an entry returns None, np.int64, np.uint64 or bool")
        self._returns = _RESULTS[result]
        self._codes: dict[str, Callable[[int, int], None] | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Computes.

        Raises:
            RuntimeError: the kernel failed, by a division by zero or the like.
        """
        addresses: list[int] = []
        numbers = [0] * _FIRST
        try:
            kinds = ",".join([_take(argument, addresses, numbers) for argument in arguments])
        except UnsupportedError:
            code = None
        else:
            if kinds not in self._codes:
                with lock:  # Two threads do not compile the same.
                    if kinds not in self._codes:
                        self._codes[kinds] = self._code(kinds, arguments)
            code = self._codes[kinds]
        if code is None:
            return self.compiled(*arguments)
        tables = np.array(addresses, np.uint64), np.array(numbers, np.uint64)
        code(tables[0].ctypes.data, tables[1].ctypes.data)
        if not tables[1][_DONE]:
            raise RuntimeError(f"{self.py_func.__name__} failed: NUMBA_DISABLE_JIT=1 shows where")
        return None if self._returns is None else self._returns(tables[1][_RESULT].astype(self._returns)).item()

    def _code(self, kinds: str, arguments: tuple[Any, ...]) -> Callable[[int, int], None] | None:
        """Loads the machine code for some types, or compiles it; None where only numba can run it."""
        folder = self.folder
        if not _PORTABLE or folder is None:
            if folder is None or not any(Path(folder).rglob("*.nbi")):
                announce_compiling(kept=folder is not None)
            return None
        try:
            from ellzero.jit import machine

            made_of = hashlib.sha256(b"\0".join((_LAYOUT, self.digest, kinds.encode(), machine.identity()))).hexdigest()
            path = Path(folder) / f"{self.py_func.__name__}-{made_of[:24]}.code"
            machine_code = machine.read(path)
            if machine_code is None:
                announce_compiling(kept=True)
                machine_code = self._compile(arguments)
                path.parent.mkdir(parents=True, exist_ok=True)
                machine.write(path, *machine_code)
            return machine.load(*machine_code)
        except Exception:  # Another release of LLVM or numba may do anything here; numba's own way is there still.
            return None

    def _compile(self, arguments: tuple[Any, ...]) -> tuple[bytes, str]:
        """Compiles the kernel for the types of some arguments; returns an object file and the name of the function in it."""
        import numba

        from ellzero.jit import machine

        bound = self.bound
        scope: dict[str, Any] = {**bound.__globals__, "_carray": numba.carray, "_np": np}
        arrays, numbers = count(), count(_FIRST)
        taken = [_spell(argument, scope, arrays, numbers) for argument in arguments]
        exec(compile(_by_tables(bound, taken), inspect.getfile(self.py_func), "exec"), scope)
        types = numba.types
        signature = types.void(types.CPointer(types.voidptr), types.CPointer(types.uint64))
        compiled = cast(Any, numba.cfunc(signature)(scope[bound.__name__]))
        return machine.emit(compiled.inspect_llvm()), compiled.native_name


class _Returns(ast.NodeTransformer):
    """Has a function enter what it returns into the table of numbers."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:  # named by the base class
        """Replaces a return by what enters its value, and that the function came to its end."""
        entered = ast.parse(f"_numbers[{_DONE}] = 1").body
        if node.value is not None:
            assign = cast(ast.Assign, ast.parse(f"_numbers[{_RESULT}] = 0").body[0])
            assign.value = node.value
            entered.insert(0, assign)
        return [*entered, ast.Return()]


def _by_tables(function: FunctionType, taken: Sequence[str]) -> ast.Module:
    """Rewrites a function as one that takes two tables, of arrays and of numbers.

    A function that called it would have to be compiled as well, and pasting by numba takes a second for the largest.

    Args:
        function: the kernel.
        taken: what each of its arguments is, spelt in Python.
    """
    module = ast.parse(textwrap.dedent(inspect.getsource(function)))
    kernel = cast(ast.FunctionDef, module.body[0])
    parameters = [parameter.arg for parameter in (*kernel.args.posonlyargs, *kernel.args.args)]
    assigned = [f"{name} = {words}" for name, words in zip(parameters, taken, strict=True)]
    body = [_Returns().visit(statement) for statement in kernel.body]
    flat = [part for parts in body for part in (parts if isinstance(parts, list) else [parts])]
    kernel.args = ast.arguments([], [ast.arg("_arrays"), ast.arg("_numbers")], None, [], [], None, [])
    kernel.decorator_list, kernel.returns = [], None
    kernel.body = [*ast.parse("\n".join(assigned)).body, *flat, *_Returns().visit_Return(ast.Return())]
    return ast.fix_missing_locations(module)


def _take(argument: Any, addresses: list[int], numbers: list[int]) -> str:
    """Enters an argument into the tables and returns its type.

    Raises:
        UnsupportedError: only numba takes it.
    """
    if type(argument) is np.ndarray:
        array = cast("np.ndarray[Any, np.dtype[Any]]", argument)
        if array.dtype.kind not in "iu" or not array.dtype.isnative or not array.ndim or not array.flags.carray:
            raise UnsupportedError(f"an array of {array.dtype}")
        addresses.append(array.ctypes.data)
        numbers.extend(array.shape)
        return f"{array.dtype.str}{array.ndim}"
    if isinstance(argument, tuple):
        parts = cast("tuple[Any, ...]", argument)
        return f"{type(parts).__qualname__}{getattr(parts, '_fields', '')}({','.join([_take(part, addresses, numbers) for part in parts])})"
    if isinstance(argument, (np.integer, np.bool_)) or (isinstance(argument, int) and -1 << 63 <= argument < 1 << 63):
        numbers.append(int(argument) & _WORD)
        return _named(argument)
    raise UnsupportedError(f"a {type(argument).__name__}")


def _spell(argument: Any, scope: dict[str, Any], arrays: Iterator[int], numbers: Iterator[int]) -> str:
    """Writes down how the kernel's argument is taken from the tables, in Python for numba."""
    if isinstance(argument, np.ndarray):
        shape = "".join(f"_np.int64(_numbers[{next(numbers)}])," for _ in argument.shape)
        return f"_carray(_arrays[{next(arrays)}], ({shape}), _np.{argument.dtype.name})"
    if isinstance(argument, tuple):
        parts = "".join(f"{_spell(part, scope, arrays, numbers)}," for part in cast("tuple[Any, ...]", argument))
        if type(cast(Any, argument)) is tuple:
            return f"({parts})"
        scope[name := f"_Tuple{len(scope)}"] = type(argument)
        return f"{name}({parts})"
    return f"_np.{_named(argument)}(_numbers[{next(numbers)}])"


def _named(number: int | np.integer[Any] | np.bool_) -> str:
    """Returns numpy's name for the type of a number; Python's are int64, as numba takes them."""
    if isinstance(number, (bool, np.bool_)):
        return "bool_"
    return "int64" if isinstance(number, int) else number.dtype.name
