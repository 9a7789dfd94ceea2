import pytest
import torch
from torch import nn
from torch.nn import functional

from ellzero.params import everything, select_parameters
from ellzero.training.final_prune import CollapseError, example_input, grown_masks, require_alive, scores, truncate_
from ellzero.training.plan import Truncate
from training_problems import digits_batches, small_network


def trained(steps: int = 5) -> tuple[nn.Module, torch.optim.Adam]:
    model, (train, _) = small_network(), digits_batches()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        for batch in train:
            optimizer.zero_grad()
            functional.cross_entropy(model(batch.inputs), batch.targets).backward()
            optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_scores_are_magnitude_times_a_power_of_the_second_moment(power):
    model, optimizer = trained(1)
    for name, score in scores(select_parameters(model, everything), optimizer, power).items():
        parameter = model.get_parameter(name)
        moment = optimizer.state[parameter]["exp_avg_sq"]
        assert torch.allclose(score, parameter.detach().abs() * moment**power)


def test_truncation_keeps_the_largest_scores():
    model, optimizer = trained(1)
    params = select_parameters(model, everything)
    flat = torch.cat([score.flatten() for score in scores(params, optimizer, 0.25).values()])
    least = flat.sort(descending=True).values[99]
    truncate_(params, Truncate(keep=100, power=0.25), optimizer)
    assert torch.equal(torch.cat([(p != 0).flatten() for p in params.values()]), flat >= least)


def test_grown_masks_admit_the_largest_gradients_among_the_zeros():
    model, optimizer = trained(1)
    params = select_parameters(model, everything)
    truncate_(params, Truncate(keep=200), optimizer)
    train, _ = digits_batches()
    batches = list(train)[:3]

    def loss(batch):
        return functional.cross_entropy(model(batch.inputs), batch.targets)

    masks = grown_masks(params, loss, batches, 0.5)
    assert all(p.grad is None for p in params.values())
    total = torch.stack([loss(batch) for batch in batches]).sum()
    gradients = torch.cat([g.flatten().abs() for g in torch.autograd.grad(total, list(params.values()))])
    kept = torch.cat([(p != 0).flatten() for p in params.values()])
    mask = torch.cat([mask.flatten() for mask in masks.values()])
    assert int(kept.sum()) == 200
    assert bool((mask | ~kept).all())
    grown = mask & ~kept
    assert int(grown.sum()) == 100
    assert gradients[grown].min() >= gradients[~mask].max() * (1 - 1e-4)


def test_no_growth_is_the_mask_of_what_is_not_zero():
    model = small_network()
    with torch.no_grad():
        model.layers[0].weight[3] = 0
    masks = grown_masks(select_parameters(model, everything), lambda batch: pytest.fail("no gradient is needed"), [], 0.0)
    assert torch.equal(masks["layers.0.weight"], model.layers[0].weight != 0)


def test_an_empty_layer_is_named():
    model = small_network()
    require_alive(select_parameters(model, everything))
    with torch.no_grad():
        model.layers[1].weight.zero_()
    with pytest.raises(CollapseError, match=r"layers\.1\.weight"):
        require_alive(select_parameters(model, everything))


def test_the_example_is_what_the_model_is_called_with():
    model, (train, _) = small_network(), digits_batches()
    example = example_input(model, lambda network, batch: network(batch.inputs * 2).sum(), train)
    assert torch.equal(example, next(iter(train.epoch(0))).inputs[:4] * 2)
    assert example_input(model, lambda network, batch: network(inputs=batch.inputs).sum(), train) is None
