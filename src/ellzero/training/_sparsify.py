"""The whole job in one call: dense training, regularisation, pruning, fine-tuning, and a target instead of a magic number."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ellzero.data import Augmentation
from ellzero.methods import Method
from ellzero.params import Selector, count_nonzeros, count_parameters, duplicate, masks_from_zeros, select_parameters, weights
from ellzero.pruning import Accept, Within
from ellzero.quantise.grids import Quantiser
from ellzero.quantise.on_grid import KnownGrids
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training.batches import Batches, ErrorFn, LossFn, classification_error, error_rate, require_reiterable
from ellzero.training.checkpoint import Checkpoint
from ellzero.training.distill import Distill
from ellzero.training.driver import Driver
from ellzero.training.file_size import coded_bytes, expected_nonzeros, magnitudes_of, prune_to_fit_, reordered, require_possible
from ellzero.training.final_prune import CollapseError
from ellzero.training.plan import Plan, prelude_stage, sparse_stages
from ellzero.training.progress import Progress
from ellzero.training.search import Try, best_try, next_alpha
from ellzero.training.stages import Anneal, Cycles, Epochs, GridTraining, LearningRate, Saturation, Warm
from ellzero.training.task import Epoch, OptimizerFactory, Pruning, Reports, Task

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
        after_rgp: state_dict after it: what it set to 0 had no influence on the output.
        history: one entry an epoch.
        tries: what the search for a target tried; empty without a search.
        reached: whether the target was met.
        parameters: trainable scalars of the network.
        nonzeros: those that are not zero, biases and normalisation included.
        seconds: time taken, resumed stretches included.
        quantiser: for `save_model(quantise=...)` where the weights were trained on a grid: it writes them as they are.
    """

    model: nn.Module
    masks: Mapping[str, Tensor]
    dense: Mapping[str, Tensor]
    before_rgp: Mapping[str, Tensor]
    after_rgp: Mapping[str, Tensor]
    history: tuple[Epoch, ...]
    tries: tuple[Try, ...]
    reached: bool
    parameters: int
    nonzeros: int
    seconds: float
    quantiser: Quantiser | None = None

    @property
    def compression_rate(self) -> float:
        """All trainable scalars over the non-zero ones (the paper's CR)."""
        return self.parameters / self.nonzeros


def adam(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Creates the optimizer of all the paper's experiments: Adam with PyTorch's defaults, fused."""
    return torch.optim.Adam(params, fused=True)


def sparsify(
    model: nn.Module,
    loss_fn: LossFn,
    *,
    train: Batches,
    valid: Batches | None = None,
    method: Method,
    target: Target | None = None,
    error_fn: ErrorFn | None = None,
    select: Selector = weights,
    epochs: Epochs = Epochs(),  # noqa: B008  # frozen
    prelude_lr: LearningRate = 1e-3,
    lr: LearningRate = 1e-3,
    fine_tune_lr: LearningRate = 1e-3,
    warm: Warm | None = None,
    cycles: Cycles | None = None,
    anneal: Anneal | None = None,
    saturation: Saturation | None = None,
    on_grid: GridTraining | None = None,
    accept: Accept = Within(relative=0.01),  # noqa: B008  # frozen
    judge: Batches | None = None,
    augment: Augmentation | None = None,
    distill: Distill | None = None,
    optimizer: OptimizerFactory = adam,
    compact: bool = True,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    progress: bool = True,
) -> SparsifyResult:
    """Sparsifies a network in the paper's three phases: dense, regularised, and fine-tuned under masks (section 2.2).

    The given model is left as it is; the result is a copy. Between the phases come random gradient pruning, a mask (TAMADE, or exactly
    the number of non-zeros asked for), random gradient pruning again, and folding of what has become constant.

    Args:
        model: the network; it is trained from the weights it has.
        loss_fn: (model, batch) -> mean loss in nats; any batch, any model.
        train: batches, read once an epoch; a generator is refused. Batches that are a function of the epoch (`lz.data.Resident`, or an
            object with `epoch(number, start)`) make a resumed run equal an uninterrupted one bit for bit.
        valid: held-out batches for logs, for the search for an error, and for `saturation`.
        method: what makes the network sparse.
        target: `NonZeros(n)`, `ErrorIncrease(fraction)`, `Bytes(n)` for the size of the file, or None to let `accept` decide.
        error_fn: (model, batch) -> (errors, decisions); `classification_error` where a target needs it and none is given.
        params: what is regularised and pruned; `everything` is the paper's setting.
        epochs: passes over `train` in each phase.
        prelude_lr: learning rate of the dense phase, a number or a `Cosine`.
        lr: learning rate of the regularised phase.
        fine_tune_lr: learning rate of fine-tuning.
        warm: a first regularised stretch with another method.
        cycles: truncations along a geometric sequence, with or without regrowth; needs `NonZeros`.
        anneal: how to train under the final masks; plain fine-tuning without the penalty where None.
        saturation: end phases by appendix G instead of by count.
        on_grid: last passes with the weights on a grid; `GridTraining()` where None and the target is `Bytes`.
        accept: what TAMADE tolerates where no number of non-zeros is asked for.
        judge: batches on which TAMADE measures; `valid` where None, else `train`.
        augment: what is done to a batch's inputs.
        distill: soft labels of the dense network, or of another teacher.
        optimizer: parameters -> optimizer; its learning rate is set from the stages.
        compact: remove dead units and inputs physically while training, which is faster and changes no function.
        seed: seeds augmentation; training data have their own seed.
        checkpoint: where to save, how often, and whether to resume.
        on_epoch: called with each epoch's figures.
        progress: show a bar where stderr is a terminal.

    Returns:
        The sparse network and how it came about.

    Raises:
        TypeError: `model` is not a module, or batches can be read only once.
        ValueError: nothing is selected, nothing is left, the loss is not finite, or arguments contradict each other.
        KeyboardInterrupt: interrupted; the checkpoint, where there is one, holds everything.
    """
    for name, batches in (("train", train), ("valid", valid), ("judge", judge)):
        if batches is not None:
            require_reiterable(batches, name)
    keep = target.count if isinstance(target, NonZeros) else None
    if isinstance(target, ErrorIncrease):
        if valid is None:
            raise ValueError("target=ErrorIncrease(...) is measured on held-out data: pass valid=")
        error_fn = error_fn or classification_error
    network = duplicate(model)
    selected = sum(parameter.numel() for parameter in select_parameters(network, select).values())
    if keep is not None and keep > selected:
        raise ValueError(f"target=NonZeros({keep}), but only {selected} scalars are regularised: ask for fewer")
    if isinstance(target, Bytes):
        require_possible(network, target, select)
        on_grid = on_grid or GridTraining()
        shapes = [tuple(each.shape) for each in select_parameters(network, select).values()]
        keep = min(selected, expected_nonzeros(on_grid.before_saving(target.count), shapes))
    plan = Plan(
        method=method,
        epochs=epochs,
        prelude_lr=prelude_lr,
        lr=lr,
        fine_tune_lr=fine_tune_lr,
        accept=accept,
        keep=keep,
        warm=warm,
        cycles=cycles,
        anneal=anneal,
        saturation=saturation,
        limit=target.count if isinstance(target, Bytes) else None,
        on_grid=on_grid,
    )
    task = Task(
        loss_fn=loss_fn,
        train=train,
        valid=valid,
        judge=judge if judge is not None else valid if valid is not None else train,
        error_fn=error_fn,
        select=select,
        optimizer=optimizer,
        augment=augment,
        distill=distill,
        compact=compact,
        seed=seed,
    )
    stages = sparse_stages(plan)  # contradictions show before anything is trained
    names = [(name, tuple(tensor.shape)) for name, tensor in network.state_dict().items()]
    fingerprint = repr((plan, target, seed, compact, replace(distill, teacher=None) if distill else None, names))
    with Progress(progress) as bar:

        def report(entry: Epoch) -> None:
            bar.epoch(entry)
            if on_epoch is not None:
                on_epoch(entry)

        driver = Driver(network, task, Reports(epoch=report, batch=bar.batch), checkpoint, fingerprint)
        driver.run([prelude_stage(plan)])
        if "dense" not in driver.extra:
            driver.extra["dense"] = driver.compact.state()
        if isinstance(target, ErrorIncrease):
            tries = _search(driver, plan, target)
        else:
            tries = ()
            driver.run(stages, prefix=1)
    sparse = driver.finish().eval()
    quantiser = KnownGrids(grids=driver.extra["grids"]) if "grids" in driver.extra else None
    if isinstance(target, Bytes):
        # Training on the grid has moved weights to other values, which may cost a few bytes more.
        sparse = reordered(sparse, driver.compact.example)
        chosen = select_parameters(sparse, select)
        prune_to_fit_(chosen, magnitudes_of(chosen), lambda: coded_bytes(sparse, quantiser), target.count)
    sparse.train(model.training)
    reached = best_try(tries).accepted if tries else True
    if not reached:
        warnings.warn(
            f"no network within the tolerated error was found in {len(tries)} tries: the one with the least error is returned; "
            "allow more tries, more error, or start from a smaller alpha",
            stacklevel=2,
        )
    return SparsifyResult(
        model=sparse,
        masks=masks_from_zeros(select_parameters(sparse, select)),
        dense=driver.extra["dense"],
        before_rgp=driver.pruning.masked,
        after_rgp=driver.pruning.pruned,
        history=tuple(driver.history),
        tries=tries,
        reached=reached,
        parameters=count_parameters(sparse),
        nonzeros=count_nonzeros(sparse),
        seconds=driver.clock.seconds(),
        quantiser=quantiser,
    )


def _search(driver: Driver, plan: Plan, target: ErrorIncrease) -> tuple[Try, ...]:
    """Searches over log alpha; each try starts from the weights of the sparsest accepted one, else from the dense network."""
    first = getattr(plan.method, "alpha", None)
    if not isinstance(first, float | int) or not is_dataclass(plan.method) or first <= 0:
        raise ValueError("target=ErrorIncrease(...) searches over alpha: pass a method with a positive constant alpha to begin with")
    task, extra = driver.task, driver.extra
    assert task.valid is not None
    assert task.error_fn is not None
    if "dense_error" not in extra:
        extra.update(dense_error=error_rate(driver.model, task.error_fn, task.valid), tries=[], start=extra["dense"], start_alpha=None)
    while True:
        tries = [Try(**one) for one in extra["tries"]]
        alpha = next_alpha(tries, float(first), target)
        if alpha is None:
            break
        if driver.attempt <= len(tries):
            driver.begin(len(tries) + 1, extra["start"])
        stages = sparse_stages(replace(plan, method=replace(plan.method, alpha=alpha)))
        common: dict[str, Any] = {"alpha": alpha, "warm_start": extra["start_alpha"]}
        try:
            driver.run(stages, prefix=1)
        except CollapseError as collapse:
            one = Try(accepted=False, error_increase=None, nonzeros=0, note=str(collapse), **common)
        else:
            increase = error_rate(driver.model, task.error_fn, task.valid) - extra["dense_error"]
            one = Try(accepted=increase <= target.fraction, error_increase=increase, nonzeros=count_nonzeros(driver.model), **common)
        extra["tries"].append(asdict(one))
        if best_try([*tries, one]) is one:
            extra["best"] = driver.compact.state() if one.nonzeros else extra["dense"]
            extra["best_pruning"] = list(driver.pruning)
            if one.accepted:
                extra["start"], extra["start_alpha"] = driver.pruning.regularised, alpha
    driver.restart(extra["best"])
    driver.pruning = Pruning(*extra["best_pruning"])
    return tuple(tries)
