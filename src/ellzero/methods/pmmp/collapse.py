"""Whether PMMP has lost a layer, its gates or its weights: with too large an alpha it does so for good."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from ellzero.methods.pmmp.state import PMMPState, Variables
from ellzero.types import Params

CHECK_EVERY = 50
"""Steps between two checks for lost layers; a check reads all of theta and gamma."""

_NOTHING = 0.05
"""Weights count as lost below this share of the largest that their layer has had: the steps of Adam hold them off 0 itself."""

_OPEN = 0.5
"""No gate of a layer is open where gamma is nowhere larger: `pmmp_masks` would refuse it."""


def warn_of_collapse(params: Params, state: PMMPState, *, alpha: float, multiplier: float, step: int) -> None:
    """Warns once of every lost layer, biases excepted; checks every `CHECK_EVERY` steps.

    A layer is lost where its gates were open and have all closed; or where its weights have all shrunk to nothing while no gate is open,
    which happens where gates begin closed.

    Args:
        params: the parameters.
        state: what has been open, how large weights have been, and what was warned of is noted there.
        alpha: price of a weight, for the message.
        multiplier: m, for the message.
        step: optimizer steps done.
    """
    if step % CHECK_EVERY:
        return
    variables = dict(zip(params, state.every(params), strict=True))
    closed: list[str] = []
    shrunk: dict[str, tuple[float, float]] = {}
    for name, (magnitude, reached, gamma) in _largest(params, variables).items():
        if gamma > 0:
            variables[name].opened.fill_(True)
        if name in state.collapsed or is_bias(name):
            continue
        if gamma <= 0 and bool(variables[name].opened):
            closed.append(name)
        elif gamma <= _OPEN and reached > 0 and magnitude <= _NOTHING * reached:
            shrunk[name] = (magnitude / reached, gamma)
    state.collapsed.update(closed, shrunk)
    if closed:
        reach = max(_reach(params[name], variables[name], multiplier) for name in closed)
        warnings.warn(
            f"PMMP has closed every gate of {', '.join(closed)}: gamma is 0 for all weights there, which are pulled to 0 and may never come"
            f" back. alpha = {alpha:g}, and m * u * theta^2 is at most {reach:g} there: lower alpha, or raise u_init, u or multiplier",
            UserWarning,
            stacklevel=2,
        )
    if shrunk:
        share, gamma = (max(values) for values in zip(*shrunk.values(), strict=True))
        warnings.warn(
            f"PMMP has pulled every weight of {', '.join(shrunk)} to nothing: at most {share:.2g} of the largest that was there, with gamma"
            f" at most {gamma:.2g}. They may never come back: lower alpha = {alpha:g}, or raise p_init",
            UserWarning,
            stacklevel=2,
        )


def is_bias(name: str) -> bool:
    """Tells whether a parameter is a bias by its name: a layer without one still passes its input on."""
    return "bias" in name.rsplit(".", 1)[-1]


def _largest(params: Params, variables: Mapping[str, Variables]) -> dict[str, tuple[float, float, float]]:
    """Lists the largest magnitude of each parameter, at present and over all checks, and its largest gamma; reads all at once."""
    rows: list[Tensor] = []
    occupied = {name: own for name, own in variables.items() if own.gamma.numel()}
    for name, own in occupied.items():
        magnitude = params[name].detach().abs().max()
        own.reached.copy_(torch.maximum(own.reached, magnitude))
        rows.append(torch.stack([magnitude, own.reached, own.gamma.max()]).double())
    largest = torch.stack(rows).tolist() if rows else []
    return {name: (magnitude, reached, gamma) for name, (magnitude, reached, gamma) in zip(occupied, largest, strict=True)}


def _reach(theta: Tensor, variables: Variables, multiplier: float) -> float:
    return float((multiplier * variables.u * theta.square()).max())
