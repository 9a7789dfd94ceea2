"""The whole job in one call: dense training, regularisation, pruning, fine-tuning, and a target instead of a magic number."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ellzero.methods import Method
from ellzero.methods.protocol import HasStrength
from ellzero.params import count_nonzeros, count_parameters, duplicate, masks_from_zeros, select_parameters
from ellzero.quantise.grids import Quantiser
from ellzero.quantise.on_grid import KnownGrids
from ellzero.records import settings_of
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training.batches import Batches, ErrorFn, LossFn, classification_error, error_rate, plain_batches, require_reiterable
from ellzero.training.checkpoint import Checkpoint
from ellzero.training.driver import Driver
from ellzero.training.file_size import (
    MAX_PACKING_POINTS,
    coded_bytes,
    expected_nonzeros,
    magnitudes_of,
    packing_cost,
    prune_smallest_to_fit_,
    reordered,
    require_possible,
)
from ellzero.training.final_prune import CollapseError
from ellzero.training.plan import Plan, prelude_stage, sparse_stages
from ellzero.training.progress import Progress, ProgressBar
from ellzero.training.recipe import GridTraining, Recipe
from ellzero.training.search import Try, best_try, bracket_closed, next_alpha
from ellzero.training.task import Epoch, Reports, Task

Target = NonZeros | ErrorIncrease | Bytes


@dataclass(frozen=True, kw_only=True)
class SparsifyResult:
    """What `sparsify` returns.

    Attributes:
        model: the sparse network in the original class, shapes and keys; pruned scalars are exact zeros. With the target `Bytes` its
            hidden units are in another order than those of `dense`, which saves bytes.
        masks: True where a regularised scalar is not zero.
        dense: state_dict of the dense network at the end of the prelude.
        before_rgp: state_dict under the final mask, before random gradient pruning (the left half of figure 3).
        after_rgp: state_dict after random gradient pruning, which sets to 0 what has no influence on the output.
        history: one entry per epoch.
        tries: the tries of the search for a target; empty without a search.
        reached: whether the target was met.
        bracket_closed: whether the search ended because a refused alpha lies within `ErrorIncrease.resolution` of an accepted one; False
            where it ran out of tries, so that a larger alpha might still have been accepted; None without a search.
        parameters: trainable scalars of the network.
        nonzeros: trainable scalars that are not zero, biases and normalisation included.
        seconds: time taken, resumed stretches included.
        quantiser: for `save_model(quantise=...)` where the weights were trained on a grid: it writes them exactly.
    """

    model: nn.Module
    masks: Mapping[str, Tensor]
    dense: Mapping[str, Tensor]
    before_rgp: Mapping[str, Tensor]
    after_rgp: Mapping[str, Tensor]
    history: tuple[Epoch, ...]
    tries: tuple[Try, ...]
    reached: bool
    bracket_closed: bool | None
    parameters: int
    nonzeros: int
    seconds: float
    quantiser: Quantiser | None = None

    @property
    def compression_rate(self) -> float:
        """All trainable scalars over the non-zero ones (the paper's CR)."""
        return self.parameters / self.nonzeros


def sparsify(
    model: nn.Module,
    loss_fn: LossFn,
    *,
    train: Batches,
    valid: Batches | None = None,
    method: Method,
    target: Target | None = None,
    recipe: Recipe = Recipe(),  # noqa: B008  # frozen
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    progress: bool | Progress = True,
) -> SparsifyResult:
    """Sparsifies a network in the paper's three phases: dense, regularised, and fine-tuned under masks (section 2.2).

    The given model is left as it is; the result is a copy. Between the phases come random gradient pruning, a mask (TAMADE, or exactly
    the number of non-zeros asked for), random gradient pruning again, and folding of what has become constant.

    Args:
        model: the network; it is trained from the weights it has.
        loss_fn: (model, batch) -> mean loss in nats; any batch, any model.
        train: batches, read once per epoch; a generator is refused. Batches that are a function of the epoch (`lz.data.Resident`, or an
            object with `epoch(number, start)`) make a resumed run equal an uninterrupted run bit for bit.
        valid: held-out batches for the history, for the search for an error, for TAMADE, and for `Recipe(saturation=...)`.
        method: what makes the network sparse.
        target: `lz.NonZeros(n)`, `lz.ErrorIncrease(fraction)`, `lz.Bytes(n)` for the size of the file, or None to let `recipe.accept`
            decide.
        recipe: everything else about the run.
        seed: seeds augmentation and what methods draw; training data have their own seed.
        checkpoint: where to save, how often, and whether to resume.
        progress: whether to show a bar where stderr is a terminal; a `Progress` also calls a function with every epoch's figures.

    Returns:
        The sparse network, its masks, and the history of the run.

    Raises:
        TypeError: `model` is not a module, or batches can be read only once.
        ValueError: nothing is selected, nothing is left, the loss is not finite, or arguments contradict each other.
        KeyboardInterrupt: the run was interrupted; the checkpoint, where there is one, holds everything.
    """
    for name, batches in (("train", train), ("valid", valid)):
        if batches is not None:
            require_reiterable(batches, name)
    if isinstance(target, ErrorIncrease) and valid is None:
        raise ValueError("target=ErrorIncrease(...) is measured on held-out data: pass valid=")
    network = duplicate(model)
    plan = _plan(network, recipe, method, target)
    task = Task(
        loss_fn=loss_fn,
        train=train,
        valid=valid,
        accept_on=plain_batches(train) if recipe.accept_on_train or valid is None else valid,
        error_fn=_error_fn(target, recipe),
        recipe=recipe,
        seed=seed,
    )
    stages = sparse_stages(plan)  # contradictions show before anything is trained
    shown = progress if isinstance(progress, Progress) else Progress(bar=progress)
    with ProgressBar(shown.bar) as bar:

        def report(entry: Epoch) -> None:
            bar.epoch(entry)
            if shown.on_epoch is not None:
                shown.on_epoch(entry)

        fingerprint = _fingerprint(network, plan, target, seed)
        driver = Driver(network, task, Reports(epoch=report, batch=bar.batch), checkpoint, fingerprint)
        driver.run([prelude_stage(recipe)])
        if not driver.dense:
            driver.dense = driver.compact.state()
        if isinstance(target, ErrorIncrease):
            _search(driver, plan, target)
        else:
            driver.run(stages, prefix=1)
    return _result(driver, target, training=model.training)


def _plan(network: nn.Module, recipe: Recipe, method: Method, target: Target | None) -> Plan:
    """Completes a recipe by what the target asks for.

    Raises:
        ValueError: more non-zeros are asked for than there are weights, or no file can be as small as is asked.
    """
    selected = select_parameters(network, recipe.select)
    total = sum(parameter.numel() for parameter in selected.values())
    if isinstance(target, NonZeros):
        if target.count > total:
            raise ValueError(f"target=NonZeros({target.count}), but only {total} scalars are regularised: ask for fewer")
        return Plan(recipe=recipe, method=method, keep=target.count, grid_training=recipe.grid_training)
    if isinstance(target, Bytes):
        require_possible(network, target, recipe.select)
        grid_training = recipe.grid_training or GridTraining()
        shapes = [tuple(parameter.shape) for parameter in selected.values()]
        keep = min(total, expected_nonzeros(grid_training.before_saving(target.count), shapes))
        return Plan(recipe=recipe, method=method, keep=keep, limit=target.count, grid_training=grid_training)
    return Plan(recipe=recipe, method=method, grid_training=recipe.grid_training)


def _error_fn(target: Target | None, recipe: Recipe) -> ErrorFn | None:
    if isinstance(target, ErrorIncrease):
        return target.error_fn or recipe.error_fn or classification_error
    return recipe.error_fn


def _fingerprint(network: nn.Module, plan: Plan, target: Target | None, seed: int) -> str:
    """Describes a run, so that a checkpoint of another run is not resumed."""
    shapes = {name: list(tensor.shape) for name, tensor in network.state_dict().items()}
    return json.dumps([settings_of(plan), settings_of(target), seed, shapes], sort_keys=True)


def _warn_of_fitting(trained: nn.Module, fitted: nn.Module, task: Task) -> None:
    """Warns where the last pruning, which makes the file small enough, has cost too much on validation data."""
    if task.valid is None or task.error_fn is None or count_nonzeros(trained) == count_nonzeros(fitted):
        return
    cost = packing_cost(trained, fitted, task.error_fn, task.valid)
    if cost.too_high:
        warnings.warn(
            f"pruning the trained network to the size of the file costs {cost.points:.2f} points of validation error "
            f"({100 * cost.packed_error:.2f} % instead of {100 * cost.error:.2f} %), more than {MAX_PACKING_POINTS}: ask for more bytes, "
            "or let GridTraining(saves=...) leave less to it",
            stacklevel=4,
        )


def _result(driver: Driver, target: Target | None, *, training: bool) -> SparsifyResult:
    """Collects the results of a finished run, after pruning the network to the size of the file that was asked for."""
    sparse = driver.finish().eval()
    select = driver.task.recipe.select
    quantiser = None if driver.grids is None else KnownGrids(grids=driver.grids)
    if isinstance(target, Bytes):
        # Training on the grid has moved weights to other values, which may cost a few further bytes.
        sparse = reordered(sparse, driver.compact.example)
        chosen = select_parameters(sparse, select)
        trained = duplicate(sparse)
        prune_smallest_to_fit_(chosen, magnitudes_of(chosen), lambda: coded_bytes(sparse, quantiser), target.count)
        _warn_of_fitting(trained, sparse, driver.task)
    sparse.train(training)
    tries = tuple(driver.search.tries)
    reached = best_try(tries).accepted if tries else True
    if not reached:
        warnings.warn(
            f"no network within the tolerated error was found in {len(tries)} tries: that with the least error is returned; "
            "allow more tries or a larger error, or start from a smaller alpha",
            stacklevel=3,
        )
    elif tries and all(attempt.accepted for attempt in tries):
        warnings.warn(
            f"every alpha tried was accepted, the largest is {max(attempt.alpha for attempt in tries):g}: a larger one may give a sparser "
            f"network within the tolerated error; start from a larger alpha, or allow more than {len(tries)} tries",
            stacklevel=3,
        )
    return SparsifyResult(
        model=sparse,
        masks=masks_from_zeros(select_parameters(sparse, select)),
        dense=driver.dense,
        before_rgp=driver.pruning.masked,
        after_rgp=driver.pruning.pruned,
        history=tuple(driver.history),
        tries=tries,
        reached=reached,
        bracket_closed=bracket_closed(tries, target) if isinstance(target, ErrorIncrease) else None,
        parameters=count_parameters(sparse),
        nonzeros=count_nonzeros(sparse),
        seconds=driver.clock.seconds(),
        quantiser=quantiser,
    )


def _search(driver: Driver, plan: Plan, target: ErrorIncrease) -> None:
    """Searches over log alpha; every try starts from the weights of the sparsest accepted try, else from the dense network."""
    method, task, search = plan.method, driver.task, driver.search
    if not (isinstance(method, HasStrength) and isinstance(method.alpha, float | int) and method.alpha > 0):
        raise ValueError("target=ErrorIncrease(...) searches over alpha: pass a method with a positive constant alpha to begin with")
    assert task.valid is not None
    assert task.error_fn is not None
    if search.dense_error is None:
        search.dense_error, search.start = error_rate(driver.model, task.error_fn, task.valid), driver.dense
    while (alpha := next_alpha(search.tries, float(method.alpha), target)) is not None:
        if driver.position.attempt <= len(search.tries):
            driver.begin(len(search.tries) + 1, search.start)
        common: dict[str, Any] = {"alpha": alpha, "warm_start": search.start_alpha}
        try:
            driver.run(sparse_stages(replace(plan, method=method.with_alpha(alpha))), prefix=1)
        except CollapseError as collapse:
            attempt = Try(accepted=False, error_increase=None, nonzeros=0, note=str(collapse), **common)
        else:
            increase = error_rate(driver.model, task.error_fn, task.valid) - search.dense_error
            nonzeros = count_nonzeros(driver.model)
            attempt = Try(accepted=increase <= target.fraction, error_increase=increase, nonzeros=nonzeros, **common)
        search.tries.append(attempt)
        if best_try(search.tries) is attempt:
            search.best = driver.compact.state() if attempt.nonzeros else driver.dense
            search.best_pruning = driver.pruning
            if attempt.accepted:
                search.start, search.start_alpha = driver.pruning.regularised, alpha
    driver.restart(search.best)
    driver.pruning = search.best_pruning
