"""What users of pruning tools ran into, one test a story; `docs/guides/stories.md` lists where the tests of the other stories are."""

import pickle
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import safetensors.torch
import torch
import torch.multiprocessing  # registers how tensors travel between processes
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

import ellzero as lz
from ellzero.attaching import attach, masking
from ellzero.methods import DRR, RL1, Unregularised
from ellzero.params import count_nonzeros, masks_from_zeros, select_parameters
from ellzero.pruning import Within, magnitude_masks, random_gradient, tamade
from ellzero.surgery import fold, shrink
from ellzero.targets import NonZeros
from ellzero.training import CollapseError, Epochs, Recipe, classification_loss, recalibrate_batchnorm, sparsify
from training_problems import digits_batches, small_network


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(seed))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        (model(inputs(step)) - 1).square().mean().backward()
        optimizer.step()


def checkerboard(model: nn.Module) -> dict[str, Tensor]:
    """Masks that keep every other weight."""
    return {name: torch.arange(p.numel()).reshape(p.shape) % 2 == 0 for name, p in select_parameters(model).items()}


def test_story_03_retraining_never_forgets_the_mask() -> None:
    """A retrained network was 98 % dense again, and what was concluded from it was noise."""
    data, _ = digits_batches()
    result = sparsify(
        small_network(),
        classification_loss,
        train=data,
        method=Unregularised(),
        target=NonZeros(300),
        progress=False,
        recipe=Recipe(
            epochs=Epochs(prelude=2, regularise=0, fine_tune=3), optimizer=lambda params: torch.optim.AdamW(params, weight_decay=0.5)
        ),
    )
    for name, parameter in select_parameters(result.model).items():
        assert int(torch.count_nonzero(parameter.detach()[result.after_rgp[name] == 0])) == 0
        assert not torch.equal(parameter, result.after_rgp[name])
    assert [entry.nonzeros for entry in result.history if entry.stage == "fine-tune"] == [result.nonzeros] * 3
    assert result.nonzeros == sum(int(torch.count_nonzero(tensor)) for tensor in result.model.state_dict().values())


class Operations(TorchDispatchMode):
    """Counts the tensor operations that are called, but those that only give memory another type or name."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func not in (torch.ops.aten.view.dtype, torch.ops.aten.detach.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", [Unregularised(), RL1(alpha=1e-3), DRR(alpha=1e-3, proximal=True)], ids=repr)
def test_story_04_masks_cost_two_calls_whatever_the_number_of_layers(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook on every parameter's gradient made training very slow."""
    calls: list[str] = []
    for name in ("keep_", "pull_and_keep_"):
        kernel = getattr(masking, name)
        monkeypatch.setattr(masking, name, lambda *given, kernel=kernel, name=name: (calls.append(name), kernel(*given)))
    for depth in (2, 40):
        model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(depth)])
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        sparsifier = attach(optimizer, model, method, inert_after=None)
        counts: list[int] = []
        for _ in range(2):
            train(model, optimizer, 2)
            calls.clear()
            with Operations() as operations:
                optimizer.step()
            counts.append(operations.count + len(calls))
            sparsifier.freeze(checkerboard(model), penalty=True)
        # One for the gradients, which is that of the penalty where a kernel adds it, and one for the weights.
        assert counts[1] - counts[0] == 2 - calls.count("pull_and_keep_")
        assert calls.count("keep_") + calls.count("pull_and_keep_") == 2
        assert all(not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters())
        assert all(not m._forward_hooks and not m._forward_pre_hooks and not m._backward_hooks for m in model.modules())


class LoRA(nn.Module):
    """A frozen linear layer and a trained correction of low rank (Hu et al., "LoRA", 2021)."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T

    def merged(self) -> nn.Linear:
        layer = deepcopy(self.base)
        with torch.no_grad():
            layer.weight += self.up @ self.down
        return layer


def test_story_06_merging_adapters_keeps_the_sparsity() -> None:
    """Merging LoRA weights into a pruned network turned 40 % of zeros into 32.7 %."""
    torch.manual_seed(0)
    model = network()
    sparsifier = attach(torch.optim.Adam(model.parameters()), model, Unregularised())
    sparsifier.freeze(checkerboard(model))
    sparse_weights = {name: parameter.detach().clone() for name, parameter in select_parameters(model).items()}

    adapted = nn.Sequential(LoRA(deepcopy(model[0])), nn.Tanh(), LoRA(deepcopy(model[2])))
    train(adapted, torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=1e-2), 5)
    merged = nn.Sequential(adapted[0].merged(), nn.Tanh(), adapted[2].merged()).requires_grad_(False)
    torch.testing.assert_close(merged(inputs()), adapted(inputs()))
    with pytest.raises(AssertionError, match="pruned weights are not 0"):
        sparsifier.assert_sparse(merged)

    dense = {name: merged.get_parameter(name).clone() for name in sparse_weights}
    sparsifier.apply_masks_(merged)
    sparsifier.assert_sparse(merged)
    for name, before in sparse_weights.items():
        assert torch.equal(merged.get_parameter(name), torch.where(before != 0, dense[name], 0.0))
        assert torch.count_nonzero(merged.get_parameter(name)) == torch.count_nonzero(before)
        assert not torch.equal(merged.get_parameter(name), before)


def test_story_08_a_sparsified_model_travels_between_processes() -> None:
    """A model prepared for pruning could be neither copied nor sent to another process."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze(checkerboard(model), penalty=True)
    train(model, optimizer, 1)
    received: nn.Module = pickle.loads(ForkingPickler.dumps(model))
    sparsifier.assert_sparse(received)
    train(model, optimizer, 2)  # the memory is shared: the receiver sees the steps, zeros included
    torch.testing.assert_close(received.state_dict(), model.state_dict(), rtol=0, atol=0)
    sparsifier.assert_sparse(received)


def test_story_09_nothing_computed_stays_on_the_model() -> None:
    """A model pruned by hooks could not be copied: it kept a tensor that is no leaf of the graph."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    attach(optimizer, model, DRR(alpha=1e-3)).freeze(checkerboard(model), penalty=True)
    train(model, optimizer, 2)
    model(inputs()).sum().backward()
    assert [name for module in model.modules() for name, value in vars(module).items() if isinstance(value, Tensor)] == []
    deepcopy(model)

    hooked = network()
    prune.l1_unstructured(hooked[0], "weight", 0.5)
    assert int(random_gradient(hooked, inputs())["0.weight_orig"].sum()) == 24
    for act in (lambda: sparsified(hooked), lambda: shrink(hooked, inputs())):
        with pytest.raises(ValueError, match=r"0 \(Linear\) .*prune\.remove"):
            act()
    prune.remove(hooked[0], "weight")
    assert int(random_gradient(hooked, inputs())["0.weight"].sum()) == 24


def sparsified(model: Any) -> object:
    batch = (inputs(), torch.arange(16) % 3)
    return sparsify(model, classification_loss, train=[batch], method=RL1(alpha=1e-4), progress=False)


def test_story_12_a_sparse_checkpoint_is_pruned_further() -> None:
    """Pruning could not go on from a checkpoint that was sparse already."""
    model = network()
    lz.apply_masks_(select_parameters(model), checkerboard(model))
    first = masks_from_zeros(select_parameters(model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3), from_zeros=True)
    train(model, optimizer, 3)
    again = tamade(model, lambda network: float((network(inputs()) - 1).square().mean()), accept=Within(relative=0.5), min_keep=2)
    assert 0 < again.kept < 36
    sparsifier.freeze(again)
    train(model, optimizer, 3)
    assert sum(count_nonzeros([p]) for p in select_parameters(model).values()) == again.kept
    assert all(bool((first[name] | ~again[name]).all()) for name in first)


def test_story_13_masks_come_back_with_the_file(tmp_path: Path) -> None:
    """After an export nothing enforced the mask any more."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sparsifier = attach(optimizer, model, RL1(alpha=1e-3))
    sparsifier.freeze(checkerboard(model))
    train(model, optimizer, 2)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "sparse.safetensors")

    loaded = network(seed=1)
    loaded.load_state_dict(safetensors.torch.load_file(tmp_path / "sparse.safetensors"))
    optimizer = torch.optim.SGD(loaded.parameters(), lr=0.1, momentum=0.9)
    again = attach(optimizer, loaded, RL1(alpha=1e-3), from_zeros=True)
    assert again.masks is not None
    assert all(torch.equal(again.masks[name], mask) for name, mask in checkerboard(model).items())
    before = count_nonzeros(loaded)
    train(loaded, optimizer, 3)
    again.assert_sparse()
    sparsifier.assert_sparse(loaded)
    assert count_nonzeros(loaded) == before


@pytest.fixture
def process_group() -> Iterator[None]:
    """A group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no torch.distributed")
@pytest.mark.usefixtures("process_group")
def test_story_15_masks_find_their_weights_under_ddp_and_compile() -> None:
    """With DDP's prefix every mask was "not found, just skip it"."""
    wrapped = nn.parallel.DistributedDataParallel(torch.compile(network(), backend="eager"))
    plain = network()
    assert all(name.startswith("module._orig_mod.") for name, _ in wrapped.named_parameters())
    for model, prefix in ((wrapped, "module._orig_mod."), (plain, "")):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sparsifier = attach(optimizer, model, DRR(alpha=1e-3))
        found = magnitude_masks(model, keep=20)
        assert list(found) == list(random_gradient(model, inputs(), select=lz.weights)) == ["0.weight", "2.weight"]
        sparsifier.freeze({prefix + name: mask for name, mask in found.items()}, penalty=True)
        train(model, optimizer, 3)
        sparsifier.assert_sparse()
        sparsifier.assert_sparse(deepcopy(plain) if model is plain else model)
        assert sum(count_nonzeros([p]) for p in select_parameters(model).values()) == 20
    torch.testing.assert_close(list(wrapped.parameters()), list(plain.parameters()))


def test_story_28_a_network_cut_in_two_is_an_error_though_no_layer_is_empty() -> None:
    """A network died without a word: the weights that were kept did not connect its input to its output."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.1)
        model[0].weight[0, 0] = model[2].weight[0, 1] = 5.0  # the largest of each layer, in different units

    def pruned(count: int) -> lz.SparsifyResult:
        return sparsify(
            model,
            classification_loss,
            train=[(torch.rand(16, 3, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2)],
            method=Unregularised(),
            target=NonZeros(count),
            progress=False,
            recipe=Recipe(epochs=Epochs(prelude=0, regularise=0, fine_tune=0)),
        )

    with pytest.raises(CollapseError, match=r"everything in 0\.weight was pruned.*lower alpha or ask for more non-zeros"):
        pruned(2)
    assert pruned(20).nonzeros > 2


def test_story_30_norms_are_not_pruned_by_default_and_their_statistics_are_renewed() -> None:
    """Scales of normalisation were pruned by mistake, and running statistics were those of the dense network."""
    norms = [nn.BatchNorm2d(4), nn.LayerNorm((4, 5, 5)), nn.GroupNorm(2, 4), nn.RMSNorm((5, 5)), nn.InstanceNorm2d(4, affine=True)]
    model = nn.Sequential(nn.Conv2d(1, 4, 4), *norms, nn.Flatten(), nn.Linear(100, 3))
    assert list(select_parameters(model)) == ["0.weight", "7.weight"]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False))
    batches = [inputs(seed) for seed in range(20)]
    recalibrate_batchnorm(model, batches)
    lz.apply_masks_(select_parameters(model), magnitude_masks(model, keep=16))
    model.eval().requires_grad_(False)
    assert float(model(torch.cat(batches)).var(0).max()) < 0.9  # stale: less comes in than the statistics say
    recalibrate_batchnorm(model, batches)
    outputs = model(torch.cat(batches))
    torch.testing.assert_close(outputs.mean(0), torch.zeros(8), rtol=0, atol=1e-4)
    torch.testing.assert_close(outputs.var(0), torch.ones(8), rtol=0, atol=0.05)


ENTRIES: dict[str, Callable[[Any], object]] = {
    "select_parameters": select_parameters,
    "count_parameters": lz.count_parameters,
    "magnitude_masks": lambda model: magnitude_masks(model, keep=3),
    "tamade": lambda model: tamade(model, lambda network: 1.0, accept=Within(relative=0.1)),
    "random_gradient": lambda model: random_gradient(model, inputs()),
    "fold": lambda model: fold(model, inputs()),
    "fold_": lambda model: lz.surgery.fold_(model, inputs()),
    "shrink": lambda model: shrink(model, inputs()),
    "sparsify": sparsified,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_story_41_the_models_parameters_are_not_the_model(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users pass `model.parameters()`, and got an error about something else."""
    ENTRIES[entry](network())
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # what a user sees
    with pytest.raises(TypeError, match=r"got generator: pass the model itself, not model\.parameters\(\)"):
        ENTRIES[entry](network().parameters())


def test_story_42_the_readme_says_first_that_zeros_make_nothing_faster() -> None:
    """Users expected a pruned network to be faster."""
    first_screen = " ".join((Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8").split("\n")[:25])
    assert re.search(r"nothing\W+faster", first_screen)
    assert "shrink" in first_screen
