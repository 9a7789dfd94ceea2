"""Masks from PMMP's gates, and how far the gates have been decided."""

import torch
from torch import Tensor, nn

from ellzero.methods.pmmp.collapse import is_bias
from ellzero.methods.pmmp.state import PMMPState
from ellzero.types import Masks


def pmmp_masks(state: nn.Module, others: Masks | None = None, *, above: float = 0.5) -> dict[str, Tensor]:
    """Keeps the weights whose gate is open.

    The authors' experiments leave gamma aside and take the mask of TAMADE. With `others`, a weight is kept where both keep it.

    Args:
        state: PMMP's state: `sparsifier.state`.
        others: masks to intersect with, such as TAMADE's, by canonical name; of parameters without gates they are taken as they are.
        above: a gate is open where gamma is larger than this.

    Returns:
        Name -> True where the weight is kept: what `Sparsifier.freeze` takes.

    Raises:
        TypeError: the state is of another method.
        ValueError: every gate of a layer is closed, or it has nothing in common with `others`; biases excepted. `above` is not in [0, 1).
    """
    state = _checked(state)
    if not 0.0 <= above < 1.0:
        raise ValueError(f"gates are probabilities, so above must be in [0, 1), got {above}")
    gates = {name: variables.gamma > above for name, variables in zip(state.names, state.every(state.names), strict=True)}
    _require_open(gates, f"every gate of {{}} is closed (gamma at most {above:g}): lower alpha, raise u_init or multiplier, train longer")
    if others is None:
        return gates
    both = {**others, **{name: gate & others[name].to(gate.device).bool() if name in others else gate for name, gate in gates.items()}}
    _require_open(both, "no weight of {} is kept by its gates and by the other masks: prune less, or use only the gates or the other masks")
    return both


def undecided(state: nn.Module, *, margin: float = 0.1) -> float:
    """Computes the fraction of gates strictly between `margin` and `1 - margin`.

    The authors end PMMP's training no earlier than this has fallen to 0.01.

    Args:
        state: PMMP's state: `sparsifier.state`.
        margin: how close to 0 or 1 a decided gate is.

    Raises:
        TypeError: the state is of another method.
    """
    state = _checked(state)
    gammas = [variables.gamma for variables in state.every(state.names)]
    between = torch.stack([((gamma > margin) & (gamma < 1.0 - margin)).sum() for gamma in gammas]).sum()
    return float(between) / max(1, sum(gamma.numel() for gamma in gammas))


def _checked(state: nn.Module) -> PMMPState:
    if not isinstance(state, PMMPState):
        raise TypeError(f"expected the state of PMMP, got {type(state).__name__}: pass sparsifier.state of a run with method=PMMP(...)")
    return state


def _require_open(masks: Masks, message: str) -> None:
    for name, mask in masks.items():
        if mask.numel() and not is_bias(name) and not bool(mask.any()):
            raise ValueError(message.format(name))
