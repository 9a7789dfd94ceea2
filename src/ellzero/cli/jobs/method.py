"""Builds the method that the command line asks for, from the recipe's."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ellzero.cli.options.method_options import MethodName, UpdatesName, given
from ellzero.cli.options.sparsify import Sparsify
from ellzero.methods import ADMM, DRR, PMMP, RL1, Alternating, ExactGates, Method, Simultaneous, Unregularised, geometric
from ellzero.methods.pmmp.updates import Updates

_UPDATES: dict[UpdatesName, Callable[[], Updates]] = {
    UpdatesName.SIMULTANEOUS: Simultaneous,
    UpdatesName.ALTERNATING: Alternating,
    UpdatesName.EXACT: ExactGates,
}


def chosen_method(method: Method, options: Sparsify) -> Method:
    """Replaces the recipe's method, or parts of it, by what the command line says.

    Args:
        method: the recipe's.
        options: the command line; `method` names another one, which begins with the recipe's alpha.

    Raises:
        ValueError: an option means nothing to the method, or its value is refused by it.
    """
    if options.method is not None:
        method = _named(options.method, method)
    values = {name: value for name, value in (("alpha", options.alpha), ("beta", options.beta)) if value is not None}
    for name, value in given(options.pmmp, options.admm):
        values[name] = _value(value)
    known = {field.name for field in fields(method)} if is_dataclass(method) else set[str]()
    for name in values:
        if name not in known:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} means nothing to {type(method).__name__}: leave it out, or choose another --method")
    # All at once, as one may need another: exact updates need u.
    return replace(method, **values) if values else method  # pyright: ignore[reportArgumentType]


def _named(name: MethodName, recipe: Method) -> Method:
    alpha, proximal = getattr(recipe, "alpha", 1e-4), bool(getattr(recipe, "proximal", False))
    match name:
        case MethodName.NONE:
            return Unregularised()
        case MethodName.RL1:
            return recipe if isinstance(recipe, RL1) else RL1(alpha=alpha, proximal=proximal)
        case MethodName.DRR:
            return recipe if isinstance(recipe, DRR) else DRR(alpha=1e-4, proximal=proximal)
        case MethodName.PMMP:
            return recipe if isinstance(recipe, PMMP) else PMMP(alpha=alpha)
        case MethodName.ADMM:
            return recipe if isinstance(recipe, ADMM) else ADMM(alpha=alpha)


def _value(option: Any) -> Any:
    match option:
        case UpdatesName():
            return _UPDATES[option]()
        case (start, end):
            return geometric(start, end)
        case _:
            return option
