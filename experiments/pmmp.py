"""PMMP on LeNet-300-100 and MNIST: by ADMM, as its authors ran it, and the other methods of table 1a beside it.

    python -m experiments.pmmp run --configurations admm pmmp-adam drr-o --seeds 0 1 2 3 4
    python -m experiments.pmmp table
    python -m experiments.pmmp figure

Each run is one line of `results/pmmp.jsonl`; runs that are recorded already are not run again. The dense baselines and the rows of R-L1
and DRR are runs of `experiments.lenet300`. Recipes were chosen on training and validation images alone.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ellzero.records import append_line, read_lines
from experiments import lenet300

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results" / "pmmp.jsonl"
BESIDE = ("dense", "paper-rl1", "paper-drr")
"""Configurations of `experiments.lenet300` in the table."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A method that looks once an epoch at which of its weights live: gates of PMMP that are more than half open, z of ADMM that is not 0.

    Attributes:
        method: the method, which does everything.
        per_epoch: steps of an epoch.
        living: number of weights that live, an entry an epoch.
        changed: number of weights that have come to life or ceased to since the epoch before.
        last: what lived at the last look.
    """

    method: Any
    per_epoch: int
    living: list[int] = field(default_factory=list, repr=False, compare=False)
    changed: list[int] = field(default_factory=list, repr=False, compare=False)
    last: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def laws(self) -> Any:
        return self.method.laws

    @property
    def proximal(self) -> bool:
        return self.method.proximal

    @property
    def alpha(self) -> Any:
        return self.method.alpha

    def init(self, params: Mapping[str, Any]) -> Any:
        state = self.method.init(params)
        self.last.update(_living(state))
        return state

    def penalty(self, params: Mapping[str, Any], state: Any, at: Any) -> Any:
        return self.method.penalty(params, state, at)

    def add_gradient_(self, params: Mapping[str, Any], state: Any, at: Any, scale: float = 1.0) -> None:
        self.method.add_gradient_(params, state, at, scale)

    def after_step_(self, params: Mapping[str, Any], state: Any, steps: Mapping[str, Any], at: Any) -> None:
        self.method.after_step_(params, state, steps, at)
        if (at.step + 1) % self.per_epoch == 0:
            now = _living(state)
            self.living.append(sum(int(each.sum()) for each in now.values()))
            self.changed.append(sum(int((each != self.last[name]).sum()) for name, each in now.items()))
            self.last.update(now)

    def masks_(self, params: Mapping[str, Any], state: Any, at: Any) -> Any:
        return self.method.masks_(params, state, at)


def _living(state: Any) -> dict[str, Any]:
    tensors = state.state_dict()
    gates = {name: tensor > 0.5 for name, tensor in tensors.items() if name.endswith(".gamma")}
    return gates or {name: tensor != 0 for name, tensor in tensors.items() if name.endswith(".z")}


def configurations() -> dict[str, Callable[[], Any]]:
    """Lists every configuration by name; imports torch."""
    from ellzero.cli.recipes import paper
    from ellzero.methods import DRR, PMMP, PerModule

    # Tried on validation images: behind gates that are closed at first (p_init=0) the weights collapse.
    pmmp = PMMP(alpha=8e-4, p_init=1.0)
    return {
        "admm": admm,
        "admm-alone": admm_alone,
        "pmmp-adam": lambda: replace(paper(), method=Watched(method=pmmp, per_epoch=90)),
        "drr-o": lambda: replace(paper(), method=DRR(alpha=3e-5, beta=5.0, rho=1e-6, normalise=PerModule())),
    }


def admm() -> Any:
    """Builds the recipe of PMMP by ADMM: tau falls, z gives about 5,000 weights, 16 truncations take them to 2,180, fine-tuning.

    Shifts and distillation throughout. Between truncations nothing regularises and nothing grows again.
    """
    from ellzero.methods import Unregularised
    from ellzero.training import Cosine, Cycles

    cycles = Cycles(start=4400, count=16, epochs=2, lr=2e-3, regrow=0.0, method=Unregularised(), power=0.25)
    return _admm(alpha=7e-5, regularise=30, fine_tune=50, fine_tune_lr=Cosine(start=2e-3, end=2e-5), cycles=cycles)


def admm_alone() -> Any:
    """Builds the same without truncations: the largest 2,180 of z's weights are kept at once."""
    from ellzero.training import Cosine

    return _admm(alpha=8e-5, regularise=40, fine_tune=40, fine_tune_lr=Cosine(start=2e-3, end=2e-5))


def _admm(*, alpha: float, regularise: int, fine_tune: int, **options: Any) -> Any:
    from ellzero.cli.recipes import Recipe
    from ellzero.data import Shifts
    from ellzero.methods import ADMM, geometric
    from ellzero.training import Cosine, Distill, Epochs, NonZeros

    method = ADMM(alpha=alpha, tau=geometric(0.8, 0.12, end=0.9), every=20, settle=0.95)
    return Recipe(
        batch_size=100,
        augment=Shifts(pixels=1),
        copies=12,
        method=Watched(method=method, per_epoch=550),
        target=NonZeros(2180),
        options={
            "epochs": Epochs(prelude=20, regularise=regularise, fine_tune=fine_tune),
            "prelude_lr": Cosine(start=1e-3, end=1e-5),
            "lr": 2e-3,
            "distill": Distill(weight=0.5, temperature=2.0),
            **options,
        },
    )


def run_one(name: str, seed: int) -> None:
    """Runs one configuration with one seed in this process and records it."""
    import tempfile

    import torch

    from ellzero.cli.run import run_sparsify
    from ellzero.cli.sparsify import Sparsify

    torch.set_num_threads(1)
    recipe = configurations()[name]()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_sparsify(Sparsify(model="lenet-300-100", output=Path(folder) / "run", seed=seed, quiet=True), recipe)
    details = dict(outcome.record.details)
    if isinstance(recipe.method, Watched):
        details.update(living=recipe.method.living, changed=recipe.method.changed)
    RESULTS.parent.mkdir(exist_ok=True)
    append_line(RESULTS, replace(outcome.record, recipe=name, details=details))


def recorded() -> dict[tuple[str, int], dict[str, Any]]:
    """Reads the records there are, by configuration and seed."""
    lines = read_lines(RESULTS) if RESULTS.exists() else []
    return {(line["recipe"], line["seed"]): line for line in lines}


def run(names: list[str], seeds: list[int], jobs: int) -> None:
    """Runs what is not recorded yet, one process a run, `jobs` at once, one thread each."""
    unknown = set(names) - set(configurations())
    if unknown:
        raise SystemExit(f"no configuration is named {', '.join(unknown)}: expected {', '.join(configurations())}")

    def one(name: str, seed: int) -> bool:
        command = [sys.executable, "-m", "experiments.pmmp", "one", name, str(seed)]
        status = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode
        print(f"{name} seed {seed}: {'done' if status == 0 else f'failed with status {status}'}", flush=True)
        return status == 0

    done = recorded()
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, name, seed) for name in names for seed in seeds if (name, seed) not in done]
        print(f"{sum(not each.result() for each in waiting)} failed runs")


def table() -> None:
    """Prints a Markdown table: medians with ranges over seeds, error increases paired by seed and image."""
    baselines = lenet300.recorded()
    lines = {key: line for key, line in baselines.items() if key[0] in BESIDE} | recorded()
    columns = ["configuration", "seeds", "non-zeros", "compression rate", "test error, %", "over plain dense", "s"]
    print(f"| {' | '.join(columns)} |")
    print("|" + " --- |" * len(columns))
    for name in dict.fromkeys(name for name, _ in lines):
        own = {seed: line for (other, seed), line in lines.items() if other == name}
        pairs = [lenet300.paired(line, baselines["dense", seed]) for seed, line in own.items() if ("dense", seed) in baselines]
        increase = ""
        if pairs and name != "dense":
            error = sum(error**2 for _, error in pairs) ** 0.5 / len(pairs)
            increases = [increase for increase, _ in pairs]
            increase = f"{statistics.mean(increases):+.2f} ± {error:.2f}, median {statistics.median(increases):+.2f}"
        figures = [
            lenet300.median_and_range([line[key] for line in own.values()], digits)
            for key, digits in (("nonzeros", 0), ("compression_rate", 1), ("test_error_percent", 2))
        ]
        seconds = lenet300.median_and_range([line["seconds"] for line in own.values()], 0)
        print(f"| {' | '.join([name, str(len(own)), *figures, increase, seconds])} |")


def figure() -> None:
    """Draws, epoch by epoch, how many weights come to life or cease to, and how many live: with Adam on the gates, and by ADMM."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = recorded()
    drawing = Figure(figsize=(9.0, 3.8), layout="constrained")
    FigureCanvasAgg(drawing)
    panels = drawing.subplots(1, 2)
    for axes, name, title in zip(
        panels, ("pmmp-adam", "admm"), ("Adam on w, gamma and u (its authors' way)", "ADMM, tau falling"), strict=True
    ):
        runs = [line["details"] for (other, _), line in lines.items() if other == name]
        for details in runs:
            epochs = range(1, 1 + len(details["living"]))
            axes.plot(epochs, [max(1, n) for n in details["changed"]], color="#d55e00", alpha=0.6, linewidth=1.0)
            axes.plot(epochs, [max(1, n) for n in details["living"]], color="#0072b2", alpha=0.6, linewidth=1.0)
        axes.plot([], [], color="#d55e00", label="changed in this epoch")
        axes.plot([], [], color="#0072b2", label="living")
        axes.set_yscale("log")
        axes.set_ylim(1, 4e5)
        axes.set_xlabel("regularised epochs")
        axes.set_ylabel("weights")
        axes.set_title(f"{title}, {len(runs)} {'run' if len(runs) == 1 else 'runs'}", fontsize=10)
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for ending in ("png", "svg"):
        drawing.savefig(FOLDER / f"pmmp.{ending}", dpi=150)


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
