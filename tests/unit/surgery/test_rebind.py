import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from ellzero.surgery import fold_, rebind_, shrink, slice_tensors
from sparse_networks import STRUCTURES, Residual, Structure, perceptron, sparse

OPTIMIZERS: list[Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, amsgrad=True, foreach=True),
    lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-2),
]


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, masks: dict[str, Tensor], batches: Tensor) -> None:
    for batch in batches:
        optimizer.zero_grad()
        torch.tanh(model(batch)).square().mean().backward()  # bounded: rounding must not grow
        optimizer.step()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(masks[name])


@settings(max_examples=20)
@given(
    st.sampled_from([STRUCTURES[0], STRUCTURES[2], STRUCTURES[7], Structure("residual", Residual)]),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.integers(0, 1000),
    st.sampled_from(OPTIMIZERS),
    st.booleans(),
)
def test_training_goes_on_as_if_masked(
    structure: Structure,
    density: float,
    seed: int,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    inputs: bool,
) -> None:
    full, example = sparse(structure, density, seed)
    masks = {name: parameter.detach() != 0 for name, parameter in full.named_parameters()}
    optimizer = make(list(full.parameters()))
    batches = torch.randn(6, *example.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    _steps(full, optimizer, masks, batches[:3])
    fold_(full, example)
    masks = {name: parameter.detach() != 0 for name, parameter in full.named_parameters()}
    shrunk = shrink(full, example, inputs=inputs)

    small, small_optimizer = copy.deepcopy(shrunk.model), make(list(full.parameters()))
    small_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    rebind_(small_optimizer, full, small, shrunk.kept)
    _steps(small, small_optimizer, slice_tensors(masks, shrunk.kept), batches[3:])
    _steps(full, optimizer, masks, batches[3:])
    for (name, found), expected in zip(
        small.named_parameters(), slice_tensors(dict(full.named_parameters()), shrunk.kept).values(), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=name)


def test_the_optimizer_holds_no_dead_parameter() -> None:  # story 38
    model, example = sparse(Structure("", lambda: perceptron(nn.Tanh)), 1.0, 1)
    other = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam(
        [{"params": [model[1].weight, other], "lr": 0.1}, {"params": [*model[4].parameters(), model[1].bias]}], lr=0.01
    )
    (model(example).sum() + other.sum()).backward()
    optimizer.step()
    with torch.no_grad():
        model[4].weight[:, :3] = 0
        model[1].weight[:, 5:] = 0
    moments = optimizer.state[model[1].weight]["exp_avg"].clone()
    shrunk = shrink(model, example, inputs=True)
    rebind_(optimizer, model, shrunk.model, shrunk.kept)
    small = shrunk.model
    assert [list(map(id, group["params"])) for group in optimizer.param_groups] == [
        [id(small[1].weight), id(other)],
        [id(small[4].weight), id(small[4].bias), id(small[1].bias)],
    ]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01]
    assert set(map(id, optimizer.state)) == {id(p) for group in optimizer.param_groups for p in group["params"]}
    state = optimizer.state[small[1].weight]
    rows, columns = shrunk.kept["1.weight"]
    assert torch.equal(state["exp_avg"], moments[rows][:, columns])
    assert state["step"] == 1
    before = small[4].weight.detach().clone()
    small(example).sum().backward()
    optimizer.step()
    assert not torch.equal(small[4].weight, before)


def test_state_that_cannot_be_sliced_is_refused() -> None:
    model, example = sparse(STRUCTURES[0], 0.2, 3)
    optimizer = torch.optim.Adafactor(model.parameters())
    model(example).sum().backward()
    optimizer.step()
    shrunk = shrink(model, example)
    parameters = [id(p) for p in optimizer.param_groups[0]["params"]]
    with pytest.raises(ValueError, match="weight is not shaped as the parameter"):
        rebind_(optimizer, model, shrunk.model, shrunk.kept)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == parameters
    with pytest.raises(ValueError, match="no parameter"):
        rebind_(optimizer, model, nn.Linear(2, 2), shrunk.kept)
