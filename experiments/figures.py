"""Renders the measured tables of `experiments/README.md` and `README.md` from the records: a figure stands in one place, its record.

    python -m experiments.figures

Between `<!-- figures: NAME -->` and `<!-- end -->` stands what `TABLES[NAME]` returns. What other coders made of the same files has no
record here and is typed below, once.
"""

import contextlib
import io
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import increases, layerwise, lenet5, lenet300, noise_level, online, packing, pmmp, rate_term, recovery, whole_files
from experiments.commands import records

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "experiments/README.md")
MARKED = re.compile(r"(?<=<!-- figures: )(?P<name>[\w-]+) -->\n(?P<table>.*?)(?=<!-- end -->)", re.DOTALL)

OTHER_CODERS = {  # xz -9e, PPMd of order 16, zpaq 7.15 -m5: bytes
    "enwik.1000000": (314_224, 263_731, 251_890),
    "enwik.4096000": (1_197_644, 1_004_283, 946_685),
    "enwik.16384000": (4_492_908, 3_859_474, 3_555_048),
    "silesia/dickens": (2_831_212, 2_270_103, 2_094_764),
    "silesia/xml": (434_892, 378_646, 326_964),
    "silesia/nci": (1_449_272, 1_837_129, 1_251_125),
    "silesia/ooffice": (2_427_224, 2_504_558, 1_766_571),
    "calgary/": (883_752, 774_653, 703_752),
    "canterbury/": (493_080, 547_385, 352_487),
}


def printed(table: Callable[[], None]) -> Callable[[], str]:
    """Returns a function that gives the Markdown tables that a script prints, without its other lines."""

    def render() -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            table()
        empty = re.compile(r"\|[^|]+\|[ |]+")  # a configuration without a record
        lines = [line for line in output.getvalue().splitlines() if not line or (line.startswith("|") and not empty.fullmatch(line))]
        return "\n".join(lines).strip() + "\n"

    return render


def files() -> str:
    """Renders whole files: bytes of each level beside other coders, and microseconds per byte of the highest level."""
    records = {(line["file"], line["level"]): line for line in whole_files.recorded()}
    rows = ["| file | bytes | `ellzero -9` | `-5` | xz -9e | PPMd, order 16 | zpaq 7.15 -m5 | `-9`, µs per byte: compress, restore |"]
    rows.append("|" + " --- |" * 8)
    names = {"trivial/empty": "an empty file", "trivial/random": "random bytes", "trivial/zip": "a deflated .zip"}
    for name in [*OTHER_CODERS, *(name for name in dict.fromkeys(name for name, _ in records) if name.startswith("trivial/"))]:
        best, middle = ([line for (file, at), line in records.items() if file.startswith(name) and at == level] for level in (9, 5))
        size = sum(line["bytes"] for line in best)
        label = f"{name[:-1]}, {len(best)} files apart" if name.endswith("/") else names.get(name, name)
        others = [f"{value:,}" for value in OTHER_CODERS[name]] if name in OTHER_CODERS else ["", "", ""]
        seconds = [sum(line[key] for line in best) for key in ("compress_seconds", "decompress_seconds")]
        speed = ", ".join(f"{1e6 * value / size:.0f}" for value in seconds) if name in OTHER_CODERS else ""
        totals = [f"{sum(line['compressed'] for line in lines):,}" for lines in (best, middle)]
        rows.append(f"| {' | '.join([label, f'{size:,}', *totals, *others, speed])} |")
    return "\n".join(rows) + "\n"


def decoded() -> str:
    """Renders the five files of 1,900 bytes."""
    lines = {seed: line for (name, seed), line in sorted(lenet300.NETWORKS.recorded().items()) if name == "bytes-1900"}
    values = {seed: (line["details"]["quantised_bytes"], line["nonzeros"], line["test_error_percent"]) for seed, line in lines.items()}
    values["median"] = tuple(statistics.median(column) for column in zip(*values.values(), strict=True))
    rows = [f"| {seed} | {size:,} | {count:,} | {error:.2f} |" for seed, (size, count, error) in values.items()]
    return "\n".join(["| seed | bytes | non-zeros | test error, % |", "| --- | --- | --- | --- |", *rows]) + "\n"


def whole(*names: str, level: int = 9) -> str:
    """Formats the bytes of several files or folders at one level."""
    records = whole_files.recorded()
    return " / ".join(
        f"{sum(line['compressed'] for line in records if line['file'].startswith(name) and line['level'] == level):,}" for name in names
    )


def zpaq(*names: str) -> str:
    """Formats what zpaq takes for the same."""
    return " / ".join(f"{OTHER_CODERS[name][2]:,}" for name in names)


def runs_of(networks: Any, name: str) -> list[dict[str, Any]]:
    """Lists the runs of one configuration by seed."""
    return [line for (other, _), line in sorted(networks.recorded().items()) if other == name]


def error_of(lines: list[dict[str, Any]]) -> str:
    """Formats the median test error of several seeds with its range."""
    errors = [line["test_error_percent"] for line in lines]
    return f"test error {statistics.median(errors):.2f} % (median of {len(errors)} seeds, {min(errors):.2f} to {max(errors):.2f})"


def increases_of(name: str, networks: Any = lenet300.NETWORKS) -> str:
    """Formats the error increases of a configuration over plain dense networks, over those with its data treatment, and over its own."""
    own = {line["seed"]: line for line in runs_of(networks, name)}
    plain, alike, begun = (increases.mean_and_errors(pairs) for pairs in increases.three(own, *lenet300.baselines()))
    return f"{plain} points over plain dense, {alike} over dense with the same shifts, {begun} over the dense network of its own run"


def count_of(lines: list[dict[str, Any]]) -> str:
    """Formats the median of the non-zeros of several seeds, and of the compression rate."""
    rate = statistics.median(line["compression_rate"] for line in lines)
    return f"{statistics.median(line['nonzeros'] for line in lines):,} non-zeros, compression rate {rate:.0f}"


def paper_recipe(name: str) -> str:
    """Formats the compression rate and the error increase of the paper's own recipe."""
    lines = runs_of(lenet300.NETWORKS, name)
    own = statistics.median(increases.own_increase(line)[0] for line in lines)
    return f"{statistics.median(line['compression_rate'] for line in lines):.0f} at {own:+.2f}"


def packed(network: str, *ways: str) -> str:
    """Formats the bytes of a packed network and its KL divergence from the dense one."""
    lines = {(line["network"].removeprefix("cifar10-").split("-")[0], line["way"]): line for line in records(packing.RESULTS)}
    several = [lines[network, way] for way in ways]
    return ", ".join(f"{line['file_bytes']:,} bytes at KL {line['kl']:.4f}" for line in several)


def networks_measured() -> list[tuple[str, str, str]]:
    """Renders what the front page says of trained networks without training, and of linear models."""
    pruned = {line["variant"]: line for line in records(layerwise.RESULTS) if (line["network"], line["zeros_asked"]) == ("resnet20", 0.5)}
    layers, magnitude = (pruned[name]["kl_nats"] for name in ("layerwise, the same fraction of each layer", "magnitude, one threshold"))
    lossless = [line for line in records(packing.RESULTS) if line["way"] == "lossless"]
    smaller = [100 - 100 * line["file_bytes"] / min(line["xz_bytes"], line["xz_planes_bytes"]) for line in lossless]
    shares = [line["file_bytes"] / line["source_bytes"] for line in lossless]
    solved = records(recovery.RESULTS)
    counts = [
        sum(line["recovered"] for line in solved if (line["method"], line["measurements"]) == (name, 40))
        for name in ("ADMM", "gates", "PMMP, exact steps", "relaxed lasso")
    ]
    return [
        (
            "ResNet-20, half of its weights removed on 500 unlabelled images",
            f"KL to the dense network {layers:.3f}; pruning by magnitude {magnitude:.3f}",
            "python -m experiments.layerwise run",
        ),
        (
            "ResNet-20 (1,092,608 bytes) / ResNet-32, 128 unlabelled images, no training",
            f"{packed('resnet20', 'calibrated 0.00016')}; NNCodec, which sees no data, {packed('resnet20', 'NNCodec, qp -26')}"
            f" / {packed('resnet32', 'calibrated 0.00016')}; NNCodec {packed('resnet32', 'NNCodec, qp -22')}",
            "python -m experiments.packing run calibrated",
        ),
        (
            "ResNet-20 / ResNet-56 with no data at all, calibrated on inputs made up from the batch normalisation",
            f"{packed('resnet20', 'no data 0.0002', 'no data 0.0008')}; NNCodec {packed('resnet20', 'NNCodec, qp -28', 'NNCodec, qp -24')}"
            f" / {packed('resnet56', 'no data 0.0001')}; NNCodec {packed('resnet56', 'NNCodec, qp -28', 'NNCodec, qp -24')}",
            "python -m experiments.packing run without-data",
        ),
        (
            f"{len(lossless)} trained networks, every bit kept",
            f"{min(smaller):.1f} to {max(smaller):.1f} % smaller than the smaller of xz -9e and xz on byte planes;"
            f" {min(shares):.2f} to {max(shares):.2f} of the file",
            "python -m experiments.packing run lossless",
        ),
        (
            "supports of 10 in 100 unknowns recovered from 40 measurements, of 20",
            "ADMM {}, `linear_l0` {}, PMMP with exact steps {}, relaxed lasso {}".format(*counts),
            "python -m experiments.recovery run",
        ),
    ]


def measured() -> str:
    """Renders what the front page says was measured."""
    sparse, close, small = (runs_of(lenet300.NETWORKS, name) for name in ("smallest-1480", "close-5000", "bytes-1900"))
    lenet300_run = "python -m experiments.lenet300 run --configurations"
    rows = [
        (
            f"LeNet-300-100, MNIST: {count_of(sparse)}",
            f"{error_of(sparse)}; {increases_of('smallest-1480')}",
            f"{lenet300_run} dense dense-shifts smallest-1480",
        ),
        (
            f"the same: {count_of(close)}",
            f"{error_of(close)}; {increases_of('close-5000')}",
            f"{lenet300_run} dense dense-shifts close-5000",
        ),
        (
            "the same as a file of 1,900 bytes, the network decoded from it",
            f"{error_of(small)}; {increases_of('bytes-1900')}; best published: 8.56 KB at 1.9 %",
            f"{lenet300_run} dense dense-shifts bytes-1900",
        ),
        (
            f"the same network by ADMM, then sixteen truncations: {count_of(runs_of(pmmp.NETWORKS, 'admm'))}",
            f"{error_of(runs_of(pmmp.NETWORKS, 'admm'))}; {increases_of('admm', pmmp.NETWORKS)}. ADMM and one pruning at its end:"
            f" {error_of(runs_of(pmmp.NETWORKS, 'admm-alone'))}; the same truncations without ADMM:"
            f" {error_of(runs_of(pmmp.NETWORKS, 'without-admm'))}",
            "python -m experiments.pmmp run --configurations admm admm-alone without-admm",
        ),
        (
            "LeNet-5-Caffe, MNIST, as a file of 1,500 / 1,200 bytes",
            f"{error_of(runs_of(lenet5.NETWORKS, 'bytes-1500'))} / {error_of(runs_of(lenet5.NETWORKS, 'bytes-1200'))};"
            " best published: 1.52 KB at 0.96 %",
            "python -m experiments.lenet5 run --configurations bytes-1500 bytes-1200",
        ),
        (
            "the paper's own recipe: DRR / R-L1, compression rate at error increase over the dense network of the same run",
            f"{paper_recipe('paper-drr')} / {paper_recipe('paper-rl1')} points (medians of 5 seeds); the paper: 92 at +0.16 / 68 at +0.23",
            f"{lenet300_run} paper-drr paper-rl1",
        ),
        (
            "English Wikipedia, the first 1,000,000 / 4,096,000 / 16,384,000 bytes, `-9`",
            f"{whole('enwik.1000000', 'enwik.4096000', 'enwik.16384000')};"
            f" zpaq -m5 {zpaq('enwik.1000000', 'enwik.4096000', 'enwik.16384000')}",
            "python -m experiments.whole_files run --sets enwik --levels 9",
        ),
        (
            "Silesia dickens / xml / nci / ooffice, `-9`",
            f"{whole('silesia/dickens', 'silesia/xml', 'silesia/nci', 'silesia/ooffice')};"
            f" zpaq -m5 {zpaq('silesia/dickens', 'silesia/xml', 'silesia/nci', 'silesia/ooffice')}",
            "python -m experiments.whole_files run --sets silesia --levels 9",
        ),
        (
            "Calgary, 18 files / Canterbury, 11 files, each apart, `-9`",
            f"{whole('calgary/', 'canterbury/')}; zpaq -m5 {zpaq('calgary/', 'canterbury/')}",
            "python -m experiments.whole_files run --sets calgary canterbury --levels 9",
        ),
    ]
    rows += networks_measured()
    return "\n".join(["| what | result | command |", "| --- | --- | --- |", *(f"| {a} | {b} | `{c}` |" for a, b, c in rows)]) + "\n"


TABLES: dict[str, Callable[[], str]] = {
    "decoded": decoded,
    "layerwise": printed(layerwise.table),
    "lenet300": printed(lenet300.table),
    "lenet5": printed(lenet5.table),
    "measured": measured,
    "noise-level": printed(noise_level.table),
    "online": printed(online.table),
    "packing": printed(packing.table),
    "pmmp": printed(pmmp.table),
    "rate-term": printed(rate_term.table),
    "recovery": printed(recovery.table),
    "whole-files": files,
}


def rendered(page: str) -> str:
    """Returns a page with every marked table rendered anew."""
    return MARKED.sub(lambda match: f"{match['name']} -->\n{TABLES[match['name']]()}", page)


def main() -> None:
    """Renders the tables of both pages in place."""
    for path in PAGES:
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
