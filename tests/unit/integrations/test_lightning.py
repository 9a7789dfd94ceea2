"""Lightning's trainer: the bits of the plain loop, resumption, and no dense network that is taken for the best."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_support import FREEZE, METHODS, PHASES, STEPS, adam, batches, largest, network, plain_loop, same_bits
from torch import Tensor
from torch.nn import functional

if importlib.util.find_spec("lightning") is None:
    pytest.skip("Lightning is not installed: make test-frameworks installs it", allow_module_level=True)

import lightning
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, WeightAveraging

from ellzero.integrations.lightning import LightningSparsifier

# Warnings of a framework about its own loop.
pytestmark = pytest.mark.filterwarnings("ignore")


class Module(lightning.LightningModule):
    """A classifier whose validation error is that of the training data."""

    def __init__(self, *, manual: bool = False, accumulate: int = 1) -> None:
        super().__init__()
        self.net = network()
        self.automatic_optimization = not manual
        self.accumulate = accumulate

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Any:
        loss = functional.cross_entropy(self.net(batch[0]), batch[1])
        if self.automatic_optimization:
            return loss
        optimizer: Any = self.optimizers()
        self.manual_backward(loss / self.accumulate)
        if (index + 1) % self.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        return None

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log("loss", functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return adam(self)


def loader(steps: int = STEPS) -> Any:
    """The batches of the plain loop: a list of them would be taken for a list of loaders."""
    return torch.utils.data.DataLoader(batches(steps), batch_size=None)  # type: ignore[arg-type]


def trainer(folder: Path, *callbacks: Any, **given: Any) -> Any:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
        "num_sanity_val_steps": 0,
    }
    quiet |= {"enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks)}
    return lightning.Trainer(default_root_dir=folder, callbacks=list(callbacks), **{**quiet, "max_epochs": 1, **given})


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("form", ["automatic", "manual", "accumulated", "clipped", "bf16-mixed"])
def test_the_weights_are_those_of_the_plain_loop(name: str, form: str, tmp_path: Path) -> None:
    accumulate = 2 if form == "accumulated" else 1
    options: dict[str, Any] = {"accumulate_grad_batches": 2} if form == "accumulated" else {}
    options |= {"gradient_clip_val": 0.1} if form == "clipped" else {}
    options |= {"precision": "bf16-mixed"} if form == "bf16-mixed" else {}
    total = STEPS if form == "manual" else None
    callback = LightningSparsifier(METHODS[name], PHASES, total_steps=total, log=False)
    model = Module(manual=form == "manual")
    trainer(tmp_path, callback, **options).fit(model, loader(STEPS * accumulate))
    expected = plain_loop(METHODS[name], accumulate=accumulate, clip=0.1 if form == "clipped" else None, autocast=form == "bf16-mixed")
    assert same_bits(model.net, expected)
    assert callback.sparsifier is not None
    assert callback.sparsifier.step == STEPS


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_run_resumed_from_the_end_of_an_epoch_ends_with_the_same_bits(epoch: int, tmp_path: Path) -> None:
    data = loader(10)

    def fit(resume: Path | None) -> Module:
        model = Module()
        keeping = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1)
        callback = LightningSparsifier(METHODS["pmmp"], PHASES, log=False)
        trainer(tmp_path, callback, keeping, max_epochs=5).fit(model, data, ckpt_path=None if resume is None else str(resume))
        return model

    whole = fit(None)
    assert same_bits(fit(tmp_path / f"epoch={epoch}.ckpt"), whole)


def test_no_dense_network_is_the_best_and_none_stops_the_run(tmp_path: Path) -> None:
    """On two batches over and over the dense network is soon better than any sparse one is."""
    data = loader(2)
    best = ModelCheckpoint(dirpath=tmp_path, monitor="loss", mode="min", save_top_k=1)
    stopping = EarlyStopping("loss", patience=1, min_delta=10.0, mode="min")
    callback = LightningSparsifier(METHODS["drr"], PHASES, log=False)
    model = Module()
    run = trainer(tmp_path, stopping, callback, best, max_epochs=STEPS // 2)
    run.fit(model, data, data)
    assert run.global_step > FREEZE
    state = torch.load(best.best_model_path, weights_only=False)["state_dict"]
    assert 100 <= sum(int(tensor.count_nonzero()) for name, tensor in state.items() if name.endswith("weight")) <= 100
    assert stopping.patience == 1


def test_early_stopping_keeps_its_patience_over_a_checkpoint_of_the_dense_phase(tmp_path: Path) -> None:
    """Its state, which a checkpoint holds, is its own; after the masks it stops as it would."""
    data = loader(2)

    def fit(resume: Path | None) -> tuple[EarlyStopping, int]:
        stopping = EarlyStopping("loss", patience=3, min_delta=10.0, mode="min", stopping_threshold=100.0)
        keeping = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1)
        run = trainer(tmp_path, stopping, LightningSparsifier(METHODS["drr"], PHASES, log=False), keeping, max_epochs=STEPS // 2)
        run.fit(Module(), data, data, ckpt_path=None if resume is None else str(resume))
        return stopping, run.global_step

    # The threshold is met at the first look with masks in force.
    whole, steps = fit(None)
    assert FREEZE <= steps <= FREEZE + 4
    resumed, again = fit(tmp_path / "epoch=3.ckpt")
    assert again == steps
    assert [(own.patience, own.stopping_threshold) for own in (whole, resumed)] == [(3, 100.0)] * 2


def test_averages_of_weights_are_masked(tmp_path: Path) -> None:
    callback = LightningSparsifier(METHODS["rl1"], PHASES, log=False)
    model = Module()
    last = ModelCheckpoint(dirpath=tmp_path, filename="last", save_top_k=1)
    trainer(tmp_path, callback, WeightAveraging(use_buffers=False), last).fit(model, loader())
    assert callback.sparsifier is not None
    callback.sparsifier.assert_sparse()
    saved = torch.load(next(tmp_path.glob("last*.ckpt")), weights_only=False)["state_dict"]
    assert sum(int(tensor.count_nonzero()) for name, tensor in saved.items() if name.endswith("weight")) <= 100


def test_a_run_that_ends_before_the_masks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="before masks were in force"):
        trainer(tmp_path, LightningSparsifier(METHODS["rl1"], PHASES, total_steps=1000, log=False)).fit(Module(), loader())


def test_the_callback_is_for_one_run_at_a_time_and_leaves_the_optimizer_alone_afterwards(tmp_path: Path) -> None:
    callback = LightningSparsifier(METHODS["rl1"], PHASES, log=False)
    for _ in range(2):
        model = Module()
        trainer(tmp_path, callback).fit(model, loader())
        assert same_bits(model.net, plain_loop(METHODS["rl1"]))
    assert largest(model.net).keys() == {"0.weight", "2.weight"}
