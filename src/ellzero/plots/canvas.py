"""The look of every picture, and how it gets into files: the same bytes from the same figures, nothing global touched."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ellzero.files.whole import replacing

if TYPE_CHECKING:
    import matplotlib.figure
    import matplotlib.typing

# The colours of Okabe and Ito, Color universal design, 2008: distinct under every common form of colour blindness.
BLUE, ORANGE, VERMILION, GREEN, INK, GREY = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#222222", "#8A8A8A"

_STYLE: dict["matplotlib.typing.RcKeyType", Any] = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "ellzero",  # otherwise the identifiers in an SVG differ from run to run
}


def draw(
    path_stem: str | os.PathLike[str], size: tuple[float, float], fill: Callable[["matplotlib.figure.Figure"], None]
) -> tuple[Path, Path]:
    """Draws a figure and writes it as PNG and SVG, whole files or none.

    Args:
        path_stem: path without ending; its folder must exist.
        size: width and height in inches.
        fill: draws on the empty figure.

    Returns:
        The paths of the PNG and of the SVG.

    Raises:
        ImportError: matplotlib is missing.
        OSError: a file cannot be written.
    """
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'ellzero[plots]'") from error
    with matplotlib.rc_context(_STYLE):
        # A figure that pyplot does not know: it has its own canvas, and no window or state beside it.
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        fill(figure)
        paths = (Path(f"{os.fspath(path_stem)}.png"), Path(f"{os.fspath(path_stem)}.svg"))
        # The date and the version of matplotlib would make the files of equal figures differ.
        for path, metadata in zip(paths, ({"Software": None}, {"Date": None, "Creator": None}), strict=True):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=path.suffix[1:], dpi=150, facecolor="white", metadata=metadata)
            with replacing(path) as file:
                file.write(buffer.getvalue())
    return paths
