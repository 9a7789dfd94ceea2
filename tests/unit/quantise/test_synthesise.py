import pytest
import torch
from torch import Tensor, nn

from ellzero.quantise.synthesise import synthetic_inputs


class Normalised(nn.Module):
    """Two convolutions, each before a batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 6, 3, padding=1)
        self.last = nn.BatchNorm2d(6, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.second(torch.relu(self.norm(self.first(images)))))


@pytest.fixture
def trained() -> Normalised:
    """A network that has seen images whose channels differ, and whose neighbouring pixels are alike."""
    torch.manual_seed(0)
    model = Normalised()
    images = torch.randn(64, 3, 4, 4).repeat_interleave(3, 2).repeat_interleave(3, 3) * torch.tensor([1.0, 0.2, 3.0]).view(3, 1, 1) + 2
    model.train()
    for norm in (model.norm, model.last):
        norm.momentum = None  # the plain average
    with torch.no_grad():
        model(images)
    return model.eval()


def distances(model: Normalised, inputs: Tensor) -> list[float]:
    """How far what comes to each normalisation is from what it remembers, in standard deviations."""
    found: list[float] = []
    for norm in (model.norm, model.last):
        assert norm.running_mean is not None
        assert norm.running_var is not None

    def see(norm: nn.BatchNorm2d, arguments: tuple[Tensor]) -> None:
        mean, deviation = arguments[0].mean((0, 2, 3)), arguments[0].std((0, 2, 3))
        assert norm.running_mean is not None
        assert norm.running_var is not None
        found.append(float(((mean - norm.running_mean) / norm.running_var.sqrt()).abs().max()))
        found.append(float((deviation / norm.running_var.sqrt() - 1).abs().max()))

    handles = [norm.register_forward_pre_hook(see) for norm in (model.norm, model.last)]
    with torch.no_grad():
        model(inputs)
    for handle in handles:
        handle.remove()
    return found


def test_every_normalisation_sees_what_it_remembers(trained: Normalised) -> None:
    state = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    made = synthetic_inputs(trained, (3, 12, 12), count=32, updates=200)
    assert made.shape == (32, 3, 12, 12)
    assert max(distances(trained, made)) < 0.1
    assert min(distances(trained, torch.randn(32, 3, 12, 12))) > 0.1
    assert all(torch.equal(tensor, state[name]) for name, tensor in trained.state_dict().items())
    assert all(parameter.requires_grad for parameter in trained.parameters())


def test_inputs_of_a_normalisation_alone_get_its_mean_and_deviation() -> None:
    norm = nn.BatchNorm1d(4)
    norm.running_mean = torch.tensor([0.0, 1.0, -2.0, 5.0])
    norm.running_var = torch.tensor([1.0, 4.0, 0.25, 9.0])
    made = synthetic_inputs(norm, (4,), count=50, updates=400)
    torch.testing.assert_close(made.mean(0), norm.running_mean, atol=0.05, rtol=0.02)
    torch.testing.assert_close(made.std(0, correction=0), norm.running_var.sqrt(), atol=0.02, rtol=0.05)


def test_the_same_seed_gives_the_same_inputs_and_the_global_generator_is_left_alone(trained: Normalised) -> None:
    before = torch.get_rng_state()
    first, again = (synthetic_inputs(trained, (3, 12, 12), count=4, updates=3, seed=5) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, synthetic_inputs(trained, (3, 12, 12), count=4, updates=3, seed=6))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_not_possible_is_said(trained: Normalised) -> None:
    with pytest.raises(ValueError, match="no batch normalisation with statistics"):
        synthetic_inputs(nn.Linear(3, 2), (3,))
    with pytest.raises(ValueError, match=r"does not take inputs of the shape \(64, 5, 12, 12\)"):
        synthetic_inputs(trained, (5, 12, 12))
    with pytest.raises(ValueError, match="updates=0"):
        synthetic_inputs(trained, (3, 12, 12), updates=0)
    with pytest.raises(ValueError, match="calls none"):
        synthetic_inputs(trained, (3, 12, 12), forward=lambda model, batch: batch)
