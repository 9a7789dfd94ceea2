"""LeNet-300-100 on MNIST: the compression rates of table 1a, their dense baselines, and the figures made of them.

    python -m experiments.lenet300 run --configurations dense smallest-1480 --seeds 0 1 2 3 4
    python -m experiments.lenet300 table
    python -m experiments.lenet300 figure

Each run is one line of `results/lenet300.jsonl`; runs that are recorded already are not run again. Recipes were chosen on training and
validation images alone.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ellzero.records import append_line, read_lines

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "lenet300.jsonl"
TEST_IMAGES = 10_000


def configurations() -> dict[str, Callable[[], Any]]:
    """Lists every configuration by name; imports torch."""
    from ellzero.cli.recipes import fast, paper, smallest
    from ellzero.methods import DRR, RL1, Unregularised, geometric
    from ellzero.training import Anneal, Bytes, Cosine, Cycles, Epochs, NonZeros, Warm

    def dense(epochs: int, **treatment: Any) -> Any:
        options = {"epochs": Epochs(prelude=epochs, regularise=0, fine_tune=0), "prelude_lr": Cosine(start=1e-3, end=1e-5)}
        return replace(smallest(), method=Unregularised(), target=None, copies=None, options=options, **treatment)

    def close(nonzeros: int, warm: float, alpha: tuple[float, float], start: int, count: int) -> Any:
        """A gentle penalty for networks that are to stay close to the dense one: the strong one of `smallest` underfits at this size."""
        base = smallest()

        def drr(alpha: Any) -> DRR:
            return DRR(alpha=alpha, beta=5.0, proximal=True)

        options = {
            **base.options,
            "epochs": Epochs(prelude=40, regularise=5, fine_tune=0),
            "warm": Warm(method=RL1(alpha=warm, proximal=True), epochs=3, lr=1.5e-3),
            "cycles": Cycles(
                start=start,
                count=count,
                epochs=2,
                lr=Cosine(start=2e-3, end=1.2e-3),
                regrow=0.5,
                method=drr(geometric(*alpha)),
                power=0.25,
            ),
            "anneal": Anneal(epochs=30, lr=Cosine(start=1.5e-3, end=1e-5), method=drr(alpha[0]), finish_epochs=0),
        }
        return replace(base, method=drr(alpha[0]), target=NonZeros(nonzeros), options=options)

    return {
        "bytes-1900": lambda: replace(smallest(), target=Bytes(1900)),
        "close-4500": lambda: close(4500, 3.5e-5, (3e-5, 1.8e-5), 28_000, 28),
        "close-5000": lambda: close(5000, 4e-5, (3.5e-5, 2e-5), 30_000, 24),
        "close-8000": lambda: close(8000, 3e-5, (2e-5, 1e-5), 40_000, 20),
        "dense": lambda: dense(20, augment=None),
        "dense-shifts": lambda: dense(60),
        "fast": fast,
        "paper-drr": lambda: replace(paper(), method=DRR(alpha=3e-5, beta=5.0)),
        "paper-rl1": lambda: replace(paper(), method=RL1(alpha=7e-5)),
        **{f"smallest-{n}": lambda n=n: replace(smallest(), target=NonZeros(n)) for n in (1200, 1480, 2500, 4000, 8000)},
    }


def run_one(name: str, seed: int) -> None:
    """Runs one configuration with one seed in this process and records it."""
    import tempfile

    import torch

    from ellzero.cli.run import run_sparsify
    from ellzero.cli.sparsify import Sparsify

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        options = Sparsify(model="lenet-300-100", output=Path(folder) / "run", seed=seed, quiet=True)
        outcome = run_sparsify(options, configurations()[name]())
    record = replace(outcome.record, recipe=name)
    RESULTS.parent.mkdir(exist_ok=True)
    append_line(RESULTS, record)


def recorded() -> dict[tuple[str, int], dict[str, Any]]:
    """Reads the records there are, by configuration and seed."""
    lines = read_lines(RESULTS) if RESULTS.exists() else []
    return {(line["recipe"], line["seed"]): line for line in lines}


def run(names: list[str], seeds: list[int], jobs: int) -> None:
    """Runs what is not recorded yet, one process a run, `jobs` at once, one thread each."""
    waiting = [(name, seed) for name in names for seed in seeds if (name, seed) not in recorded()]
    running: list[tuple[str, int, subprocess.Popen[bytes]]] = []
    failed = 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, seed = waiting.pop(0)
            command = [sys.executable, "-m", "experiments.lenet300", "one", name, str(seed)]
            running.append((name, seed, subprocess.Popen(command, env=environment)))
        name, seed, process = running.pop(0)
        status = process.wait()
        failed += status != 0
        print(f"{name} seed {seed}: {'done' if status == 0 else f'failed with status {status}'}", flush=True)
    print(f"{failed} failed runs")


def paired(line: dict[str, Any], base: dict[str, Any]) -> tuple[float, float]:
    """Computes the error increase in points and its standard error, paired by image (McNemar): only images judged differently count."""
    own, other = set(line["details"]["wrong_images"]), set(base["details"]["wrong_images"])
    worse, better = len(own - other), len(other - own)
    difference = (worse - better) / TEST_IMAGES
    variance = ((worse + better) / TEST_IMAGES - difference**2) / TEST_IMAGES
    return 100 * difference, 100 * variance**0.5


def own_increase(line: dict[str, Any]) -> tuple[float, float]:
    """Computes the same against the dense network that the run began with."""
    return paired(line, {"details": {"wrong_images": line["details"]["dense_wrong_images"]}})


def median_and_range(values: list[float], digits: int) -> str:
    """Formats a median with its range."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def table() -> None:
    """Prints a Markdown table: medians with ranges over seeds, error increases paired by seed and image."""
    lines = recorded()
    names = list(dict.fromkeys(name for name, _ in lines))
    columns = [
        "configuration",
        "seeds",
        "non-zeros",
        "compression rate",
        "test error, %",
        "over plain dense",
        "over dense with shifts",
        "over the dense network of its own run",
        "s",
    ]
    print(f"| {' | '.join(columns)} |")
    print("|" + " --- |" * len(columns))
    for name in names:
        own = {seed: line for (other, seed), line in lines.items() if other == name}
        cells = [name, str(len(own))]
        cells.append(median_and_range([line["nonzeros"] for line in own.values()], 0))
        cells.append(median_and_range([line["compression_rate"] for line in own.values()], 1))
        cells.append(median_and_range([line["test_error_percent"] for line in own.values()], 2))
        for base in ("dense", "dense-shifts", None):
            pairs = [
                own_increase(line) if base is None else paired(line, lines[base, seed])
                for seed, line in own.items()
                if base is None or (base, seed) in lines
            ]
            if not pairs or name == base or (base is None and name.startswith("dense")):
                cells.append("")
                continue
            error = (sum(error**2 for _, error in pairs) ** 0.5) / len(pairs)
            mean = statistics.mean(increase for increase, _ in pairs)
            cells.append(f"{mean:+.2f} ± {error:.2f}, median {statistics.median(i for i, _ in pairs):+.2f}")
        cells.append(median_and_range([line["seconds"] for line in own.values()], 0))
        print("| " + " | ".join(cells) + " |")


def figure() -> None:
    """Draws error increase over compression rate, every run a point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = recorded()
    drawing = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot()
    published = {"DRR": (92, 0.16), "R-L1": (68, 0.23), "CPA": (85, -0.04), "PMMP": (11, 0.19), "GSM": (60, 0.01), "SparseVD": (68, 0.28)}
    for label, (rate, increase) in published.items():
        axes.plot(rate, increase, "s", color="0.6", markersize=4)
        below = label == "R-L1"  # SparseVD is above it
        axes.annotate(label, (rate, increase), xytext=(5, -9 if below else 3), textcoords="offset points", color="0.4", fontsize=8)
    for base, colour, label in (("dense", "#0072b2", "against plain dense"), ("dense-shifts", "#d55e00", "against dense with shifts")):
        points = sorted(
            (line["compression_rate"], paired(line, lines[base, seed])[0])
            for (name, seed), line in lines.items()
            if not name.startswith("dense") and (base, seed) in lines
        )
        axes.plot([x for x, _ in points], [y for _, y in points], "o", color=colour, alpha=0.75, markersize=5, label=label)
    axes.axhline(0.16, color="0.5", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("compression rate (266,610 / non-zeros)")
    axes.set_ylabel("test error increase, points")
    axes.set_title("LeNet-300-100 on MNIST; grey squares: published figures", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    for ending in ("png", "svg"):
        drawing.savefig(FOLDER / f"lenet300.{ending}", dpi=150)


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("--configurations", nargs="+", required=True)
    run_parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    run_parser.add_argument("--jobs", type=int, default=2)
    one = commands.add_parser("one")
    one.add_argument("name")
    one.add_argument("seed", type=int)
    commands.add_parser("table")
    commands.add_parser("figure")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.configurations, arguments.seeds, arguments.jobs)
    elif arguments.command == "one":
        run_one(arguments.name, arguments.seed)
    elif arguments.command == "table":
        table()
    else:
        figure()


if __name__ == "__main__":
    main()
