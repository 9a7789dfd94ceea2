"""Exact recovery of a sparse linear model's support over the number of measurements: gates, ADMM, PMMP, lasso, relaxed lasso.

    python -m experiments.recovery run
    python -m experiments.recovery table
    python -m experiments.recovery figure

100 unknowns, 10 of them not 0 and of magnitudes 0.5 to 1.5, Gaussian columns, noise of 0.1. Every (method, seed, measurements) is one
line of `results/recovery.jsonl`; what is recorded already is not run again. Every method knows the noise's sigma and nothing else:
among the candidates that its hyperparameters give, that with the shortest description is taken (eq. 2), see `Problem.description`.
"""

import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from ellzero.methods import PMMP, ExactGates, geometric, relaxed_lasso
from ellzero.methods.admm._z_step import hard_threshold, threshold
from ellzero.methods.linear import linear_l0
from ellzero.plots.canvas import BLUE, GREEN, GREY, INK, ORANGE, VERMILION, draw
from ellzero.records import append_line, versions
from ellzero.types import At
from experiments.commands import FOLDER, CommandLine, records

RESULTS = FOLDER / "results" / "recovery.jsonl"
UNKNOWNS, NONZEROS, SIGMA = 100, 10, 0.1
MEASUREMENTS = (15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 120, 140)
SEEDS = range(20)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """`y = X theta + noise`; what a method may look at is X, y and SIGMA."""

    seed: int
    X: Tensor
    y: Tensor
    theta: Tensor

    @property
    def price(self) -> float:
        """The price of a coefficient, in units of the squared error.

        log2 n bits code its column and (log2 m) / 2 bits code its value; a bit is worth 2 sigma^2 ln 2 of squared
        error (eq. 5). This is the extended BIC of J. Chen and Z. Chen, "Extended Bayesian information criteria for model selection with
        large model spaces" (2008), at known noise.
        """
        return SIGMA**2 * (2 * math.log(UNKNOWNS) + math.log(len(self.y)))

    def description(self, coefficients: Tensor) -> float:
        """Computes the length of model and data, times 2 sigma^2 ln 2 and without a constant: what is minimised over candidates."""
        return float((self.y - self.X @ coefficients).square().sum()) + self.price * int((coefficients != 0).sum())

    def fitted(self, support: Tensor) -> Tensor:
        """Computes least squares on a support; 0 where that has more columns than there are measurements."""
        coefficients = torch.zeros(UNKNOWNS, dtype=torch.float64)
        if 0 < int(support.sum()) <= len(self.y):
            coefficients[support] = torch.linalg.lstsq(self.X[:, support], self.y.unsqueeze(1), driver="gelsd").solution.squeeze(1)
        return coefficients

    def shortest(self, candidates: Sequence[Tensor]) -> Tensor:
        return min(candidates, key=self.description)


def problem(seed: int, measurements: int) -> Problem:
    """Draws a problem; the problems of a seed differ in their number of rows."""
    generator = torch.Generator().manual_seed(seed)
    support = torch.randperm(UNKNOWNS, generator=generator)[:NONZEROS]
    signs = torch.randint(2, (NONZEROS,), generator=generator) * 2.0 - 1.0
    theta = torch.zeros(UNKNOWNS, dtype=torch.float64)
    theta[support] = (signs * (0.5 + torch.rand(NONZEROS, generator=generator))).double()
    X = torch.randn(max(MEASUREMENTS), UNKNOWNS, generator=generator, dtype=torch.float64)  # noqa: N806
    y = X @ theta + SIGMA * torch.randn(max(MEASUREMENTS), generator=generator, dtype=torch.float64)
    return Problem(seed=seed, X=X[:measurements], y=y[:measurements], theta=theta)


# Every solver takes many problems at once, as small steps cost the same for a single problem as for hundreds.
Solver = Callable[[Sequence[Problem]], Iterator[Tensor]]


def by_gates(problems: Sequence[Problem]) -> Iterator[Tensor]:
    """Minimises Lemma 2.3 by gates alone, at the price that candidates are judged by, from several beginnings."""
    for task in problems:
        yield task.shortest([linear_l0(task.X, task.y, alpha=task.price, p_init=p).coefficients for p in (0.02, 0.1, 0.5)])


def by_lasso(problems: Sequence[Problem], *, relaxed: bool) -> Iterator[Tensor]:
    """Follows the lasso from the largest alpha down, until the coefficients alone cost more than the best description."""
    for task in problems:
        largest = 2 * float((task.X.T @ task.y).abs().max())
        best, start = torch.zeros(UNKNOWNS, dtype=torch.float64), None
        for exponent in range(61):
            solution = relaxed_lasso(task.X, task.y, alpha=largest * 10 ** (-exponent / 20), start=start)
            if task.price * int(solution.support.sum()) > task.description(best):
                break
            start = solution.lasso
            best = task.shortest([best, solution.coefficients if relaxed else solution.lasso])
        yield best


def normal_equations(problems: Sequence[Problem]) -> tuple[Tensor, Tensor, Tensor]:
    """Computes X'X / m and X'y / m, those of the mean squared error, and the shortest solution, one row per problem."""
    matrices = torch.stack([task.X.T @ task.X / len(task.y) for task in problems])
    vectors = torch.stack([task.X.T @ task.y / len(task.y) for task in problems])
    return matrices, vectors, torch.stack([torch.linalg.pinv(task.X) @ task.y for task in problems])


def by_admm(problems: Sequence[Problem], *, alphas: Sequence[float] = (0.003, 0.01, 0.03, 0.1, 0.3)) -> Iterator[Tensor]:
    """Runs ADMM (appendix C.4) with N = 1 and M = P = id; tau, and with it rho = 2 alpha / tau^2, moves as in a network."""
    matrices, vectors, _ = normal_equations(problems)
    values, bases = torch.linalg.eigh(matrices)
    supports: list[Tensor] = []
    for alpha in alphas:
        z, u, before, rounds = torch.zeros_like(vectors), torch.zeros_like(vectors), 0.0, 200
        for i in range(rounds):
            tau = TAUS[0] * (TAUS[1] / TAUS[0]) ** (i / (rounds - 1))
            rho = 2 * alpha / tau**2
            # u is the multiplier over rho, so it shrinks where rho grows.
            u *= before / rho
            before = rho
            right = (bases.mT @ (2 * vectors + rho * (z - u)).unsqueeze(-1)).squeeze(-1) / (2 * values + rho)
            x = (bases @ right.unsqueeze(-1)).squeeze(-1)
            z = hard_threshold(x + u, threshold(alpha, rho))
            u += x - z
        supports.append(z != 0)
    for i, task in enumerate(problems):
        yield task.shortest([task.fitted(support[i]) for support in supports])


def by_pmmp(
    problems: Sequence[Problem], *, exact: bool, alphas: Sequence[float] = (0.003, 0.01, 0.03), steps: int = 1500
) -> Iterator[Tensor]:
    """Trains theta by full-batch Adam under PMMP from the shortest solution, the prelude of a linear model; the gates are the mask.

    With `exact`, w and gamma are at their minimum after every step and u rises as ADMM's rho does; else all four move by Adam.
    """
    matrices, vectors, shortest = (tensor.float() for tensor in normal_equations(problems))
    supports: list[Tensor] = []
    for alpha in alphas:
        rising = geometric(alpha / TAUS[0] ** 2, alpha / TAUS[1] ** 2)
        rule = PMMP(alpha=alpha, lr=LR, updates=ExactGates(), u=rising) if exact else PMMP(alpha=alpha, lr=LR)
        theta = torch.nn.Parameter(shortest.clone())
        params = {"theta": theta}
        state = rule.init(params)
        optimizer = torch.optim.Adam([theta], lr=LR)
        for step in range(steps):
            at = At(progress=step / steps, step=step)
            with torch.no_grad():
                theta.grad = 2 * ((matrices @ theta.unsqueeze(-1)).squeeze(-1) - vectors)
            rule.add_gradient_(params, state, at)
            optimizer.step()
            rule.after_step_(params, state, {}, at)
        supports.append(state.of("theta").gamma > 0.5)
    for i, task in enumerate(problems):
        yield task.shortest([task.fitted(support[i]) for support in supports])


def save(name: str, solver: Solver, problems: Sequence[Problem]) -> None:
    """Solves problems and appends one record per problem; times are divided among problems that were solved together."""
    times = [time.process_time()]
    solutions: list[Tensor] = []
    for coefficients in solver(problems):
        solutions.append(coefficients)
        times.append(time.process_time())
    seconds = [finish - start for start, finish in pairwise(times)]
    shared = sum(seconds) / len(seconds)
    for task, coefficients, own in zip(problems, solutions, seconds, strict=True):
        support, truth = coefficients != 0, task.theta != 0
        record = {
            "recipe": "recovery",
            "method": name,
            "seed": task.seed,
            "measurements": len(task.y),
            "recovered": bool(torch.equal(support, truth)),
            "missed": int((truth & ~support).sum()),
            "added": int((support & ~truth).sum()),
            "error": float((coefficients - task.theta).norm() / task.theta.norm()),
            "description": task.description(coefficients),
            "description_of_the_true_support": task.description(task.fitted(truth)),
            "cpu_seconds": round(own if name in ALONE else shared, 4),
            "versions": versions(),
        }
        append_line(RESULTS, record)


TAUS = (3.0, 0.1)
"""Thresholds of ADMM and of PMMP's exact step, from above every magnitude down to sigma."""
LR = 1e-2
ALONE = ("gates", "lasso", "relaxed lasso")
METHODS: dict[str, tuple[Solver, str]] = {
    "gates": (by_gates, BLUE),
    "ADMM": (by_admm, VERMILION),
    "PMMP, exact steps": (partial(by_pmmp, exact=True), GREEN),
    "PMMP, Adam": (partial(by_pmmp, exact=False), ORANGE),
    "relaxed lasso": (partial(by_lasso, relaxed=True), INK),
    "lasso": (partial(by_lasso, relaxed=False), GREY),
}


def run() -> None:
    """Runs what is not recorded yet."""
    torch.set_num_threads(1)
    done = {(line["method"], line["seed"], line["measurements"]) for line in records(RESULTS)}
    RESULTS.parent.mkdir(exist_ok=True)
    for name, (solver, _) in METHODS.items():
        waiting = [problem(seed, m) for m in MEASUREMENTS for seed in SEEDS if (name, seed, m) not in done]
        if waiting:
            save(name, solver, waiting)
        print(f"{name}: {len(waiting)} problems", flush=True)


def fractions(lines: Sequence[dict[str, Any]], name: str, field: str = "recovered") -> list[float]:
    """Computes the mean of a field over seeds, per number of measurements."""
    return [statistics.mean(line[field] for line in lines if (line["method"], line["measurements"]) == (name, m)) for m in MEASUREMENTS]


def table() -> None:
    """Prints a Markdown table: supports recovered of twenty, and how often the search missed a shorter description."""
    lines = records(RESULTS)
    print(f"| | {' | '.join(map(str, MEASUREMENTS))} | search failed | CPU ms |")
    print("|" + " --- |" * (len(MEASUREMENTS) + 3))
    for name in METHODS:
        own = [line for line in lines if line["method"] == name]
        cells = [str(round(len(SEEDS) * fraction)) for fraction in fractions(lines, name)]
        wrong = [line for line in own if not line["recovered"]]
        longer = sum(line["description"] > line["description_of_the_true_support"] * (1 + 1e-9) for line in wrong)
        milliseconds = 1000 * statistics.mean(line["cpu_seconds"] for line in own)
        print(f"| {name} | {' | '.join(cells)} | {longer} of {len(wrong)} | {milliseconds:.0f} |")


def figure() -> None:
    """Draws the fraction of supports recovered over the number of measurements."""
    lines = records(RESULTS)

    def fill(drawing: Any) -> None:
        axes = drawing.add_subplot()
        for name, (_, colour) in METHODS.items():
            axes.plot(MEASUREMENTS, fractions(lines, name), "o-", color=colour, markersize=4, label=name, clip_on=False)
        axes.set(xlabel="measurements", ylabel="supports recovered exactly", ylim=(0, 1), xlim=(0, None))
        axes.set_title(f"{UNKNOWNS} unknowns, {NONZEROS} not 0; {len(SEEDS)} problems per point", fontsize=11)
        axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.43))

    _, drawn = draw(FOLDER / "recovery", (7.2, 4.4), fill)
    # The site shows only what lies in its own folder.
    shutil.copyfile(drawn, FOLDER.parent / "docs/guides" / drawn.name)


def main() -> None:
    """Parses the command line."""
    CommandLine(__doc__, run=run, table=table, figure=figure).run()


if __name__ == "__main__":
    main()
