"""The labels of MNIST in an online code and in two parts: what section 3.3 and appendix J.2 compare, where a minute is enough.

    python -m experiments.online run --seeds 0 1 2 3 4
    python -m experiments.online table
    python -m experiments.online figure

Sender and receiver have 55,000 training images; the labels are coded. A run is one line of `results/online.jsonl`; runs that are
recorded already are not run again. No test image is read.

Two parts are counted twice: with 32 bits per value that is not zero and positions at their entropy, as the paper counts, and as files that
exist: the runs `bytes-N` of `experiments.lenet300` and `experiments.lenet5`, everything in the file counted.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ellzero.description import DescriptionLength, fit_power_law
from ellzero.plots.canvas import BLUE, GREY, INK, ORANGE, VERMILION, draw
from ellzero.records import append_line, versions
from experiments.commands import FOLDER, CommandLine, records

RESULTS = FOLDER / "results" / "online.jsonl"
LABELS = 55_000
UNIFORM_BITS = LABELS * float(np.log2(10))
REPLAYS = {"LeNet-300-100": (0, 4, 16), "LeNet-5-Caffe": (4,)}
"""Steps on earlier labels after each block, by learner."""

ALPHAS = (5e-4, 5e-5)
NETWORKS = {"LeNet-300-100": "lenet300", "LeNet-5-Caffe": "lenet5"}
FILES = {
    "LeNet-300-100": {
        "smallest-1480": "32 bits per value, recipe smallest",
        "bytes-1900": "a file, bytes-1900",
        "bytes-1650": "a file, bytes-1650",
    },
    "LeNet-5-Caffe": {"bytes-1500": "a file, bytes-1500", "bytes-1200": "a file, bytes-1200", "bytes-1000": "a file, bytes-1000"},
}
"""Runs of other experiments whose two parts stand in the table, by learner: the network's configuration and what the table calls it."""
COLOURS = {0: ORANGE, 4: VERMILION, 16: BLUE}
FITTED_UP_TO = 5500


def images() -> Any:
    """Loads the training images that the other experiments train on, in their order."""
    from ellzero.data import Dataset, load_images, split

    loaded = load_images(Dataset.MNIST, None)
    return loaded.take(split(len(loaded), 5000, seed=123).train)


def edges() -> Iterator[tuple[int, int]]:
    """Cuts the labels into blocks: small at first, where a block teaches much, and of 100 labels at most."""
    start = 0
    while start < LABELS:
        end = min(LABELS, start + max(10, min(100, start // 10)))
        yield start, end
        start = end


def learner_of(name: str, seed: int) -> Any:
    """Builds a learner by its name in `REPLAYS`."""
    from ellzero.models import LeNet5Caffe, LeNet300

    return LeNet300(seed=seed) if name == "LeNet-300-100" else LeNet5Caffe(seed=seed)


def online(seed: int, learner: str, replay: int) -> dict[str, Any]:
    """Codes block by block: codes a block, makes a step of Adam on it, and `replay` steps on earlier labels."""
    import torch

    from ellzero.description import online_code

    training = images()
    x, y = training.inputs.float() / training.white, training.labels.long()
    model, generator = learner_of(learner, seed), torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    x, y = x[order], y[order]
    if learner == "LeNet-5-Caffe":
        x = x.view(-1, 1, 28, 28)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    @torch.no_grad()
    def log_probabilities(block: tuple[int, int]) -> np.ndarray:
        rows = slice(*block)
        return model(x[rows]).log_softmax(-1).gather(1, y[rows, None]).numpy()

    def step(rows: Any) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()

    def learn(block: tuple[int, int]) -> None:
        step(slice(*block))
        for _ in range(replay):
            step(torch.randint(block[1], (100,), generator=generator))

    code = online_code(edges(), log_probabilities, learn, symbols=len(y))
    shown = np.unique(np.geomspace(1, len(code.batch_bits), 60).astype(int)) - 1
    return {
        "code": "online",
        "learner": learner,
        "replay": replay,
        "model_bits": 0.0,
        "data_bits": code.total_bits,
        "labels": code.batch_symbols.cumsum()[shown].tolist(),
        "bits_so_far": code.batch_bits.cumsum()[shown].tolist(),
    }


def two_part(seed: int, alpha: float) -> dict[str, Any]:
    """Trains LeNet-300-100 with DRR, cuts it where model and data together are shortest, and counts both parts."""
    import torch

    from ellzero.data import Resident
    from ellzero.description import count_mask, entropy_bits, nats_to_bits
    from ellzero.methods import DRR, Cosine
    from ellzero.models import LeNet300
    from ellzero.params import everything
    from ellzero.pruning import ShortestDescription
    from ellzero.training import Epochs, Recipe, classification_loss, mean_loss, sparsify

    training = images()
    whole = Resident(training.inputs, training.labels, batch_size=5000, seed=0, shuffle=False)
    sparse = sparsify(
        LeNet300(seed=seed),
        classification_loss,
        train=Resident(training.inputs, training.labels, batch_size=250, seed=seed),
        method=DRR(alpha=alpha, beta=5.0, proximal=True),
        seed=seed,
        progress=False,
        recipe=Recipe(
            accept=ShortestDescription(bits_per_weight=40, samples=LABELS),
            select=everything,
            epochs=Epochs(prelude=3, regularise=14, fine_tune=4),
            lr=2e-3,
            fine_tune_lr=Cosine(first=1e-3, last=1e-5),
        ),
    )
    counts = [count_mask((tensor != 0).numpy()) for tensor in sparse.model.state_dict().values()]
    with torch.no_grad():
        data_nats = mean_loss(sparse.model, classification_loss, whole) * LABELS
    return {
        "code": "two-part",
        "alpha": alpha,
        "model_bits": entropy_bits(counts),
        "data_bits": nats_to_bits(data_nats),
        "nonzeros": sparse.nonzeros,
    }


def run(seeds: list[int]) -> None:
    """Runs what is not recorded yet."""
    import torch

    torch.set_num_threads(1)
    waiting: list[tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]] = []
    for seed in seeds:
        for learner, replays in REPLAYS.items():
            waiting += [(("online", learner, replay, seed), partial(online, seed, learner, replay)) for replay in replays]
        waiting += [(("two-part", alpha, seed), partial(two_part, seed, alpha)) for alpha in ALPHAS]
    done = {key_of(line) for line in records(RESULTS)}
    RESULTS.parent.mkdir(exist_ok=True)
    for key, compute in waiting:
        if key in done:
            continue
        before = time.process_time()
        line = compute()
        seconds = round(time.process_time() - before, 1)
        append_line(RESULTS, {**line, "seed": key[-1], "cpu_seconds": seconds, "versions": versions()})
        print(f"{', '.join(map(str, key))}: {(line['model_bits'] + line['data_bits']) / 8:,.0f} bytes", flush=True)


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a record from others; records without a learner are of LeNet-300-100."""
    if line["code"] == "online":
        return ("online", line.get("learner", "LeNet-300-100"), line["replay"], line["seed"])
    return ("two-part", line["alpha"], line["seed"])


def codes() -> dict[str, list[dict[str, Any]]]:
    """Groups the records of three experiments by code, under the names of the table and the figure."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for learner, replays in REPLAYS.items():
        for replay in replays:
            lines = [line for line in records(RESULTS) if key_of(line)[:3] == ("online", learner, replay)]
            if lines:
                groups[f"{learner}: online, {replay} replayed"] = lines
        if learner == "LeNet-300-100":
            for alpha in ALPHAS:
                lines = [line for line in records(RESULTS) if key_of(line)[:2] == ("two-part", alpha)]
                groups[f"{learner}: 32 bits per value, DRR, alpha {alpha:.0e}"] = lines
        for name, label in FILES[learner].items():
            lines = [line for line in records(FOLDER / "results" / f"{NETWORKS[learner]}.jsonl") if line["recipe"] == name]
            if name.startswith("bytes"):
                lines = [{**line, "model_bits": 8 * line["details"]["quantised_bytes"]} for line in lines]
            groups[f"{learner}: {label}"] = lines
    return groups


def length(line: dict[str, Any]) -> DescriptionLength:
    """Takes both parts from a record."""
    return DescriptionLength(model_bits=line["model_bits"], data_bits=line["data_bits"])


def median(values: list[float]) -> float:
    """Computes the median in whole bytes from bits."""
    return statistics.median(values) / 8


def table() -> None:
    """Prints a Markdown table of both parts and their sum, medians with the range of the sum."""
    print("| code | seeds | non-zeros | model, bytes | labels, bytes | together, bytes | CPU s |")
    print("|" + " --- |" * 7)
    print(f"| all labels equally likely | | | 0 | {UNIFORM_BITS / 8:,.0f} | {UNIFORM_BITS / 8:,.0f} | |")
    for name, lines in codes().items():
        totals = [length(line).total_bits for line in lines]
        nonzeros = [line["nonzeros"] for line in lines if "nonzeros" in line]
        cells = [name, str(len(lines)), f"{statistics.median(nonzeros):,.0f}" if nonzeros else ""]
        cells += [f"{median([line[part] for line in lines]):,.0f}" for part in ("model_bits", "data_bits")]
        spread = f" ({min(totals) / 8:,.0f} to {max(totals) / 8:,.0f})" if len(totals) > 1 else ""
        cells.append(f"{median(totals):,.0f}{spread}")
        cells.append(f"{statistics.median(line.get('cpu_seconds', line.get('seconds', 0)) for line in lines):.0f}")
        print("| " + " | ".join(cells) + " |")
    for replay, (labels, bits) in curves().items():
        law = fitted(labels, bits)
        area = law.integral(0.0, LABELS) / 8
        print(f"\nreplay {replay}: {law.scale:.3g} x^-{law.exponent:.3f} from the first {FITTED_UP_TO:,} labels; all: {area:,.0f} bytes")


def curves() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Averages the running code lengths of LeNet-300-100 over seeds, by replay."""
    averages: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for replay in REPLAYS["LeNet-300-100"]:
        lines = [line for line in records(RESULTS) if key_of(line)[:3] == ("online", "LeNet-300-100", replay)]
        if lines:
            averages[replay] = (np.array(lines[0]["labels"], dtype=float), np.mean([line["bits_so_far"] for line in lines], axis=0))
    return averages


def rates(labels: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes bits per label between the recorded points, at their geometric means."""
    return np.sqrt(labels[1:] * labels[:-1]), np.diff(bits) / np.diff(labels)


def fitted(labels: np.ndarray, bits: np.ndarray) -> Any:
    """Fits a power law to the beginning of the curve; appendix J.2 fits a whole curve."""
    x, y = rates(labels, bits)
    early = x <= FITTED_UP_TO
    return fit_power_law(x[early], y[early])


def figure() -> None:
    """Draws bits per label over the labels coded so far, and both parts of every code."""
    groups = codes()

    def fill(drawing: Any) -> None:
        left, right = drawing.subplots(1, 2, width_ratios=(1, 1.15))
        for replay, (labels, bits) in curves().items():
            x, y = rates(labels, bits)
            law = fitted(labels, bits)
            left.plot(x, y, color=COLOURS[replay], label=f"{replay} replayed")
            left.plot(x, law(x), color=COLOURS[replay], linewidth=0.8, linestyle="--")
        left.plot([], [], color=INK, linewidth=0.8, linestyle="--", label=f"power law of the first {FITTED_UP_TO:,}")
        left.axhline(np.log2(10), color=GREY, linewidth=0.8)
        left.annotate("log2 10", (1.0, np.log2(10)), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=GREY, fontsize=9)
        left.set(xscale="log", yscale="log", xlabel="labels coded so far", ylabel="bits per label")
        left.set_title("Online code, LeNet-300-100", loc="left")
        left.legend(loc="lower left", fontsize=9)
        names = list(groups)
        model = np.array([median([line["model_bits"] for line in groups[name]]) for name in names])
        data = np.array([median([line["data_bits"] for line in groups[name]]) for name in names])
        place = np.arange(len(names))
        right.barh(place, model, color=GREY, label="model")
        right.barh(place, data, left=model, color=BLUE, label="labels")
        for row, total in zip(place, model + data, strict=True):
            right.annotate(f"{total:,.0f}", (total, row), xytext=(4, 0), textcoords="offset points", va="center", color=INK, fontsize=9)
        right.set_yticks(place, names, fontsize=9)
        right.invert_yaxis()
        right.grid(visible=False, axis="y")
        right.set_xlim(0, 1.15 * float((model + data).max()))
        right.set_xlabel(f"bytes (equally likely labels: {UNIFORM_BITS / 8:,.0f})")
        right.set_title("Both parts", loc="left")
        right.legend(loc="lower right", fontsize=9)

    draw(FOLDER / "online", (12.5, 5.0), fill)


def main() -> None:
    """Parses the command line."""
    line = CommandLine(__doc__, table=table, figure=figure)
    line.add("run", lambda given: run(given.seeds)).add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    line.run()


if __name__ == "__main__":
    main()
