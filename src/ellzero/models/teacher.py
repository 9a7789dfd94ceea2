"""The teacher and the student of the paper's regression experiments (section 3.2)."""

from collections.abc import Sequence

import torch
from torch import nn

from ellzero.models.initialise import Initialise, paper_uniform_
from ellzero.models.mlp import MLP


class Teacher(MLP):
    """A small network with tanh whose outputs are to be learnt: 2-5-8-1, 72 parameters.

    After drawing, the weights of the first layer become 2 w + 1 and those of the second 2 w, which makes a function worth learning;
    biases and further layers stay as drawn.

    Args:
        sizes: features of the input, of each hidden layer, and of the output; (2, 5, 5, 1) for the paper's figure 4c.
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(
        self, sizes: Sequence[int] = (2, 5, 8, 1), *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0
    ) -> None:
        super().__init__(sizes, nn.Tanh, initialise=initialise, seed=seed)
        first, second = self.layers[0], self.layers[1]
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        with torch.no_grad():
            first.weight.mul_(2).add_(1)
            second.weight.mul_(2)


class Student(MLP):
    """The network with tanh that learns from a teacher's samples: 2-25-25-1, 751 parameters.

    Args:
        sizes: features of the input, of each hidden layer, and of the output.
        initialise: fills each layer, the paper's rule by default.
        seed: a generator or a number.
    """

    def __init__(
        self, sizes: Sequence[int] = (2, 25, 25, 1), *, initialise: Initialise = paper_uniform_, seed: torch.Generator | int = 0
    ) -> None:
        super().__init__(sizes, nn.Tanh, initialise=initialise, seed=seed)
