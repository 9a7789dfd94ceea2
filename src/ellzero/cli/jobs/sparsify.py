"""What `ellzero sparsify` does."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ellzero.archive.load import load_model
from ellzero.archive.save import save_model
from ellzero.cli.jobs.by_name import dataset_for, image_problem, imported, network, wants_channels
from ellzero.cli.jobs.fit import require_fit
from ellzero.cli.jobs.methods import chosen_method
from ellzero.cli.jobs.outcome import Outcome, measure, show, to_safetensors
from ellzero.cli.jobs.progress import say
from ellzero.cli.options.sparsify import RecipeName, Sparsify
from ellzero.files.whole import replacing
from ellzero.params import duplicate
from ellzero.quantise.grids import LogGrid
from ellzero.records import append_line, read_lines
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training import Checkpoint, Epoch, Progress, SparsifyResult, sparsify
from ellzero.training.batches import plain_batches
from ellzero.training.file_size import MAX_PACKING_POINTS, PackingCost, good_ratio, packing_cost
from ellzero.training.plan import is_silent
from ellzero.training.presets import Preset, fast, paper, scaled_to_digits, smallest
from ellzero.training.problem import Problem

PRESETS = {RecipeName.PAPER: paper, RecipeName.SMALLEST: smallest, RecipeName.FAST: fast}


def run_sparsify(options: Sparsify) -> None:
    """Runs the command.

    Raises:
        ValueError: options, network or data are not what they should be.
        OSError: a file is missing, or the folder exists or cannot be written.
        KeyboardInterrupt: interrupted; the folder holds a checkpoint.
    """
    run_and_measure(options)


def run_and_measure(options: Sparsify, preset: Preset | None = None) -> Outcome:
    """Selects a network, then measures it; the test data are read when the network is final.

    Args:
        options: the options of the command.
        preset: settings in place of those that `options.recipe` names.

    Raises:
        ValueError: options, network or data are not what they should be.
        OSError: a file is missing, or the folder exists or cannot be written.
        KeyboardInterrupt: interrupted; the folder holds a checkpoint.
    """
    if preset is None:
        preset = PRESETS[options.recipe]()
        preset = scaled_to_digits(preset) if options.model == "digits-mlp" else preset
    preset = with_options(preset, options)
    if options.threads < 1:
        raise ValueError(f"--threads {options.threads}: expected at least 1")
    torch.set_num_threads(options.threads)
    model = network(options.model, options.seed)
    problem = problem_for(options, preset, model)
    require_fit(model, problem, options.model)
    prepare_folder(options)
    folder = options.output
    try:
        sparse = select_network(model, problem, preset, folder, seed=options.seed, resume=options.resume, progress=not options.quiet)
    except (ValueError, TypeError):
        if not (folder / "log.jsonl").exists():
            remove_folder(folder)
        raise
    with replacing(folder / "network.safetensors") as file:
        file.write(to_safetensors(sparse.model))
    save_model(sparse.model, folder / "network.l0")
    save_model(sparse.model, folder / "quantised.l0", quantise=sparse.quantiser or LogGrid())
    cost = _packing_cost(sparse, problem, folder)
    outcome = measure(options, preset, problem, sparse, model, cost)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    if not options.quiet:
        show(outcome, folder)
        if cost is not None and cost.too_high:
            say(_what_packing_costs(cost, sparse, problem, folder))
    return outcome


def _packing_cost(sparse: SparsifyResult, problem: Problem, folder: Path) -> PackingCost | None:
    """Measures on validation data what the quantised file of a run loses; None where errors cannot be counted."""
    if problem.valid is None or problem.error_fn is None:
        return None
    packed = load_model(duplicate(sparse.model), folder / "quantised.l0")
    return packing_cost(sparse.model, packed, problem.error_fn, plain_batches(problem.valid))


def _what_packing_costs(cost: PackingCost, sparse: SparsifyResult, problem: Problem, folder: Path) -> str:
    """Says that the quantised file of a run is worse than its network, and what to do."""
    assert problem.error_fn is not None
    assert problem.valid is not None
    ratio = None if sparse.quantiser is not None else good_ratio(sparse.model, problem.error_fn, plain_batches(problem.valid))
    finer = "" if ratio is None else f"a finer grid is good enough, ellzero pack {folder} --quantise log --ratio {ratio}; or "
    return (
        f"ellzero: warning: quantised.l0 is worse than the network by {cost.points:.2f} points of validation error "
        f"({100 * cost.packed_error:.2f} % instead of {100 * cost.error:.2f} %, more than {MAX_PACKING_POINTS} points): {finer}"
        "use network.l0, which is exact, or train the weights on the grid, --file-bytes BYTES"
    )


def with_options(preset: Preset, options: Sparsify) -> Preset:
    """Replaces the parts of a preset that the command line gives.

    Raises:
        ValueError: options that contradict each other.
    """
    method = chosen_method(preset.method, options)
    target = preset.target
    targets = {"--nonzeros": options.nonzeros, "--file-bytes": options.file_bytes, "--error-increase": options.error_increase}
    given = [name for name, value in targets.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are {len(given)} targets: give one of them")
    if options.nonzeros is not None:
        target = NonZeros(options.nonzeros)
    if options.file_bytes is not None:
        target = Bytes(options.file_bytes)
    recipe = preset.recipe
    if options.error_increase is not None:
        target = ErrorIncrease(options.error_increase / 100)
        recipe = replace(recipe, cycles=None)
    # A method that was chosen to be silent means a dense baseline; a preset's own silent method means that its truncations do it all.
    if method is not preset.method and is_silent(method) and options.nonzeros is None and options.file_bytes is None:
        target = None
    return replace(preset, method=method, target=target, recipe=recipe)


def problem_for(options: Sparsify, preset: Preset, model: nn.Module) -> Problem:
    """Returns the data: a user's `module:function`, or an image set known by name.

    Raises:
        ValueError: the function does not return a `Problem`, or a network of the user's own comes without data.
        FileNotFoundError: the image set's files are not there.
    """
    if options.data is not None and ":" in options.data and not Path(options.data).exists():
        problem = imported(options.data)()
        if not isinstance(problem, Problem):
            raise ValueError(f"{options.data} returned {type(problem).__name__}, expected ellzero.Problem")
        return problem
    if ":" in options.model and options.data is None:
        raise ValueError(f"{options.model} is a network of your own: say what to train it on, --data module:function, a folder, or mnist")
    dataset, directory = dataset_for(options.model, options.data)
    return image_problem(
        dataset,
        directory,
        seed=options.seed,
        treatment=preset.data,
        channels=wants_channels(model),
    )


def select_network(
    model: nn.Module, problem: Problem, preset: Preset, folder: Path, *, seed: int, resume: bool = False, progress: bool = False
) -> SparsifyResult:
    """Trains and sparsifies; reads no test data."""
    log = folder / "log.jsonl"
    if not resume:
        log.unlink(missing_ok=True)
    # A run that was killed is set back to its checkpoint; the epochs since then come again, the same as before.
    logged = max((line["epoch"] for line in read_lines(log)), default=0) if log.exists() else 0

    def write(entry: Epoch) -> None:
        if entry.epoch > logged:
            append_line(log, asdict(entry))

    return sparsify(
        model,
        problem.loss_fn,
        train=problem.train,
        valid=problem.valid,
        method=preset.method,
        target=preset.target,
        recipe=replace(preset.recipe, error_fn=problem.error_fn),
        seed=seed,
        checkpoint=Checkpoint(path=folder / "checkpoint.pt", resume=resume),
        progress=Progress(bar=progress, on_epoch=write),
    )


def prepare_folder(options: Sparsify) -> None:
    """Makes the run's folder, or checks that the one to resume was made with the same options.

    Raises:
        FileExistsError: the folder exists and `resume` is not given.
        FileNotFoundError: there is nothing to resume.
        ValueError: the run to resume has other options, or is finished.
    """
    folder, file = options.output, options.output / "options.json"
    if not options.resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} exists already: choose another folder, or go on with the run in it with --resume")
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as writer:
            writer.write((json.dumps(options.settings(), indent=2) + "\n").encode())
        return
    if not file.is_file():
        raise FileNotFoundError(f"there is no run to resume in {folder}: leave out --resume to start one")
    try:
        before = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} is damaged: start anew in another folder") from error
    now = dict(options.settings())
    different = _differences(before, now) + _differences(before.get("method_options", {}), now["method_options"])
    if different:
        raise ValueError(f"the run in {folder} was started with other options ({'; '.join(different)}): pass the same ones to resume it")
    if (folder / "record.json").exists():
        raise ValueError(f"the run in {folder} is finished: its figures are in {folder / 'record.json'}")


def remove_folder(folder: Path) -> None:
    """Removes a run's folder in which nothing has been trained yet."""
    (folder / "options.json").unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = [name for name in {**before, **now} if name != "method_options"]
    return [f"{name} {before.get(name)!r} -> {now.get(name)!r}" for name in names if before.get(name) != now.get(name)]
