"""The price of a bit in the passes on a grid: bytes of LeNet-300-100 over its loss, with the coder's estimate in the loss and without.

    python -m experiments.rate_term train FOLDER --seeds 0 1 2
    python -m experiments.rate_term run FOLDER
    python -m experiments.rate_term table
    python -m experiments.rate_term figure

`train` makes networks of 1,900 bytes as `experiments.lenet300` does, one folder per seed; `run` trains each of them for four passes on
grids of several ratios, in three ways: plain; with a price per bit of the magnitudes; with that price after rescaling units. Every
combination is one line of `results/rate_term.jsonl`; what is recorded already is not run again. No test image is read.
"""

import os
import statistics
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from ellzero.records import append_line, versions
from experiments.commands import FOLDER, CommandLine, picture, records, refuse

RESULTS = FOLDER / "results" / "rate_term.jsonl"
RATIOS = (1.3, 1.6, 2.0)
RATES = {1.3: 6e-5, 1.6: 4e-5, 2.0: 3e-5}
WAYS = {"plain": (False, False), "rate": (True, False), "rate and rescaled": (True, True)}
PASSES = 4


def train(folder: Path, seeds: list[int]) -> None:
    """Trains the networks."""
    from ellzero.cli.jobs.sparsify import run_and_measure
    from ellzero.cli.options.sparsify import Sparsify
    from experiments.lenet300 import configurations

    for seed in seeds:
        run_and_measure(Sparsify(model="lenet-300-100", output=folder / str(seed), seed=seed, quiet=True), configurations()["bytes-1900"]())


@cache
def images() -> Any:
    """Makes the images as the recipe has them, once."""
    from ellzero.cli.jobs.by_name import dataset_for, image_problem
    from ellzero.training.presets import smallest

    dataset, folder = dataset_for("lenet-300-100", None)
    return image_problem(dataset, folder, seed=0, treatment=smallest().data)


def passes(network: Path, ratio: float, rate: float, *, rescaled: bool) -> dict[str, Any]:
    """Trains a network on a grid and measures it.

    Args:
        network: its weights, safetensors.
        ratio: of the grid.
        rate: price of a bit, nats per training image.
        rescaled: whether units are rescaled first.
    """
    import safetensors.torch
    import torch
    from torch.nn import functional

    import ellzero as lz
    from ellzero.quantise._rescale import rescale
    from ellzero.surgery import expand_
    from ellzero.training.file_size import coded_bytes

    torch.set_num_threads(1)
    problem = images()
    model, grid = lz.models.LeNet300().eval(), lz.LogGrid(ratio)
    model.load_state_dict(safetensors.torch.load_file(network))
    example = next(iter(problem.valid))[0][:4]
    if rescaled:
        model = rescale(model, example, grid)
    # The small network computes the same and is several times faster; the file holds the full network.
    whole, shrunk = model, lz.shrink(model, example, inputs=True)
    model = shrunk.model.train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    method = lz.OnGrid(grid=grid, bit_price=rate)
    sparsifier = lz.attach(optimizer, model, method, select=lz.everything, from_zeros=True)
    batches, cosine = -(-problem.samples // 100), lz.Cosine(first=1e-3, last=2e-5)
    step = 0
    for epoch in range(PASSES):
        for inputs, labels in problem.train.epoch(epoch, 0):
            for group in optimizer.param_groups:
                group["lr"] = cosine(step / (PASSES * batches))
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            step += 1
    model.eval()

    def judged(data: Iterable[Any]) -> tuple[float, float]:
        loss = wrong = count = 0.0
        with torch.no_grad():
            for inputs, labels in data:
                logits = model(inputs)
                loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
                wrong += float((logits.argmax(1) != labels).sum())
                count += len(labels)
        return loss / count, 100 * wrong / count

    expand_(whole, model, shrunk.kept)
    (valid_loss, valid_error), (train_loss, train_error) = judged(problem.valid), judged(problem.train.plain())
    return {
        "file_bytes": coded_bytes(whole, method.quantiser(sparsifier.state)),
        "nonzeros": lz.count_nonzeros(whole),
        "validation_loss": valid_loss,
        "validation_error_percent": valid_error,
        "training_loss": train_loss,
        "training_error_percent": train_error,
    }


def run(folder: Path) -> None:
    """Runs, in order, what is not recorded yet."""
    places = sorted(path.parent for path in folder.glob("*/network.safetensors"))
    if not places:
        refuse(f"{folder} holds no network: expected {folder / '*' / 'network.safetensors'}, which `train` makes")
    for way, (priced, rescaled) in WAYS.items():
        for place in places:
            for ratio in RATIOS:
                key = {"network": place.name, "ratio": ratio, "way": way}
                if any(all(line[name] == value for name, value in key.items()) for line in records(RESULTS)):
                    continue
                rate = RATES[ratio] if priced else 0.0
                measured = passes(place / "network.safetensors", ratio, rate, rescaled=rescaled)
                append_line(RESULTS, {"recipe": "rate_term", **key, "rate": rate, **measured, "versions": versions()})
                print(key, measured, flush=True)


def curve(network: str, way: str, judge: str) -> list[tuple[float, float]]:
    """Lists loss or error and bytes of a network, by loss."""
    return sorted((line[judge], line["file_bytes"]) for line in records(RESULTS) if (line["network"], line["way"]) == (network, way))


def at(points: list[tuple[float, float]], x: float) -> float | None:
    """Interpolates linearly between neighbouring points; returns None outside of them."""
    for (left, low), (right, high) in pairwise(points):
        if left <= x <= right:
            return low + (high - low) * (x - left) / (right - left) if right > left else low
    return None


def savings(way: str, judge: str) -> list[float]:
    """Lists, per network and ratio within the range of the plain curve, how many per cent fewer bytes it takes at the same loss."""
    percents: list[float] = []
    for network in sorted({line["network"] for line in records(RESULTS)}):
        plain = curve(network, "plain", judge)
        percents += [100 * (1 - size / same) for x, size in curve(network, way, judge) if (same := at(plain, x)) is not None]
    return percents


def table() -> None:
    """Prints Markdown tables: means over networks, and bytes saved at equal loss."""
    lines = records(RESULTS)
    print("| way | ratio | bytes | validation loss | validation error, % | training loss |\n|" + " --- |" * 6)
    for way in WAYS:
        for ratio in RATIOS:
            own = [line for line in lines if (line["way"], line["ratio"]) == (way, ratio)]
            if not own:
                continue
            means = [
                statistics.mean(line[name] for line in own)
                for name in ("file_bytes", "validation_loss", "validation_error_percent", "training_loss")
            ]
            print(f"| {way} | {ratio:g} | {means[0]:,.0f} | {means[1]:.4f} | {means[2]:.2f} | {means[3]:.4f} |")
    judges: dict[str, Callable[[str], list[float]]] = {
        name: lambda way, name=name: savings(way, name) for name in ("validation_loss", "validation_error_percent", "training_loss")
    }
    print("\n| way | at equal validation loss | at equal validation error | at equal training loss |\n|" + " --- |" * 4)
    for way in list(WAYS)[1:]:
        cells: list[str] = []
        for judge in judges.values():
            saved = judge(way)
            cells.append(f"{statistics.mean(saved):.1f} % ({min(saved):.1f} to {max(saved):.1f}; {len(saved)} points)" if saved else "")
        print(f"| {way} | {' | '.join(cells)} |")


def figure() -> None:
    """Draws bytes over loss, means over networks."""
    # Networks of which every ratio is recorded both without a price and with it.
    lines = records(RESULTS)
    counts = {network: {way: len(curve(network, way, "file_bytes")) for way in WAYS} for network in {line["network"] for line in lines}}
    whole = [network for network, ways in counts.items() if ways["plain"] == ways["rate"] == len(RATIOS)]
    lines = [line for line in lines if line["network"] in whole]
    with picture(FOLDER / "rate_term", (7.2, 3.8)) as drawing:
        names = {"validation_loss": "validation loss, nats", "training_loss": "training loss without shifts, nats"}
        for index, (judge, label) in enumerate(names.items()):
            axes = drawing.add_subplot(1, 2, 1 + index)
            for way, colour in zip(WAYS, ("0.4", "#0072b2", "#d55e00"), strict=True):
                own = {ratio: [line for line in lines if (line["way"], line["ratio"]) == (way, ratio)] for ratio in RATIOS}
                points = [
                    tuple(statistics.mean(line[name] for line in own[ratio]) for name in (judge, "file_bytes"))
                    for ratio in RATIOS
                    if own[ratio]
                ]
                if points:
                    axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=colour, markersize=4, label=way)
            axes.locator_params(axis="x", nbins=4)
            axes.set_xlabel(label)
            axes.set_ylabel("bytes of the file" if index == 0 else "")
            axes.spines[["top", "right"]].set_visible(False)
            if index == 0:
                axes.legend(frameon=False)


def main() -> None:
    """Parses the command line."""
    line = CommandLine(__doc__, table=table, figure=figure)
    trains = line.add("train", lambda given: train(given.folder, given.seeds))
    runs = line.add("run", lambda given: run(given.folder))
    for parser in (trains, runs):
        parser.add_argument("folder", type=Path)
    trains.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    line.run()


if __name__ == "__main__":
    main()
