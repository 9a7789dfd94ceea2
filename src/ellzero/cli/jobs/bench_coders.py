"""The coders that `ellzero bench` knows, with the settings of their smallest output, in memory, on one thread."""

import bz2
import importlib
import importlib.util
import lzma
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PPMD_MEMORY = 1 << 28


@dataclass(frozen=True, kw_only=True)
class Coder:
    """Both directions of a coder.

    Args:
        compress: returns the compressed bytes.
        decompress: returns the original bytes.
        is_program: whether it is a program of its own, whose start is counted and whose memory is not known.
    """

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]
    is_program: bool = False


@dataclass(frozen=True, kw_only=True)
class Other:
    """A coder with which ellzero is compared.

    Args:
        package: the module of the coder.
        load: imports the module and returns the coder.
        program: the name of a program that does the same where the module is not installed, and a function that returns its coder.
    """

    package: str
    load: Callable[[], Coder]
    program: tuple[str, Callable[[], Coder]] | None = None


def coder(name: str) -> Coder:
    """Returns a coder.

    Args:
        name: one of `OTHERS`, or `ellzero -5` and the like.

    Raises:
        ImportError: it is not installed.
    """
    if name.startswith("ellzero -"):
        return _ellzero(int(name.removeprefix("ellzero -")))
    other = OTHERS[name]
    if not _has_package(other) and other.program is not None:
        return other.program[1]()
    return other.load()


def missing(name: str) -> bool:
    """Tells whether neither the package that a coder is in nor a program that does the same is installed."""
    other = OTHERS[name]
    return not _has_package(other) and (other.program is None or shutil.which(other.program[0]) is None)


def _has_package(other: Other) -> bool:
    return importlib.util.find_spec(other.package) is not None


def _ellzero(level: int) -> Coder:
    from ellzero.archive._compress import compress, decompress

    # Short and no noise, so that it goes through the model: a stored block would compile nothing.
    sample = b"It is compiled, or taken from its cache, before the clock runs. " * 20
    assert decompress(compress(sample, level=level)) == sample
    return Coder(compress=lambda data: compress(data, level=level), decompress=lambda data: decompress(data, max_size=None))


def _xz() -> Coder:
    return Coder(compress=lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME), decompress=lzma.decompress)


def _bzip2() -> Coder:
    return Coder(compress=lambda data: bz2.compress(data, 9), decompress=bz2.decompress)


def _zstd() -> Coder:
    zstandard = _module("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(22, window_log=27, enable_ldm=True)
    return Coder(
        compress=zstandard.ZstdCompressor(compression_params=parameters).compress,
        decompress=zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress,
    )


def _zstd_program() -> Coder:
    return Coder(
        compress=lambda data: _through(data, "zstd", "--ultra", "-22", "--long=27", "--single-thread", f"--stream-size={len(data)}"),
        decompress=lambda data: _through(data, "zstd", "-d", "--long=27"),
        is_program=True,
    )


def _brotli() -> Coder:
    brotli = _module("brotli")
    return Coder(compress=lambda data: brotli.compress(data, quality=11, lgwin=24), decompress=brotli.decompress)


def _bzip3() -> Coder:
    bz3 = _module("bz3")
    # One block for the whole file, within what the format allows: 65 KiB to 511 MiB.
    return Coder(
        compress=lambda data: bz3.compress(data, min(max(len(data) + 1024, 66_560), 511 << 20)),
        decompress=bz3.decompress,
    )


def _ppmd() -> Coder:
    pyppmd = _module("pyppmd")
    return Coder(
        compress=lambda data: pyppmd.compress(data, max_order=16, mem_size=_PPMD_MEMORY, variant="I"),
        decompress=lambda data: pyppmd.decompress(data, max_order=16, mem_size=_PPMD_MEMORY, variant="I"),
    )


def _zpaq() -> Coder:
    zpaq = _module("zpaq")
    return Coder(compress=lambda data: zpaq.compress(data, level=5, threads=1), decompress=zpaq.decompress)


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _through(data: bytes, *command: str) -> bytes:
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


OTHERS = {
    "xz -9e": Other(package="lzma", load=_xz),
    "bzip2 -9": Other(package="bz2", load=_bzip2),
    "zstd -22": Other(package="zstandard", load=_zstd, program=("zstd", _zstd_program)),
    "brotli -11": Other(package="brotli", load=_brotli),
    "bzip3": Other(package="bz3", load=_bzip3),
    "PPMd": Other(package="pyppmd", load=_ppmd),
    "zpaq": Other(package="zpaq", load=_zpaq),
}
