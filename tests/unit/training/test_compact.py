"""Compaction: what has died goes from the network, the optimizer's moments and the masks, and comes back in the full shape."""

from typing import Any

import torch
from torch import nn

from ellzero.training.compact import Compact


def network(generator: torch.Generator) -> nn.Sequential:
    """Four inputs, three units of which the second is dead and the third a constant, two outputs."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) + 0.5)
        model[0].weight[1:] = 0
        model[0].bias[1] = 0
        model[2].weight[:, 1] = 0
        model[2].bias[0] = 0
    return model


def test_masks_are_those_of_what_is_left_and_keep_what_is_not_0(generator: torch.Generator) -> None:
    model = network(generator)
    inputs = torch.randn(5, 4, generator=generator)
    before = model(inputs).detach()
    masks = {f"{name}.{leaf}": getattr(model[int(name)], leaf).detach() != 0 for name in "02" for leaf in ("weight", "bias")}
    masks["0.weight"][0, 2] = False
    optimizer = torch.optim.Adam(model.parameters())
    model(inputs).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(masks[name])
        before = model(inputs)
    compact = Compact(model)
    compact.example = inputs
    state: dict[str, Any] = {"masks": {name: mask.clone() for name, mask in masks.items()}}
    compact.shrink_(optimizer, state)
    small = compact.model
    torch.testing.assert_close(small(inputs), before)
    assert [tuple(parameter.shape) for parameter in small.parameters()] == [(1, 3), (1,), (2, 1), (2,)]
    assert {name: mask.tolist() for name, mask in state["masks"].items()} == {
        "0.weight": [[True, True, True]],
        "0.bias": [True],
        "2.weight": [[True], [True]],
        "2.bias": [True, True],  # the first was masked, and is now what the constant unit gave
    }
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in small.parameters()}
    assert all(optimizer.state[parameter]["exp_avg"].shape == parameter.shape for parameter in small.parameters())
    torch.testing.assert_close(compact.whole()(inputs), before)
