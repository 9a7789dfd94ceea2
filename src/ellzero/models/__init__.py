"""Networks, each whole in one file, knowing one device, initialised from a generator that the caller owns."""

from ellzero.models.initialise import Initialise, paper_uniform_, pytorch_uniform_
from ellzero.models.lenet import LeNet300
from ellzero.models.mlp import MLP, DigitsMLP

__all__ = ["MLP", "DigitsMLP", "Initialise", "LeNet300", "paper_uniform_", "pytorch_uniform_"]
