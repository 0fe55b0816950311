"""Splits where there is nothing to split: every rule is a straight line, or there is none.

Standard normal (or log-normal) inputs, five of them unless stated otherwise. *logistic*: labels by
the log-odds of a random line; *noise*: a coin; *flipped*: the sign of the line, 20 % of the labels
wrong; *separable*: the sign of the line; *skewed*: the same three over log-normal inputs. A split
of any of them is needless.

    python benchmarks/nulls.py --seeds 10 --epsilons default,1e-3,1e-2
    python benchmarks/nulls.py --features 150 --rows 20000 --epsilons default,1e-3
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table

from driftree import DynamicModelTreeClassifier
from driftree.explain import Replace, Split

Numbers = NDArray[np.float64]
Rule = Callable[[Numbers, np.random.Generator], NDArray[np.bool_]]

RULES: dict[str, Rule] = {
    "logistic": lambda line, rng: rng.random(len(line)) < 1 / (1 + np.exp(-2 * line)),
    "noise": lambda line, rng: rng.random(len(line)) < 0.5,
    "flipped": lambda line, rng: (line > 0) ^ (rng.random(len(line)) < 0.2),
    "separable": lambda line, _: line > 0,
}
STREAMS = [*RULES, "skewed logistic", "skewed flipped", "skewed separable"]
STEP = 200


def draw(stream: str, shape: tuple[int, int], seed: int) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return rows and labels."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=shape[1])
    X = rng.normal(size=shape)
    if stream.startswith("skewed"):
        X = np.exp(X)
    line = X @ weights
    line = (line - np.median(line)) / line.std()
    return X, RULES[stream.rsplit(maxsplit=1)[-1]](line, rng)


def count_splits(stream: str, shape: tuple[int, int], seed: int, epsilon: float | None) -> int:
    """Return how often the tree split, or replaced a split."""
    X, y = draw(stream, shape, seed)
    model = DynamicModelTreeClassifier(epsilon=epsilon)
    for start in range(0, len(X), STEP):
        model.partial_fit(X[start : start + STEP], y[start : start + STEP], classes=[False, True])
    return sum(isinstance(event, (Split, Replace)) for event in model.events_)


def main() -> None:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000, help="of each stream")
    parser.add_argument("--features", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=10, help="streams of each kind")
    parser.add_argument("--streams", type=names(STREAMS), default=STREAMS)
    parser.add_argument("--epsilons", default="default,1e-3,1e-2", help="separated by commas")
    given = parser.parse_args()
    epsilons = given.epsilons.split(",")
    shape = (given.rows, given.features)
    n_millions = given.rows * given.seeds / 1e6
    title = f"Splits per million rows ({given.seeds} x {given.rows:,} rows of each)"
    table = Table(title=title, title_justify="left")
    table.add_column("stream")
    for epsilon in epsilons:
        table.add_column(f"epsilon {epsilon}", justify="right")
    for stream in given.streams:
        counts = [
            sum(
                count_splits(stream, shape, seed, None if epsilon == "default" else float(epsilon))
                for seed in range(given.seeds)
            )
            for epsilon in epsilons
        ]
        table.add_row(stream, *(f"{count / n_millions:.1f}" for count in counts))
    Console().print(table)


if __name__ == "__main__":
    main()
