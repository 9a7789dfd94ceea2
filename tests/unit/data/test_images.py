import builtins
import gzip
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from ellzero.data import Dataset, Images, Part, find_data, load_digits, load_fashion_mnist, load_images, load_mnist, split

FILES = {
    Part.TRAIN: ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    Part.TEST: ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def write_part(folder: Path, part: Part, labels: list[int], *, ending: str = "", side: int = 28, images: int | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    n = len(labels) if images is None else images
    pixels = (np.arange(n * side * side) % 251).astype(np.uint8).tobytes()
    encode = gzip.compress if ending else bytes
    image_name, label_name = FILES[part]
    (folder / (image_name + ending)).write_bytes(encode(struct.pack(">4I", 0x803, n, side, side) + pixels))
    (folder / (label_name + ending)).write_bytes(encode(struct.pack(">2I", 0x801, len(labels)) + bytes(labels)))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_each_part_is_loaded_from_its_own_files(tmp_path: Path, ending: str):
    write_part(tmp_path, Part.TRAIN, [3, 1, 9], ending=ending)
    write_part(tmp_path, Part.TEST, [7, 0], ending=ending)
    train, test = load_mnist(tmp_path), load_mnist(tmp_path, Part.TEST)
    assert train.labels.tolist() == [3, 1, 9]
    assert test.labels.tolist() == [7, 0]
    assert train.inputs.dtype == torch.uint8
    assert train.labels.dtype == torch.int64
    assert torch.equal(train.inputs.flatten().long(), torch.arange(3 * 784) % 251)
    assert (train.name, train.part, test.part, train.num_classes, train.white) == ("mnist", Part.TRAIN, Part.TEST, 10, 255)


def test_training_images_are_read_without_opening_a_test_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_part(tmp_path, Part.TRAIN, [3, 1])
    for name in FILES[Part.TEST]:
        (tmp_path / name).write_bytes(b"must not be read")
    opened: list[str] = []
    real = io.open

    def spy(file, *args, **kwargs):
        opened.append(os.path.basename(os.fspath(file)) if isinstance(file, str | os.PathLike) else str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(io, "open", spy)
    monkeypatch.setattr(builtins, "open", spy)
    load_mnist(tmp_path)
    assert set(FILES[Part.TRAIN]) <= set(opened)
    assert not set(FILES[Part.TEST]) & set(opened)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte: not an IDX file"):
        load_mnist(tmp_path, Part.TEST)


def test_the_other_spelling_of_the_names_is_found(tmp_path: Path):
    write_part(tmp_path, Part.TRAIN, [1, 2])
    for name in FILES[Part.TRAIN]:
        (tmp_path / name).rename(tmp_path / name.replace("-idx", ".idx"))
    assert load_mnist(tmp_path).labels.tolist() == [1, 2]


def test_a_label_out_of_range_is_named(tmp_path: Path):
    write_part(tmp_path, Part.TRAIN, [3, 9, 10, 11])
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte: label 10 at position 2, expected 0 to 9"):
        load_mnist(tmp_path)


def test_images_and_labels_must_be_as_many(tmp_path: Path):
    write_part(tmp_path, Part.TRAIN, [3, 9, 1], images=2)
    with pytest.raises(ValueError, match="train-images-idx3-ubyte: shape 2 x 28 x 28, expected 3 x 28 x 28"):
        load_mnist(tmp_path)


def test_images_of_another_size_are_refused(tmp_path: Path):
    write_part(tmp_path, Part.TRAIN, [3, 9], side=27)
    with pytest.raises(ValueError, match="shape 2 x 27 x 27, expected 2 x 28 x 28"):
        load_mnist(tmp_path)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file_is_named(tmp_path: Path, missing: int):
    write_part(tmp_path, Part.TRAIN, [3])
    (tmp_path / FILES[Part.TRAIN][missing]).unlink()
    with pytest.raises(FileNotFoundError, match=f"{FILES[Part.TRAIN][missing]}.gz: no such file"):
        load_mnist(tmp_path)


def test_find_data_prefers_the_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_part(tmp_path, Part.TRAIN, [1])
    assert find_data(Dataset.MNIST, tmp_path) == tmp_path
    write_part(tmp_path / "mnist", Part.TRAIN, [2])
    assert find_data(Dataset.MNIST, str(tmp_path)) == tmp_path / "mnist"
    assert find_data(Dataset.FASHION_MNIST, tmp_path) == tmp_path
    monkeypatch.setenv("ELLZERO_DATA", str(tmp_path))
    assert load_images(Dataset.MNIST).labels.tolist() == [2]
    monkeypatch.setenv("ELLZERO_DATA", str(tmp_path / "mnist"))
    assert find_data(Dataset.MNIST) == tmp_path / "mnist"


def test_find_data_says_where_it_looked_and_what_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ELLZERO_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError, match="set ELLZERO_DATA to a folder that holds fashion-mnist/; expected train-images-idx3-ubyte, "
    ):
        find_data(Dataset.FASHION_MNIST)
    monkeypatch.setenv("ELLZERO_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"looked in \S*mnist and .* \(the environment variable ELLZERO_DATA\); expected"):
        find_data(Dataset.MNIST)
    # A directory that is given and wrong is not replaced by the one from the environment.
    write_part(tmp_path, Part.TRAIN, [1])
    with pytest.raises(FileNotFoundError, match=r"elsewhere \(the directory given\)"):
        find_data(Dataset.MNIST, tmp_path / "elsewhere")


def test_the_digits_take_no_directory(tmp_path: Path):
    with pytest.raises(ValueError, match="expected no directory"):
        load_images(Dataset.DIGITS, tmp_path)
    with pytest.raises(ValueError, match="load_digits"):
        find_data(Dataset.DIGITS)


def test_the_digits():
    train, test = load_images(Dataset.DIGITS), load_digits(Part.TEST)
    assert train.inputs.shape == (1437, 8, 8)
    assert test.inputs.shape == (360, 8, 8)
    both = torch.cat((train.inputs, test.inputs))
    assert int(both.max()) == train.white == 16
    assert torch.cat((train.labels, test.labels)).bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    # The first image of the published file, as scikit-learn's documentation prints it.
    assert train.inputs[0].tolist()[:3] == [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0], [0, 3, 15, 2, 0, 11, 8, 0]]
    assert train.labels[:10].tolist() == list(range(10))
    assert int(both.sum()) == 561_718


def test_images_check_themselves():
    pixels = torch.zeros(2, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="2 images but 3 labels"):
        Images(inputs=pixels, labels=torch.tensor([0, 1, 2]), name="own", part=Part.TRAIN)
    with pytest.raises(ValueError, match="label -1 at position 1, expected 0 to 9"):
        Images(inputs=pixels, labels=torch.tensor([0, -1]), name="own", part=Part.TRAIN)


def test_take_keeps_everything_else():
    train = load_digits()
    taken = train.take(torch.tensor([5, 2]))
    assert len(taken) == 2
    assert torch.equal(taken.inputs[1], train.inputs[2])
    assert taken.labels.tolist() == [5, 2]
    assert (taken.white, taken.name, taken.part) == (16, "digits", Part.TRAIN)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 300), fraction=st.floats(0, 0.999), seed=st.integers(0, 2**40))
def test_split_is_a_partition_decided_by_its_seed(n: int, fraction: float, seed: int):
    validation = int(n * fraction)
    halves = split(n, validation, seed)
    assert len(halves.validation) == validation
    assert torch.equal(torch.cat(halves).sort().values, torch.arange(n))
    assert torch.equal(torch.cat(halves), torch.cat(split(n, validation, seed)))


def test_split_draws_each_position_equally_often():
    counts = sum(torch.zeros(10).index_fill(0, split(10, 3, seed).validation, 1) for seed in range(2000))
    # A position is held out with probability 0.3; five standard deviations of its count are 102.
    assert (counts - 600).abs().max() < 102
    assert not torch.equal(split(100, 50, 1).train, split(100, 50, 2).train)


@pytest.mark.parametrize("validation", [-1, 10, 11])
def test_split_leaves_something_to_train_on(validation: int):
    with pytest.raises(ValueError, match=f"validation={validation} of 10 images"):
        split(10, validation, 0)


def real_data(dataset: Dataset) -> Path:
    named = os.environ.get("ELLZERO_DATA")
    if not named:
        pytest.skip("ELLZERO_DATA is not set")
    if not any(list(folder.glob("*ubyte*")) for folder in (Path(named) / dataset.value, Path(named))):
        pytest.skip(f"ELLZERO_DATA holds no {dataset.value}")
    return find_data(dataset)


@pytest.mark.data
def test_mnist_itself():
    folder = real_data(Dataset.MNIST)
    train, test = load_mnist(), load_mnist(folder, Part.TEST)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # The published mean and standard deviation of the training pixels.
    pixels = train.inputs.double() / train.white
    assert pixels.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert pixels.std().item() == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.data
def test_mnist_is_not_taken_for_fashion_mnist_nor_one_part_for_the_other(tmp_path: Path):
    folder = real_data(Dataset.MNIST)
    with pytest.raises(ValueError, match="holds mnist's train labels, expected fashion-mnist's train labels"):
        load_fashion_mnist(folder)
    for train_name, test_name in zip(*FILES.values(), strict=True):
        (tmp_path / f"{train_name}.gz").symlink_to(folder / f"{test_name}.gz")
    with pytest.raises(ValueError, match="holds mnist's test labels, expected mnist's train labels"):
        load_mnist(tmp_path)


@pytest.mark.data
def test_fashion_mnist_itself():
    folder = real_data(Dataset.FASHION_MNIST)
    if folder.name != "fashion-mnist":
        pytest.skip("ELLZERO_DATA holds no folder fashion-mnist")
    train, test = load_fashion_mnist(folder), load_fashion_mnist(folder, Part.TEST)
    assert train.labels.bincount().tolist() == [6000] * 10
    assert test.labels.bincount().tolist() == [1000] * 10
    assert (train.inputs.double() / 255).mean().item() == pytest.approx(0.2860, abs=5e-5)
