"""What cannot be analysed is refused by name, and what Python can answer from shapes is not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from ellzero.surgery import fold, shrink


class Applied(nn.Module):
    """A module whose forward is a function of (module, input)."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def _encoder(inner: nn.Module) -> nn.Module:
    return nn.ModuleDict({"lstm": inner})


REFUSED = {
    r"encoder\.lstm \(LSTM\)": (Applied(lambda m, x: m.encoder["lstm"](x)[0], encoder=_encoder(nn.LSTM(4, 4))), (2, 3, 4)),
    r"attention \(MultiheadAttention\)": (Applied(lambda m, x: m.attention(x, x, x)[0], attention=nn.MultiheadAttention(4, 2)), (2, 3, 4)),
    r"layer \(TransformerEncoderLayer\)": (
        Applied(lambda m, x: m.layer(x), layer=nn.TransformerEncoderLayer(4, 2, batch_first=True)),
        (2, 3, 4),
    ),
    r"cannot trace the model \(Applied\): .*control flow": (Applied(lambda m, x: x if x.sum() > 0 else -x), (2, 4)),
    r"block \(Applied\): .*control flow": (Applied(lambda m, x: m.block(x), block=Applied(lambda m, x: x if x.max() > 0 else -x)), (2, 4)),
    r"cumsum in block": (Applied(lambda m, x: m.block(x), block=Applied(lambda m, x: torch.cumsum(x, 1))), (2, 4)),
    r"matmul in the model": (Applied(lambda m, x: x @ x.contiguous()), (4, 4)),
    r"to in the model": (Applied(lambda m, x: x.to(torch.int32)), (2, 4)),
    r"linear in the model": (Applied(lambda m, x: functional.linear(x, m.layer.weight), layer=nn.Linear(4, 4)), (2, 4)),
    r"across the batch": (Applied(lambda m, x: x.view(-1, 2)), (2, 4)),
    r"dropout in the model drops in eval mode": (Applied(lambda m, x: functional.dropout(x, 0.0)), (2, 4)),
    r"pass a batch": (nn.Linear(4, 4), (4,)),
    r"without a batch dimension": (nn.Conv2d(2, 3, 1), (2, 4, 4)),
    r"pool \(MaxPool1d\) returns indices": (Applied(lambda m, x: m.pool(x)[0], pool=nn.MaxPool1d(2, return_indices=True)), (2, 3, 4)),
}


@pytest.mark.parametrize("message", list(REFUSED))
def test_refused_by_name(message: str) -> None:
    model, shape = REFUSED[message]
    for act in (fold, shrink):
        with pytest.raises(ValueError, match=message):
            act(model, torch.randn(shape))


def test_weights_computed_by_hooks_are_refused() -> None:
    pruned = nn.Sequential(nn.Linear(3, 3))
    prune.l1_unstructured(pruned[0], "weight", 0.5)
    with pytest.raises(ValueError, match=r"0 \(Linear\) computes its weight.*prune\.remove"):
        shrink(pruned, torch.randn(2, 3))
    normed = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    with pytest.raises(ValueError, match=r"0 \(ParametrizedLinear\)"):
        shrink(normed, torch.randn(2, 3))


def test_a_subclass_with_its_own_forward_is_refused_not_taken_for_its_base() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return functional.linear(input, self.weight * 2, self.bias)

    class Named(nn.Linear):
        pass

    with pytest.raises(ValueError, match=r"mul in 0 computes with parameters"):
        fold(nn.Sequential(Doubled(3, 3), nn.Linear(3, 3)), torch.randn(2, 3))
    model = nn.Sequential(Named(3, 3), nn.Linear(3, 3))
    nn.init.zeros_(model[1].weight)
    assert not fold(model, torch.randn(2, 3))[0].weight.any()


def test_python_may_look_at_shapes_and_optional_arguments() -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
            batch, *_ = x.shape
            assert isinstance(x, Tensor)
            assert x.dim() == 3
            assert len(x) == batch
            x = x.reshape(len(x), -1)
            x = self.second(torch.relu(self.first(x)))
            return x if targets is None else functional.mse_loss(x, targets)

    model = Checked()
    nn.init.zeros_(model.second.weight)
    assert shrink(model, torch.randn(3, 2, 2)).model.first.out_features == 1


def test_parameters_that_scale_or_shift_keep_their_channels() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)
            self.scale, self.temperature = nn.Parameter(torch.randn(3)), nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.relu(self.first(x) * self.scale)) / self.temperature

    model = Scaled()
    with torch.no_grad():
        model.second.weight[:, 0] = 0
    small = shrink(model, torch.randn(3, 4)).model
    assert small.first.out_features == 3
    assert not small.first.weight[0].any()
