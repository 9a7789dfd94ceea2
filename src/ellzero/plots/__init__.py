"""Pictures of runs and networks, as PNG and SVG. Works without torch; matplotlib is imported when something is drawn."""

from ellzero.plots.curves import plot_curves
from ellzero.plots.network import DrawnLayer, draw_network

__all__ = ["DrawnLayer", "draw_network", "plot_curves"]
