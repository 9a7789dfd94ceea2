from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from ellzero.data import Resident, Shifts, load_digits
from ellzero.models import MLP
from ellzero.training.batches import classification_loss
from ellzero.training.distill import Distill, Recorder, labels_of, logits_of, objective, soft_labels, soft_loss


def test_soft_loss_is_kl_times_temperature_squared():
    torch.manual_seed(0)
    student, teacher = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    p, q = functional.softmax(teacher / 3, -1), functional.softmax(student / 3, -1)
    expected = 9 * (p * (p.log() - q.log())).sum(-1).mean()
    assert torch.allclose(soft_loss(student, teacher, 3.0), expected)
    assert soft_loss(teacher, teacher, 3.0).abs() < 1e-12


def test_soft_loss_averages_over_all_leading_dimensions():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    assert torch.allclose(soft_loss(student, teacher, 1.0), soft_loss(student.flatten(0, 1), teacher.flatten(0, 1), 1.0))


def test_mixture_of_hard_and_soft_labels_runs_the_model_once():
    torch.manual_seed(0)
    model, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
    batch = (torch.randn(8, 4), torch.randint(3, (8,)))
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    loss = objective(model, classification_loss, Distill(weight=0.25, temperature=2.0), teacher)(batch, None)
    assert len(calls) == 1
    expected = 0.75 * classification_loss(model, batch) + 0.25 * soft_loss(model(batch[0]), teacher(batch[0]), 2.0)
    assert torch.allclose(loss, expected)


def test_without_a_teacher_it_is_the_users_loss():
    model, batch = nn.Linear(4, 3), (torch.randn(8, 4), torch.randint(3, (8,)))
    assert torch.equal(objective(model, classification_loss, Distill(), None)(batch, None), classification_loss(model, batch))


def test_keyword_arguments_and_objects_with_logits_work():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.config = SimpleNamespace(classes=3)

        def forward(self, *, x: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.linear(x))

    model, teacher = Named(), Named()
    batch = {"x": torch.randn(8, 4), "labels": torch.randint(3, (8,))}

    def loss_fn(network: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        assert network.config.classes == 3  # the recorder passes attributes through
        return functional.cross_entropy(network(x=batch["x"]).logits, batch["labels"])

    loss = objective(model, loss_fn, Distill(weight=1.0, temperature=1.0), teacher)(batch, None)
    assert torch.allclose(loss, soft_loss(model(x=batch["x"]).logits, teacher(x=batch["x"]).logits, 1.0))


def test_a_loss_that_never_calls_the_model_is_an_error():
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="did not call the model"):
        objective(model, lambda network, batch: torch.zeros(()), Distill(), nn.Linear(4, 3))((torch.zeros(1, 4), torch.zeros(1)), None)


def test_outputs_without_logits_are_an_error():
    with pytest.raises(TypeError, match="logits"):
        logits_of("words")
    assert logits_of({"logits": torch.ones(1)}).item() == 1
    assert logits_of((torch.ones(1), None)).item() == 1


def test_recorder_keeps_nothing_after_the_step():
    model = nn.Linear(2, 2)
    recorder = Recorder(model)
    recorder(torch.zeros(1, 2))
    assert recorder.output is not None
    assert list(recorder.state_dict()) == ["model.weight", "model.bias"]


@pytest.mark.parametrize("settings", [{"weight": 1.5}, {"weight": -0.1}, {"temperature": 0.0}])
def test_nonsense_is_refused(settings):
    with pytest.raises(ValueError, match="Distill"):
        Distill(**settings)


def test_soft_labels_of_numbered_data_are_what_the_teacher_would_say():
    images = load_digits().take(torch.arange(120))
    train = Resident(images.inputs, images.labels, batch_size=32, seed=0, augment=Shifts(pixels=1), copies=3, white=16)
    teacher = MLP((64, 8, 10), seed=1).eval()
    soft = soft_labels(teacher, classification_loss, train)
    assert soft is not None
    assert soft.shape == (360, 10)
    for epoch in (0, 5):
        for batch, labels in zip(train.epoch(epoch, 1), labels_of(soft, train, epoch, 1), strict=True):
            assert torch.allclose(labels, teacher(batch.inputs), atol=1e-5)


def test_endless_data_have_no_table():
    images = load_digits()
    train = Resident(images.inputs, images.labels, batch_size=32, seed=0, augment=Shifts(pixels=1))
    assert soft_labels(MLP((64, 10)), classification_loss, train) is None
    assert next(labels_of(None, train, 0, 0)) is None
