"""Training on a grid: what the network sees is what a file holds, and the rate term is the derivative of the code length."""

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ellzero.archive.load import load_model
from ellzero.archive.save import save_model
from ellzero.attaching import attach
from ellzero.codec.network.stored_grids import Logarithmic
from ellzero.methods import Unregularised
from ellzero.params import everything, masks_from_zeros, select_parameters
from ellzero.quantise.grids import LogGrid
from ellzero.quantise.on_grid import GridState, Latent, OnGrid, magnitudes
from ellzero.types import At

AT = At(progress=0.5, step=3)


def sparse_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter[torch.rand_like(parameter) < 0.5] = 0
    return model


def trained(model: nn.Module, method: OnGrid, steps: int = 30, lr: float = 1e-2) -> object:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    sparsifier = attach(optimizer, model, method, select=everything)
    inputs, labels = torch.randn(64, 20), torch.randint(4, (64,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return sparsifier


def test_weights_lie_on_the_grid_and_a_file_holds_them_exactly(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = sparse_model()
    zeros = masks_from_zeros(select_parameters(model, everything))
    method = OnGrid(grid=LogGrid(1.3, num_levels=9))
    sparsifier = trained(model, method)
    path = tmp_path / "net.l0"
    save_model(model, path, quantise=method.quantiser(sparsifier.state))
    loaded = load_model(sparse_model(1), path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter != 0, zeros[name]), name
        assert len(parameter.abs().unique()) <= 10, name
        assert torch.equal(dict(loaded.named_parameters())[name], parameter), name


def test_it_learns_where_rounding_alone_would_stand_still() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    target = inputs @ torch.tensor([1.0, -0.4, 0.3, 0.1, 0.9, -0.2, 0.6, 0.5])
    model = nn.Linear(8, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    attach(optimizer, model, OnGrid(grid=LogGrid(1.3)), select=everything)
    losses = []
    for _ in range(300):
        optimizer.zero_grad()
        loss = (model(inputs).squeeze(1) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.02 * losses[0]


def test_signs_may_change_and_nothing_is_lost() -> None:
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, 0.0, -0.5, 0.25]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(optimizer, model, OnGrid(grid=LogGrid(1.5)), select=everything)
    for _ in range(40):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step()
    assert (model.weight[0] < 0).tolist() == [True, False, True, True]
    assert model.weight[0, 1].item() == 0


@given(seed=st.integers(0, 10_000), ratio=st.floats(1.1, 2.0))
@settings(max_examples=30, deadline=None)
def test_the_rate_is_the_derivative_of_the_cost_by_finite_differences(seed: int, ratio: float) -> None:
    torch.manual_seed(seed)
    parameter = torch.randn(40, dtype=torch.float64) * 10 ** torch.empty(40, dtype=torch.float64).uniform_(-1, 1)
    parameter[::7] = 0
    latent = Latent(parameter, LogGrid(ratio), "w")
    latent.count()
    slope, step = latent.slope(), 1e-7
    place = torch.log(parameter.abs().clamp_min(1e-30) / float(latent.grid[0])) / math.log(float(latent.grid[1]))
    # The cost has corners at the magnitudes themselves.
    smooth = ((place - place.round()).abs() > 1e-4) | (parameter == 0)
    change = (latent.cost(parameter + step * (parameter != 0)) - latent.cost(parameter - step * (parameter != 0))) / (2 * step)
    assert torch.allclose(change[smooth], slope[smooth], rtol=1e-4, atol=1e-6)


def test_the_penalty_is_the_rate_times_the_entropy_at_the_magnitudes() -> None:
    model = sparse_model()
    params = select_parameters(model, everything)
    method = OnGrid(grid=LogGrid(1.5, num_levels=7), bit_price=2e-3)
    state = method.init(params)
    assert isinstance(state, GridState)
    with torch.no_grad():
        for (_, parameter), latent in zip(params.items(), state.every(params), strict=True):
            latent.weight = latent.show()
            parameter.copy_(latent.shown)
            latent.count()
    bits = 0.0
    for latent in state.every(params):
        values = latent.shown[latent.shown != 0].abs()
        counts = np.array([int((values == magnitude).sum()) for magnitude in latent.table]) + 0.5
        bits -= sum(
            int((values == magnitude).sum()) * math.log2(count / counts.sum())
            for magnitude, count in zip(latent.table, counts, strict=True)
        )
    assert method.penalty(params, state, AT).item() == pytest.approx(2e-3 * bits, rel=1e-4)


def test_a_rate_makes_magnitudes_cheaper() -> None:
    def bits(rate: float) -> float:
        model = sparse_model(3)
        sparsifier = trained(model, OnGrid(grid=LogGrid(1.2), bit_price=rate, every=5), steps=200, lr=3e-3)
        latents = sparsifier.state.every(sparsifier.params)
        for latent in latents:
            latent.count()
        return sum(float(latent.cost(latent.shown).sum()) for latent in latents)

    assert bits(3e-3) < 0.8 * bits(0.0)


def test_a_state_goes_round_and_training_goes_on_the_same() -> None:
    def run(split: bool) -> dict[str, torch.Tensor]:
        torch.manual_seed(5)
        model, method = sparse_model(2), OnGrid(bit_price=1e-4, every=2)
        inputs, labels = torch.randn(64, 20), torch.randint(4, (64,))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, method, select=everything)
        for step in range(8):
            if split and step == 4:
                saved, other = io.BytesIO(), sparse_model(9)
                torch.save([model.state_dict(), optimizer.state_dict(), sparsifier.state_dict()], saved)
                saved.seek(0)
                states = torch.load(saved, weights_only=True)
                other.load_state_dict(states[0])
                optimizer = torch.optim.Adam(other.parameters(), lr=1e-2)
                optimizer.load_state_dict(states[1])
                sparsifier = attach(optimizer, other, method, select=everything)
                sparsifier.load_state_dict(states[2])
                model = other
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return model.state_dict()

    for one, other in zip(run(False).values(), run(True).values(), strict=True):
        assert torch.equal(one, other)


def test_no_rate_is_no_reason_to_warn_and_bad_options_are_refused() -> None:
    assert OnGrid().silent
    assert not OnGrid(bit_price=1e-6).silent
    assert Unregularised().silent
    with pytest.raises(ValueError, match="one magnitude"):
        OnGrid(grid=LogGrid(1.3, num_levels=1))
    with pytest.raises(ValueError, match="every"):
        OnGrid(every=0)
    with pytest.raises(ValueError, match="finite"):
        OnGrid().init({"w": torch.tensor([1.0, float("nan")])})


def test_magnitudes_are_multiplied_not_raised() -> None:
    table = magnitudes(Logarithmic(smallest=0.1, ratio=1.1), 5)
    expected = [0.1]
    for _ in range(4):
        expected.append(expected[-1] * 1.1)
    assert table.tolist() == expected
