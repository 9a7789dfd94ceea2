"""A linear layer that reads only the live features of its input."""

from torch import Tensor, nn
from torch.nn import functional


class SelectedLinear(nn.Linear):
    """A linear layer that reads only some features of its input, so that the columns of dead inputs need not exist.

    Attributes:
        features: the numbers of the features that are read, int64; not part of the state_dict, whose keys stay those of nn.Linear.
    """

    features: Tensor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear, where callers may use it
        """Selects the live features and applies the layer to them."""
        return functional.linear(input.index_select(-1, self.features), self.weight, self.bias)


def select_features_(layer: nn.Linear, features: Tensor) -> None:
    """Turns a linear layer, whose weight has been sliced already, into one that reads only `features` of its input."""
    layer.__class__ = SelectedLinear
    layer.register_buffer("features", features.to(layer.weight.device), persistent=False)
