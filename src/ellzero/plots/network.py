"""A network of linear layers before and after random gradient pruning: figure 3 of the paper (appendix D)."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ellzero.plots.canvas import BLUE, GREY, INK, ORANGE, draw

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

DrawnLayer = tuple[NDArray[Any], NDArray[Any] | None]
"""Weight [out, in] and bias [out] (None where there is none) of a linear layer."""

_SPURIOUS = "#CC0077"
_FAINT = "#CCCCCC"
_DASHES = (0.0, (4.0, 1.5))
_ALWAYS_DRAWN = 40
_VECTOR_LINES = 4_000


@dataclass(frozen=True, kw_only=True)
class _Column:
    """The units of one layer that are drawn, with their heights in [0, 1]; `height` has an entry for every unit of the layer."""

    units: NDArray[np.int64]
    height: NDArray[np.float64]


def draw_network(before: Sequence[DrawnLayer], after: Sequence[DrawnLayer], path_stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Draws a network before and after random gradient pruning, side by side, input to the left.

    Each weight that is not 0 is a line: blue where positive, orange where negative, the wider the larger within its layer; magenta and
    dashed in the left panel where the weight is spurious, which is to say removed in the right one. Units are coloured by their biases in
    the same way. Both panels have the same scales and the same places. Of layers of more than 40 units only those with a weight or bias
    are drawn, hidden ones ordered by the mean height of what they read, so that fewer lines cross. Where the number of inputs is a
    square, as for grey images, an image shows how many weights read each pixel.

    Args:
        before: the layers before pruning, from the input on.
        after: the same layers after it.
        path_stem: path without ending.

    Returns:
        The paths of the PNG and of the SVG.

    Raises:
        ValueError: no layers, or shapes that do not chain, or that differ between `before` and `after`.
        ImportError: matplotlib is missing.
        OSError: a file cannot be written.
    """
    _check(before, after)
    columns = _columns(before)
    side = math.isqrt(before[0][0].shape[1])
    is_image = side > 1 and side**2 == before[0][0].shape[1]

    def fill(figure: "matplotlib.figure.Figure") -> None:
        panels: list[matplotlib.axes.Axes] = list(figure.subplots(1, 2))
        for axes, layers, title in zip(panels, (before, after), ("before", "after random gradient pruning"), strict=True):
            _draw_panel(axes, columns, layers, before, after)
            axes.set_title(f"{title}: {_summary(layers, after)}", pad=10)
            if is_image:
                _draw_pixels(axes, layers[0][0], before[0][0], side)
        _draw_legend(figure)

    return draw(path_stem, (15, 7.5), fill)


def _check(before: Sequence[DrawnLayer], after: Sequence[DrawnLayer]) -> None:
    shapes = [weight.shape for weight, _ in before]
    if not shapes or shapes != [weight.shape for weight, _ in after]:
        raise ValueError(
            f"weights of shapes {shapes} before and {[w.shape for w, _ in after]} after: expected the same, and at least one layer"
        )
    if any(len(shape) != 2 for shape in shapes) or any(shapes[i][0] != shapes[i + 1][1] for i in range(len(shapes) - 1)):
        raise ValueError(f"weights of shapes {shapes} are no chain of linear layers: expected [out, in] with each out the next in")
    for layers in (before, after):
        for index, (weight, bias) in enumerate(layers):
            if bias is not None and bias.shape != weight.shape[:1]:
                raise ValueError(f"layer {index} has a bias of shape {bias.shape}, expected {weight.shape[:1]}")


def _live(layers: Sequence[DrawnLayer]) -> list[NDArray[np.bool_]]:
    """Tells for each layer of units which ones have a weight or a bias that is not 0."""
    sizes = [layers[0][0].shape[1], *(weight.shape[0] for weight, _ in layers)]
    live = [np.zeros(size, dtype=bool) for size in sizes]
    for index, (weight, bias) in enumerate(layers):
        live[index] |= (weight != 0).any(0)
        live[index + 1] |= (weight != 0).any(1)
        if bias is not None:
            live[index + 1] |= bias != 0
    return live


def _columns(layers: Sequence[DrawnLayer]) -> list[_Column]:
    drawn = [live | (len(live) <= _ALWAYS_DRAWN) for live in _live(layers)]
    # Few units keep the distance of the fullest column, up to a twelfth of the height, and so stay together in the middle.
    distance = 1 / max(min(max(int(visible.sum()) for visible in drawn), 12) - 1, 1)
    columns: list[_Column] = []
    for index, visible in enumerate(drawn):
        units = np.flatnonzero(visible)
        if 0 < index < len(layers) and len(visible) > _ALWAYS_DRAWN:
            reads = np.abs(layers[index - 1][0][units])
            mean = reads @ columns[-1].height / np.maximum(reads.sum(1), 1e-30)
            units = units[np.argsort(-mean, kind="stable")]
        reach = 0.5 * min(1.0, (len(units) - 1) * distance)
        height = np.zeros(len(visible))
        height[units] = np.linspace(0.5 + reach, 0.5 - reach, len(units))
        columns.append(_Column(units=units, height=height))
    return columns


def _summary(layers: Sequence[DrawnLayer], after: Sequence[DrawnLayer]) -> str:
    weights = sum(np.count_nonzero(weight) for weight, _ in layers)
    biases = sum(np.count_nonzero(bias) for _, bias in layers if bias is not None)
    spurious = sum(np.count_nonzero(weight[left == 0]) for (weight, _), (left, _) in zip(layers, after, strict=True))
    of_them = f" ({spurious:,} spurious)" if spurious else ""
    return f"{weights:,} weights{of_them}, {biases:,} biases"


def _draw_panel(
    axes: "matplotlib.axes.Axes",
    columns: Sequence[_Column],
    layers: Sequence[DrawnLayer],
    before: Sequence[DrawnLayer],
    after: Sequence[DrawnLayer],
) -> None:
    axes.set_axis_off()
    axes.set_xlim(-0.05 * len(layers), 1.07 * len(layers))
    axes.set_ylim(-0.08, 1.04)
    for index, (weight, _) in enumerate(layers):
        strongest = float(np.abs(before[index][0]).max(initial=0)) or 1.0
        _draw_weights(axes, index, columns[index], columns[index + 1], weight, after[index][0], strongest)
    live = _live(layers)
    for index, column in enumerate(columns):
        bias, first, last = (None, None, None) if index == 0 else (layers[index - 1][1], before[index - 1][1], after[index - 1][1])
        size = len(column.height)
        strengths, edges = np.zeros(size), np.where(live[index], GREY if index == 0 else INK, _FAINT)
        if bias is not None and first is not None:
            strengths = np.clip(bias / (float(np.abs(first).max(initial=0)) or 1.0), -1, 1)
            edges = np.where((bias != 0) & (last == 0), _SPURIOUS, edges)
        _draw_units(axes, index, column, strengths, edges)
        name = "input" if index == 0 else "output" if index == len(layers) else f"hidden {index}"
        shown = f"{size}" if len(column.units) == size else f"{len(column.units)} of {size}"
        axes.text(index, -0.04, f"{name}\n{shown}", ha="center", va="top")
    if 1 < len(columns[-1].units) <= 20:
        for unit in columns[-1].units:
            place = (len(layers), columns[-1].height[unit])
            axes.annotate(f"{unit}", place, xytext=(9, 0), textcoords="offset points", va="center")


def _draw_weights(
    axes: "matplotlib.axes.Axes",
    index: int,
    left: _Column,
    right: _Column,
    weight: NDArray[Any],
    kept: NDArray[Any],
    strongest: float,
) -> None:
    from matplotlib.collections import LineCollection

    outs, ins = np.nonzero(weight)
    # The strongest last, on top.
    order = np.argsort(np.abs(weight[outs, ins]), kind="stable")
    outs, ins = outs[order], ins[order]
    values, spurious = weight[outs, ins], kept[outs, ins] == 0
    starts = np.stack((np.full(len(ins), float(index)), left.height[ins]), 1)
    ends = np.stack((np.full(len(outs), index + 1.0), right.height[outs]), 1)
    lines = np.stack((starts, ends), 1)
    # Thinner where there are many, so that the structure stays visible.
    crowd = min(1.0, (600 / max(len(values), 1)) ** 0.5)
    widths = (0.4 + 2.2 * np.minimum(np.abs(values) / strongest, 1)) * crowd
    colours = np.where(values > 0, BLUE, ORANGE)
    for chosen, is_spurious in ((~spurious, False), (spurious, True)):
        if chosen.any():
            bundle = LineCollection(
                list(lines[chosen]),
                colors=_SPURIOUS if is_spurious else list(colours[chosen]),
                linewidths=np.maximum(widths[chosen], 0.9) if is_spurious else widths[chosen],
                linestyles=_DASHES if is_spurious else "solid",
                alpha=0.9 if is_spurious else 0.75,
                zorder=2 if is_spurious else 1,
            )
            bundle.set_rasterized(len(values) > _VECTOR_LINES)
            axes.add_collection(bundle)


def _draw_units(
    axes: "matplotlib.axes.Axes", index: int, column: _Column, strengths: NDArray[np.floating[Any]], edges: NDArray[Any]
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    units = column.units
    area = float(np.clip(3500 / max(len(units), 1), 3, 90))
    colours = LinearSegmentedColormap.from_list("bias", [ORANGE, "white", BLUE])
    axes.scatter(
        np.full(len(units), index),
        column.height[units],
        s=area,
        c=colours(0.5 + 0.5 * strengths[units]),
        edgecolors=list(edges[units]),
        linewidths=0.5 if area < 20 else 1.0,
        zorder=4,
    )


def _draw_pixels(axes: "matplotlib.axes.Axes", weight: NDArray[Any], before: NDArray[Any], side: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    counts = (weight != 0).sum(0).reshape(side, side)
    top = max(int((before != 0).sum(0).max()), 1)
    inset = axes.inset_axes((-0.38, 0.3, 0.32, 0.48))
    shades = LinearSegmentedColormap.from_list("pixels", ["white", "#9CC6E2", BLUE, "#00263D"])
    image = inset.imshow(counts, cmap=shades, vmin=0, vmax=top, interpolation="nearest")
    inset.set_xticks([])
    inset.set_yticks([])
    inset.grid(False)
    for spine in inset.spines.values():
        spine.set_visible(True)
    inset.set_title(f"{np.count_nonzero(counts)} of {side**2} pixels read", fontsize=10)
    bar = inset.inset_axes((0, -0.14, 1, 0.06))
    assert axes.figure is not None
    axes.figure.colorbar(image, cax=bar, orientation="horizontal", ticks=MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
    bar.set_xlabel("weights that read a pixel", fontsize=9)
    bar.tick_params(labelsize=8)


def _draw_legend(figure: "matplotlib.figure.Figure") -> None:
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[
            Line2D([], [], color=BLUE, label="positive weight"),
            Line2D([], [], color=ORANGE, label="negative weight"),
            Line2D([], [], color=_SPURIOUS, linestyle=_DASHES, label="spurious: the output does not depend on it"),
            Line2D([], [], color="none", marker="o", markerfacecolor="#99C7E0", markeredgecolor=INK, label="unit, coloured by its bias"),
            Line2D([], [], color="none", marker="o", markerfacecolor="white", markeredgecolor=_FAINT, label="unit without weights"),
        ],
        loc="outside lower center",
        ncols=5,
    )
