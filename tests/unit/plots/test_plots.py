import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from ellzero.plots import DrawnLayer, draw_network, plot_curves
from ellzero.records import append_line, read_lines

BLUE, ORANGE, MAGENTA = "#0072b2", "#e69f00", "#cc0077"


def history(epochs: int = 9, attempt: int = 0) -> list[dict[str, object]]:
    phases = ["prelude"] * 3 + ["regularise"] * 3 + ["fine_tune"] * (epochs - 6)
    return [
        {
            "attempt": attempt,
            "epoch": index + 1,
            "step": 100 * index,
            "phase": phase,
            "train_loss": 1 / (index + 1),
            "valid_loss": None if index % 2 else 1.1 / (index + 1),
            "valid_error": 0.1 / (index + 1),
            "nonzeros": 12_345 // (index + 1),
            "alpha": None,
            "lr": 1e-3,
        }
        for index, phase in enumerate(phases[:epochs])
    ]


def network() -> tuple[list[DrawnLayer], list[DrawnLayer]]:
    """4 inputs, 3 and 2 hidden units, 1 output; the second unit of the last hidden layer leads nowhere."""
    first = np.array([[1.0, 0, 0, -2], [0, 3, 0, 0], [0, 0, 0, 0]])
    second, last = np.array([[1.0, -1, 0], [2, -2, 0]]), np.array([[1.0, 0]])
    before = [(first, np.array([0.1, 0, 0])), (second, np.array([0.5, -0.5])), (last, None)]
    after = [before[0], (np.array([[1.0, -1, 0], [0, 0, 0]]), np.array([0.5, 0])), before[2]]
    return before, after


def lines(svg: str, colour: str) -> int:
    """Counts the weights drawn in a colour; the legend has one line of each."""
    collections = re.findall(r'<g id="LineCollection_\d+">(.*?)</g>', svg, re.DOTALL)
    return sum(len(re.findall(rf"<path [^>]*stroke: {colour}", group)) for group in collections)


def test_one_line_for_each_weight_and_the_spurious_ones_in_their_own_colour(tmp_path: Path):
    before, after = network()
    png, svg = draw_network(before, after, tmp_path / "network")
    assert (png.name, svg.name) == ("network.png", "network.svg")
    text = svg.read_text("utf-8")
    # Before: positive 1, 3, 1, 1 and negative -2, -1 stay, 2 and -2 are spurious; the right panel has the six that stay.
    assert lines(text, BLUE) == 4 + 4
    assert lines(text, ORANGE) == 2 + 2
    assert lines(text, MAGENTA) == 2
    assert "<!-- before: 8 weights (2 spurious), 3 biases -->" in text
    assert "<!-- after random gradient pruning: 6 weights, 2 biases -->" in text
    assert "<!-- 3 of 4 pixels read -->" in text


def test_of_wide_layers_only_live_units_are_drawn(tmp_path: Path):
    first = np.zeros((50, 100))
    first[3, [5, 7]] = 1, -1
    layers = [(first, np.where(np.arange(50) == 9, 0.5, 0.0)), (np.zeros((2, 50)), np.zeros(2))]
    text = draw_network(layers, layers, tmp_path / "wide")[1].read_text("utf-8")
    assert text.count("<!-- 2 of 100 -->") == 2
    assert text.count("<!-- 2 of 50 -->") == 2
    assert "2 of 100 pixels read" in text
    assert (lines(text, BLUE), lines(text, ORANGE), lines(text, MAGENTA)) == (2, 2, 0)


def test_a_network_without_any_weight_is_drawn(tmp_path: Path):
    layers = [(np.zeros((60, 50)), np.zeros(60)), (np.zeros((2, 60)), None)]
    text = draw_network(layers, layers, tmp_path / "empty")[1].read_text("utf-8")
    assert "<!-- before: 0 weights, 0 biases -->" in text
    assert "pixels" not in text


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([], [], "at least one layer"),
        ([(np.ones((2, 3)), None)], [(np.ones((2, 4)), None)], r"\[\(2, 3\)\] before and \[\(2, 4\)\] after"),
        ([(np.ones((2, 3)), None), (np.ones((1, 3)), None)], None, "no chain of linear layers"),
        ([(np.ones((2, 3, 3)), None)], None, "no chain of linear layers"),
        ([(np.ones((2, 3)), np.ones(3))], None, r"layer 0 has a bias of shape \(3,\), expected \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(tmp_path: Path, before: list[DrawnLayer], after: list[DrawnLayer] | None, message: str):
    with pytest.raises(ValueError, match=message):
        draw_network(before, before if after is None else after, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_curves_name_phases_and_last_figures(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    for entry in history():
        append_line(log, entry)
    png, svg = plot_curves(read_lines(log), tmp_path / "curves")
    text = svg.read_text("utf-8")
    for words in ("prelude", "regularise", "fine-tune", "training", "validation", "loss (nats)", "validation error (%)", "1.11 %", "1,371"):
        assert f"<!-- {words} -->" in text
    assert png.read_bytes().startswith(b"\x89PNG")


def test_what_is_missing_is_left_out(tmp_path: Path):
    bare = [{name: entry[name] for name in ("epoch", "phase", "train_loss", "nonzeros")} for entry in history()]
    text = plot_curves(bare, tmp_path / "bare")[1].read_text("utf-8")
    assert "<!-- training -->" in text
    assert "validation" not in text
    # A single epoch, and zeros where an axis would be logarithmic.
    plot_curves([{**bare[0], "train_loss": 0.0, "nonzeros": 0}], tmp_path / "zero")


def test_of_several_attempts_the_last_is_drawn(tmp_path: Path):
    both = plot_curves(history(7, attempt=0) + history(9, attempt=1), tmp_path / "both")
    last = plot_curves(history(9, attempt=1), tmp_path / "last")
    assert both[0].read_bytes() == last[0].read_bytes()


def test_histories_that_cannot_be_drawn_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="history is empty"):
        plot_curves([], tmp_path / "x")
    with pytest.raises(ValueError, match="entry 1 of the history lacks nonzeros, phase"):
        plot_curves([history()[0], {"epoch": 2, "train_loss": 1.0}], tmp_path / "x")


def test_the_same_figures_make_the_same_bytes_and_leave_matplotlib_as_it_was(tmp_path: Path):
    settings = dict(matplotlib.rcParams)
    paths = [
        (*draw_network(*network(), tmp_path / f"network{copy}"), *plot_curves(history(), tmp_path / f"curves{copy}")) for copy in range(2)
    ]
    for first, second in zip(*paths, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert b"<dc:date>" not in first.read_bytes()
    assert dict(matplotlib.rcParams) == settings


PROGRAM = """
import sys
import numpy as np
sys.modules[sys.argv[2]] = None
from ellzero.plots import draw_network, plot_curves
layers = [(np.eye(3), np.ones(3)), (np.eye(3), None)]
entry = {"epoch": 1, "phase": "prelude", "train_loss": 1.0, "nonzeros": 3}
try:
    draw_network(layers, layers, sys.argv[1] + "/network")
    plot_curves([entry], sys.argv[1] + "/curves")
except ImportError as error:
    print(error)
assert "matplotlib.pyplot" not in sys.modules
"""


def run(folder: Path, hidden: str) -> str:
    arguments = [sys.executable, "-W", "error", "-c", PROGRAM, str(folder), hidden]
    environment = {**os.environ, "PYTHONPATH": "src"}
    return subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment).stdout


def test_pictures_are_drawn_where_torch_cannot_be_imported_and_without_pyplot(tmp_path: Path):
    assert run(tmp_path, "torch") == ""
    assert {path.name for path in tmp_path.iterdir()} == {"network.png", "network.svg", "curves.png", "curves.svg"}


def test_without_matplotlib_the_extra_is_named(tmp_path: Path):
    assert "pip install 'ellzero[plots]'" in run(tmp_path, "matplotlib")
    assert not list(tmp_path.iterdir())
