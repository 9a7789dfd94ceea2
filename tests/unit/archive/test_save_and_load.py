import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ellzero.archive.load import load_file, load_model, open_file
from ellzero.archive.save import save_file, save_model
from ellzero.codec.errors import FormatError, LimitError
from ellzero.quantise.answers import Answers
from ellzero.quantise.calibrate import Calibrated
from ellzero.quantise.grids import LogGrid, UniformGrid

TYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
]


def bits(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.dtype, tuple(tensor.shape), plain.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Everything(nn.Module):
    """Layers of every kind that people store: grouped convolutions, recurrent ones, attention, embeddings, ties, half types, empties."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(8, 5)
        self.attention = nn.MultiheadAttention(8, 2)
        self.half = nn.Linear(8, 3).half()
        self.brain = nn.Linear(8, 3).bfloat16()
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("counts", torch.arange(7, dtype=torch.int32))
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.scale = nn.Parameter(torch.tensor(1.5))


@pytest.fixture
def network() -> Everything:
    torch.manual_seed(0)
    return Everything()


def test_any_network_comes_back_bit_for_bit_under_its_own_keys(network: Everything, tmp_path: Path):
    report = save_model(network, tmp_path / "n.l0")
    torch.manual_seed(1)
    other = load_model(Everything(), tmp_path / "n.l0")
    state = network.state_dict()
    assert list(load_file(tmp_path / "n.l0")) == list(state)
    assert {name: bits(tensor) for name, tensor in other.state_dict().items()} == {name: bits(tensor) for name, tensor in state.items()}
    assert report.file_bytes == (tmp_path / "n.l0").stat().st_size
    assert report.tensors == len(state)
    # The tie is stored once, and stays a tie in the model.
    assert report.scalars == sum(t.numel() for t in state.values()) - network.head.weight.numel()
    assert other.head.weight is other.embedding.weight


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_bit_pattern_of_a_type_survives(kind: torch.dtype, tmp_path: Path):
    raw = torch.randint(0, 256, (6 * 16,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    raw = raw & 1 if kind is torch.bool else raw
    tensors = {"a": raw.view(kind).reshape(2, -1), "scalar": raw[:16].view(kind)[0], "none": raw[:0].view(kind).reshape(0, 3)}
    tensors["rows"] = tensors["a"][:, ::2]
    tensors["turned"] = tensors["a"].t()
    save_file(tensors, tmp_path / "t.l0")
    loaded = load_file(tmp_path / "t.l0")
    assert {name: bits(tensor) for name, tensor in loaded.items()} == {name: bits(tensor) for name, tensor in tensors.items()}


def test_a_sparse_network_is_small_and_a_sparser_one_smaller(tmp_path: Path):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(300, 784, generator=generator)
    sizes = []
    for kept in (0.1, 0.01, 0.001):
        # A product with False would leave zeros with the signs of the weights, which a lossless file has to keep, a bit each.
        sparse = torch.where(torch.rand(300, 784, generator=generator) < kept, weight, 0.0)
        report = save_file({"w": sparse}, tmp_path / f"{kept}.l0")
        assert torch.equal(load_file(tmp_path / f"{kept}.l0")["w"], sparse)
        assert report.file_bytes < report.sparse_bytes * 1.3
        sizes.append(report.file_bytes)
    assert sizes == sorted(sizes, reverse=True)


def test_grids_keep_zeros_exact_and_weights_near(tmp_path: Path):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(100, 64, generator=generator) * (torch.rand(100, 64, generator=generator) < 0.2)
    tensors = {"w": weight, "steps": torch.arange(5)}
    for grid in (LogGrid(1.3), UniformGrid(error=0.05)):
        report = save_file(tensors, tmp_path / "q.l0", quantise=grid)
        loaded = load_file(tmp_path / "q.l0")
        assert torch.equal(loaded["w"] == 0, weight == 0) or isinstance(grid, UniformGrid)
        assert (loaded["w"][weight == 0] == 0).all()
        assert torch.equal(loaded["steps"], tensors["steps"])
        assert report.file_bytes < 1450
        kept = weight != 0
        if isinstance(grid, LogGrid):
            inside = kept & (weight.abs() > 0.1)
            factor = (loaded["w"][inside] / weight[inside]).double()
            assert factor.min() > 1 / 1.3**0.6
            assert factor.max() < 1.3**0.6
        else:
            error = ((loaded["w"] - weight)[kept].pow(2).mean() / weight[kept].pow(2).mean()).sqrt()
            assert 0.03 < error < 0.055


def test_statistics_stay_exact_when_parameters_are_quantised(tmp_path: Path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5))
    model[1].running_var.uniform_()
    save_model(model, tmp_path / "m.l0", quantise=UniformGrid(error=0.1))
    loaded = load_file(tmp_path / "m.l0")
    assert torch.equal(loaded["1.running_var"], model[1].running_var)
    assert not torch.equal(loaded["0.weight"], model[0].weight)


def test_what_is_not_finite_is_not_quantised(tmp_path: Path):
    with pytest.raises(ValueError, match="'w' has numbers that are not finite"):
        save_file({"w": torch.tensor([[1.0, float("nan")]])}, tmp_path / "m.l0", quantise=LogGrid())
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused_and_stays_as_it_was(tmp_path: Path):
    torch.manual_seed(0)
    save_model(nn.Linear(4, 3), tmp_path / "m.l0")
    for other, message in [
        (nn.Linear(4, 5), r"'weight' has the shape \(3, 4\)"),
        (nn.Linear(4, 3, bias=False), "'bias', the model has none"),
        (nn.Bilinear(2, 2, 3), "'weight' has the shape"),
    ]:
        before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            load_model(other, tmp_path / "m.l0")
        assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())
    save_model(nn.Linear(4, 3, bias=False), tmp_path / "n.l0")
    with pytest.raises(ValueError, match="lacks 'bias'"):
        load_model(nn.Linear(4, 3), tmp_path / "n.l0")
    load_model(nn.Linear(4, 3), tmp_path / "n.l0", strict=False)


def test_damage_changes_nothing(tmp_path: Path):
    torch.manual_seed(0)
    model = nn.Linear(40, 30)
    save_model(model, tmp_path / "m.l0")
    data = bytearray((tmp_path / "m.l0").read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "m.l0").write_bytes(data)
    before = model.weight.clone()
    with pytest.raises(FormatError):
        load_model(model, tmp_path / "m.l0")
    assert torch.equal(model.weight, before)


def test_limits_hold_before_memory_is_taken(tmp_path: Path):
    save_file({"a": torch.zeros(1000, 1000), "b": torch.ones(10)}, tmp_path / "z.l0")
    assert (tmp_path / "z.l0").stat().st_size < 60
    with pytest.raises(LimitError):
        load_file(tmp_path / "z.l0", max_size=1 << 20)
    with open_file(tmp_path / "z.l0", max_size=1 << 20) as file, pytest.raises(LimitError):
        list(file)


def test_tensors_come_one_at_a_time_and_by_name(tmp_path: Path):
    shared = torch.randn(4, 4)
    save_file({"a": shared, "b": torch.arange(3), "again": shared}, tmp_path / "s.l0")
    with open_file(tmp_path / "s.l0") as file:
        assert [name for name, _ in file] == ["a", "b", "again"]
        assert torch.equal(file.tensor("b"), torch.arange(3))
        assert torch.equal(file.tensor("again"), shared)
        with pytest.raises(KeyError, match="no tensor 'c'"):
            file.tensor("c")


@pytest.mark.parametrize("ratio", [1.0, 0.5, float("inf"), float("nan")])
def test_grids_refuse_what_they_cannot_be(ratio: float):
    with pytest.raises(ValueError, match="LogGrid"):
        LogGrid(ratio)
    with pytest.raises(ValueError, match="UniformGrid"):
        UniformGrid(error=0 if ratio < 1 else 1.5)


def test_a_logarithmic_level_is_the_nearest(tmp_path: Path):
    values = np.random.default_rng(0).lognormal(0, 1, (20, 30)) * np.random.default_rng(1).choice([-1, 1], (20, 30))
    found = LogGrid(1.25, num_levels=40).quantise("w", values)
    assert found is not None
    from ellzero.codec.network.stored_grids import Logarithmic

    assert isinstance(found.grid, Logarithmic)
    table = found.grid.smallest * found.grid.ratio ** np.arange(40)
    nearest = np.abs(np.abs(values)[..., None] - table).argmin(-1) + 1
    assert (np.abs(found.levels) == nearest).mean() > 0.999
    assert (np.sign(found.levels) == np.sign(values)).all()


def test_reports_are_plain_values(tmp_path: Path):
    from dataclasses import asdict

    report = save_file({"w": torch.eye(8)}, tmp_path / "e.l0")
    assert json.loads(json.dumps(asdict(report)))["nonzeros"] == 8
    assert report.sparse_bytes == 32
    assert report.dense_bytes == 256


@pytest.mark.parametrize("ratio", [1.05, 1.3, 2.0])
def test_large_weights_keep_their_size_on_a_logarithmic_grid(ratio: float):
    """They were set to the largest of 19 magnitudes: a network trained with layerwise normalisation went from 2 to 14 % error."""
    values = np.concatenate([np.full(2000, 1e-3), np.full(5, 0.7), np.full(5, -40.0)])
    found = LogGrid(ratio).quantise("w", values)
    assert found is not None
    from ellzero.quantise.on_grid import magnitudes

    table = magnitudes(found.grid, int(np.abs(found.levels).max()))  # type: ignore[arg-type]
    back = table[np.abs(found.levels) - 1] * np.sign(found.levels)
    assert np.abs(np.log(back / values)).max() <= 0.51 * np.log(ratio) + 0.04  # the ratio itself is rounded to a 32nd


@pytest.mark.parametrize("ratio", [1.05, 1.3])
def test_a_fine_grid_reaches_as_far_down_as_a_coarse_one(ratio: float):
    values = np.array([0.15, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    found = LogGrid(ratio).quantise("w", values)
    assert found is not None
    from ellzero.quantise.on_grid import magnitudes

    smallest = magnitudes(found.grid, 1)[0]  # type: ignore[arg-type]
    assert smallest == pytest.approx(0.15, rel=0.5 * (ratio - 1) + 0.05)


def test_what_is_no_tensor_is_refused_by_name_and_leaves_no_file(tmp_path: Path):
    """In a process of its own: here a run-time type checker would refuse it first."""
    code = "import numpy, ellzero; ellzero.save_file({'w': numpy.zeros(3)}, 'a.l0')"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "TypeError: 'w' is ndarray, not a tensor" in run.stderr
    assert not list(tmp_path.iterdir())


class Extra(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"scale": 3}


def test_state_that_is_no_tensor_is_refused_by_name_and_leaves_no_file(tmp_path: Path):
    with pytest.raises(TypeError, match="'_extra_state' is dict, not a tensor"):
        save_model(Extra(3, 2), tmp_path / "a.l0")
    with pytest.raises(TypeError, match="'weight' is a tensor on the meta device"):
        save_model(nn.Linear(3, 2, device="meta"), tmp_path / "a.l0")
    assert not list(tmp_path.iterdir())


def test_conjugated_and_negated_views_are_other_numbers_than_their_originals(tmp_path: Path):
    numbers = torch.randn(3, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    real = torch.randn(4, generator=torch.Generator().manual_seed(1))
    tensors = {"a": numbers, "conjugate": numbers.conj(), "adjoint": numbers.mH, "imaginary": numbers.conj().imag, "same": numbers}
    tensors |= {"real": real, "negated": torch._neg_view(real)}
    report = save_file(tensors, tmp_path / "n.l0")
    loaded = load_file(tmp_path / "n.l0")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert loaded["same"] is loaded["a"]
    assert report.scalars == 3 * 9 + 9 + 2 * 4


class Views(nn.Module):
    """A network whose buffers are views of its parameters, and one of whose parameters is a view of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.part = nn.Parameter(self.third.weight.data[:2])
        self.register_buffer("row", self.first.weight.data[0])
        self.register_buffer("flat", self.second.weight.data.view(-1))
        self.register_buffer("same", self.second.bias.data)


def test_what_shares_memory_with_a_buffer_or_in_part_is_not_quantised(tmp_path: Path):
    torch.manual_seed(0)
    model = Views()
    exact = {"first.weight", "row", "second.weight", "flat", "second.bias", "same", "third.weight", "part"}
    with pytest.warns(UserWarning, match=r"'first\.weight' and 4 more"):
        save_model(model, tmp_path / "n.l0", quantise=LogGrid(2.0))
    loaded, state = load_file(tmp_path / "n.l0"), model.state_dict()
    assert {name for name in state if torch.equal(loaded[name], state[name])} == exact
    torch.manual_seed(1)
    other = load_model(Views(), tmp_path / "n.l0").state_dict()
    assert all(torch.equal(other[name], loaded[name]) for name in loaded)


def test_calibration_leaves_layers_alone_whose_memory_is_shared(tmp_path: Path):
    torch.manual_seed(0)
    layer, views = nn.Linear(6, 6), nn.Linear(6, 6)
    model = nn.Sequential(layer, nn.ReLU(), views)
    model.register_buffer("row", views.weight.data[0])
    with pytest.warns(UserWarning, match=r"2\.weight"):
        save_model(model, tmp_path / "n.l0", quantise=Calibrated(inputs=torch.randn(32, 6), answers=Answers.VALUES))
    loaded = load_file(tmp_path / "n.l0")
    assert torch.equal(loaded["2.weight"], views.weight)
    assert torch.equal(loaded["row"], views.weight[0])
    assert not torch.equal(loaded["0.weight"], layer.weight)


LARGEST = (1 << 40) - 2


@pytest.mark.parametrize("shape", [(LARGEST, 0), (0, LARGEST), (1 << 30, 0, (1 << 30) - 1), (0, 1 << 20, 1 << 19, 1 << 20)])
@pytest.mark.parametrize("grid", [None, LogGrid(1.3), UniformGrid()])
def test_an_empty_tensor_of_a_huge_shape_comes_back(shape: tuple[int, ...], grid: LogGrid | UniformGrid | None, tmp_path: Path):
    save_file({"a": torch.ones(2), "z": torch.zeros(shape)}, tmp_path / "n.l0", quantise=grid)
    assert load_file(tmp_path / "n.l0")["z"].shape == shape


@pytest.mark.parametrize("shape", [(LARGEST + 1, 0), (0, 1 << 60), (1 << 30, 0, 1 << 30), (0, 1 << 30, 1 << 31)])
@pytest.mark.parametrize("grid", [None, LogGrid(1.3), UniformGrid()])
def test_an_empty_tensor_of_a_shape_that_no_file_holds_is_refused(
    shape: tuple[int, ...], grid: LogGrid | UniformGrid | None, tmp_path: Path
):
    with pytest.raises(ValueError, match=r"'z' has the shape .*no file holds") as caught:
        save_file({"z": torch.zeros(shape)}, tmp_path / "n.l0", quantise=grid)
    assert not isinstance(caught.value, FormatError)
    assert not (tmp_path / "n.l0").exists()


def test_the_width_of_an_image_is_one_that_a_file_holds(tmp_path: Path):
    with pytest.raises(ValueError, match="'a' has the image_width 1048576"):
        save_file({"a": torch.ones(2, 2)}, tmp_path / "n.l0", image_width={"a": 1 << 20})


class TiedWeights(nn.Module):
    """An embedding that is the head as well, and a part of it under a third name."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.norm = nn.LayerNorm(8)
        if tied:
            self.head.weight = self.embedding.weight
            self.register_buffer("begin", self.embedding.weight.data[:3])


@pytest.mark.parametrize("left", [("head.weight", "begin"), ("embedding.weight", "begin"), ("begin",)])
def test_tied_weights_may_be_absent_from_a_file(left: tuple[str, ...], tmp_path: Path):
    torch.manual_seed(0)
    state = TiedWeights().state_dict()
    save_file({name: tensor for name, tensor in state.items() if name not in left}, tmp_path / "n.l0")
    other = load_model(TiedWeights(), tmp_path / "n.l0")
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in state.items())
    assert other.head.weight is other.embedding.weight
    if len(left) > 1:
        with pytest.raises(ValueError, match=f"lacks '{left[0]}'"):
            load_model(TiedWeights(tied=False), tmp_path / "n.l0")


def test_what_is_one_in_the_model_and_two_in_the_file_is_refused(tmp_path: Path):
    torch.manual_seed(0)
    save_file({**TiedWeights(tied=False).state_dict(), "begin": torch.zeros(3, 8)}, tmp_path / "n.l0")
    model = TiedWeights()
    before = model.embedding.weight.clone()
    with pytest.raises(ValueError, match=r"'embedding.weight' and 'head.weight' are one tensor in the model and two"):
        load_model(model, tmp_path / "n.l0")
    assert torch.equal(model.embedding.weight, before)


def refusal(tensors: str, folder: Path) -> str:
    """What `save_file` says in a process of its own: here a run-time type checker would refuse it first."""
    code = f"import torch, ellzero; ellzero.save_file({tensors}, 'a.l0')"
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 1
    assert not (folder / "a.l0").exists()
    return run.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ("{3: torch.ones(2)}", "TypeError: the name 3 is int, not text"),
        ("{('a', 1): torch.ones(2)}", "TypeError: the name ('a', 1) is tuple, not text"),
        ("{'a': {'b': torch.ones(2)}}", "TypeError: 'a' is dict, not a tensor: call what is in it 'a.NAME'"),
        (r"{'a\udc80': torch.ones(2)}", r"ValueError: the name 'a\udc80' is no Unicode text"),
        (r"{'a\x1b': 3}", r"TypeError: 'a\x1b' is int, not a tensor"),
        (
            "{'a': torch.eye(4).to_sparse_csr()}",
            "TypeError: 'a' is a torch.sparse_csr tensor, which cannot be stored: store its to_den",
        ),
        ("{'a': torch.eye(4).to_sparse()}", "TypeError: 'a' is a torch.sparse_coo tensor"),
        (
            "{'a': torch.ones(4, dtype=torch.complex128)}",
            "TypeError: 'a' is of torch.complex128, which cannot be stored: store its view",
        ),
        ("{'a': torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}", "TypeError: 'a' is a nested tensor"),
        ("{'a': torch.nn.LazyLinear(3).weight}", "TypeError: 'a' has no shape yet: run the model on a batch first"),
        (
            "{'a': torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}",
            "TypeError: 'a' is of torch.qint8, which cannot be",
        ),
    ],
)
def test_what_cannot_be_stored_is_one_clear_line(tensors: str, said: str, tmp_path: Path):
    assert refusal(tensors, tmp_path).startswith(said)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="torch before 2.8 has no numbers of 4 bits")
def test_numbers_of_four_bits_are_refused_with_the_remedy(tmp_path: Path):
    said = refusal("{'a': torch.ones(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}", tmp_path)
    assert said.startswith("TypeError: 'a' is of torch.float4_e2m1fn_x2, which cannot be stored: store its view(torch.uint8)")


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="torch before 2.7 has no scales of 8 bits")
def test_scales_of_eight_bits_survive(tmp_path: Path):
    scales = torch.arange(256).to(torch.uint8).view(torch.float8_e8m0fnu)
    save_file({"a": scales}, tmp_path / "n.l0", quantise=LogGrid(1.3))
    assert bits(load_file(tmp_path / "n.l0")["a"]) == bits(scales)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_network_with_sparse_weights_is_refused_by_name(tmp_path: Path):
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].weight = nn.Parameter(torch.eye(4).to_sparse_csr(), requires_grad=False)
    with pytest.raises(TypeError, match=r"'0\.weight' is a torch\.sparse_csr tensor"):
        save_model(model, tmp_path / "n.l0", quantise=LogGrid(1.3))


class Wrapped(torch.Tensor):
    """A tensor made of another, as those of distributed and of quantised networks are: it has no memory of its own."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapped":
        wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapped.inner = inner
        return wrapped

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], *_: object) -> "Wrapped":
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function: object, types: object, arguments: object = (), keywords: object = None) -> object:
        raise NotImplementedError


def test_tensors_made_of_others_are_not_tied_but_refused(tmp_path: Path):
    with pytest.raises(TypeError, match="'a' is a Wrapped, made of other tensors"):
        save_file({"a": Wrapped(torch.ones(3)), "b": Wrapped(torch.zeros(3))}, tmp_path / "n.l0")
