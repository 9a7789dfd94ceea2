"""How loss, error and the number of non-zeros went over a run."""

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ellzero.plots.canvas import BLUE, GREY, INK, ORANGE, VERMILION, draw

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_PHASES = {"prelude": "prelude", "regularise": "regularise", "fine_tune": "fine-tune"}
_SHADES = {"prelude": "#F4F4F4", "regularise": "#E3EEF7", "fine_tune": "#FBF1DC"}


def plot_curves(history: Sequence[Mapping[str, Any]], path_stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Draws loss, validation error (where there is one) and non-zeros over the epochs of a run, its phases shaded.

    Args:
        history: one mapping an epoch, as in a run's log: `epoch`, `phase`, `train_loss` and `nonzeros`, and where known `valid_loss`,
            `valid_error` (a fraction) and `attempt`. Of several attempts only the last is drawn.
        path_stem: path without ending.

    Returns:
        The paths of the PNG and of the SVG.

    Raises:
        ValueError: the history is empty, or an entry lacks a name that is needed.
        ImportError: matplotlib is missing.
        OSError: a file cannot be written.
    """
    entries = list(history)
    if not entries:
        raise ValueError("the history is empty: nothing to draw")
    for index, entry in enumerate(entries):
        if missing := {"epoch", "phase", "train_loss", "nonzeros"} - entry.keys():
            raise ValueError(f"entry {index} of the history lacks {', '.join(sorted(missing))}")
    entries = [entry for entry in entries if entry.get("attempt") == entries[-1].get("attempt")]
    epochs, nonzeros = _column(entries, "epoch"), _column(entries, "nonzeros")
    losses = {"training": _column(entries, "train_loss"), "validation": _column(entries, "valid_loss")}
    errors = 100 * _column(entries, "valid_error")
    has_errors = bool(np.isfinite(errors).any())

    def fill(figure: "matplotlib.figure.Figure") -> None:
        panels: list[matplotlib.axes.Axes] = list(figure.subplots(3 if has_errors else 2, 1, sharex=True))
        for name, colour in (("training", BLUE), ("validation", ORANGE)):
            _line(panels[0], epochs, losses[name], colour, name)
        _scale(panels[0], np.concatenate(list(losses.values())))
        panels[0].set_ylabel("loss (nats)")
        panels[0].legend(loc="upper right")
        if has_errors:
            _line(panels[1], epochs, errors, VERMILION, "validation", "{:.2f} %")
            _scale(panels[1], errors)
            panels[1].set_ylabel("validation error (%)")
        _line(panels[-1], epochs, nonzeros, INK, "non-zeros", "{:,.0f}")
        _scale(panels[-1], nonzeros)
        panels[-1].set_ylabel("non-zeros")
        panels[-1].set_xlabel("epoch")
        _shade(panels, epochs, [str(entry["phase"]) for entry in entries])
        figure.align_ylabels(panels)

    return draw(path_stem, (8, 8 if has_errors else 6), fill)


def _column(entries: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    return np.array([entry.get(name) for entry in entries], dtype=np.float64)  # None becomes NaN, which leaves a gap


def _line(
    axes: "matplotlib.axes.Axes", x: NDArray[np.float64], y: NDArray[np.float64], colour: str, label: str, last: str | None = None
) -> None:
    shown = np.isfinite(y)
    if not shown.any():
        return
    marker = "o" if shown.sum() < 40 else None
    axes.plot(x[shown], y[shown], color=colour, label=label, marker=marker, markersize=3.5, clip_on=False, zorder=3)
    if last is not None:
        place = (x[shown][-1], y[shown][-1])
        axes.annotate(
            last.format(place[1]),
            place,
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontweight="bold",
            annotation_clip=False,
        )


def _scale(axes: "matplotlib.axes.Axes", values: NDArray[np.float64]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    values = values[np.isfinite(values)]
    if not len(values) or values.min() <= 0 or values.max() < 3 * values.min():
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if values.max() < 100 * values.min() else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _number(value: float, position: int | None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _shade(panels: Sequence["matplotlib.axes.Axes"], epochs: NDArray[np.float64], phases: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    # An entry stands for the epoch that ends there, so its phase begins at the entry before.
    starts = np.concatenate((epochs[:1] - 1, epochs[:-1]))
    spans = [list(group) for _, group in groupby(range(len(phases)), key=phases.__getitem__)]
    panels[0].set_xlim(starts[0], epochs[-1])
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for span in spans:
        left, right, phase = starts[span[0]], epochs[span[-1]], phases[span[0]]
        for axes in panels:
            axes.axvspan(left, right, color=_SHADES.get(phase, "white"), zorder=0, linewidth=0)
            if left > starts[0]:
                axes.axvline(left, color=GREY, linewidth=0.8, linestyle=":")
        # A phase too short for its name goes without: the shade names it.
        if right - left >= 0.08 * (epochs[-1] - starts[0]):
            panels[0].text(
                (left + right) / 2, 1.02, _PHASES.get(phase, phase), transform=panels[0].get_xaxis_transform(), ha="center", va="bottom"
            )
