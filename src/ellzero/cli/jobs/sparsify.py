"""What `ellzero sparsify` does, with torch at hand."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from ellzero.archive.save import save_model
from ellzero.cli.jobs.fit import require_fit
from ellzero.cli.jobs.method import chosen_method
from ellzero.cli.jobs.outcome import Outcome, measure, show, to_safetensors
from ellzero.cli.options.sparsify import Sparsify, prepare_folder, remove_folder
from ellzero.cli.recipes import RECIPES, Recipe, scaled_to_digits
from ellzero.files.whole import replacing
from ellzero.methods import Unregularised
from ellzero.quantise.grids import LogGrid
from ellzero.records import append_line, read_lines
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training import Checkpoint, Epoch, SparsifyResult, sparsify
from ellzero.training.problem import Problem, dataset_for, image_problem, imported, network, wants_channels


def run_sparsify(options: Sparsify, recipe: Recipe | None = None) -> Outcome:
    """Runs the command: select, then measure; the test data are read when the network is final.

    Args:
        options: what the command line says.
        recipe: settings in place of those that `options.recipe` names.

    Raises:
        ValueError: options, network or data are not what they should be.
        OSError: a file is missing, or the folder exists or cannot be written.
        KeyboardInterrupt: interrupted; the folder holds a checkpoint.
    """
    if recipe is None:
        recipe = RECIPES[options.recipe]()
        recipe = scaled_to_digits(recipe) if options.model == "digits-mlp" else recipe
    recipe = with_options(recipe, options)
    if options.threads < 1:
        raise ValueError(f"--threads {options.threads}: expected at least 1")
    torch.set_num_threads(options.threads)
    model = network(options.model, options.seed)
    problem = problem_for(options, recipe, model)
    require_fit(model, problem, options.model)
    prepare_folder(options)
    folder = options.output
    try:
        sparse = select_network(model, problem, recipe, folder, seed=options.seed, resume=options.resume, progress=not options.quiet)
    except (ValueError, TypeError):
        if not (folder / "log.jsonl").exists():
            remove_folder(folder)
        raise
    with replacing(folder / "network.safetensors") as file:
        file.write(to_safetensors(sparse.model))
    save_model(sparse.model, folder / "network.l0")
    save_model(sparse.model, folder / "quantised.l0", quantise=sparse.quantiser or LogGrid())
    outcome = measure(options, recipe, problem, sparse, model)
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    if not options.quiet:
        show(outcome, folder)
    return outcome


def run_demo(folder: Path, seed: int, *, has_data: bool) -> Outcome:
    """Runs the demo: LeNet-300-100 on MNIST where there are data, else a smoke test on the digits.

    Raises:
        FileExistsError: the folder holds something else than an earlier demo.
        OSError: data are missing, or the folder cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "options.json").is_file():
            raise FileExistsError(f"{folder} holds something else than an earlier demo: choose another folder with -o")
        shutil.rmtree(folder)
    if has_data:
        print("Sparsifying LeNet-300-100 on MNIST, recipe fast.")
        return run_sparsify(Sparsify(model="lenet-300-100", output=folder, seed=seed))
    print("ELLZERO_DATA is not set, so this is a smoke test on 8x8 digits; set it to a folder that holds mnist/ for the real thing.")
    return run_sparsify(Sparsify(model="digits-mlp", output=folder, seed=seed))


def with_options(recipe: Recipe, options: Sparsify) -> Recipe:
    """Replaces what the command line says of a recipe.

    Raises:
        ValueError: options that contradict each other.
    """
    method = chosen_method(recipe.method, options)
    target = recipe.target
    targets = {"--nonzeros": options.nonzeros, "--file-bytes": options.file_bytes, "--error-increase": options.error_increase}
    given = [name for name, value in targets.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are {len(given)} targets: give one of them")
    if options.nonzeros is not None:
        target = NonZeros(options.nonzeros)
    if options.file_bytes is not None:
        target = Bytes(options.file_bytes)
    more = dict(recipe.options)
    if options.error_increase is not None:
        target = ErrorIncrease(options.error_increase / 100)
        more.pop("cycles", None)
    if isinstance(method, Unregularised) and options.nonzeros is None and options.file_bytes is None:
        target = None
    return replace(recipe, method=method, target=target, options=more)


def problem_for(options: Sparsify, recipe: Recipe, model: nn.Module) -> Problem:
    """Finds the data: a user's `module:function`, or an image set known by name.

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
        batch_size=recipe.batch_size,
        train_size=recipe.train_size,
        validation=recipe.validation,
        augment=recipe.augment,
        copies=recipe.copies,
        channels=wants_channels(model),
    )


def select_network(
    model: nn.Module, problem: Problem, recipe: Recipe, folder: Path, *, seed: int, resume: bool = False, progress: bool = False
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
        judge=problem.judge,
        method=recipe.method,
        target=recipe.target,
        error_fn=problem.error_fn,
        select=recipe.select,
        seed=seed,
        checkpoint=Checkpoint(path=folder / "checkpoint.pt", resume=resume),
        on_epoch=write,
        progress=progress,
        **recipe.options,
    )
