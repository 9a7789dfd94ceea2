"""The networks of LeCun et al., Gradient-based learning applied to document recognition, 1998."""

import torch

from ellzero.models.initialise import Initialise, paper_uniform_
from ellzero.models.mlp import MLP


class LeNet300(MLP):
    """LeNet-300-100: the 784-300-100-10 network with ReLU for 28x28 images, 266,610 parameters (table 1a of the paper).

    Args:
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(self, *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0) -> None:
        super().__init__((784, 300, 100, 10), initialise=initialise, seed=seed)
