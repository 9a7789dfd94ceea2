"""Coders side by side: how small against how fast."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ellzero.plots.canvas import BLUE, ORANGE, draw

if TYPE_CHECKING:
    import matplotlib.figure


@runtime_checkable
class Measured(Protocol):
    """What is drawn of a coder."""

    @property
    def coder(self) -> str:
        """Its name."""
        ...

    @property
    def bits_per_byte(self) -> float:
        """Size: bits of the compressed file a byte of the original."""
        ...

    @property
    def compress_rate(self) -> float:
        """Speed in kB/s."""
        ...

    @property
    def decompress_rate(self) -> float:
        """Speed in kB/s."""
        ...


def plot_coders(measured: Sequence[Measured], path_stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Draws size against speed, both directions of a coder joined by a line.

    Args:
        measured: the coders, of non-empty files.
        path_stem: path without ending; its folder must exist.

    Returns:
        The paths of the PNG and of the SVG.

    Raises:
        ImportError: matplotlib is missing.
        OSError: a file cannot be written.
    """

    def fill(figure: "matplotlib.figure.Figure") -> None:
        axes = figure.add_subplot()
        for number, coder in enumerate(measured):
            rates = (coder.compress_rate, coder.decompress_rate)
            sizes = (coder.bits_per_byte, coder.bits_per_byte)
            axes.plot(rates, sizes, color="#BBBBBB", zorder=1)
            axes.scatter(*(pair[:1] for pair in (rates, sizes)), color=BLUE, label=None if number else "compress", zorder=2)
            axes.scatter(*(pair[1:] for pair in (rates, sizes)), color=ORANGE, label=None if number else "decompress", zorder=2)
            axes.annotate(coder.coder, (min(rates), coder.bits_per_byte), xytext=(4, 4), textcoords="offset points", fontsize=9)
        axes.set_xscale("log")
        axes.set_xlabel("speed in kB/s")
        axes.set_ylabel("bits per byte")
        axes.legend()

    return draw(path_stem, (7, 4.5), fill)
