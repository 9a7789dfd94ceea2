"""The one way to compile a kernel: explicit types, machine code kept under a digest of its sources, the undecorated function for tests."""

from ellzero.jit.entry_points import entry
from ellzero.jit.kernels import Integer, before_compiling, before_numba, cache_folder, inlined, kernel, plain

__all__ = ["Integer", "before_compiling", "before_numba", "cache_folder", "entry", "inlined", "kernel", "plain"]
