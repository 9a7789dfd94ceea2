"""The auxiliary Adam against torch's own, a step at a time."""

import io

import torch
from torch import Tensor

from ellzero.methods.adam import Moments, adam_step_


def some_gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    gradients = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5,))]
    gradients[1][2] = 0.0  # A gradient that stays 0 moves nothing, whatever the root of 0 is taken for.
    return gradients


def test_equals_the_adam_of_torch_at_two_learning_rates() -> None:
    start = some_gradients(99)
    own = [tensor.clone() for tensor in start]
    theirs = [torch.nn.Parameter(tensor.clone()) for tensor in start]
    optimizer = torch.optim.Adam([{"params": [theirs[0]], "lr": 1e-2}, {"params": [theirs[1]], "lr": 3e-3}])
    moments, room = [Moments(tensor) for tensor in own], [torch.empty_like(tensor) for tensor in own]
    for step in range(20):
        gradients = some_gradients(step)
        kept = [gradient.clone() for gradient in gradients]
        adam_step_(own, gradients, moments, [1e-2, 3e-3], room)
        assert all(torch.equal(*pair) for pair in zip(gradients, kept, strict=True))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        for mine, other in zip(own, theirs, strict=True):
            torch.testing.assert_close(mine, other.detach(), rtol=1e-13, atol=1e-15)
    assert own[1][2] == start[1][2]


def test_moments_travel_in_the_state_dict() -> None:
    one = [torch.zeros(5, dtype=torch.float64)]
    moments, room = Moments(one[0]), [torch.empty(5, dtype=torch.float64)]
    for step in range(3):
        adam_step_(one, some_gradients(step)[1:], [moments], [1e-2], room)
    file = io.BytesIO()
    torch.save(moments.state_dict(), file)
    file.seek(0)
    resumed, other = Moments(one[0]), [one[0].clone()]
    resumed.load_state_dict(torch.load(file, weights_only=True))
    adam_step_(one, some_gradients(3)[1:], [moments], [1e-2], room)
    adam_step_(other, some_gradients(3)[1:], [resumed], [1e-2], room)
    assert torch.equal(one[0], other[0])
