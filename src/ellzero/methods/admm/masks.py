"""Masks from ADMM's consensus, and how far the weights are from it."""

import torch
from torch import Tensor, nn

from ellzero.methods.admm.state import ADMMState
from ellzero.methods.pmmp.collapse import is_bias
from ellzero.types import Masks, Params


def admm_masks(state: nn.Module, others: Masks | None = None) -> dict[str, Tensor]:
    """Keeps the weights that are not 0 in the consensus z.

    Args:
        state: ADMM's state: `sparsifier.state`.
        others: masks to intersect with, such as TAMADE's, by canonical name; of parameters without z they are taken as they are.

    Returns:
        Name -> True where the weight is kept: what `Sparsifier.freeze` takes.

    Raises:
        TypeError: the state is of another method.
        ValueError: every weight of a layer is 0 in z, or z has nothing in common with `others` there, biases excepted; or no weight at
            all is 0, so that nothing was decided.
    """
    state = _checked(state)
    masks = {name: split.z != 0 for name, split in zip(state.names, state.every(state.names), strict=True)}
    if all(float(split.rho) == 0 for split in state.every(state.names)):
        raise ValueError("there has been no z-step yet, so nothing is decided: train longer, or lower every=")
    if all(bool(mask.all()) for mask in masks.values()):
        raise ValueError("z is 0 nowhere, so nothing would be pruned: no weight is below the threshold, raise tau or alpha")
    _require_some(masks, "every weight of {} is 0 in the consensus z: lower alpha, or end with a smaller tau")
    if others is None:
        return masks
    both = {**others, **{name: mask & others[name].to(mask.device).bool() if name in others else mask for name, mask in masks.items()}}
    _require_some(both, "no weight of {} is kept by z and by the other masks: prune less, or use only z or the other masks")
    return both


@torch.no_grad()
def admm_residual(params: Params, state: nn.Module) -> float:
    """Computes `||x - z|| / ||x||` over all parameters: how far the network is from the consensus that its masks come from.

    Args:
        params: the regularised parameters: `sparsifier.params`.
        state: ADMM's state: `sparsifier.state`.

    Raises:
        TypeError: the state is of another method.
    """
    state = _checked(state)
    differences = [x.detach() - split.z for x, split in zip(params.values(), state.every(params), strict=True)]
    return float(torch.nn.utils.get_total_norm(differences) / torch.nn.utils.get_total_norm(list(params.values())))


def _checked(state: nn.Module) -> ADMMState:
    if not isinstance(state, ADMMState):
        raise TypeError(f"expected the state of ADMM, got {type(state).__name__}: pass sparsifier.state of a run with method=ADMM(...)")
    return state


def _require_some(masks: Masks, message: str) -> None:
    for name, mask in masks.items():
        if mask.numel() and not is_bias(name) and not bool(mask.any()):
            raise ValueError(message.format(name))
