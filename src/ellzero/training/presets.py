"""Complete settings of a run, by the three names that the command line knows.

A preset holds how the data are treated, a method, a target and a `Recipe`; network, data and seed come from elsewhere.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from ellzero.data import Augmentation, Shifts
from ellzero.methods import DRR, RL1, Cosine, Method, geometric
from ellzero.params import everything
from ellzero.pruning import Within
from ellzero.records import settings_of
from ellzero.targets import NonZeros
from ellzero.training._sparsify import Target
from ellzero.training.distill import Distill
from ellzero.training.recipe import Anneal, Cycles, Epochs, Recipe, Saturation, Warm


@dataclass(frozen=True, kw_only=True)
class DataTreatment:
    """How a data set is prepared before a network is trained on it.

    Attributes:
        batch_size: images per batch.
        train_size: images trained on; None for all that are not held out.
        validation: images held out.
        augment: changes training images.
        copies: number of augmented copies of every image; None augments anew in every epoch.
    """

    batch_size: int = 250
    train_size: int | None = None
    validation: int = 5000
    augment: Augmentation | None = None
    copies: int | None = None


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything about a run beside network, data and seed.

    Attributes:
        data: how the data are prepared.
        method: what regularises.
        target: what the run is to arrive at; None leaves it to TAMADE.
        recipe: how the network is trained.
    """

    data: DataTreatment = DataTreatment()  # frozen
    method: Method = field(default_factory=lambda: DRR(alpha=7e-5, beta=5.0, proximal=True))
    target: Target | None = None
    recipe: Recipe = Recipe(select=everything, accept_on_train=True)  # noqa: RUF009  # frozen

    def with_recipe(self, **changes: Any) -> "Preset":
        """Returns the same preset with some fields of its recipe replaced."""
        return replace(self, recipe=replace(self.recipe, **changes))

    def with_data(self, **changes: Any) -> "Preset":
        """Returns the same preset with some fields of its data treatment replaced."""
        return replace(self, data=replace(self.data, **changes))

    def settings(self) -> dict[str, Any]:
        """Lists the preset as plain JSON for a record."""
        return settings_of(self)


def paper() -> Preset:
    """Builds the paper's own recipe for images (appendix F; what its authors ran, with their split and criterion).

    45,000 images, batch 500, Adam at 1e-3 throughout, the penalty in the gradient, no augmentation; phases end by appendix G.
    """
    return Preset(
        data=DataTreatment(batch_size=500, train_size=45_000, validation=5000),
        method=DRR(alpha=3e-5, beta=5.0),
        recipe=Recipe(
            select=everything,
            accept_on_train=True,
            epochs=Epochs(prelude=20, regularise=300, fine_tune=33),
            saturation=Saturation(window=30, every=10, max_regularise=5000, max_fine_tune=1000),
        ),
    )


def smallest() -> Preset:
    """Builds the recipe for the fewest weights: shifts, distillation, proximal penalties, many small truncations, and an anneal."""
    return Preset(
        data=DataTreatment(batch_size=100, augment=Shifts(pixels=1), copies=12),
        method=DRR(alpha=7e-5, beta=5.0, proximal=True),
        target=NonZeros(1480),
        recipe=Recipe(
            select=everything,
            accept_on_train=True,
            epochs=Epochs(prelude=20, regularise=8, fine_tune=0),
            prelude_lr=Cosine(first=1e-3, last=1e-5),
            warm=Warm(method=RL1(alpha=1.5e-4, proximal=True), epochs=6, lr=1.5e-3),
            lr=1.5e-3,
            cycles=Cycles(
                start=9000,
                count=45,
                epochs=2,
                lr=Cosine(first=2.5e-3, last=1.5e-3),
                regrow=0.5,
                method=DRR(alpha=geometric(1.5e-4, 1e-4), beta=5.0, proximal=True),
                power=0.25,
            ),
            anneal=Anneal(epochs=40, lr=Cosine(first=2e-3, last=2e-5), method=DRR(alpha=7e-5, beta=5.0, proximal=True), finish_epochs=0),
            distill=Distill(weight=0.5, temperature=2.0),
        ),
    )


def fast() -> Preset:
    """Builds the recipe for a minute: proximal DRR, a mask by TAMADE, and a short fine-tuning."""
    return Preset(
        data=DataTreatment(augment=Shifts(pixels=1)),
        method=DRR(alpha=1e-4, beta=5.0, proximal=True),
        recipe=Recipe(
            select=everything,
            accept_on_train=True,
            epochs=Epochs(prelude=6, regularise=14, fine_tune=8),
            prelude_lr=Cosine(first=2e-3, last=1e-4),
            lr=2e-3,
            fine_tune_lr=Cosine(first=1e-3, last=1e-5),
            accept=Within(relative=0.05),
        ),
    )


def scaled_to_digits(preset: Preset) -> Preset:
    """Adapts a preset to the 1,797 shipped digits: small batches, more passes, and no shifts, which are large on 8x8 pixels."""
    recipe, method, epochs = preset.recipe, preset.method, preset.recipe.epochs
    if isinstance(method, DRR) and method.proximal:
        method = replace(method, alpha=5e-4)
    return replace(
        preset,
        data=DataTreatment(batch_size=32, validation=300),
        method=method,
        target=None if preset.target is None else NonZeros(400),
        recipe=replace(
            recipe,
            epochs=Epochs(
                prelude=max(20, epochs.prelude), regularise=min(60, 2 * epochs.regularise + 10), fine_tune=min(33, epochs.fine_tune + 7)
            ),
            cycles=None if recipe.cycles is None else replace(recipe.cycles, start=1500),
        ),
    )
