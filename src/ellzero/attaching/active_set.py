"""When R-L1 has chosen its support: the active set followed over epochs, so that the l1 penalty can be lifted (section 2.2.2)."""

import math

import numpy as np
from numpy.typing import NDArray

from ellzero.attaching.convergence import active_set_change, active_set_saturated
from ellzero.types import Params


class ActiveSet:
    """Follows which weights are active, once per epoch, in a training loop of your own.

    Call `observe` with the regularised parameters, such as `sparsifier.params`, at the end of every epoch; as soon as `saturated` is
    true, freeze the masks and train on without the penalty.

    Attributes:
        threshold: a weight is active where its magnitude is above this: 0 where the method gives exact zeros (`proximal=True`), a
            little above the learning rate where the penalty is in Adam's gradient, as weights held at 0 go to and fro by about that.
        window: number of latest epochs that count.
        tolerance: the largest share of the active set that may be exchanged within the window, in [0, 1].
        changes: the share exchanged at each epoch against the previous epoch.
    """

    def __init__(self, *, threshold: float = 0.0, window: int = 30, tolerance: float = 0.01) -> None:
        if not (math.isfinite(threshold) and threshold >= 0):
            raise ValueError(f"threshold is {threshold}: expected a magnitude, 0 or above")
        active_set_saturated([], window, tolerance)  # refuses what makes no sense before training begins
        self.threshold, self.window, self.tolerance = threshold, window, tolerance
        self.changes: list[float] = []
        self._before: dict[str, NDArray[np.bool_]] = {}

    def observe(self, params: Params) -> float | None:
        """Records the active weights at the end of an epoch.

        Args:
            params: name -> parameter, the same names and shapes each time.

        Returns:
            The share of the active set exchanged since the last epoch (`active_set_change`); None at the first.

        Raises:
            ValueError: names or shapes are not those of the last epoch.
        """
        active = {name: (tensor.detach().abs() > self.threshold).flatten().cpu().numpy() for name, tensor in params.items()}
        before, self._before = self._before, active
        if not before:
            return None
        if {name: flags.size for name, flags in before.items()} != {name: flags.size for name, flags in active.items()}:
            raise ValueError("the parameters are not those of the last epoch: begin a new ActiveSet where the network has changed")
        change = active_set_change(*(np.concatenate([flags[name] for name in active]) for flags in (before, active)))
        self.changes.append(change)
        return change

    @property
    def saturated(self) -> bool:
        """Whether the set has converged (`active_set_saturated`).

        False before the window is full, and as long as the set has never changed: weights take a while to come down to 0, and until the
        first of them has, a constant set says nothing.
        """
        return any(self.changes) and active_set_saturated(self.changes, self.window, self.tolerance)
