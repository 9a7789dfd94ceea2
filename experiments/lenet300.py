"""LeNet-300-100 on MNIST: the compression rates of table 1a, their dense baselines, and the figures made of them.

    python -m experiments.lenet300 run --configurations dense smallest-1480 --seeds 0 1 2 3 4
    python -m experiments.lenet300 table
    python -m experiments.lenet300 figure

A run is one line of `results/lenet300.jsonl`; runs that are recorded already are not run again. Recipes were chosen on training and
validation images alone.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments import increases
from experiments.commands import FOLDER, Networks, dense_only, picture
from experiments.increases import median_and_range


def configurations() -> dict[str, Callable[[], Any]]:
    """Lists every configuration by name; imports torch."""
    from ellzero.methods import DRR, RL1, Cosine, geometric
    from ellzero.targets import Bytes, NonZeros
    from ellzero.training import Anneal, Cycles, Epochs, Warm
    from ellzero.training.presets import fast, paper, smallest

    def dense(epochs: int, **treatment: Any) -> Any:
        return dense_only(smallest(), epochs).with_data(copies=None, **treatment)

    def close(nonzeros: int, warm: float, alpha: tuple[float, float], start: int, count: int) -> Any:
        """Builds a recipe with a gentle penalty for networks close to the dense network: that of `smallest` underfits at this size."""

        def drr(alpha: Any) -> DRR:
            return DRR(alpha=alpha, beta=5.0, proximal=True)

        gentle = smallest().with_recipe(
            epochs=Epochs(prelude=40, regularise=5, fine_tune=0),
            warm=Warm(method=RL1(alpha=warm, proximal=True), epochs=3, lr=1.5e-3),
            cycles=Cycles(
                start=start,
                count=count,
                epochs=2,
                lr=Cosine(first=2e-3, last=1.2e-3),
                regrow=0.5,
                method=drr(geometric(*alpha)),
                power=0.25,
            ),
            anneal=Anneal(epochs=30, lr=Cosine(first=1.5e-3, last=1e-5), method=drr(alpha[0]), finish_epochs=0),
        )
        return replace(gentle, method=drr(alpha[0]), target=NonZeros(nonzeros))

    def restarting(preset: Any) -> Any:
        # Chosen on validation images with seed 0: 1.72 % where the schedule of alpha moves over all cycles together 2.16 %.
        return preset.with_recipe(cycles=replace(preset.recipe.cycles, restarts=True))

    return {
        "bytes-1650": lambda: replace(restarting(smallest()), target=Bytes(1650)),
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


NETWORKS = Networks(
    module="experiments.lenet300",
    model="lenet-300-100",
    results=FOLDER / "results" / "lenet300.jsonl",
    configurations=configurations,
)


def baselines() -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """Returns the runs of the plain dense network and of that with shifts, by seed."""
    lines = NETWORKS.recorded()
    plain, shifted = ({seed: line for (name, seed), line in lines.items() if name == base} for base in ("dense", "dense-shifts"))
    return plain, shifted


def row(name: str, own: dict[int, dict[str, Any]]) -> str:
    """Formats a row of the table: medians with ranges over seeds, error increases paired by seed and image."""
    lines = own.values()
    figures = [
        median_and_range([line[key] for line in lines], digits)
        for key, digits in (("nonzeros", 0), ("compression_rate", 1), ("test_error_percent", 2))
    ]
    quantised = [error for line in lines if (error := line["details"].get("quantised_test_error_percent")) is not None]
    figures.append(median_and_range(quantised, 2) if quantised else "")
    over = [increases.cell(pairs) for pairs in increases.three(own, *baselines())]
    return f"| {' | '.join([name, str(len(own)), *figures, *over, median_and_range([line['seconds'] for line in lines], 0)])} |"


HEADER = ["configuration", "seeds", "non-zeros", "compression rate", "test error, %", "of its file, quantised", *increases.COLUMNS, "s"]


def table() -> None:
    """Prints a Markdown table of all runs."""
    print_rows(NETWORKS.recorded())


def print_rows(lines: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Prints a Markdown table of some runs."""
    print(f"| {' | '.join(HEADER)} |")
    print("|" + " --- |" * len(HEADER))
    for name in dict.fromkeys(name for name, _ in lines):
        print(row(name, {seed: line for (other, seed), line in lines.items() if other == name}))


def figure() -> None:
    """Draws error increase over compression rate, one point per run."""
    lines = NETWORKS.recorded()
    with picture(FOLDER / "lenet300", (7.2, 4.4)) as drawing:
        axes = drawing.add_subplot()
        published = {
            "DRR": (92, 0.16),
            "R-L1": (68, 0.23),
            "CPA": (85, -0.04),
            "PMMP": (11, 0.19),
            "GSM": (60, 0.01),
            "SparseVD": (68, 0.28),
        }
        for label, (rate, increase) in published.items():
            axes.plot(rate, increase, "s", color="0.6", markersize=4)
            below = label == "R-L1"  # SparseVD is above it
            axes.annotate(label, (rate, increase), xytext=(5, -9 if below else 3), textcoords="offset points", color="0.4", fontsize=8)
        for base, colour, label in (("dense", "#0072b2", "against plain dense"), ("dense-shifts", "#d55e00", "against dense with shifts")):
            points = sorted(
                (line["compression_rate"], increases.paired(line, lines[base, seed])[0])
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


def main() -> None:
    """Parses the command line."""
    NETWORKS.command_line(__doc__, table=table, figure=figure).run()


if __name__ == "__main__":
    main()
