import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from ellzero.cli.jobs.by_name import NETWORKS, dataset_for, image_problem, wants_channels
from ellzero.data import Dataset, Images, Part, find_data, load_cifar10, load_held_out, standardised
from ellzero.training.presets import DataTreatment


def write(folder: Path, name: str, records: int = 10_000, *, label: int | None = None, xz: bool = False) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.zeros((records, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(records) % 10 if label is None else label
    rows[:, 1:4] = np.arange(records)[:, None] % 251
    rows[:, 1 + 1024], rows[:, 1 + 2048 + 33] = 7, 9
    data = rows.tobytes()
    (folder / (f"{name}.xz" if xz else name)).write_bytes(lzma.compress(data, preset=0) if xz else data)
    return data


@pytest.mark.parametrize("xz", [False, True])
def test_records_are_label_red_green_blue(tmp_path: Path, xz: bool):
    for number in (1, 2, 3):
        write(tmp_path, f"data_batch_{number}.bin", label=number, xz=xz)
    images = load_cifar10(tmp_path)
    assert images.labels.tolist() == [1] * 10_000 + [2] * 10_000 + [3] * 10_000
    assert images.inputs.shape == (30_000, 3, 32, 32)
    assert images.inputs.dtype == torch.uint8
    assert images.inputs[5, 0, 0, :4].tolist() == [5, 5, 5, 0]
    assert images.inputs[5, 1].nonzero().tolist() == [[0, 0]]
    assert images.inputs[5, 1, 0, 0] == 7
    assert images.inputs[5, 2, 1, 1] == 9
    assert (images.name, images.part, images.white) == ("cifar10", Part.TRAIN, 255)


def test_only_the_files_asked_for_are_opened(tmp_path: Path):
    write(tmp_path, "data_batch_5.bin")
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(b"must not be read")
    assert len(load_cifar10(tmp_path, batches=(5,))) == 10_000
    held_out = load_held_out(Dataset.CIFAR10, tmp_path)
    assert held_out is not None
    assert len(held_out) == 10_000
    assert load_held_out(Dataset.MNIST, tmp_path) is None
    with pytest.raises(
        ValueError, match=r"data_batch_1.bin: truncated: 16 bytes, expected 10,000 records of 3,073 bytes, 30,730,000 in all"
    ):
        load_cifar10(tmp_path)


def test_the_whole_test_file_goes_before_its_first_thousand(tmp_path: Path):
    write(tmp_path, "test_batch_first1000.bin", 1000, label=3)
    assert load_cifar10(tmp_path, Part.TEST).labels.tolist() == [3] * 1000
    write(tmp_path, "test_batch.bin", label=4, xz=True)
    assert load_cifar10(tmp_path, Part.TEST).labels.tolist() == [4] * 10_000


def test_a_missing_file_is_named_with_what_was_expected(tmp_path: Path):
    write(tmp_path, "data_batch_1.bin")
    with pytest.raises(FileNotFoundError, match=r"data_batch_2.bin: no such file, raw or with .xz; expected 10,000 records"):
        load_cifar10(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"test_batch.bin: no such file"):
        load_cifar10(tmp_path, Part.TEST)
    with pytest.raises(FileNotFoundError, match=r"cifar10 is not at hand: .*expected data_batch_1.bin, .*test_batch.bin, .*\.xz"):
        find_data(Dataset.CIFAR10, tmp_path / "nowhere")


@pytest.mark.parametrize("change", [-1, 1, 3073])
@pytest.mark.parametrize("xz", [False, True])
def test_a_file_of_another_size_is_refused(tmp_path: Path, change: int, xz: bool):
    data = write(tmp_path, "data_batch_1.bin")
    data = data[:change] if change < 0 else data + bytes(change)
    (tmp_path / "data_batch_1.bin").write_bytes(lzma.compress(data, preset=0) if xz else data)
    with pytest.raises(ValueError, match=r"data_batch_1.bin: (truncated: 30,729,999|more than 30,730,000) bytes, expected 10,000 records"):
        load_cifar10(tmp_path, batches=(1,))


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:300] + bytes(40) + data[340:]])
def test_damaged_xz_is_refused(tmp_path: Path, damage):
    data = lzma.compress(write(tmp_path, "data_batch_1.bin"), preset=0)
    (tmp_path / "data_batch_1.bin").write_bytes(damage(data))
    with pytest.raises(ValueError, match=r"data_batch_1.bin: damaged or truncated xz data"):
        load_cifar10(tmp_path, batches=(1,))


def test_a_label_out_of_range_is_named(tmp_path: Path):
    data = bytearray(write(tmp_path, "data_batch_1.bin"))
    data[3073 * 4] = 10
    (tmp_path / "data_batch_1.bin").write_bytes(data)
    with pytest.raises(ValueError, match="label 10 at position 4, expected 0 to 9"):
        load_cifar10(tmp_path, batches=(1,))


@pytest.mark.parametrize("batches", [(), (0,), (1, 6)])
def test_batches_that_do_not_exist_are_refused(tmp_path: Path, batches: tuple[int, ...]):
    with pytest.raises(ValueError, match="expected at least one of 1 to 5"):
        load_cifar10(tmp_path, batches=batches)


def test_standardised_pixels_follow_the_formula(generator: torch.Generator):
    pixels = torch.randint(0, 256, (3, 3, 2, 2), generator=generator, dtype=torch.uint8)
    expected = (pixels.numpy() / 255 - np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1)) / np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1)
    np.testing.assert_allclose(standardised(pixels).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_problem_trains_on_files_1_to_3_and_holds_out_5(tmp_path: Path):
    for number in (1, 2, 3, 5):
        write(tmp_path, f"data_batch_{number}.bin", label=number)
    write(tmp_path, "test_batch_first1000.bin", 1000, label=9)
    problem = image_problem(Dataset.CIFAR10, str(tmp_path), seed=0, treatment=DataTreatment(batch_size=500, validation=7), channels=True)
    assert problem.samples == 30_000
    assert problem.valid is not None
    inputs, labels = next(iter(problem.valid))
    assert inputs.shape == (2000, 3, 32, 32)
    assert set(labels.tolist()) == {5}
    assert {label for _, labels in problem.train for label in set(labels.tolist())} == {1, 2, 3}
    assert {label for _, labels in problem.test() for label in set(labels.tolist())} == {9}


def test_grey_images_get_a_channel_where_the_network_wants_one():
    for channels, shape in ((False, (32, 8, 8)), (True, (32, 1, 8, 8))):
        problem = image_problem(
            Dataset.DIGITS, None, seed=0, treatment=DataTreatment(batch_size=32, train_size=100, validation=50), channels=channels
        )
        assert problem.valid is not None
        assert next(iter(problem.train)).inputs.shape == shape
        assert next(iter(problem.valid)).inputs.shape[1:] == shape[1:]
        assert next(iter(problem.test())).inputs.shape[1:] == shape[1:]


def test_convolutions_want_channels_and_perceptrons_do_not():
    assert {name: wants_channels(make(0)) for name, make in NETWORKS.items()} == {
        "lenet-300-100": False,
        "lenet-5-caffe": True,
        "vgg-16-512": True,
        "mlp-3x512": False,
        "digits-mlp": False,
    }


@pytest.mark.parametrize(
    ("model", "data", "expected"),
    [
        ("lenet-5-caffe", None, (Dataset.MNIST, None)),
        ("lenet-5-caffe", "fashion-mnist", (Dataset.FASHION_MNIST, None)),
        ("vgg-16-512", None, (Dataset.CIFAR10, None)),
        ("mlp-3x512", "some/where", (Dataset.CIFAR10, "some/where")),
        ("own:network", "cifar10", (Dataset.CIFAR10, None)),
        ("own:network", "x/CIFAR-10", (Dataset.CIFAR10, "x/CIFAR-10")),
        ("digits-mlp", None, (Dataset.DIGITS, None)),
    ],
)
def test_the_command_line_chooses_the_data_set(model: str, data: str | None, expected: tuple[Dataset, str | None]):
    assert dataset_for(model, data) == expected


def test_the_published_files_are_recognised(data_directory: Path, tmp_path: Path):
    train = load_cifar10(data_directory, batches=(2,))
    assert len(train) == 10_000
    assert train.labels[:4].tolist() == [1, 6, 6, 8]
    assert load_cifar10(data_directory, Part.TEST).labels[:4].tolist() == [3, 8, 8, 0]
    source = data_directory / "cifar10" / "data_batch_2.bin.xz"
    (tmp_path / "data_batch_1.bin.xz").write_bytes(source.read_bytes())
    with pytest.raises(ValueError, match=r"holds the labels of data_batch_2.bin, expected those of data_batch_1.bin"):
        load_cifar10(tmp_path, batches=(1,))


def test_images_may_have_channels_or_none():
    pixels, labels = torch.zeros(2, 3, 4, 5, dtype=torch.uint8), torch.tensor([0, 1])
    assert Images(inputs=pixels, labels=labels, name="own", part=Part.TRAIN).take(torch.tensor([1])).inputs.shape == (1, 3, 4, 5)
