"""One line in a training loop that exists already: `optimizer.step()` then regularises and keeps masks."""

import warnings
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ellzero.attaching.inertia import Watch
from ellzero.attaching.live import LiveModel
from ellzero.attaching.sparsifier import Attached, Sparsifier
from ellzero.attaching.steps import check_has_steps
from ellzero.attaching.weight_norm import Directions
from ellzero.methods.protocol import MaySilence, Method
from ellzero.methods.schedule import moves
from ellzero.params import Selector, aliases, masks_from_zeros, named_parameters, rescaled, select_parameters, weights
from ellzero.types import Params


@runtime_checkable
class OptimizerWrapper(Protocol):
    """What a framework hands out in place of an optimizer: it holds the one that does the step."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that does the step."""
        ...


def attach(
    optimizer: torch.optim.Optimizer | OptimizerWrapper | Sequence[torch.optim.Optimizer | OptimizerWrapper],
    model: nn.Module,
    method: Method,
    *,
    select: Selector = weights,
    total_steps: int | None = None,
    from_zeros: bool = False,
    inert_after: int | None = 500,
    seed: int = 0,
) -> Sparsifier:
    """Makes `optimizer.step()` regularise a model, and keep masks once there are some.

    Only hooks on the optimizer are used and nothing is put on the model, so copies, pickles, `torch.compile` and `AveragedModel`
    of the model work as before; copies of the optimizer have no hooks, so attach to those again.

    Args:
        optimizer: one optimizer or several that share the model; every optimizer counts its own steps. What Lightning, Fabric and
            accelerate wrap around an optimizer is taken off.
        model: the module, wrapped (DDP, torch.compile) or not.
        method: the penalty, such as `lz.DRR(alpha=1e-5)`.
        select: the rule for what is regularised: `lz.weights`, which are matrices and kernels, or `lz.everything` as in the paper. Of a
            weight `g * v / ||v||` (weight_norm) v is regularised; the norms of its rows, on which the network does not depend, are held.
        total_steps: optimizer steps planned, from which progress follows; needed by schedules. Later steps stay at progress 1.
        from_zeros: whether to freeze the regularised weights that are exactly 0, to go on from a sparse checkpoint; the penalty stays
            on.
        inert_after: regularised steps after which a penalty whose gradient has stayed below a millionth of the data's gives a
            warning; None for none.
        seed: seeds the generator of a method with forward weights; other methods draw nothing.

    Returns:
        The handle, which freezes masks and holds what a checkpoint needs.

    Raises:
        TypeError: not an optimizer or not a module; an optimizer that evaluates its closure several times (LBFGS); a proximal
            method with an optimizer that has no step per element; complex or half-precision parameters.
        ValueError: nothing is selected; a regularised parameter that none or two of the optimizers own; an optimizer that is
            attached already or maximises; a moving schedule without `total_steps`; `from_zeros` with nothing at 0.
    """
    given = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    optimizers = _checked_optimizers([_unwrapped(own) for own in given], method)
    selected = select_parameters(model, select)
    _check_precision(selected)
    for name, kind in rescaled(model, selected).items():
        warnings.warn(
            f"{name} is rescaled by what {kind} computes from all of it, so the penalty does not see the weights that the network uses:"
            " remove the parametrization first, or leave it out with select=",
            UserWarning,
            stacklevel=2,
        )
    if total_steps is not None and total_steps < 1:
        raise ValueError(f"total_steps must be at least 1, got {total_steps}")
    if total_steps is None and moves(method):
        raise ValueError(f"{method} has a schedule, a function of progress: pass total_steps, the number of optimizer steps planned")

    trainable = {name: parameter for name, (_, parameter) in named_parameters(model).items()}
    owners = _owners(optimizers, selected)
    sparsifier = Sparsifier(
        method=method,
        params=selected,
        trainable=trainable,
        aliases=aliases(model),
        attached=[
            Attached(
                optimizer=own,
                params={name: parameter for name, parameter in selected.items() if parameter in owned},
                trainable={name: parameter for name, parameter in trainable.items() if parameter in owned},
                # No penalty has no effect by design.
                watch=Watch(None if isinstance(method, MaySilence) and method.silent else inert_after),
            )
            for own, owned in owners
        ],
        total_steps=total_steps,
        directions=Directions(model, trainable, selected),
        live=LiveModel(model, trainable, select, [optimizer for optimizer, _ in owners]),
        seed=seed,
    )
    if from_zeros:
        masks = masks_from_zeros(selected)
        if all(bool(mask.all()) for mask in masks.values()):
            raise ValueError("from_zeros=True, but no regularised weight is exactly 0: load the sparse weights before attaching")
        sparsifier.freeze(masks, penalty=True)
    sparsifier.install()
    return sparsifier


_WRAPPING = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning")
"""Packages whose optimizers hold another one, which does the step."""


def _unwrapped(optimizer: Any) -> Any:
    """Returns the optimizer that does the step."""
    while type(optimizer).__module__.partition(".")[0] in _WRAPPING and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _checked_optimizers(optimizers: Sequence[torch.optim.Optimizer], method: Method) -> list[torch.optim.Optimizer]:
    optimizers = list(optimizers)
    if not optimizers:
        raise ValueError("no optimizer was given")
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]  # wrappers are common
            raise TypeError(f"expected a torch.optim.Optimizer, got {type(optimizer).__name__}: attach(optimizer, model, method)")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError("LBFGS evaluates its closure several times per step and searches along a line: use Adam, AdamW or SGD")
        if method.proximal:
            check_has_steps(optimizer)
        if any(group.get("maximize", False) for group in optimizer.param_groups):
            raise ValueError("the optimizer has maximize=True, which would maximise the penalty too: minimise the negative objective")
        if any(isinstance(getattr(hook, "__self__", None), Sparsifier) for hook in optimizer._optimizer_step_pre_hooks.values()):
            raise ValueError("this optimizer has a sparsifier attached already, and two would regularise twice: call its detach() first")
    if len(set(optimizers)) < len(optimizers):
        raise ValueError("the same optimizer is given twice")
    return optimizers


def _check_precision(params: Params) -> None:
    for name, parameter in params.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"{name} is {parameter.dtype}, in which small steps of a penalty are rounded away: keep float32 master weights and"
                " let torch.autocast run the model in half precision"
            )


def _owners(
    optimizers: Sequence[torch.optim.Optimizer], params: Params
) -> list[tuple[torch.optim.Optimizer, set[Tensor]]]:  # tensors hash by identity
    owners = [(own, {parameter for group in own.param_groups for parameter in group["params"]}) for own in optimizers]
    for name, parameter in params.items():
        count = sum(parameter in owned for _, owned in owners)
        if count == 0:
            raise ValueError(f"{name} is regularised, but no optimizer owns it: pass the optimizer that does, or leave it out with select=")
        if count > 1:
            raise ValueError(f"{name} belongs to {count} of the optimizers, so it would be regularised {count} times per round")
    return owners
