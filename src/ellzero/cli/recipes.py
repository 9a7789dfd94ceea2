"""Complete settings of a run, by the three names the command line knows.

A recipe holds how the data are treated and every argument of `sparsify`; the command line's own options replace parts of it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from ellzero.cli.options.sparsify import RecipeName
from ellzero.data import Augmentation, Shifts
from ellzero.methods import DRR, RL1, Method, geometric
from ellzero.params import Selector, everything
from ellzero.pruning import Within
from ellzero.targets import NonZeros
from ellzero.training import Anneal, Cosine, Cycles, Distill, Epochs, Saturation, Target, Warm


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that a run is made of, beside network, data and seed.

    Attributes:
        batch_size: images a batch.
        train_size: images trained on; None for all that are not held out.
        validation: images held out.
        augment: changes training images.
        copies: how many augmented copies of them are made; None augments anew in each epoch.
        method: what regularises.
        target: what to arrive at; None leaves it to TAMADE.
        params: what is regularised and pruned.
        options: further arguments of `sparsify`.
    """

    batch_size: int = 250
    train_size: int | None = None
    validation: int = 5000
    augment: Augmentation | None = None
    copies: int | None = None
    method: Method = field(default_factory=lambda: DRR(alpha=7e-5, beta=5.0, proximal=True))
    target: Target | None = None
    select: Selector = everything
    options: dict[str, Any] = field(default_factory=dict)


def paper() -> Recipe:
    """Builds the paper's own recipe for images (appendix F; what its authors ran, with their split and criterion).

    45,000 images, batch 500, Adam at 1e-3 throughout, the penalty in the gradient, no augmentation; phases end by appendix G.
    """
    return Recipe(
        batch_size=500,
        train_size=45_000,
        validation=5000,
        method=DRR(alpha=3e-5, beta=5.0),
        options={
            "epochs": Epochs(prelude=20, regularise=300, fine_tune=33),
            "saturation": Saturation(window=30, every=10, max_regularise=5000, max_fine_tune=1000),
        },
    )


def smallest() -> Recipe:
    """Builds the recipe for the fewest weights: shifts, distillation, proximal penalties, many small truncations, and an anneal."""
    return Recipe(
        batch_size=100,
        augment=Shifts(pixels=1),
        copies=12,
        method=DRR(alpha=7e-5, beta=5.0, proximal=True),
        target=NonZeros(1480),
        options={
            "epochs": Epochs(prelude=20, regularise=8, fine_tune=0),
            "prelude_lr": Cosine(first=1e-3, last=1e-5),
            "warm": Warm(method=RL1(alpha=1.5e-4, proximal=True), epochs=6, lr=1.5e-3),
            "lr": 1.5e-3,
            "cycles": Cycles(
                start=9000,
                count=45,
                epochs=2,
                lr=Cosine(first=2.5e-3, last=1.5e-3),
                regrow=0.5,
                method=DRR(alpha=geometric(1.5e-4, 1e-4), beta=5.0, proximal=True),
                power=0.25,
            ),
            "anneal": Anneal(epochs=40, lr=Cosine(first=2e-3, last=2e-5), method=DRR(alpha=7e-5, beta=5.0, proximal=True), finish_epochs=0),
            "distill": Distill(weight=0.5, temperature=2.0),
        },
    )


def fast() -> Recipe:
    """Builds the recipe for a minute: proximal DRR, a mask by TAMADE, and a short fine-tuning."""
    return Recipe(
        augment=Shifts(pixels=1),
        method=DRR(alpha=1e-4, beta=5.0, proximal=True),
        options={
            "epochs": Epochs(prelude=6, regularise=14, fine_tune=8),
            "prelude_lr": Cosine(first=2e-3, last=1e-4),
            "lr": 2e-3,
            "fine_tune_lr": Cosine(first=1e-3, last=1e-5),
            "accept": Within(relative=0.05),
        },
    )


def scaled_to_digits(recipe: Recipe) -> Recipe:
    """Adapts a recipe to the 1,797 shipped digits: small batches, more passes, and no shifts, which are large on 8x8 pixels."""
    options = dict(recipe.options)
    epochs = options["epochs"]
    assert isinstance(epochs, Epochs)
    options["epochs"] = Epochs(
        prelude=max(20, epochs.prelude), regularise=min(60, 2 * epochs.regularise + 10), fine_tune=min(33, epochs.fine_tune + 7)
    )
    method, target = recipe.method, recipe.target
    if isinstance(method, DRR) and method.proximal:
        method = replace(method, alpha=5e-4)
    if target is not None:
        target = NonZeros(400)
    if "cycles" in options:
        options["cycles"] = replace(options["cycles"], start=1500)
    return replace(
        recipe, batch_size=32, train_size=None, validation=300, augment=None, copies=None, method=method, target=target, options=options
    )


RECIPES = {RecipeName.PAPER: paper, RecipeName.SMALLEST: smallest, RecipeName.FAST: fast}
