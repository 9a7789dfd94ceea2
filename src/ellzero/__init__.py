"""ellzero: the shortest description of networks and data, model bits plus data bits.

Names are resolved when they are first used (PEP 562): `import ellzero` imports no torch. The stub beside this file tells type checkers.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ellzero.archive._compress": ("compress", "decompress", "open"),
    "ellzero.archive.entries": ("SaveReport",),
    "ellzero.archive.load": ("NetworkFile", "load_file", "load_model", "open_file"),
    "ellzero.archive.save": ("save_file", "save_model"),
    "ellzero.attaching": ("ActiveSet", "Sparsifier", "attach"),
    "ellzero.codec.errors": ("FormatError", "LimitError"),
    "ellzero.description": ("mdl_price",),
    "ellzero.files": ("FileError",),
    "ellzero.methods": ("ADMM", "DRR", "PMMP", "RL1", "Cosine", "Method", "Unregularised", "geometric", "ramp"),
    "ellzero.params": (
        "apply_masks_",
        "count_nonzeros",
        "count_parameters",
        "everything",
        "masks_from_zeros",
        "select_parameters",
        "weights",
    ),
    "ellzero.pruning": ("ShortestDescription", "Within", "layerwise_prune_", "magnitude_masks", "random_gradient", "tamade"),
    "ellzero.quantise._rescale": ("rescale",),
    "ellzero.quantise.shared_step": ("SharedStep",),
    "ellzero.quantise.answers": ("Answers",),
    "ellzero.quantise.calibrate": ("Calibrated",),
    "ellzero.quantise.grids": ("LogGrid", "Quantiser", "UniformGrid"),
    "ellzero.quantise.on_grid": ("OnGrid",),
    "ellzero.quantise.synthesise": ("synthetic_inputs",),
    "ellzero.surgery": ("fold", "reorder", "shrink"),
    "ellzero.targets": ("Bytes", "ErrorIncrease", "NonZeros"),
    "ellzero.training": (
        "Anneal",
        "Checkpoint",
        "CollapseError",
        "Cycles",
        "Distill",
        "Epochs",
        "GridTraining",
        "Problem",
        "Progress",
        "Recipe",
        "Saturation",
        "SparsifyResult",
        "Warm",
        "classification_error",
        "classification_loss",
        "recalibrate_batchnorm",
        "sparsify",
    ),
    "ellzero.types": ("Phase",),
}
_NAMESPACES = ("attaching", "data", "description", "methods", "models", "plots", "pruning", "records", "surgery", "training", "types")
"""Rooms whose further names are public, too: `lz.data.load_mnist`, `lz.models.LeNet300`."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # pyright: ignore[reportUnsupportedDunderAll]  # resolved below, typed in the stub


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF and name not in _NAMESPACES:
        raise AttributeError(f"module 'ellzero' has no attribute {name!r}")
    try:
        if name in _NAMESPACES:
            return importlib.import_module(f"ellzero.{name}")
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    except ModuleNotFoundError as error:
        if error.name in {"torch", "jaxtyping"}:
            raise ModuleNotFoundError(f"ellzero.{name} needs {error.name}: pip install 'ellzero[torch]'", name=error.name) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_NAMESPACES})
