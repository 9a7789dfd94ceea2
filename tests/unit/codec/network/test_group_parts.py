"""What tensors of a group say of one another, and how damage within one is named."""

import numpy as np
import pytest

from ellzero.codec.errors import FormatError
from ellzero.codec.network import group as parts
from ellzero.codec.network.group import Group, Names
from ellzero.codec.network.matrix import _linked
from ellzero.codec.network.message import MessageCoder


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([], [0, 0, 0, 0]),
        ([[2, 1]], [2, 2, 1, 1]),
        ([[2, 1], [3, 2]], [3, 3, 2, 2]),  # the latest
        ([[2, 1], [1, 0]], [2, 2, 1, 1]),  # a matrix before a vector, whose rows hold one number each
        ([[1, 1], [1, 0]], [1, 1, 0, 0]),
        ([[2, 1, 1, 1], [3, 3]], [2, 1, 1, 1]),  # the largest
        ([[5], [1, 2, 3]], [0, 0, 0, 0]),  # none fits
    ],
)
def test_an_encoder_links_to_the_latest_of_the_largest_matrices(earlier: list[list[int]], expected: list[int]) -> None:
    profiles = [np.array(profile, np.uint8) for profile in earlier]
    assert _linked(MessageCoder(), 0, profiles, 4, 1).tolist() == expected


def test_an_impossible_flag_of_a_grid_is_named() -> None:
    writer = MessageCoder()
    writer.number(parts._STEPS, 2)
    group = Group(MessageCoder(writer.finish()), Names())
    with pytest.raises(FormatError, match="a flag is 2, which must be below 2"):
        group._decode_grid(parts._LOGARITHMIC + 1, 3)
