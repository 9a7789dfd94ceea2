from itertools import islice

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ellzero.data import Resident, Shifts


def numbered(n: int, **options) -> Resident:
    """Samples that carry their own number, as a float input and as a target."""
    return Resident(torch.arange(float(n))[:, None], torch.arange(n), **{"batch_size": 4, "seed": 0, **options})


def same(first, second) -> bool:
    first, second = list(first), list(second)
    return len(first) == len(second) and all(
        torch.equal(a, b) for x, y in zip(first, second, strict=True) for a, b in zip(x, y, strict=True)
    )


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 50), batch_size=st.integers(1, 60), seed=st.integers(0, 2**70), drop_last=st.booleans(), shuffle=st.booleans())
def test_an_epoch_holds_every_sample_once(n: int, batch_size: int, seed: int, drop_last: bool, shuffle: bool):
    if drop_last and batch_size > n:
        return
    batches = numbered(n, batch_size=batch_size, seed=seed, drop_last=drop_last, shuffle=shuffle)
    epoch = list(batches)
    assert len(epoch) == len(batches)
    assert {len(batch.targets) for batch in epoch[:-1]} <= {batch_size}
    seen = torch.cat([batch.targets for batch in epoch])
    assert torch.equal(torch.cat([batch.inputs for batch in epoch])[:, 0], seen.float())
    assert len(seen.unique()) == len(seen) == (n // batch_size * batch_size if drop_last else n)
    if not shuffle:
        assert torch.equal(seen, torch.arange(len(seen)))


@settings(deadline=None, max_examples=30)
@given(start=st.integers(0, 8), epoch=st.integers(0, 5), seed=st.integers(0, 9), batch_size=st.integers(5, 9))
def test_an_epoch_resumes_at_any_batch_exactly(start: int, epoch: int, seed: int, batch_size: int):
    pixels = torch.randint(256, (40, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))

    def make() -> Resident:
        return Resident(pixels, torch.arange(40), batch_size=batch_size, seed=seed, augment=Shifts(pixels=2))

    uninterrupted = make()
    whole = [list(uninterrupted) for _ in range(epoch + 1)][epoch]
    start = min(start, len(whole))
    assert same(make().epoch(epoch, start), whole[start:])


def test_iterations_count_the_epochs_and_set_epoch_goes_back():
    batches, other = numbered(20), numbered(20)
    first, second = list(batches), list(batches)
    assert not same(first, second)
    list(islice(other, 1))
    assert same(other, second)
    list(batches.epoch(7))
    assert same(batches, other.epoch(2))
    batches.set_epoch(0)
    assert same(batches, first)


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {tuple(torch.cat([b.targets for b in numbered(30, seed=s).epoch(e)]).tolist()) for s in range(5) for e in range(5)}
    assert len(orders) == 25


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    list(Resident(torch.zeros(9, 3, 3), torch.zeros(9), batch_size=2, seed=3, augment=Shifts()))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("white", [16, 255])
def test_bytes_become_floats_from_0_to_1_and_labels_int64(white: int):
    pixels = torch.tensor([[[0, white]], [[white // 2, 1]]], dtype=torch.uint8)
    ((inputs, targets),) = Resident(pixels, torch.tensor([3, 4], dtype=torch.uint8), batch_size=2, seed=0, shuffle=False, white=white)
    assert inputs.dtype == torch.float32
    assert targets.dtype == torch.int64
    torch.testing.assert_close(inputs, torch.tensor([[[0, 1.0]], [[white // 2 / white, 1 / white]]]))
    assert targets.tolist() == [3, 4]


def test_floats_pass_as_they_are_and_the_data_are_not_changed():
    inputs, targets = torch.rand(5, 4, 4) * 7, torch.rand(5, 10)
    kept = inputs.clone()
    ((got, soft),) = Resident(inputs, targets, batch_size=5, seed=0, shuffle=False)
    assert torch.equal(got, kept)
    assert torch.equal(soft, targets)
    list(Resident(inputs, targets, batch_size=2, seed=0, augment=Shifts()))
    assert torch.equal(inputs, kept)


def test_augmentation_is_applied_to_each_sample_anew():
    pixels = torch.zeros(200, 3, 3, dtype=torch.uint8)
    pixels[:, 1, 1] = 255
    batches = Resident(pixels, torch.zeros(200), batch_size=50, seed=0, augment=Shifts(), shuffle=False)
    first, second = (torch.cat([batch.inputs for batch in batches]) for _ in range(2))
    assert torch.equal(first.sum((1, 2)), torch.ones(200))
    assert (first.reshape(200, 9).sum(0) > 5).all()
    assert not torch.equal(first, second)


def test_every_sample_of_an_epoch_has_numbers_of_its_own():
    class Recording:
        num_draws = 3

        def __init__(self):
            self.seen: list[torch.Tensor] = []

        def apply(self, images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
            self.seen.append(draws)
            return images

    recording = Recording()
    list(Resident(torch.zeros(10, 2, 2), torch.zeros(10), batch_size=4, seed=0, augment=recording))
    assert [len(draws) for draws in recording.seen] == [4, 4, 2]
    assert len(torch.cat(recording.seen).unique()) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 with 8 samples"),
        ({"batch_size": 9, "drop_last": True}, "batch_size=9 with 8 samples leaves no batch"),
        ({"seed": -1}, "seed=-1"),
        ({"white": 0}, "white=0"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        numbered(8, **options)


def test_unequal_lengths_and_epochs_out_of_range_are_refused():
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        Resident(torch.zeros(3, 1), torch.zeros(2), batch_size=1, seed=0)
    with pytest.raises(ValueError, match="0 inputs"):
        Resident(torch.zeros(0, 1), torch.zeros(0), batch_size=1, seed=0)
    with pytest.raises(ValueError, match="start=3"):
        numbered(8).epoch(0, start=3)
    with pytest.raises(ValueError, match="epoch=-1"):
        numbered(8).epoch(-1)
