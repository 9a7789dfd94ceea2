"""The coders that `ellzero bench` knows: each at its smallest output, in memory, on one thread."""

import bz2
import importlib
import importlib.util
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PPMD_MEMORY = 1 << 28


@dataclass(frozen=True, kw_only=True)
class Coder:
    """Both directions of a coder.

    Args:
        compress: gives the compressed bytes.
        decompress: gives them back.
    """

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]


def coder(name: str) -> Coder:
    """Returns a coder.

    Args:
        name: one of `OTHERS`, or `ellzero -5` and the like.

    Raises:
        ImportError: it is not installed.
    """
    if name.startswith("ellzero -"):
        return _ellzero(int(name.removeprefix("ellzero -")))
    return OTHERS[name][1]()


def missing(name: str) -> bool:
    """Says whether the package that a coder is in is not installed."""
    return importlib.util.find_spec(OTHERS[name][0]) is None


def _ellzero(level: int) -> Coder:
    from ellzero.archive.compress import compress, decompress

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


OTHERS: dict[str, tuple[str, Callable[[], Coder]]] = {
    "xz -9e": ("lzma", _xz),
    "bzip2 -9": ("bz2", _bzip2),
    "zstd -22": ("zstandard", _zstd),
    "brotli -11": ("brotli", _brotli),
    "bzip3": ("bz3", _bzip3),
    "PPMd": ("pyppmd", _ppmd),
    "zpaq": ("zpaq", _zpaq),
}
