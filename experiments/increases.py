"""Error increases like for like: over three dense networks of the same seed, with standard errors over images and over seeds.

An increase is a difference of test errors in points, paired by image. Two networks of one seed differ on few images, so its standard error
over images (McNemar) is small; but another seed gives another pair of networks, and the increases of several seeds differ by more than
images explain. Both standard errors are given: `+0.05 ± 0.06 / 0.10` is a mean over seeds of 0.05 points, with a standard error of 0.06
over images and of 0.10 over seeds.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

TEST_IMAGES = 10_000

COLUMNS = ("over plain dense", "over dense with the same data treatment", "over the dense network of its own run")
"""Headings of what `three` returns."""

Line = Mapping[str, Any]


def paired(line: Line, base: Line) -> tuple[float, float]:
    """Computes the error increase in points and its standard error, paired by image (McNemar): only images judged differently count."""
    own, other = set(line["details"]["wrong_images"]), set(base["details"]["wrong_images"])
    worse, better = len(own - other), len(other - own)
    difference = (worse - better) / TEST_IMAGES
    variance = ((worse + better) / TEST_IMAGES - difference**2) / TEST_IMAGES
    return 100 * difference, 100 * variance**0.5


def own_increase(line: Line) -> tuple[float, float]:
    """Computes the same against the dense network that the run began with."""
    return paired(line, {"details": {"wrong_images": line["details"]["dense_wrong_images"]}})


def is_shifted(line: Line) -> bool:
    """Looks up whether the training images of a run were shifted."""
    return "Shifts" in json.dumps(line["details"]["settings"])


def median_and_range(values: Sequence[float], digits: int) -> str:
    """Formats a median with its range."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def over_images(pairs: Sequence[tuple[float, float]]) -> float:
    """Computes the standard error over images of a mean over seeds, in points."""
    return sum(error**2 for _, error in pairs) ** 0.5 / len(pairs)


def over_seeds(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Computes the standard error over seeds of a mean over seeds, in points; None for one seed."""
    return statistics.stdev(increase for increase, _ in pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None


def mean_and_errors(pairs: Sequence[tuple[float, float]]) -> str:
    """Formats the mean of error increases over seeds with its standard errors over images and, where there are several, over seeds."""
    seeds = over_seeds(pairs)
    return f"{statistics.mean(increase for increase, _ in pairs):+.2f} ± {over_images(pairs):.2f}" + (
        "" if seeds is None else f" / {seeds:.2f}"
    )


def median_of(pairs: Sequence[tuple[float, float]]) -> float:
    """Computes the median of error increases over seeds, in points."""
    return statistics.median(increase for increase, _ in pairs)


def three(own: Mapping[int, Line], plain: Mapping[int, Line], shifted: Mapping[int, Line]) -> list[list[tuple[float, float]]]:
    """Computes the increases of the runs of a configuration, by seed, over three dense networks of the same seed.

    Args:
        own: the runs, by seed.
        plain: dense networks trained on the images as they are, by seed.
        shifted: dense networks trained on shifted images, by seed.

    Returns:
        The increases over plain dense networks, over those trained on data treated as the run's, and over the dense network of each run.
        A list is empty where nothing is to be compared, as for the dense networks themselves.
    """
    alike = shifted if all(is_shifted(line) for line in own.values()) else plain
    is_dense = all(line["details"]["wrong_images"] == line["details"]["dense_wrong_images"] for line in own.values())
    over = [[paired(line, base[seed]) for seed, line in own.items() if seed in base] for base in (plain, alike)]
    return [*over, [] if is_dense else [own_increase(line) for line in own.values()]]


def cell(pairs: Sequence[tuple[float, float]]) -> str:
    """Formats increases for a table; empty where there are none, or where every one compares a network with itself."""
    if not pairs or not any(error for _, error in pairs):
        return ""
    return f"{mean_and_errors(pairs)}, median {median_of(pairs):+.2f}"
