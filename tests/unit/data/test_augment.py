import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings, strategies as st

from ellzero.data import Affine, Augmentation, Chain, Elastic, Shifts

ALL = [Shifts(pixels=2), Affine(degrees=20, scale=0.2, shear=0.2), Elastic(pixels=2), Chain(Elastic(), Shifts())]


def draws(n: int, k: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, k, generator=torch.Generator().manual_seed(seed))


def blob(side: int = 28) -> torch.Tensor:
    """A smooth, lopsided image with an empty margin, so that interpolation is nearly exact."""
    y, x = torch.meshgrid(torch.arange(float(side)), torch.arange(float(side)), indexing="ij")
    middle = (side - 1) / 2
    return torch.exp(-((y - middle + 3) ** 2) / 18 - (x - middle - 1) ** 2 / 8) + 0.7 * torch.exp(
        -((y - middle - 4) ** 2 + (x - middle - 4) ** 2) / 8
    )


@settings(deadline=None, max_examples=30)
@given(pixels=st.integers(1, 3), channels=st.sampled_from([(), (1,), (3,)]), seed=st.integers(0, 99), as_bytes=st.booleans())
def test_shifts_equal_moving_each_image_by_hand(pixels: int, channels: tuple[int, ...], seed: int, as_bytes: bool):
    images = torch.randint(1, 256, (12, *channels, 5, 7), generator=torch.Generator().manual_seed(seed))
    images = images.to(torch.uint8 if as_bytes else torch.float32)
    numbers = draws(12, 2, seed)
    moved = Shifts(pixels=pixels).apply(images, numbers)
    assert moved.dtype == images.dtype
    for image, result, row in zip(images.numpy(), moved.numpy(), numbers.numpy(), strict=True):
        steps = [0] * len(channels) + [pixels - math.floor(u * (2 * pixels + 1)) for u in row]
        np.testing.assert_array_equal(result, scipy.ndimage.shift(image, steps, order=0, cval=0))


def test_shifts_reach_every_offset_equally_and_the_bound_itself_stays_inside():
    numbers = draws(90_000, 2)
    image = torch.zeros(1, 3, 3)
    image[0, 1, 1] = 1
    counts = Shifts().apply(image.expand(90_000, 3, 3), numbers).sum(0)
    # Each of the nine has probability 1/9; five standard deviations are 471.
    assert (counts - 10_000).abs().max() < 471
    last = torch.full((1, 2), 1 - 2**-24)
    assert Shifts(pixels=1).apply(image, last).sum() == 1
    assert Shifts(pixels=9).apply(torch.ones(1, 3, 3), torch.ones(1, 2)).shape == (1, 3, 3)


@pytest.mark.parametrize("augmentation", ALL, ids=repr)
def test_each_row_depends_on_its_own_image_and_numbers_alone(augmentation: Augmentation):
    assert isinstance(augmentation, Augmentation)
    images, numbers = torch.rand(9, 8, 8, generator=torch.Generator().manual_seed(1)), draws(9, augmentation.num_draws)
    whole = augmentation.apply(images, numbers)
    assert whole.shape == images.shape
    torch.testing.assert_close(augmentation.apply(images[4:6], numbers[4:6]), whole[4:6])
    assert not torch.allclose(whole, images)
    torch.testing.assert_close(augmentation.apply(images[:, None], numbers)[:, 0], whole)


@pytest.mark.parametrize("augmentation", ALL, ids=repr)
def test_bytes_keep_their_scale(augmentation: Augmentation):
    images, numbers = torch.randint(256, (6, 8, 8), dtype=torch.uint8), draws(6, augmentation.num_draws)
    torch.testing.assert_close(augmentation.apply(images, numbers).float(), augmentation.apply(images.float(), numbers))


def test_the_middle_of_the_range_changes_nothing():
    images = torch.rand(3, 6, 9, generator=torch.Generator().manual_seed(0))
    for augmentation in (Affine(degrees=30, scale=0.5, shear=0.5), Elastic(pixels=3), Shifts(pixels=2)):
        middle = torch.full((3, augmentation.num_draws), 0.5)
        torch.testing.assert_close(augmentation.apply(images, middle), images, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("affine", "row", "matrix"),
    [
        # Where a pixel of the result comes from, as (down, across) about the centre, written out by hand.
        (Affine(degrees=30), (1, 0.5, 0.5), lambda: _rotation(30)),
        (Affine(degrees=30), (0, 0.5, 0.5), lambda: _rotation(-30)),
        (Affine(scale=0.25), (0.5, 1, 0.5), lambda: np.eye(2) / 1.25),
        (Affine(scale=0.25), (0.5, 0, 0.5), lambda: np.eye(2) * 1.25),
        (Affine(shear=0.5), (0.5, 0.5, 1), lambda: np.array([[1, 0], [0.5, 1]])),
        (Affine(degrees=20, scale=0.1, shear=0.3), (1, 1, 1), lambda: _rotation(20) @ np.array([[1, 0], [0.3, 1]]) / 1.1),
    ],
)
def test_affine_equals_scipys_transform(affine: Affine, row: tuple[float, ...], matrix):
    image = blob().double()
    result = affine.apply(image[None], torch.tensor([row], dtype=torch.float64))[0].numpy()
    inverse = matrix()
    centre = np.array([13.5, 13.5])
    expected = scipy.ndimage.affine_transform(image.numpy(), inverse, offset=centre - inverse @ centre, order=1, mode="grid-constant")
    np.testing.assert_allclose(result, expected, atol=1e-9)
    assert np.abs(expected - image.numpy()).max() > 0.1


def _rotation(degrees: float) -> np.ndarray:
    angle = math.radians(degrees)
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def test_a_turn_of_an_oblong_image_keeps_right_angles():
    image = torch.zeros(1, 9, 15)
    image[0, 4, 5:10] = 1
    turned = Affine(degrees=90).apply(image, torch.tensor([[1.0, 0.5, 0.5]]))
    expected = torch.zeros(9, 15)
    expected[2:7, 7] = 1
    torch.testing.assert_close(turned[0], expected, rtol=0, atol=1e-4)


def test_elastic_moves_by_at_most_its_pixels_and_equals_scipy():
    image, elastic = blob().double(), Elastic(pixels=1.5, points=28)
    # With as many points as pixels the coarse grid is the field itself.
    numbers = draws(1, elastic.num_draws).double()
    result = elastic.apply(image[None], numbers)[0].numpy()
    across, down = (numbers.numpy().reshape(2, 28, 28) * 2 - 1) * 1.5
    y, x = np.mgrid[:28, :28]
    expected = scipy.ndimage.map_coordinates(image.numpy(), [y + down, x + across], order=1, mode="grid-constant")
    np.testing.assert_allclose(result, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shifts(pixels=0), "pixels=0"),
        (lambda: Affine(), "at least one above 0"),
        (lambda: Affine(degrees=-1), "no negative argument"),
        (lambda: Elastic(pixels=0), "pixels above 0"),
        (lambda: Elastic(points=1), "at least 2 points"),
        (lambda: Chain(), "holds no augmentation"),
    ],
)
def test_augmentations_that_would_do_nothing_are_refused(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()
