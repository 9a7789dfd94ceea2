"""Weight-normalised layers: no row becomes 0 / 0, and hooks of torch stay what they are."""

import warnings
from typing import Any

import pytest
import torch
from attach_support import OPTIMIZERS, data, train
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ellzero.attaching import attach
from ellzero.methods import ADMM, DRR, RL1
from ellzero.params import masks_from_zeros, weight_norms


def normed(kind: str, dim: int | None = 0) -> nn.Sequential:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.manual_seed(0)
        apply: Any = torch.nn.utils.weight_norm if kind == "hooks" else parametrizations.weight_norm
        return nn.Sequential(apply(nn.Linear(6, 8), dim=dim), nn.Tanh(), apply(nn.Linear(8, 3), dim=dim))


def directions(model: nn.Module) -> dict[str, Tensor]:
    return {name: model.get_parameter(name) for name in weight_norms(model)}


def outputs(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(data(0)[0])


@pytest.mark.parametrize("kind", ["hooks", "parametrization"])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize(
    "method",
    [RL1(alpha=1.0), RL1(alpha=1.0, proximal=True), DRR(alpha=10.0, proximal=True), DRR(alpha=10.0)],
    ids=lambda m: f"{m.alpha}-{m.proximal}",
)
def test_no_penalty_makes_a_row_vanish(kind: str, dim: int | None, method: Any) -> None:
    model = normed(kind, dim)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    attach(optimizer, model, method)
    norms = {name: torch.norm_except_dim(v.detach(), 2, weight_norms(model)[name].dim) for name, v in directions(model).items()}
    train(model, optimizer, range(600))
    assert bool(torch.isfinite(outputs(model)).all())
    for name, v in directions(model).items():
        torch.testing.assert_close(torch.norm_except_dim(v.detach(), 2, weight_norms(model)[name].dim), norms[name])


def test_holding_norms_changes_no_answer() -> None:
    model, plain = normed("hooks"), normed("hooks")
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    attach(optimizer, model, RL1(alpha=0.0))
    train(model, optimizer, range(1))
    train(plain, OPTIMIZERS["sgd"](plain.parameters()), range(1))
    torch.testing.assert_close(outputs(model), outputs(plain))


@pytest.mark.parametrize("kind", ["hooks", "parametrization"])
def test_a_row_that_masks_prune_altogether_is_pruned_by_its_norm(kind: str) -> None:
    model = normed(kind)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    masks = {name: torch.rand(v.shape, generator=torch.Generator().manual_seed(1)) < 0.5 for name, v in directions(model).items()}
    first = next(iter(masks))
    masks[first][2] = False
    sparsifier.freeze(masks, penalty=True)
    train(model, optimizer, range(20))
    sparsifier.assert_sparse()
    outputs(model)  # hooks compute the weight in the forward pass
    weight = model[0].weight
    assert bool((weight[2] == 0).all())
    assert bool(torch.isfinite(weight).all())
    others = [row for row in range(8) if row != 2]
    assert torch.equal(weight[others] != 0, masks[first][others])
    assert sparsifier.masks is not None
    assert int(sparsifier.masks[first][2].sum()) == 1


def test_a_pruned_row_whose_norm_is_frozen_is_refused() -> None:
    model = normed("hooks")
    model[0].weight_g.requires_grad_(False)
    sparsifier = attach(OPTIMIZERS["sgd"](p for p in model.parameters() if p.requires_grad), model, RL1(alpha=1e-3))
    mask = torch.ones(8, 6, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(ValueError, match=r"a whole row of 0\.weight_v is pruned, and its norm 0\.weight_g is frozen"):
        sparsifier.freeze({"0.weight_v": mask})


def test_hooks_neither_break_nor_are_broken() -> None:
    model = normed("hooks")
    optimizer = OPTIMIZERS["adam"](model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=0.1, proximal=True))
    train(model, optimizer, range(50))
    sparsifier.freeze(masks_from_zeros(sparsifier.params))
    train(model, optimizer, range(20))
    expected, mask = outputs(model), model[0].weight_v != 0
    assert not bool(mask.all())
    torch.nn.utils.remove_weight_norm(model[0])
    torch.testing.assert_close(outputs(model), expected)
    assert torch.equal(model[0].weight != 0, mask)


def test_a_resumed_run_has_the_same_bits() -> None:
    def start() -> tuple[nn.Sequential, torch.optim.Optimizer, Any]:
        model = normed("parametrization")
        optimizer = OPTIMIZERS["adam"](model.parameters())
        return model, optimizer, attach(optimizer, model, ADMM(alpha=1e-2), total_steps=30)

    whole, optimizer, _ = start()
    train(whole, optimizer, range(30))
    first, first_optimizer, sparsifier = start()
    train(first, first_optimizer, range(11))
    second = normed("parametrization")
    second.load_state_dict(first.state_dict())
    resumed = OPTIMIZERS["adam"](second.parameters())
    resumed.load_state_dict(first_optimizer.state_dict())
    attach(resumed, second, ADMM(alpha=1e-2), total_steps=30).load_state_dict(sparsifier.state_dict())
    train(second, resumed, range(11, 30))
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), second.parameters(), strict=True))


def test_spectral_norm_is_warned_about_by_name() -> None:
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))
    with pytest.warns(UserWarning, match=r"0\.parametrizations\.weight\.original is rescaled by what SpectralNorm computes"):
        attach(OPTIMIZERS["adam"](model.parameters()), model, RL1(alpha=1e-3))
