"""The trainer of transformers, and the loops of accelerate and Fabric: the bits of the plain loop."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from integration_support import FREEZE, METHODS, PHASES, REGULARISE, STEPS, adam, batches, largest, network, plain_loop, same_bits
from torch import Tensor, nn
from torch.nn import functional

from ellzero.attaching._attach import attach
from ellzero.types import Phase

if any(importlib.util.find_spec(name) is None for name in ("transformers", "accelerate", "lightning")):
    pytest.skip("transformers, accelerate or Lightning is not installed: make test-frameworks installs them", allow_module_level=True)

import transformers
from accelerate import Accelerator
from lightning.fabric import Fabric

from ellzero.integrations.transformers import TrainerSparsifier

# Warnings of a framework about its own loop.
pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(nn.Module):
    """A model as the trainer wants it: it computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(inputs)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The samples of all batches in order."""

    def __init__(self, steps: int) -> None:
        data = batches(steps)
        self.inputs, self.labels = torch.cat([inputs for inputs, _ in data]), torch.cat([labels for _, labels in data])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


def trainer(model: nn.Module, callback: Any, folder: Path, rows: int = STEPS, **given: Any) -> Any:
    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "num_train_epochs": 1,
        "use_cpu": True,
        "report_to": [],
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "label_names": ["labels"],
    } | given
    optimizer = adam(model)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    return InOrder(
        model=model,
        args=transformers.TrainingArguments(**settings),
        train_dataset=Rows(rows),
        eval_dataset=Rows(2),
        optimizers=(optimizer, constant),
        callbacks=[callback],
    )


@pytest.mark.parametrize("form", ["plain", "accumulated", "clipped"])
@pytest.mark.parametrize("name", METHODS)
def test_the_trainers_weights_are_those_of_the_plain_loop(name: str, form: str, tmp_path: Path) -> None:
    accumulate = 2 if form == "accumulated" else 1
    callback = TrainerSparsifier(METHODS[name], PHASES)
    model = Classifier()
    options: dict[str, Any] = {"gradient_accumulation_steps": accumulate, "max_grad_norm": 0.1 if form == "clipped" else 0.0}
    trainer(model, callback, tmp_path, STEPS * accumulate, **options).train()
    assert callback.sparsifier is not None
    assert callback.sparsifier.step == STEPS
    assert same_bits(model.net, plain_loop(METHODS[name], accumulate=accumulate, clip=0.1 if form == "clipped" else None))


@pytest.mark.parametrize("step", [20, 40])
def test_a_resumed_run_ends_with_the_same_bits(step: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 20}
    model = Classifier()
    trainer(model, TrainerSparsifier(METHODS["pmmp"], PHASES), tmp_path, **options).train()
    resumed = Classifier()
    run = trainer(resumed, TrainerSparsifier(METHODS["pmmp"], PHASES), tmp_path, **options)
    run.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert same_bits(resumed, model)


def test_the_best_network_is_a_sparse_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "eval_strategy": "steps", "save_steps": 5, "eval_steps": 5}
    options |= {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": False, "num_train_epochs": 25}
    model = Classifier()
    run = trainer(model, TrainerSparsifier(METHODS["drr"], PHASES), tmp_path, 2, **options)
    run.train()
    assert run.state.best_model_checkpoint is not None
    assert run.state.best_global_step > FREEZE
    assert sum(int(p.count_nonzero()) for p in model.parameters() if p.ndim == 2) == 100


def test_early_stopping_waits_for_the_masks(tmp_path: Path) -> None:
    options: dict[str, Any] = {"eval_strategy": "steps", "save_strategy": "steps", "save_steps": 2, "eval_steps": 2}
    options |= {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": False, "num_train_epochs": 25}
    callback = TrainerSparsifier(METHODS["drr"], PHASES)
    run = trainer(Classifier(), callback, tmp_path, 2, **options)
    run.add_callback(transformers.EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=10.0))
    run.train()
    assert FREEZE < run.state.global_step <= FREEZE + 7
    assert callback.sparsifier is not None
    assert callback.sparsifier.masks is not None


def by_hand(model: nn.Module, optimizer: Any, backward: Any, name: str) -> None:
    """A loop that the user writes, with an optimizer that a framework has wrapped."""
    sparsifier = attach(optimizer, model, METHODS[name], total_steps=STEPS)
    sparsifier.set_phase(Phase.PRELUDE)
    for step, (inputs, labels) in enumerate(batches(), start=1):
        optimizer.zero_grad()
        backward(functional.cross_entropy(model(inputs), labels))
        optimizer.step()
        if step == REGULARISE:
            sparsifier.set_phase(Phase.REGULARISE)
        if step == FREEZE:
            sparsifier.freeze(largest(model))
    sparsifier.assert_sparse()


@pytest.mark.parametrize("name", METHODS)
def test_accelerates_weights_are_those_of_the_plain_loop(name: str) -> None:
    accelerator = Accelerator(cpu=True)
    model = network()
    prepared, optimizer = accelerator.prepare(model, adam(model))
    by_hand(prepared, optimizer, accelerator.backward, name)
    assert same_bits(model, plain_loop(METHODS[name]))


@pytest.mark.parametrize("name", METHODS)
def test_fabrics_weights_are_those_of_the_plain_loop(name: str) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    model = network()
    wrapped, optimizer = fabric.setup(model, adam(model))
    by_hand(wrapped, optimizer, fabric.backward, name)
    assert same_bits(model, plain_loop(METHODS[name]))
