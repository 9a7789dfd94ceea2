"""ellzero: the shortest description of networks and data, model bits plus data bits.

Names are resolved when they are first used (PEP 562): `import ellzero` imports no torch. The stub beside this file tells type checkers.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ellzero.cli.problem": ("Problem",),
    "ellzero.data": (
        "Affine",
        "Dataset",
        "Elastic",
        "Half",
        "Resident",
        "Shifts",
        "load_digits",
        "load_fashion_mnist",
        "load_mnist",
        "split",
    ),
    "ellzero.description": ("DescriptionLength", "mdl_price"),
    "ellzero.methods": (
        "DRR",
        "PMMP",
        "RL1",
        "Alternating",
        "Exact",
        "Method",
        "PerModule",
        "PerStage",
        "Simultaneous",
        "Unregularised",
        "geometric",
        "linear_l0",
        "pmmp_masks",
        "ramp",
        "undecided",
    ),
    "ellzero.models": ("MLP", "DigitsMLP", "LeNet300"),
    "ellzero.params": (
        "apply_masks_",
        "count_nonzeros",
        "count_parameters",
        "everything",
        "masks_from_zeros",
        "select",
        "weights",
    ),
    "ellzero.plots": ("draw_network", "plot_curves"),
    "ellzero.pruning": (
        "Better",
        "ShortestDescription",
        "Shrunk",
        "Within",
        "fold",
        "fold_",
        "magnitude_masks",
        "random_gradient",
        "rebind_",
        "shrink",
        "tamade",
    ),
    "ellzero.records": ("Record", "append_line", "read_lines", "versions", "write_json"),
    "ellzero.training": (
        "Anneal",
        "Checkpoint",
        "Cosine",
        "Cycles",
        "Distill",
        "Epochs",
        "ErrorIncrease",
        "NonZeros",
        "Saturation",
        "Sparse",
        "Sparsifier",
        "Warm",
        "attach",
        "classification_error",
        "classification_loss",
        "recalibrate_batchnorm",
        "saturated",
        "sparsify",
    ),
    "ellzero.types": ("At", "Masks", "Params", "Phase"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # pyright: ignore[reportUnsupportedDunderAll]  # resolved below, typed in the stub


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ellzero' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    except ModuleNotFoundError as error:
        if error.name in {"torch", "jaxtyping"}:
            raise ModuleNotFoundError(f"ellzero.{name} needs {error.name}: pip install 'ellzero[torch]'", name=error.name) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
