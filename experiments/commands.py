"""What the commands of the experiments share: subcommands, records, pictures, and runs of networks by configuration and seed.

Imports neither torch nor matplotlib before a run or a picture needs them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ellzero.records import append_line, read_lines

FOLDER = Path(__file__).parent


class CommandLine:
    """A command line of subcommands; every subcommand calls a function.

    Args:
        description: what `--help` prints, the experiment's own docstring.
        commands: subcommands without arguments, by name.
    """

    def __init__(self, description: str | None, **commands: Callable[[], None]) -> None:
        self._parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._commands = self._parser.add_subparsers(dest="command", required=True)
        for name, command in commands.items():
            self.add(name, lambda _, command=command: command())

    def add(self, name: str, command: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        """Adds a subcommand that is called with its arguments; returns its parser, for them to be added to."""
        parser = self._commands.add_parser(name)
        parser.set_defaults(call=command)
        return parser

    def run(self, words: Sequence[str] | None = None) -> None:
        """Parses the words, those of the process by default, and calls the subcommand that they name."""
        given = self._parser.parse_args(words)
        given.call(given)


def refuse(problem: str) -> NoReturn:
    """Ends the command with a line that says what is wrong with it, and exit status 2."""
    print(problem, file=sys.stderr)
    raise SystemExit(2)


def check_names(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that are not known.

    Args:
        kind: what is named, for the message.
        names: as they were given.
        known: all that there are.
    """
    known = list(known)
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        refuse(f"no {kind} is named {', '.join(unknown)}: expected {', '.join(known)}")


def records(path: Path) -> list[dict[str, Any]]:
    """Reads the records of a file; there are none where there is no file."""
    return read_lines(path) if path.exists() else []


@contextmanager
def picture(stem: Path, size: tuple[float, float]) -> Generator[Any, None, None]:
    """Gives an empty figure to draw on, and writes it.

    Args:
        stem: path of the files without .png and .svg.
        size: width and height, inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawing)
    yield drawing
    for ending in ("png", "svg"):
        drawing.savefig(f"{stem}.{ending}", dpi=150)


def _nothing(recipe: Any) -> dict[str, Any]:
    return {}


def dense_only(preset: Any, epochs: int) -> Any:
    """Makes a preset train the dense network alone, a baseline, under a cosine; its data stay as they are treated."""
    from ellzero.methods import Cosine, Unregularised
    from ellzero.training import Epochs

    # No other part of the preset acts: without a method and a target there is nothing after the prelude.
    plain = preset.with_recipe(
        epochs=Epochs(prelude=epochs, regularise=0, fine_tune=0), prelude_lr=Cosine(first=1e-3, last=1e-5), cycles=None, distill=None
    )
    return replace(plain, method=Unregularised(), target=None)


@dataclass(frozen=True, kw_only=True)
class Networks:
    """Runs that train one network per configuration and seed. A run is one line of the results.

    Attributes:
        module: the experiment's own module, as `python -m` takes it; a run is a process of it.
        model: the network, as `ellzero sparsify` names it.
        results: the file of the records.
        configurations: lists, by name, the functions that make the recipes.
        seeds: the seeds of a `run` that names none.
        details: recipe -> what its record holds after the run, beside the figures.
    """

    module: str
    model: str
    results: Path
    configurations: Callable[[], Mapping[str, Callable[[], Any]]]
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    details: Callable[[Any], Mapping[str, Any]] = _nothing

    def recorded(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Reads the records there are, by configuration and seed."""
        return {(line["recipe"], line["seed"]): line for line in records(self.results)}

    def one(self, name: str, seed: int, keep: Path | None = None) -> None:
        """Runs one configuration with one seed in this process, and records it; an existing record stays as it is.

        Args:
            name: the configuration.
            seed: the seed of the run.
            keep: the folder in which the folder of the run, NAME-SEED, stays; None for a temporary folder.
        """
        check_names("configuration", [name], self.configurations())
        self._check_folders([(name, seed)], keep)
        import torch

        from ellzero.cli.jobs.sparsify import run_and_measure
        from ellzero.cli.options.sparsify import Sparsify

        torch.set_num_threads(1)
        recipe = self.configurations()[name]()
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "run" if keep is None else keep / f"{name}-{seed}"
            try:
                outcome = run_and_measure(Sparsify(model=self.model, output=output, seed=seed, quiet=True), recipe)
            except FileNotFoundError as error:  # the data
                refuse(str(error))
        if (name, seed) in self.recorded():
            print(f"{name} seed {seed} has a record already, which stays as it is")
            return
        self.results.parent.mkdir(exist_ok=True)
        details = {**outcome.record.details, **self.details(recipe)}
        append_line(self.results, replace(outcome.record, recipe=name, details=details))

    def run(self, names: Sequence[str], seeds: Sequence[int], jobs: int, keep: Path | None = None) -> None:
        """Runs what is not recorded yet, one process per run and one thread per process; exit status 1 where a run failed.

        Every configuration runs its first seed before any runs its second, so that the records can be compared at any time.

        Args:
            names: the configurations.
            seeds: the seeds of the runs.
            jobs: number of runs at once.
            keep: as in `one`.
        """
        check_names("configuration", names, self.configurations())
        if jobs < 1:
            refuse(f"--jobs {jobs}: expected at least 1")
        done = self.recorded()
        waiting = [key for key in dict.fromkeys((name, seed) for seed in seeds for name in names) if key not in done]
        self._check_folders(waiting, keep)
        options = [] if keep is None else ["--keep", str(keep)]

        def succeeds(key: tuple[str, int]) -> bool:
            name, seed = key
            command = [sys.executable, "-m", self.module, "one", name, str(seed), *options]
            status = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode
            print(f"{name} seed {seed}: {'done' if status == 0 else f'failed with status {status}'}", flush=True)
            return status == 0

        pool = ThreadPoolExecutor(jobs)
        try:
            failed = [key for key, good in zip(waiting, pool.map(succeeds, waiting), strict=True) if not good]
        finally:
            pool.shutdown(cancel_futures=True)  # interrupted, it starts no further run
        print(f"{len(failed)} failed runs")
        if failed:
            raise SystemExit(1)

    def command_line(self, description: str | None, **commands: Callable[[], None]) -> CommandLine:
        """Makes the command line: `run`, `one`, and others without arguments, by name."""
        line = CommandLine(description, **commands)
        run = line.add("run", lambda given: self.run(given.configurations, given.seeds, given.jobs, given.keep))
        run.add_argument("--configurations", nargs="+", required=True, metavar="NAME")
        run.add_argument("--seeds", nargs="+", type=int, default=list(self.seeds), metavar="SEED")
        run.add_argument("--jobs", type=int, default=2, metavar="N", help="how many run at once (default: 2)")
        single = line.add("one", lambda given: self.one(given.name, given.seed, given.keep))
        single.add_argument("name", metavar="NAME")
        single.add_argument("seed", type=int, metavar="SEED")
        for parser in (run, single):
            parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the folder of each run as FOLDER/NAME-SEED")
        return line

    def _check_folders(self, runs: Iterable[tuple[str, int]], keep: Path | None) -> None:
        there = [str(folder) for name, seed in runs if keep is not None and (folder := keep / f"{name}-{seed}").exists()]
        if there:
            refuse(f"{', '.join(there)} exists already: move it away, or keep the runs in another folder")
