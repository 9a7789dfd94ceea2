"""Small real problems that train in a blink: the digits that ship with the package."""

import torch
from torch import Tensor, nn

from ellzero.data import Resident, load_digits
from ellzero.models import MLP
from ellzero.training import Epochs

SHORT = Epochs(prelude=3, regularise=3, fine_tune=2)


def digits_batches(*, seed: int = 0, batch_size: int = 100) -> tuple[Resident, Resident]:
    """Returns training and validation batches of the shipped digits' training half."""
    images = load_digits()
    train, valid = images.take(torch.arange(1000)), images.take(torch.arange(1000, len(images)))
    return (
        Resident(train.inputs, train.labels, batch_size=batch_size, seed=seed, white=train.white),
        Resident(valid.inputs, valid.labels, batch_size=len(valid), seed=0, shuffle=False, white=valid.white),
    )


def small_network(seed: int = 0) -> MLP:
    """Returns a 64-24-12-10 network: 1,990 parameters."""
    return MLP((64, 24, 12, 10), seed=seed)


def state(model: nn.Module) -> dict[str, Tensor]:
    """Copies a state_dict."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(one: nn.Module, other: nn.Module) -> bool:
    """Tells whether two networks have the same bits."""
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
