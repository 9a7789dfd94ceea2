"""The stages of a run, built from a recipe; a stage is a stretch of training, with what is done to the network before it."""

from dataclasses import dataclass, field, fields, is_dataclass, replace

from ellzero.methods import Method, Schedule, Unregularised, moves
from ellzero.methods.protocol import EndsOnGrid, MaySilence
from ellzero.pruning import Accept, PruningRule
from ellzero.quantise.grids import LogGrid
from ellzero.quantise.on_grid import OnGrid
from ellzero.training.recipe import Cycles, GridTraining, LearningRate, Recipe, Saturation
from ellzero.types import Phase


@dataclass(frozen=True, kw_only=True)
class Truncate:
    """Keeps the `keep` weights with the largest score |w| * v^power, divided by the bits that they cost where they are `priced`."""

    keep: int
    power: float = 0.0
    priced: bool = False


@dataclass(frozen=True, kw_only=True)
class FinalPrune:
    """Random gradient pruning, a mask, random gradient pruning, fold.

    The mask keeps the largest `keep` weights, or what fits into a file of `limit` bytes, or what TAMADE returns where both are None. Where
    there is a `rule`, it chooses instead of magnitude and TAMADE.
    """

    accept: Accept
    keep: int | None = None
    power: float = 0.0
    priced: bool = False
    limit: int | None = None
    rule: PruningRule | None = None
    grid: LogGrid = field(default_factory=LogGrid)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stretch of training.

    Attributes:
        name: its name in logs.
        phase: the phase it belongs to.
        epochs: passes over the training data; 0 does only what comes before.
        lr: learning rate over the stage.
        method: what regularises.
        before: the pruning that precedes the training.
        frozen: whether training happens under the mask of what is non-zero when the stage starts.
        regrow: with `frozen`, how many further weights the mask admits, as a fraction of the non-zeros.
        distilled: whether the teacher's labels are mixed in, where there is a teacher.
        compact: whether dead units and inputs are removed physically while the stage runs.
        saturation: ends the stage by appendix G instead of after `epochs`.
        max_epochs: ends the stage where its loss never saturates.
    """

    name: str
    phase: Phase
    epochs: int
    lr: LearningRate
    method: Method = field(default_factory=Unregularised)
    before: Truncate | FinalPrune | None = None
    frozen: bool = False
    regrow: float = 0.0
    distilled: bool = True
    compact: bool = True
    saturation: Saturation | None = None
    max_epochs: int = 0


def value_of(lr: LearningRate, progress: float) -> float:
    """Computes a learning rate, constant or moving, at a stage's progress in [0, 1]."""
    return lr if isinstance(lr, float | int) else lr(min(max(progress, 0.0), 1.0))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recipe, completed by what the target asks for.

    Attributes:
        recipe: the recipe.
        method: what regularises.
        keep: how many weights the final masks keep; None leaves it to `limit`, or to TAMADE.
        limit: the largest number of bytes that the file may take.
        grid_training: the last passes on a grid, those of the recipe or those that the target needs.
    """

    recipe: Recipe
    method: Method
    keep: int | None = None
    limit: int | None = None
    grid_training: GridTraining | None = None


def prelude_stage(recipe: Recipe) -> Stage:
    """Builds the stage that trains the dense network, the baseline of every error increase and the teacher of a distillation."""
    return Stage(name="prelude", phase=Phase.PRELUDE, epochs=recipe.epochs.prelude, lr=recipe.prelude_lr, distilled=False, compact=False)


def sparse_stages(plan: Plan) -> list[Stage]:
    """Builds the stages that follow the prelude; none where nothing regularises and no number is asked for, which is a dense baseline.

    Raises:
        ValueError: cycles without a number of non-zeros to arrive at.
    """
    recipe, method = plan.recipe, plan.method
    if is_silent(method) and not isinstance(method, EndsOnGrid) and plan.keep is None:
        return []
    if recipe.cycles is not None and plan.keep is None:
        raise ValueError("Recipe(cycles=...) needs a number to arrive at: pass target=lz.NonZeros(n) with it")
    stages: list[Stage] = []
    if (warm := recipe.warm) is not None:
        stages.append(Stage(name="warm", phase=Phase.REGULARISE, epochs=warm.epochs, lr=warm.lr, method=warm.method))
    stages.append(
        Stage(
            name="regularise",
            phase=Phase.REGULARISE,
            epochs=recipe.epochs.regularise,
            lr=recipe.lr,
            method=method,
            saturation=recipe.saturation,
            max_epochs=recipe.saturation.max_regularise if recipe.saturation else 0,
        )
    )
    last = _method_at(method, 1.0)
    if recipe.cycles is not None and plan.keep is not None:
        stages += _cycle_stages(recipe.cycles, method, plan.keep)
        last = _method_at(stages[-1].method, 1.0)
    return [*stages, *_final_stages(plan, last), *_grid_stages(plan.grid_training)]


def is_silent(method: Method) -> bool:
    """Tells whether a method has no penalty by intention."""
    return isinstance(method, MaySilence) and method.silent


def _cycle_stages(cycles: Cycles, method: Method, target: int) -> list[Stage]:
    counts = cycles.counts(target)
    stages: list[Stage] = []
    for number, keep in enumerate(counts, start=1):
        progress = (number - 1) / max(1, len(counts) - 1)
        regulariser = cycles.method or method
        stages.append(
            Stage(
                name=f"cycle {number}",
                phase=Phase.REGULARISE,
                epochs=cycles.epochs,
                lr=value_of(cycles.lr, progress),
                method=regulariser if cycles.restarts else _method_at(regulariser, progress),
                before=Truncate(keep=keep, power=cycles.power, priced=cycles.priced),
                frozen=cycles.regrow is not None,
                regrow=cycles.regrow or 0.0,
            )
        )
    return stages


def _final_stages(plan: Plan, method: Method) -> list[Stage]:
    """Builds the final pruning with what follows it: fine-tuning, or an anneal with `method` on and a finish without."""
    recipe, cycles, until = plan.recipe, plan.recipe.cycles, plan.recipe.saturation
    on_grid = plan.grid_training or GridTraining()
    prune = FinalPrune(
        accept=recipe.accept,
        keep=None if plan.limit else plan.keep,
        power=cycles.power if cycles else 0.0,
        priced=cycles.priced if cycles else plan.limit is not None,
        limit=plan.limit and on_grid.before_saving(plan.limit),
        rule=recipe.rule,
        grid=on_grid.grid,
    )
    if (anneal := recipe.anneal) is None:
        fine_tune = Stage(
            name="fine-tune",
            phase=Phase.FINE_TUNE,
            epochs=recipe.epochs.fine_tune,
            lr=recipe.fine_tune_lr,
            before=prune,
            frozen=True,
            saturation=until,
            max_epochs=until.max_fine_tune if until else 0,
        )
        return [fine_tune]
    # The penalty stays on during the anneal, which is why its phase is not FINE_TUNE: methods are silent there.
    annealing = Stage(
        name="anneal",
        phase=Phase.REGULARISE,
        epochs=anneal.epochs,
        lr=anneal.lr,
        method=anneal.method or method,
        before=prune,
        frozen=True,
    )
    finish = Stage(name="finish", phase=Phase.FINE_TUNE, epochs=anneal.finish_epochs, lr=anneal.finish_lr, frozen=True)
    return [annealing, finish]


def _grid_stages(last: GridTraining | None) -> list[Stage]:
    if last is None:
        return []
    method = OnGrid(grid=last.grid, bit_price=last.bit_price)
    return [Stage(name="on grid", phase=Phase.REGULARISE, epochs=last.epochs, lr=last.lr, method=method, frozen=True)]


def _method_at(method: Method, progress: float) -> Method:
    """Returns the method with its schedules fixed at their values at a point of progress."""
    if not (is_dataclass(method) and moves(method)):
        return method
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return replace(method, **{name: value(progress) for name, value in values.items() if isinstance(value, Schedule)})
