"""Whether PMMP has closed every gate of a layer: with too large an alpha it does so for good."""

import warnings

import torch
from torch import Tensor

from ellzero.methods.pmmp_state import PMMPState, Variables
from ellzero.types import Params

CHECK_EVERY = 50
"""Steps between two looks for closed layers, each of which reads all of gamma."""


def warn_of_collapse(params: Params, state: PMMPState, *, alpha: float, multiplier: float, step: int) -> None:
    """Warns once of every layer, biases excepted, whose gates were open and have all closed; looks every `CHECK_EVERY` steps.

    Args:
        params: the parameters.
        state: what has been open and warned of is noted there.
        alpha: price of a weight, for the message.
        multiplier: m, for the message.
        step: optimizer steps done.
    """
    if step % CHECK_EVERY:
        return
    variables = dict(zip(params, state.every(params), strict=True))
    largest = torch.stack([each.gamma.max() if each.gamma.numel() else each.gamma.new_ones(()) for each in variables.values()]).tolist()
    fresh: list[str] = []
    for (name, each), gamma in zip(variables.items(), largest, strict=True):
        if gamma > 0:
            each.opened.fill_(True)
        elif bool(each.opened) and name not in state.collapsed and not is_bias(name):
            fresh.append(name)
    if fresh:
        state.collapsed.update(fresh)
        reach = max(_reach(params[name], variables[name], multiplier) for name in fresh)
        warnings.warn(
            f"PMMP has closed every gate of {', '.join(fresh)}: gamma is 0 for all weights there, which are pulled to 0 and may never come"
            f" back. alpha = {alpha:g}, and m * u * theta^2 is at most {reach:g} there: lower alpha, or raise u_init, u or multiplier",
            UserWarning,
            stacklevel=2,
        )


def is_bias(name: str) -> bool:
    """Tells whether a parameter is a bias by its name: a layer without one still passes its input on."""
    return "bias" in name.rsplit(".", 1)[-1]


def _reach(theta: Tensor, variables: Variables, multiplier: float) -> float:
    return float((multiplier * variables.u * theta.square()).max())
