"""ellzero: the shortest description of networks and data, model bits plus data bits.

Names are resolved when they are first used (PEP 562): `import ellzero` imports no torch. The stub beside this file tells type checkers.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ellzero.quantise.calibrate": ("Calibrated", "CalibratedModel"),
    "ellzero.archive._compress": ("compress", "decompress", "open"),
    "ellzero.archive.entries": ("Report",),
    "ellzero.quantise.grids": ("LogGrid", "Quantiser", "UniformGrid"),
    "ellzero.archive.load": ("NetworkFile", "load_file", "load_model", "open_file"),
    "ellzero.quantise.on_grid": ("OnGrid",),
    "ellzero.quantise._rescale": ("rescale",),
    "ellzero.archive.save": ("save_file", "save_model"),
    "ellzero.quantise._shared_step": ("SharedStep", "shared_step"),
    "ellzero.quantise.synthesise": ("synthetic_inputs",),
    "ellzero.training.problem": ("Problem",),
    "ellzero.codec.errors": ("FormatError", "LimitError"),
    "ellzero.data": (
        "Affine",
        "Dataset",
        "Elastic",
        "Part",
        "Resident",
        "Shifts",
        "load_cifar10",
        "load_digits",
        "load_fashion_mnist",
        "load_from_hub",
        "load_mnist",
        "split",
        "teacher_samples",
    ),
    "ellzero.description": ("DescriptionLength", "OnlineCode", "PowerLaw", "fit_power_law", "mdl_price", "online_code"),
    "ellzero.files": ("FileError",),
    "ellzero.methods": (
        "ADMM",
        "DRR",
        "PMMP",
        "RL1",
        "Alternating",
        "ExactGates",
        "Method",
        "PerModule",
        "PerStage",
        "Simultaneous",
        "Unregularised",
        "admm_masks",
        "geometric",
        "lasso",
        "linear_l0",
        "pmmp_masks",
        "ramp",
        "relaxed_lasso",
        "undecided",
    ),
    "ellzero.models": ("MLP", "VGG16", "DigitsMLP", "LeNet5Caffe", "LeNet300", "MLP3x512", "ResNet", "Student", "Teacher"),
    "ellzero.params": (
        "apply_masks_",
        "count_nonzeros",
        "count_parameters",
        "everything",
        "masks_from_zeros",
        "select_parameters",
        "weights",
    ),
    "ellzero.plots": ("draw_network", "plot_curves"),
    "ellzero.pruning": (
        "Better",
        "ShortestDescription",
        "Within",
        "layerwise_prune_",
        "magnitude_masks",
        "random_gradient",
        "tamade",
    ),
    "ellzero.records": ("Record", "append_line", "read_lines", "versions", "write_json"),
    "ellzero.attaching": ("ActiveSet", "Sparsifier", "attach", "saturated"),
    "ellzero.targets": ("Bytes", "ErrorIncrease", "NonZeros"),
    "ellzero.surgery": ("Shrunk", "fold", "fold_", "rebind_", "reorder", "shrink"),
    "ellzero.training": (
        "Anneal",
        "Checkpoint",
        "Cosine",
        "Cycles",
        "Distill",
        "Epochs",
        "GaussianLoss",
        "GridTraining",
        "Saturation",
        "SparsifyResult",
        "Warm",
        "classification_error",
        "classification_loss",
        "recalibrate_batchnorm",
        "solved_gaussian_nats",
        "sparsify",
    ),
    "ellzero.types": ("At", "Masks", "Params", "Phase"),
}
_NAMESPACES = ("data", "description", "methods", "models", "plots", "pruning", "records", "surgery", "training")
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
