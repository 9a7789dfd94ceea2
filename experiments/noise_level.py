"""Proposition B.1: the Gaussian loss finds the function and the noise's variance as the data grow, whatever the noise's distribution.

    python -m experiments.noise_level run
    python -m experiments.noise_level table

Four coefficients of `2 sin(3x) - x + 0.5` and the noise level are trained together by L-BFGS from 0 and 1. The noise is Gaussian, uniform
or Laplace, always with sigma = 0.3. A run is one line of `results/noise_level.jsonl`; what is recorded already is not run again.
"""

import math
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ellzero.records import append_line, versions
from ellzero.training.gaussian_loss import GaussianLoss
from experiments.commands import FOLDER, CommandLine, records

RESULTS = FOLDER / "results" / "noise_level.jsonl"
SIGMA = 0.3
SIZES = (30, 300, 3_000, 30_000)
SEEDS = range(20)
NOISES: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "Gaussian": lambda random, n: random.normal(size=n),
    "uniform": lambda random, n: random.uniform(-math.sqrt(3), math.sqrt(3), size=n),
    "Laplace": lambda random, n: random.laplace(scale=math.sqrt(0.5), size=n),
}


def trained(noise: str, n: int, seed: int) -> tuple[float, float]:
    """Returns the trained sigma^2 over the true one, and the root mean squared error of the function."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=n)
    basis = torch.from_numpy(np.stack([np.sin(3 * x), x, np.ones(n), np.cos(3 * x)], axis=1))
    truth = torch.tensor([2.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    y = basis @ truth + SIGMA * torch.from_numpy(NOISES[noise](random, n))
    theta, loss = nn.Parameter(torch.zeros(4, dtype=torch.float64)), GaussianLoss(1.0).double()
    optimizer = torch.optim.LBFGS([theta, *loss.parameters()], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(basis @ theta, y)
        value.backward()
        return value

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]  # the stub wants a float, the optimizer a tensor
    return loss.sigma**2 / SIGMA**2, float((basis @ (theta.detach() - truth)).square().mean().sqrt())


def run() -> None:
    """Runs what is not recorded yet."""
    torch.set_num_threads(1)
    done = {(line["noise"], line["samples"], line["seed"]) for line in records(RESULTS)}
    for noise in NOISES:
        for n in SIZES:
            for seed in SEEDS:
                if (noise, n, seed) in done:
                    continue
                ratio, error = trained(noise, n, seed)
                record = {"recipe": "noise_level", "noise": noise, "samples": n, "seed": seed, "variance_ratio": ratio, "error": error}
                append_line(RESULTS, {**record, "versions": versions()})


def table() -> None:
    """Prints a Markdown table: means and standard deviations over seeds."""
    lines = records(RESULTS)
    print("| noise | " + " | ".join(f"n = {n:,}" for n in SIZES) + " |")
    print("|" + " --- |" * (1 + len(SIZES)))
    for noise in NOISES:
        cells = [noise]
        for n in SIZES:
            own = [line for line in lines if (line["noise"], line["samples"]) == (noise, n)]
            ratios = [line["variance_ratio"] for line in own]
            error = statistics.mean(line["error"] for line in own)
            cells.append(f"{statistics.mean(ratios):.3f} ± {statistics.stdev(ratios):.3f}; {error:.4f}")
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    """Parses the command line."""
    CommandLine(__doc__, run=run, table=table).run()


if __name__ == "__main__":
    main()
