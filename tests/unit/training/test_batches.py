import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ellzero.training.batches import (
    batch_size,
    classification_error,
    classification_loss,
    count_batches,
    epoch_batches,
    error_rate,
    mean_loss,
    require_reiterable,
)
from training_problems import digits_batches


def test_a_generator_is_refused_with_the_reason():
    with pytest.raises(TypeError, match="empty after one pass"):
        require_reiterable((batch for batch in [1, 2]), "train")
    with pytest.raises(TypeError, match="iterable of batches"):
        require_reiterable(3, "train")
    require_reiterable([1, 2], "train")


def test_epochs_of_resident_data_repeat_from_any_batch():
    train, _ = digits_batches()
    whole = list(epoch_batches(train, 7))
    rest = list(epoch_batches(train, 7, start=4))
    assert len(rest) == len(whole) - 4
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(whole[4:], rest, strict=True))
    assert not torch.equal(whole[0].inputs, next(iter(epoch_batches(train, 8))).inputs)


def test_set_epoch_is_called_where_there_is_one():
    class Sampled(list[int]):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    data = Sampled([1, 2, 3])
    assert list(epoch_batches(data, 5, start=1)) == [2, 3]
    assert data.epoch == 5


def test_counts_batches_with_and_without_len():
    class Streamed:
        def __iter__(self):
            return iter([1, 2, 3])

    assert count_batches([1, 2]) == 2
    assert count_batches(Streamed()) == 3
    with pytest.raises(ValueError, match="no batch"):
        count_batches([])


def test_batch_size_of_what_people_use():
    assert batch_size((torch.zeros(5, 2), torch.zeros(5))) == 5
    assert batch_size({"input_ids": torch.zeros(3, 7)}) == 3
    assert batch_size(torch.zeros(4)) == 4
    assert batch_size("text") == 1


def test_mean_loss_and_error_rate_weigh_unequal_batches_and_put_the_mode_back():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    inputs, labels = torch.randn(10, 4), torch.randint(3, (10,))
    batches = [(inputs[:7], labels[:7]), (inputs[7:], labels[7:])]
    loss, error = mean_loss(model, classification_loss, batches), error_rate(model, classification_error, batches)
    assert model.training
    logits = model.eval()(inputs).detach()
    assert math.isclose(loss, float(functional.cross_entropy(logits, labels)), rel_tol=1e-6)
    assert error == float((logits.argmax(-1) != labels).double().mean())
