"""PMMP on LeNet-300-100 and MNIST: by ADMM, as its authors ran it, and the other methods of table 1a beside it.

    python -m experiments.pmmp run --configurations admm pmmp-adam drr-o --seeds 0 1 2 3 4
    python -m experiments.pmmp table
    python -m experiments.pmmp figure

A run is one line of `results/pmmp.jsonl`; runs that are recorded already are not run again. The dense baselines and the rows of R-L1
and DRR are runs of `experiments.lenet300`. Recipes were chosen on training and validation images alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments import lenet300
from experiments.commands import FOLDER, Networks, picture

BESIDE = ("dense", "dense-shifts", "paper-rl1", "paper-drr")
"""Configurations of `experiments.lenet300` in the table."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A method that records once per epoch which of its weights live: gates of PMMP more than half open, z of ADMM that is not 0.

    Attributes:
        method: the method that is recorded.
        per_epoch: steps per epoch.
        living: number of weights that live, one entry per epoch.
        changed: number of weights that have come to life or ceased to since the previous epoch.
        last: the weights that lived at the previous epoch, by name.
    """

    method: Any
    per_epoch: int
    living: list[int] = field(default_factory=list, repr=False, compare=False)
    changed: list[int] = field(default_factory=list, repr=False, compare=False)
    last: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def laws(self) -> Any:
        return self.method.laws

    @property
    def proximal(self) -> bool:
        return self.method.proximal

    @property
    def alpha(self) -> Any:
        return self.method.alpha

    def with_alpha(self, alpha: float) -> Any:
        return replace(self, method=self.method.with_alpha(alpha))

    def init(self, params: Mapping[str, Any]) -> Any:
        state = self.method.init(params)
        self.last.update(_living(state))
        return state

    def penalty(self, params: Mapping[str, Any], state: Any, at: Any) -> Any:
        return self.method.penalty(params, state, at)

    def add_gradient_(self, params: Mapping[str, Any], state: Any, at: Any, scale: float = 1.0) -> None:
        self.method.add_gradient_(params, state, at, scale)

    def after_step_(self, params: Mapping[str, Any], state: Any, steps: Mapping[str, Any], at: Any) -> None:
        self.method.after_step_(params, state, steps, at)
        if (at.step + 1) % self.per_epoch == 0:
            living = _living(state)
            self.living.append(sum(int(flags.sum()) for flags in living.values()))
            self.changed.append(sum(int((flags != self.last[name]).sum()) for name, flags in living.items()))
            self.last.update(living)

    def masks_(self, params: Mapping[str, Any], state: Any, at: Any) -> Any:
        return self.method.masks_(params, state, at)


def _living(state: Any) -> dict[str, Any]:
    tensors = state.state_dict()
    gates = {name: tensor > 0.5 for name, tensor in tensors.items() if name.endswith(".gamma")}
    return gates or {name: tensor != 0 for name, tensor in tensors.items() if name.endswith(".z")}


def configurations() -> dict[str, Callable[[], Any]]:
    """Lists every configuration by name; imports torch."""
    from ellzero.methods import DRR, PMMP, PerModule
    from ellzero.training.presets import paper

    # Tried on validation images: behind gates that are closed at first (p_init=0) the weights collapse.
    pmmp = PMMP(alpha=8e-4, p_init=1.0)
    return {
        "admm": admm,
        "admm-alone": admm_alone,
        "without-admm": without_admm,
        "pmmp-adam": lambda: replace(paper(), method=Watched(method=pmmp, per_epoch=90)),
        "drr-o": lambda: replace(paper(), method=DRR(alpha=3e-5, beta=5.0, rho=1e-6, normalise=PerModule())),
    }


def admm() -> Any:
    """Builds the recipe of PMMP by ADMM: tau falls, z gives about 5,000 weights, 16 truncations take them to 2,180, fine-tuning.

    Shifts and distillation throughout. Between truncations nothing regularises and nothing grows again.
    """
    from ellzero.methods import Cosine, Unregularised
    from ellzero.training import Cycles

    cycles = Cycles(start=4400, count=16, epochs=2, lr=2e-3, regrow=0.0, method=Unregularised(), power=0.25)
    return _admm(alpha=7e-5, regularise=30, fine_tune=50, fine_tune_lr=Cosine(first=2e-3, last=2e-5), cycles=cycles)


def admm_alone() -> Any:
    """Builds the recipe of PMMP by ADMM without truncations: a single pruning leaves the largest 2,180 of z's weights."""
    from ellzero.methods import Cosine

    return _admm(alpha=8e-5, regularise=40, fine_tune=40, fine_tune_lr=Cosine(first=2e-3, last=2e-5))


def without_admm() -> Any:
    """Builds the recipe of `admm` with nothing in place of ADMM: the passes train on, and the first truncation is of a dense network."""
    from ellzero.methods import Unregularised

    return replace(admm(), method=Unregularised())


def _admm(*, alpha: float, regularise: int, fine_tune: int, **changes: Any) -> Any:
    from ellzero.data import Shifts
    from ellzero.methods import ADMM, Cosine, geometric
    from ellzero.targets import NonZeros
    from ellzero.training import Distill, Epochs
    from ellzero.training.presets import DataTreatment, Preset

    method = ADMM(alpha=alpha, tau=geometric(0.8, 0.12, end=0.9), every=20, settle=0.95)
    preset = Preset(
        data=DataTreatment(batch_size=100, augment=Shifts(pixels=1), copies=12),
        method=Watched(method=method, per_epoch=550),
        target=NonZeros(2180),
    )
    return preset.with_recipe(
        epochs=Epochs(prelude=20, regularise=regularise, fine_tune=fine_tune),
        prelude_lr=Cosine(first=1e-3, last=1e-5),
        lr=2e-3,
        distill=Distill(weight=0.5, temperature=2.0),
        **changes,
    )


def watched(recipe: Any) -> dict[str, list[int]]:
    """Returns what a `Watched` method has recorded in its run."""
    return {"living": recipe.method.living, "changed": recipe.method.changed} if isinstance(recipe.method, Watched) else {}


NETWORKS = Networks(
    module="experiments.pmmp",
    model="lenet-300-100",
    results=FOLDER / "results" / "pmmp.jsonl",
    configurations=configurations,
    details=watched,
)


def table() -> None:
    """Prints a Markdown table: medians with ranges over seeds, error increases paired by seed and image."""
    beside = {key: line for key, line in lenet300.NETWORKS.recorded().items() if key[0] in BESIDE}
    lenet300.print_rows(beside | NETWORKS.recorded())


def figure() -> None:
    """Draws, epoch by epoch, how many weights come to life or cease to, and how many live: with Adam on the gates, and by ADMM."""
    lines = NETWORKS.recorded()
    with picture(FOLDER / "pmmp", (9.0, 3.8)) as drawing:
        panels = drawing.subplots(1, 2)
        for axes, name, title in zip(
            panels, ("pmmp-adam", "admm"), ("Adam on w, gamma and u (its authors' way)", "ADMM, tau falling"), strict=True
        ):
            runs = [line["details"] for (other, _), line in lines.items() if other == name]
            for details in runs:
                epochs = range(1, 1 + len(details["living"]))
                axes.plot(epochs, [max(1, n) for n in details["changed"]], color="#d55e00", alpha=0.6, linewidth=1.0)
                axes.plot(epochs, [max(1, n) for n in details["living"]], color="#0072b2", alpha=0.6, linewidth=1.0)
            axes.plot([], [], color="#d55e00", label="changed in this epoch")
            axes.plot([], [], color="#0072b2", label="living")
            axes.set_yscale("log")
            axes.set_ylim(1, 4e5)
            axes.set_xlabel("regularised epochs")
            axes.set_ylabel("weights")
            axes.set_title(f"{title}, {len(runs)} {'run' if len(runs) == 1 else 'runs'}", fontsize=10)
            axes.legend(frameon=False, fontsize=8)
            axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Parses the command line."""
    NETWORKS.command_line(__doc__, table=table, figure=figure).run()


if __name__ == "__main__":
    main()
