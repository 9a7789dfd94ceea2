"""What a run is about: data and losses, as one value."""

from collections.abc import Callable
from dataclasses import dataclass

from ellzero.training.batches import Batches, ErrorFn, LossFn, classification_error, classification_loss


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Data and losses for the command line; a user's `module:function` returns a `Problem`.

    Attributes:
        train: training batches.
        valid: held-out batches, or None.
        test: returns the test batches. It is called once, when the network is final: nothing measured on them influences the run.
        loss_fn: (model, batch) -> mean loss in nats.
        error_fn: (model, batch) -> (errors, decisions); None where errors cannot be counted.
        samples: number of training samples behind `train`, for code lengths.
        name: what records call the data.
    """

    train: Batches
    test: Callable[[], Batches]
    samples: int
    valid: Batches | None = None
    loss_fn: LossFn = classification_loss
    error_fn: ErrorFn | None = classification_error
    name: str = "data"
