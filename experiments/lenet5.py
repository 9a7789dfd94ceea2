"""LeNet-5-Caffe on MNIST: non-zeros and bytes of a file over test error (table 1b of the paper), and its dense baselines.

    python -m experiments.lenet5 run --configurations dense bytes-1500 bytes-1200 bytes-1000 bytes-800 --seeds 0 1 2
    python -m experiments.lenet5 table
    python -m experiments.lenet5 figure

A run is one line of `results/lenet5.jsonl`; runs that are recorded already are not run again. The recipe was chosen on training and
validation images alone; the test images are read once per run, when its network is final.
"""

import statistics
from collections.abc import Callable
from typing import Any

from experiments.commands import FOLDER, Networks, dense_only, picture
from experiments.increases import COLUMNS, cell, median_and_range, three

LEVELS = (0.8, 0.9, 1.0, 1.2)
SIZES = (800, 1000, 1200, 1500)
"""Bytes of a file, everything counted, that the runs are to fit into."""


def smallest(target: Any) -> Any:
    """Builds the recipe: start wide, let channels die under proximal penalties, compact, then cut and regrow under distillation.

    With `target=lz.Bytes(n)` the last four passes train the weights on the grid of the file.
    """
    from ellzero.data import Shifts
    from ellzero.methods import DRR, RL1, Cosine, geometric
    from ellzero.params import everything
    from ellzero.training import Anneal, Cycles, Distill, Epochs, Recipe, Warm
    from ellzero.training.presets import DataTreatment, Preset

    return Preset(
        data=DataTreatment(batch_size=100, augment=Shifts(pixels=1), copies=4),
        method=DRR(alpha=1e-4, beta=5.0, proximal=True),
        target=target,
        recipe=Recipe(
            select=everything,
            accept_on_train=True,
            epochs=Epochs(prelude=6, regularise=2, fine_tune=0),
            prelude_lr=Cosine(first=1e-3, last=1e-5),
            warm=Warm(method=RL1(alpha=2e-4, proximal=True), epochs=3, lr=1.5e-3),
            lr=1.5e-3,
            cycles=Cycles(
                start=6000,
                count=15,
                epochs=2,
                lr=Cosine(first=2.5e-3, last=1.5e-3),
                regrow=0.5,
                method=DRR(alpha=geometric(1.5e-4, 1e-4), beta=5.0, proximal=True),
                power=0.25,
            ),
            anneal=Anneal(epochs=24, lr=Cosine(first=2e-3, last=2e-5), method=DRR(alpha=1e-4, beta=5.0, proximal=True), finish_epochs=0),
            distill=Distill(weight=0.5, temperature=2.0),
        ),
    )


def configurations() -> dict[str, Callable[[], Any]]:
    """Lists every configuration by name; imports torch."""
    from ellzero.targets import Bytes

    def dense(epochs: int, **treatment: Any) -> Any:
        return dense_only(smallest(None), epochs).with_data(copies=None, **treatment)

    return {
        "dense": lambda: dense(10, augment=None),
        "dense-shifts": lambda: dense(20),
        **{f"bytes-{n}": lambda n=n: smallest(Bytes(n)) for n in SIZES},
    }


NETWORKS = Networks(
    module="experiments.lenet5",
    model="lenet-5-caffe",
    results=FOLDER / "results" / "lenet5.jsonl",
    configurations=configurations,
    seeds=(0, 1, 2),
)


def table() -> None:
    """Prints two Markdown tables: medians with ranges over seeds, and the non-zeros and bytes that reach an error."""
    lines = NETWORKS.recorded()
    names = [name for name in configurations() if any(name == other for other, _ in lines)]
    bases = [{seed: line for (name, seed), line in lines.items() if name == base} for base in ("dense", "dense-shifts")]
    columns = ["configuration", "seeds", "non-zeros", "compression rate", "bytes of the file", "test error, %", *COLUMNS, "s"]
    print(f"| {' | '.join(columns)} |")
    print("|" + " --- |" * len(columns))
    for name in names:
        own = {seed: line for (other, seed), line in lines.items() if other == name}
        dense = name.startswith("dense")
        cells = [name, str(len(own))]
        cells.append(median_and_range([line["nonzeros"] for line in own.values()], 0))
        cells.append(median_and_range([line["compression_rate"] for line in own.values()], 1))
        cells.append("" if dense else median_and_range([line["details"]["quantised_bytes"] for line in own.values()], 0))
        cells.append(median_and_range([error_of(line) for line in own.values()], 2))
        cells += [cell(pairs) for pairs in three(own, *bases)]
        cells.append(median_and_range([line["seconds"] for line in own.values()], 0))
        print("| " + " | ".join(cells) + " |")
    print("\n| error at most, % | fewest non-zeros (median error over seeds) | compression rate | bytes | seeds |\n|" + " --- |" * 5)
    for level in LEVELS:
        reached = smallest_at(level, lines)
        if reached is None:
            print(f"| {level} | not reached | | | |")
        else:
            print(f"| {level} | {reached[1]:,} | {431_080 / reached[1]:.0f} | {reached[0]:,} | {reached[2]} |")


def error_of(line: dict[str, Any]) -> float:
    """Returns the test error of a run in per cent: of the network that the file gives back, where there is one."""
    quantised = line["details"].get("quantised_test_error_percent")
    return float(line["test_error_percent"] if quantised is None else quantised)


def smallest_at(level: float, lines: dict[tuple[str, int], dict[str, Any]]) -> tuple[int, int, int] | None:
    """Returns the smallest size measured whose median test error is at most `level` per cent; nothing is interpolated.

    Returns:
        The bytes and the non-zeros, of both the most over seeds, and the number of seeds; None where no size reaches it.
    """
    sizes: list[tuple[int, int, int]] = []
    for name in {name for name, _ in lines if name.startswith("bytes")}:
        own = [line for (other, _), line in lines.items() if other == name]
        if statistics.median(error_of(line) for line in own) <= level:
            sizes.append((max(line["details"]["quantised_bytes"] for line in own), max(line["nonzeros"] for line in own), len(own)))
    return min(sizes, default=None)


def figure() -> None:
    """Draws test error over non-zeros and over bytes, one point per run."""
    with picture(FOLDER / "lenet5", (9.0, 3.8)) as drawing:
        panels = drawing.subplots(1, 2, sharey=True)
        runs = [line for (name, _), line in NETWORKS.recorded().items() if not name.startswith("dense")]
        errors = [error_of(line) for line in runs]
        sizes = ([line["nonzeros"] for line in runs], [line["details"]["quantised_bytes"] for line in runs])
        # MIRACLE (Havasi et al. 2019) and Bayesian Compression (Louizos et al. 2017) as they report themselves.
        others = (
            {"the paper, DRR": [(431_080 / 342, 0.96)]},
            {"MIRACLE": [(1520, 0.96), (3030, 0.69)], "Bayesian Compression": [(2300, 1.0)]},
        )
        for axes, own, theirs, label in zip(panels, sizes, others, ("non-zeros of 431,080", "bytes of the file"), strict=True):
            axes.plot(own, errors, "o", color="#0072b2", alpha=0.75, label="ellzero, one run")
            for marker, (name, points) in zip("sv", theirs.items(), strict=False):
                axes.plot(*zip(*points, strict=True), marker, color="0.5", label=name)
            for level in LEVELS:
                axes.axhline(level, color="0.85", linewidth=0.6, zorder=0)
            axes.set_xlim(left=0)
            axes.set_xlabel(label)
            axes.legend(frameon=False, fontsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("test error, %")
        drawing.suptitle("LeNet-5-Caffe on MNIST", fontsize=10)


def main() -> None:
    """Parses the command line."""
    NETWORKS.command_line(__doc__, table=table, figure=figure).run()


if __name__ == "__main__":
    main()
