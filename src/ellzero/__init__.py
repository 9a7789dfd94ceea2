"""ellzero: the shortest description of networks and data, model bits plus data bits.

Names are resolved when they are first used (PEP 562): `import ellzero` imports no torch. The stub beside this file tells type checkers.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ellzero.archive.calibrate": ("Calibrated", "CalibratedModel"),
    "ellzero.archive.compress": ("compress", "decompress", "open"),
    "ellzero.archive.entries": ("Report",),
    "ellzero.archive.grids": ("LogGrid", "Quantiser", "UniformGrid"),
    "ellzero.archive.load": ("NetworkFile", "load_file", "load_model", "open_file"),
    "ellzero.archive.on_grid": ("OnGrid",),
    "ellzero.archive.rescale": ("rescale",),
    "ellzero.archive.save": ("save_file", "save_model"),
    "ellzero.archive.shared_step": ("SharedStep", "shared_step"),
    "ellzero.archive.synthesise": ("synthetic_inputs",),
    "ellzero.cli.problem": ("Problem",),
    "ellzero.codec.errors": ("FormatError", "LimitError"),
    "ellzero.data": (
        "Affine",
        "Dataset",
        "Elastic",
        "Half",
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
    "ellzero.manners": ("FileError",),
    "ellzero.methods": (
        "ADMM",
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
        "layerwise_prune_",
        "magnitude_masks",
        "random_gradient",
        "rebind_",
        "reorder",
        "shrink",
        "tamade",
    ),
    "ellzero.records": ("Record", "append_line", "read_lines", "versions", "write_json"),
    "ellzero.training": (
        "ActiveSet",
        "Anneal",
        "Checkpoint",
        "Bytes",
        "Cosine",
        "Cycles",
        "Distill",
        "Epochs",
        "ErrorIncrease",
        "GaussianLoss",
        "NonZeros",
        "OnGridPasses",
        "Saturation",
        "Sparse",
        "Sparsifier",
        "Warm",
        "attach",
        "classification_error",
        "classification_loss",
        "recalibrate_batchnorm",
        "saturated",
        "solved_gaussian_nats",
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
