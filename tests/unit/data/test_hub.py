import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from ellzero.data import HUB_SOURCES, Dataset, HubSource, Part, load_from_hub

SMALL = HubSource(repository="owner/name", revision="0" * 40, image="img", sizes=(6, 4), shape=(2, 3, 3))


class Rows:
    """Stands in for datasets.Dataset: columns by name."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Puts a module `datasets` in place that serves images of 2x3 pixels in three colours; returns what was asked of it."""
    seen: list[tuple[str, str, str]] = []

    def load_dataset(repository: str, *, split: str, revision: str) -> Rows:
        seen.append((repository, split, revision))
        n = {"train": 6, "test": 4}[split]
        return Rows({"img": [np.arange(18, dtype=np.uint8).reshape(2, 3, 3) + i for i in range(n)], "label": [i % 10 for i in range(n)]})

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return seen


@pytest.mark.parametrize("part", Part)
def test_a_part_is_asked_for_at_its_revision_and_comes_channels_first(calls: list[tuple[str, str, str]], part: Part):
    images = load_from_hub(Dataset.CIFAR10, part, SMALL)
    assert calls == [("owner/name", part.value, "0" * 40)]
    assert images.inputs.shape == (6 if part is Part.TRAIN else 4, 3, 2, 3)
    assert images.inputs.dtype == torch.uint8
    assert images.inputs[1, 2, 1, 0] == 1 + (1 * 3 + 0) * 3 + 2
    assert images.labels.tolist()[:4] == [0, 1, 2, 3]
    assert (images.name, images.part) == ("cifar10", part)


def test_other_data_than_announced_are_refused(calls: list[tuple[str, str, str]]):
    with pytest.raises(ValueError, match=r"owner/name at 0+: images \(6, 2, 3, 3\) and 6 labels, expected \(7, 2, 3, 3\)"):
        load_from_hub(
            Dataset.MNIST, source=HubSource(repository="owner/name", revision="0" * 40, image="img", sizes=(7, 4), shape=(2, 3, 3))
        )


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'ellzero[data]'")):
        load_from_hub(Dataset.MNIST)


def test_the_digits_are_not_on_the_hub():
    with pytest.raises(ValueError, match="digits is not on the hub: expected one of mnist, fashion-mnist, cifar10"):
        load_from_hub(Dataset.DIGITS)


def test_every_source_is_pinned_to_a_commit():
    assert all(re.fullmatch(r"[0-9a-f]{40}", source.revision) for source in HUB_SOURCES.values())
