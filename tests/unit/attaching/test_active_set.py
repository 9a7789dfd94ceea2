"""The active set's stopping rule against a transcription in plain numpy, and R-L1 stopped by it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import ellzero as lz
from ellzero.attaching.active_set import ActiveSet


def first_saturated(epochs: list[dict[str, np.ndarray]], threshold: float, window: int, tolerance: float) -> int | None:
    """Weight by weight: the first epoch, after any change, where the last `window` changes sum to no more than the tolerance."""
    sets = [
        {(name, i) for name, values in epoch.items() for i, value in enumerate(values.ravel()) if abs(value) > threshold}
        for epoch in epochs
    ]
    shares = []
    for number in range(1, len(sets)):
        before, now = sets[number - 1], sets[number]
        shares.append(len(before ^ now) / len(before | now) if before | now else 0.0)
        if number >= window and any(shares) and sum(shares[-window:]) <= tolerance + 1e-12:
            return number
    return None


@given(
    seed=st.integers(0, 2**31), threshold=st.sampled_from([0.0, 0.3]), window=st.integers(1, 6), tolerance=st.sampled_from([0.0, 0.05, 0.5])
)
def test_is_the_transcription_in_numpy(seed: int, threshold: float, window: int, tolerance: float) -> None:
    random = np.random.default_rng(seed)
    epochs, scale = [], 1.0
    weights = {"a": random.normal(size=(3, 4)), "b": random.normal(size=5)}
    for _ in range(25):
        weights = {
            name: np.where(np.abs(moved := one + scale * random.normal(size=one.shape)) < 0.2, 0, moved) for name, one in weights.items()
        }
        epochs.append(weights)
        scale *= 0.7
    active, found = ActiveSet(threshold=threshold, window=window, tolerance=tolerance), None
    for number, epoch in enumerate(epochs):
        active.observe({name: torch.from_numpy(one) for name, one in epoch.items()})
        if active.saturated and found is None:
            found = number
    assert len(active.changes) == 24
    assert found == first_saturated(epochs, threshold, window, tolerance)


def test_r_l1_is_stopped_when_it_has_chosen_its_support_and_then_relaxed() -> None:
    """Both forms of the penalty, each with the threshold that its zeros need; the sixth weight is the only one that matters."""
    for proximal, threshold in ((True, 0.0), (False, 0.05)):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(100, 10, generator=generator)
        y = 2 * x[:, 5:6] + 0.1 * torch.randn(100, 1, generator=generator)
        model = nn.Linear(10, 1, bias=False)
        nn.init.constant_(model.weight, 0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        sparsifier = lz.attach(optimizer, model, lz.RL1(alpha=1.0, proximal=proximal))
        active = ActiveSet(threshold=threshold, window=20)
        for _ in range(1000):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            active.observe(sparsifier.params)
            if active.saturated:
                break
        assert 20 < len(active.changes) < 400
        chosen = (model.weight.detach().abs() > threshold).flatten()
        assert chosen.nonzero().flatten().tolist() == [5]
        assert model.weight[0, 5].item() < 1.8
        sparsifier.freeze({"weight": chosen.reshape(1, 10)}, penalty=False)
        for _ in range(400):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        assert model.weight[0, 5].item() == pytest.approx(2.0, abs=0.05)


def test_nothing_is_said_before_a_weight_has_died_nor_until_the_window_is_quiet() -> None:
    active, params = ActiveSet(window=3), {"w": torch.ones(4)}
    assert active.observe(params) is None
    assert [(active.observe(params), active.saturated) for _ in range(5)] == [(0.0, False)] * 5
    params["w"][0] = 0.0
    for change, expected in ((0.25, False), (0.0, False), (0.0, False), (0.0, True)):
        assert active.observe(params) == change
        assert active.saturated == expected


def test_other_parameters_than_last_time_are_refused() -> None:
    active = ActiveSet()
    active.observe({"w": torch.ones(4)})
    with pytest.raises(ValueError, match="begin a new ActiveSet"):
        active.observe({"w": torch.ones(3)})


def test_senseless_options_are_refused() -> None:
    with pytest.raises(ValueError, match="threshold is nan"):
        ActiveSet(threshold=math.nan)
    with pytest.raises(ValueError, match="window is 0"):
        ActiveSet(window=0)
