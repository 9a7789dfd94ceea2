"""From the arguments of `sparsify` to the stages of a run."""

from dataclasses import dataclass, fields, is_dataclass, replace

from ellzero.methods import Method, Schedule, Unregularised, moves
from ellzero.pruning import Accept
from ellzero.quantise.on_grid import OnGrid
from ellzero.training.stages import (
    Anneal,
    Cycles,
    Epochs,
    FinalPrune,
    GridTraining,
    LearningRate,
    Saturation,
    Stage,
    Truncate,
    Warm,
    rate_at,
)
from ellzero.types import Phase


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arguments of `sparsify` that say what is done when."""

    method: Method
    epochs: Epochs
    prelude_lr: LearningRate
    lr: LearningRate
    fine_tune_lr: LearningRate
    accept: Accept
    keep: int | None = None
    warm: Warm | None = None
    cycles: Cycles | None = None
    anneal: Anneal | None = None
    saturation: Saturation | None = None
    limit: int | None = None
    on_grid: GridTraining | None = None


def prelude_stage(plan: Plan) -> Stage:
    """Builds the stage that trains the dense network, the baseline of every error increase and the teacher of a distillation."""
    return Stage(name="prelude", phase=Phase.PRELUDE, epochs=plan.epochs.prelude, lr=plan.prelude_lr, distilled=False, compact=False)


def sparse_stages(plan: Plan) -> list[Stage]:
    """Builds the stages that follow the prelude; none where nothing regularises and no number is asked for, which is a dense baseline.

    Raises:
        ValueError: cycles without a number of non-zeros to arrive at.
    """
    if isinstance(plan.method, Unregularised) and plan.keep is None:
        return []
    regularise, fine_tune = Phase.REGULARISE, Phase.FINE_TUNE
    stages: list[Stage] = []
    if plan.warm is not None:
        stages.append(Stage(name="warm", phase=regularise, epochs=plan.warm.epochs, lr=plan.warm.lr, method=plan.warm.method))
    until = plan.saturation
    stages.append(
        Stage(
            name="regularise",
            phase=regularise,
            epochs=plan.epochs.regularise,
            lr=plan.lr,
            method=plan.method,
            saturation=until,
            max_epochs=until.max_regularise if until else 0,
        )
    )
    cycles, method = plan.cycles, _method_at(plan.method, 1.0)
    if cycles is not None:
        if plan.keep is None:
            raise ValueError("cycles= needs a number to arrive at: pass target=lz.NonZeros(n) with it")
        counts = cycles.counts(plan.keep)
        for number, keep in enumerate(counts, start=1):
            progress = (number - 1) / max(1, len(counts) - 1)
            method = cycles.method or plan.method
            method = method if cycles.restarts else _method_at(method, progress)
            stages.append(
                Stage(
                    name=f"cycle {number}",
                    phase=regularise,
                    epochs=cycles.epochs,
                    lr=rate_at(cycles.lr, progress),
                    method=method,
                    before=Truncate(keep=keep, power=cycles.power, priced=cycles.priced),
                    frozen=cycles.regrow is not None,
                    regrow=cycles.regrow or 0.0,
                )
            )
        method = _method_at(method, 1.0)
    on_grid = plan.on_grid or GridTraining()
    prune = FinalPrune(
        accept=plan.accept,
        keep=None if plan.limit else plan.keep,
        power=cycles.power if cycles else 0.0,
        priced=cycles.priced if cycles else plan.limit is not None,
        limit=plan.limit and on_grid.before_saving(plan.limit),
        grid=on_grid.grid,
    )
    if plan.anneal is None:
        stages.append(
            Stage(
                name="fine-tune",
                phase=fine_tune,
                epochs=plan.epochs.fine_tune,
                lr=plan.fine_tune_lr,
                before=prune,
                frozen=True,
                saturation=until,
                max_epochs=until.max_fine_tune if until else 0,
            )
        )
        return stages + _grid_stages(plan)
    anneal = plan.anneal
    # The penalty stays on during the anneal, which is why its phase is not FINE_TUNE: methods are silent there.
    stages.append(
        Stage(
            name="anneal", phase=regularise, epochs=anneal.epochs, lr=anneal.lr, method=anneal.method or method, before=prune, frozen=True
        )
    )
    stages.append(Stage(name="finish", phase=fine_tune, epochs=anneal.finish_epochs, lr=anneal.finish_lr, frozen=True))
    return stages + _grid_stages(plan)


def _grid_stages(plan: Plan) -> list[Stage]:
    last = plan.on_grid
    if last is None:
        return []
    method = OnGrid(grid=last.grid, bit_price=last.bit_price)
    return [Stage(name="on grid", phase=Phase.REGULARISE, epochs=last.epochs, lr=last.lr, method=method, frozen=True)]


def _method_at(method: Method, progress: float) -> Method:
    """Fixes what a method's schedules say at a point of progress."""
    if not (is_dataclass(method) and moves(method)):
        return method
    return replace(
        method,
        **{one.name: getattr(method, one.name)(progress) for one in fields(method) if isinstance(getattr(method, one.name), Schedule)},
    )
