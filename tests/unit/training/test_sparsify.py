import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from ellzero.archive.load import load_model
from ellzero.archive.save import save_model
from ellzero.data import Shifts
from ellzero.methods import DRR, PMMP, RL1, Cosine, ExactGates, Unregularised, ramp
from ellzero.params import count_nonzeros, everything, select_parameters, weights
from ellzero.pruning import random_gradient
from ellzero.quantise.grids import LogGrid
from ellzero.targets import Bytes, ErrorIncrease, NonZeros
from ellzero.training import (
    Anneal,
    Cycles,
    Distill,
    Epochs,
    GridTraining,
    Progress,
    Recipe,
    Saturation,
    Warm,
    classification_error,
    classification_loss,
    error_rate,
    sparsify,
)
from training_problems import SHORT, digits_batches, equal, small_network, state

METHOD = DRR(alpha=1e-3, proximal=True)


def run(model=None, **changes):
    train, valid = digits_batches()
    arguments = {"train": train, "valid": valid, "method": METHOD, "progress": False}
    arguments |= {name: changes.pop(name) for name in ("train", "valid", "method", "target", "seed", "progress") if name in changes}
    recipe = Recipe(**{"epochs": SHORT, "lr": 3e-3, "select": everything, **changes})
    return sparsify(model or small_network(), classification_loss, recipe=recipe, **arguments)


def test_the_given_model_is_left_alone():
    model = small_network()
    before = state(model)
    result = run(model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert result.model is not model
    assert type(result.model) is type(model)
    assert {name: tensor.shape for name, tensor in result.model.state_dict().items()} == {name: t.shape for name, t in before.items()}


def test_tamade_prunes_within_its_tolerance_and_masks_hold():
    result = run(epochs=Epochs(prelude=6, regularise=6, fine_tune=2))
    assert 0 < result.nonzeros < 0.9 * result.parameters
    assert result.nonzeros == count_nonzeros(result.model)
    assert result.compression_rate == result.parameters / result.nonzeros
    for name, parameter in select_parameters(result.model, everything).items():
        assert torch.equal(result.masks[name], parameter != 0)
    _, valid = digits_batches()
    assert error_rate(result.model, classification_error, valid) < 0.2


@pytest.mark.parametrize("cycles", [None, Cycles(start=1000, count=3, epochs=1)])
@pytest.mark.parametrize("anneal", [None, Anneal(epochs=2, finish_epochs=1)])
def test_nonzeros_is_met_and_every_weight_left_matters(cycles, anneal):
    result = run(target=NonZeros(300), cycles=cycles, anneal=anneal)
    assert 250 < result.nonzeros <= 300
    train, _ = digits_batches()
    alive = random_gradient(result.model, [batch.inputs for batch in train], select=everything)
    assert all(torch.equal(alive[name] & (p != 0), p != 0) for name, p in select_parameters(result.model, everything).items())


def test_the_number_of_nonzeros_counts_what_is_regularised():
    result = run(target=NonZeros(300), select=weights)
    assert sum(count_nonzeros([p]) for p in select_parameters(result.model, weights).values()) <= 300
    assert result.nonzeros > 300  # biases come on top


@pytest.mark.parametrize("price", [{}, {"bit_price": 3e-4, "saves": 0.1}])
@pytest.mark.parametrize("cycles", [None, Cycles(start=1000, count=3, epochs=1, restarts=True)])
def test_bytes_is_met_by_the_file_and_the_file_holds_what_was_trained(cycles, price, tmp_path):
    result = run(target=Bytes(700), cycles=cycles, grid_training=GridTraining(epochs=2, lr=1e-3, **price))
    path = tmp_path / "net.l0"
    save_model(result.model, path, quantise=result.quantiser)
    assert 600 < path.stat().st_size <= 700
    loaded = load_model(small_network(), path)
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in result.model.state_dict().items())
    assert all(len(p[p != 0].abs().unique()) <= 19 for p in select_parameters(result.model, everything).values())
    assert result.history[-1].stage == "on grid"
    _, valid = digits_batches()
    assert error_rate(result.model, classification_error, valid) < 0.5


def test_a_grid_without_a_size_is_a_last_stretch_of_training():
    result = run(target=NonZeros(300), grid_training=GridTraining(grid=LogGrid(1.5, num_levels=5), epochs=1))
    assert 250 < result.nonzeros <= 300
    assert all(len(p[p != 0].abs().unique()) <= 5 for p in select_parameters(result.model, everything).values())
    assert result.quantiser is not None


def test_more_nonzeros_than_weights_are_refused():
    with pytest.raises(ValueError, match="only 1990"):
        run(target=NonZeros(5000))


def test_generators_are_refused():
    train, _ = digits_batches()
    with pytest.raises(TypeError, match="train= is a generator"):
        run(train=(batch for batch in train))


def test_two_runs_are_the_same_run():
    settings = {"augment": Shifts(pixels=1), "distill": Distill(), "target": NonZeros(300)}
    first, second = run(**settings), run(**settings)
    assert equal(first.model, second.model)
    assert [(e.train_loss, e.nonzeros) for e in first.history] == [(e.train_loss, e.nonzeros) for e in second.history]


def test_the_seed_of_the_augmentation_matters():
    assert not equal(run(augment=Shifts(pixels=1), seed=0).model, run(augment=Shifts(pixels=1), seed=1).model)


def test_every_stretch_appears_in_the_history():
    result = run(
        warm=Warm(method=RL1(alpha=1e-4, proximal=True), epochs=1),
        cycles=Cycles(start=1000, count=2, epochs=1),
        anneal=Anneal(epochs=2, lr=Cosine(first=2e-3, last=1e-4), finish_epochs=1),
        target=NonZeros(300),
    )
    stages = [entry.stage for entry in result.history]
    assert stages == ["prelude"] * 3 + ["warm"] + ["regularise"] * 3 + ["cycle 1", "cycle 2"] + ["anneal"] * 2 + ["finish"]
    assert [entry.epoch for entry in result.history] == list(range(1, 13))
    assert result.history[-1].step == 120
    assert all(entry.valid_loss is not None for entry in result.history)


def test_distillation_uses_the_dense_network_of_the_prelude():
    plain, distilled = run(), run(distill=Distill(weight=0.9))
    assert plain.history[2].train_loss == distilled.history[2].train_loss  # no teacher during the prelude
    assert plain.history[3].train_loss != distilled.history[3].train_loss


def test_search_for_an_error_records_every_try_and_returns_the_best():
    result = run(target=ErrorIncrease(0.05, tries=4), epochs=Epochs(prelude=8, regularise=4, fine_tune=3))
    assert 1 <= len(result.tries) <= 4
    accepted = [one for one in result.tries if one.accepted]
    assert result.reached
    assert result.nonzeros == min(one.nonzeros for one in accepted)
    _, valid = digits_batches()
    dense = small_network()
    dense.load_state_dict(result.dense)
    increase = error_rate(result.model, classification_error, valid) - error_rate(dense, classification_error, valid)
    assert increase <= 0.05 + 1e-9
    assert any(one.warm_start is not None for one in result.tries) or len(accepted) <= 1


def test_a_search_from_far_too_small_an_alpha_uses_the_error_allowed_or_says_that_it_does_not():
    epochs = Epochs(prelude=8, regularise=4, fine_tune=3)
    with pytest.warns(UserWarning, match="every alpha tried was accepted, the largest is 4e-08"):
        short = run(method=RL1(alpha=1e-8, proximal=True), target=ErrorIncrease(0.05, tries=2), epochs=epochs)
    assert short.reached
    assert short.bracket_closed is False
    result = run(method=RL1(alpha=1e-8, proximal=True), target=ErrorIncrease(0.05), epochs=epochs)
    assert any(not attempt.accepted for attempt in result.tries)
    # Six doublings, as before, end at 3.2e-7, where nothing of 1,600 weights is lost.
    assert max(attempt.alpha for attempt in result.tries if attempt.accepted) > 1e-5
    assert result.nonzeros < short.nonzeros / 2


def test_search_that_finds_nothing_warns_and_says_so():
    with pytest.warns(UserWarning, match="no network within the tolerated error"):
        result = run(target=ErrorIncrease(-0.5, tries=2))
    assert not result.reached
    assert result.bracket_closed is False
    assert len(result.tries) == 2


def test_collapse_is_an_error_that_names_the_layer():
    with pytest.raises(ValueError, match=r"layers\.\d\.weight was pruned"):
        run(method=RL1(alpha=10.0, proximal=True), epochs=Epochs(prelude=1, regularise=20, fine_tune=1))


def test_collapse_within_a_search_is_a_failed_try():
    with pytest.warns(UserWarning, match="no network"):
        result = run(
            method=RL1(alpha=10.0, proximal=True), target=ErrorIncrease(0.01, tries=1), epochs=Epochs(prelude=2, regularise=20, fine_tune=1)
        )
    assert result.tries[0].error_increase is None
    assert "was pruned" in result.tries[0].note


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(ValueError, match="lower the learning rate"):
        run(lr=1e30, prelude_lr=1e30)


def test_search_needs_held_out_data_and_a_constant_alpha():
    with pytest.raises(ValueError, match="pass valid="):
        run(target=ErrorIncrease(0.01), valid=None)
    with pytest.raises(ValueError, match="constant alpha"):
        run(target=ErrorIncrease(0.01), method=DRR(alpha=ramp(0.0, 1e-4), proximal=True))


def test_an_unregularised_run_without_a_target_is_a_dense_baseline():
    result = run(method=Unregularised())
    assert result.nonzeros == result.parameters
    assert {entry.stage for entry in result.history} == {"prelude"}
    assert all(torch.equal(result.dense[name], tensor) for name, tensor in result.model.state_dict().items())


def test_an_unregularised_run_with_a_target_is_magnitude_pruning():
    assert 250 < run(method=Unregularised(), target=NonZeros(300)).nonzeros <= 300


def test_saturation_ends_phases_by_appendix_g():
    train, valid = digits_batches()
    until = Saturation(window=6, every=1, max_regularise=60, max_fine_tune=60)
    result = run(train=train, valid=valid, saturation=until, epochs=Epochs(prelude=1, regularise=6, fine_tune=6), lr=1e-2)
    lengths = [sum(entry.stage == name for entry in result.history) for name in ("regularise", "fine-tune")]
    assert all(6 <= length < 60 for length in lengths)


def test_units_that_die_within_a_phase_are_removed_within_it():
    result = run(method=RL1(alpha=3e-2, proximal=True), target=NonZeros(100), epochs=Epochs(prelude=1, regularise=4, fine_tune=1))
    live = [entry.live_parameters for entry in result.history if entry.stage == "regularise"]
    assert live[0] == 1990
    assert live[-1] < 0.9 * 1990


def test_a_phase_is_judged_by_its_own_losses():
    """All losses are those of a network that stands still, so every window of six says stop; but a phase has to have had six epochs."""
    until = Saturation(window=6, every=1, max_regularise=10, max_fine_tune=10)
    result = run(
        method=RL1(alpha=0.0),
        target=NonZeros(1990),
        saturation=until,
        epochs=Epochs(prelude=8, regularise=1, fine_tune=2),
        prelude_lr=0.0,
        lr=0.0,
        fine_tune_lr=0.0,
    )
    lengths = {name: sum(entry.stage == name for entry in result.history) for name in ("prelude", "regularise", "fine-tune")}
    assert lengths == {"prelude": 8, "regularise": 6, "fine-tune": 6}


def test_compaction_removes_what_has_died_and_changes_no_shape():
    settings = {
        "error_fn": classification_error,
        "target": NonZeros(150),
        "cycles": Cycles(start=600, count=4, epochs=1),
        "anneal": Anneal(epochs=2, finish_epochs=1),
    }
    compacted, full = run(**settings), run(compact=False, **settings)
    assert compacted.history[-1].live_parameters < 0.8 * 1990
    assert full.history[-1].live_parameters == 1990
    assert {n: t.shape for n, t in compacted.model.state_dict().items()} == {n: t.shape for n, t in full.model.state_dict().items()}
    assert compacted.nonzeros <= 150
    _, valid = digits_batches()
    assert abs(compacted.history[-1].valid_error - error_rate(compacted.model, classification_error, valid)) < 1e-9


def test_dictionaries_and_objects_with_logits_work():
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small_network()

        def forward(self, pixels: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.network(pixels))

    train, _ = digits_batches()
    batches = [{"pixels": batch.inputs, "labels": batch.targets} for batch in train]

    def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(model(pixels=batch["pixels"]).logits, batch["labels"])

    result = sparsify(
        Wrapped(),
        loss_fn,
        train=batches,
        method=METHOD,
        target=NonZeros(200),
        progress=False,
        recipe=Recipe(select=everything, epochs=SHORT, distill=Distill()),
    )
    assert result.nonzeros <= 200
    assert next(name for name, _ in result.model.named_parameters()) == "network.layers.0.weight"


def test_a_data_loader_works():
    train, _ = digits_batches()
    pairs = torch.utils.data.TensorDataset(train.inputs.float() / 16, train.targets)
    loader = torch.utils.data.DataLoader(pairs, batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(0))
    assert run(train=loader, target=NonZeros(200)).nonzeros <= 200


def test_convolutions_with_batch_normalisation_and_dropout_train_at_full_size():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(54, 10),
    )
    result = run(model, target=NonZeros(120))
    assert result.nonzeros <= 120
    assert result.history[-1].live_parameters == result.parameters


def test_no_warning_escapes_a_usual_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()


def test_on_epoch_sees_each_entry_once():
    seen = []
    result = run(progress=Progress(bar=False, on_epoch=seen.append))
    assert tuple(seen) == result.history


@pytest.mark.parametrize("regrow", [0.0, 0.5])
def test_cycles_within_masks_by_saliency(regrow):
    cycles = Cycles(start=900, count=3, epochs=2, regrow=regrow, power=0.25, method=DRR(alpha=ramp(2e-3, 1e-3), beta=5.0, proximal=True))
    seen = run(target=NonZeros(200), cycles=cycles, anneal=Anneal(epochs=1, finish_epochs=0))
    assert seen.nonzeros <= 200
    by_stage = {entry.stage: entry for entry in seen.history}
    regrown: list[bool] = []
    for number, keep in enumerate((900, 424, 200), start=1):
        entry = by_stage[f"cycle {number}"]
        assert entry.nonzeros <= round(keep * (1 + regrow))
        assert entry.alpha == pytest.approx(2e-3 - 0.5e-3 * (number - 1))
        regrown.append(entry.nonzeros > keep)
    assert any(regrown) == (regrow > 0)


def test_second_moments_are_needed_to_rank_by_saliency():
    with pytest.raises(ValueError, match=r"power=0\.25 ranks by Adam's second moments"):
        run(
            target=NonZeros(200),
            method=RL1(alpha=1e-4, proximal=True),
            cycles=Cycles(start=900, count=2, power=0.25),
            optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
        )


def test_pmmp_runs_through_all_phases_with_its_gates_at_full_size():
    result = run(method=PMMP(alpha=1e-3, updates=ExactGates(), u=ramp(0.01, 1.0)), target=NonZeros(300))
    assert 250 < result.nonzeros <= 300


def test_no_training_data_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="no batch to train on"):
        run(train=[])


def test_data_without_a_length_are_counted_once():
    train, _ = digits_batches()
    reads = []

    class Streamed:
        def __iter__(self):
            reads.append(1)
            return train.epoch(0)

    result = run(train=Streamed(), target=NonZeros(300))
    assert len(reads) <= len(result.history) + 5  # once to count, once for the example, and the pruning's few batches
