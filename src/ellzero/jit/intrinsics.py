"""What Python has no word for, as single machine instructions: reading and writing at an address, and the bits of a number as another type.

A kernel that takes addresses works on many arrays in one call: numba unpacks each array it is given, and compiles anew for each number of
arrays. Nothing is checked: an address has to be that of as many elements as the kernel reads.
"""

import ctypes
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

Build = Callable[[Any, Any, Any], Any]
"""(llvmlite's `ir`, its builder, the arguments) -> the result, None where there is none."""


class Intrinsic:
    """A function that kernels call and that is one or two machine instructions there.

    Args:
        function: computes the same in Python.
        result: name of the result's type, as numba names it.
        arguments: names of the arguments' types.
        build: emits the instructions.
    """

    def __init__(self, function: Callable[..., Any], result: str, arguments: tuple[str, ...], build: Build) -> None:
        update_wrapper(self, function)
        self._function, self._result, self._arguments, self._build = function, result, arguments, build

    def __call__(self, *arguments: Any) -> Any:
        """Computes it in Python."""
        return self._function(*arguments)

    @cached_property
    def compiled(self) -> Any:
        """The function as numba calls it."""
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        signature = getattr(types, self._result)(*(getattr(types, name) for name in self._arguments))

        def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            result = self._build(ir, builder, arguments)
            return context.get_dummy_value() if result is None else result

        def unary(context: Any, a: Any) -> Any:
            return signature, emit

        def binary(context: Any, a: Any, b: Any) -> Any:
            return signature, emit

        def ternary(context: Any, a: Any, b: Any, c: Any) -> Any:
            return signature, emit

        # Numba takes the number of arguments from the function.
        return intrinsic((unary, binary, ternary)[len(self._arguments) - 1])


def _element(ir: Any, builder: Any, kind: Any, arguments: Any) -> Any:
    return builder.gep(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])


def _read_float32(address: SupportsIndex, index: SupportsIndex) -> np.float32:
    """Returns element `index` of an array of float32 at an address."""
    return np.float32(ctypes.c_float.from_address(int(address) + 4 * int(index)).value)


def _write_float32(address: SupportsIndex, index: SupportsIndex, value: SupportsFloat) -> None:
    """Sets element `index` of an array of float32 at an address."""
    ctypes.c_float.from_address(int(address) + 4 * int(index)).value = float(value)


def _read_byte(address: SupportsIndex, index: SupportsIndex) -> np.uint8:
    """Returns element `index` of an array of bytes at an address."""
    return np.uint8(ctypes.c_uint8.from_address(int(address) + int(index)).value)


def _float32_of_bits(bits: SupportsIndex) -> np.float32:
    """Returns the float32 whose bits are those of a whole number."""
    return np.int32(bits).view(np.float32)


def _emit_read_float32(ir: Any, builder: Any, given: Any) -> Any:
    return builder.load(_element(ir, builder, ir.FloatType(), given))


def _emit_write_float32(ir: Any, builder: Any, given: Any) -> None:
    builder.store(given[2], _element(ir, builder, ir.FloatType(), given))


def _emit_read_byte(ir: Any, builder: Any, given: Any) -> Any:
    return builder.load(_element(ir, builder, ir.IntType(8), given))


def _emit_float32_of_bits(ir: Any, builder: Any, given: Any) -> Any:
    return builder.bitcast(given[0], ir.FloatType())


read_float32 = Intrinsic(_read_float32, "float32", ("int64", "int64"), _emit_read_float32)
write_float32 = Intrinsic(_write_float32, "void", ("int64", "int64", "float32"), _emit_write_float32)
read_byte = Intrinsic(_read_byte, "uint8", ("int64", "int64"), _emit_read_byte)
float32_of_bits = Intrinsic(_float32_of_bits, "float32", ("int32",), _emit_float32_of_bits)
