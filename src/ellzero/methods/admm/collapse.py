"""Whether ADMM has closed every weight of a layer, from where no weight comes back."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from ellzero.methods.admm.state import ADMMState
from ellzero.methods.pmmp.collapse import is_bias
from ellzero.types import Params


def warn_of_collapse(params: Params, state: ADMMState, mean: Sequence[Tensor], *, alpha: float, tau: float, step: int) -> None:
    """Warns once of every layer, biases excepted, that has lived and of which every weight is now less than half-way to living.

    With a threshold that begins high, layers are closed at first and open as their multipliers grow: that is no collapse.

    Args:
        params: the parameters.
        state: what has lived and was warned of is noted there.
        mean: the mean of `x_i + u_i` over workers, by which a weight lives or not, in the order of `params`.
        alpha: price of one weight, for the message.
        tau: the threshold.
        step: optimizer steps done, for the message.
    """
    largest = torch.stack([each.abs().max() if each.numel() else each.new_full((), torch.inf) for each in mean]).tolist()
    state.opened.update(name for name, one in zip(params, largest, strict=True) if one > tau)
    low = {name: one for name, one in zip(params, largest, strict=True) if one <= 0.5 * tau and not is_bias(name)}
    fresh = {name: one for name, one in low.items() if name in state.opened and name not in state.collapsed}
    if fresh:
        state.collapsed.update(fresh)
        warnings.warn(
            f"ADMM has closed every weight of {', '.join(fresh)} by step {step}: |x + u| there is at most {max(fresh.values()):g}, and a"
            f" weight lives above tau = {tau:g}. They may never come back: lower alpha = {alpha:g}, or begin with a smaller tau",
            UserWarning,
            stacklevel=2,
        )
