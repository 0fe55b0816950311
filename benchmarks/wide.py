"""Wide tables: what is lost, and what is gained, when not all columns are learnt together.

Batches of 100 rows of numbers, test-then-train, both in turn in the same run: the default, which
learns tables of many columns one by one but for the most informative ones, and `absent="missing"`,
which learns all of them together whatever that costs. Streams: a moving hyperplane, whose inputs
are independent; and correlated inputs, noisy sums of twenty factors. The table shows the macro F1
of both, the mean over seeds, and how many times the rows the default takes per second of CPU.
Tables count as wide from `--above` on, also where the library would not yet take them for that.

    python benchmarks/wide.py
    python benchmarks/wide.py --widths 600 --rows 4000 --seeds 1
"""

import argparse
import time
from collections.abc import Callable
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table
from sklearn.metrics import f1_score

from driftree import DynamicModelTreeClassifier
from driftree.learn import tables

BATCH = 100
ABSENT = (None, "missing")
Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def hyperplane(n: int, m: int, seed: int) -> Rows:
    """Draw rows on both sides of a plane of which a quarter of the weights moves; 5 % of noise."""
    rng = np.random.default_rng(seed)
    X, weights, step = rng.random((n, m)), rng.random(m), np.zeros(m)
    step[: m // 4] = rng.choice([-0.001, 0.001], m // 4)
    moved = weights + step * np.arange(n)[:, None]
    is_above = ((X - 0.5) * moved).sum(axis=1) > 0
    return X, (is_above ^ (rng.random(n) < 0.05)).astype(np.int64)


def correlated(n: int, m: int, seed: int) -> Rows:
    """Draw inputs that are sums of twenty factors and noise; a fifth of them has an effect."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 20)) @ rng.normal(size=(20, m)) + 2 * rng.normal(size=(n, m))
    score = X @ (rng.normal(size=m) * (rng.random(m) < 0.2))
    shares = 1 / (1 + np.exp(-4 * score / score.std()))
    return X, (rng.random(n) < shares).astype(np.int64)


STREAMS: dict[str, Callable[[int, int, int], Rows]] = {
    "hyperplane": hyperplane,
    "correlated": correlated,
}


def run(model: DynamicModelTreeClassifier, X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Return the F1 of all batches but the first."""
    model.partial_fit(X[:BATCH], y[:BATCH], classes=[0, 1])
    found = []
    for i in range(BATCH, len(X), BATCH):
        found.append(model.predict(X[i : i + BATCH]))
        model.partial_fit(X[i : i + BATCH], y[i : i + BATCH])
    return float(f1_score(y[BATCH:], np.concatenate(found), average="macro"))


def measure(streams: list[str], widths: list[int], n_rows: int, n_seeds: int) -> Table:
    """Run both on all streams and return the table."""
    table = Table("stream", "columns", "together", "F1", "F1, all together", "times the rows/s")
    for name in streams:
        for m in widths:
            scores: dict[str | None, list[float]] = {one: [] for one in ABSENT}
            seconds: dict[str | None, list[float]] = {one: [] for one in ABSENT}
            for seed in range(1, n_seeds + 1):
                X, y = STREAMS[name](n_rows, m, seed)
                for absent in ABSENT:
                    model = DynamicModelTreeClassifier(absent=absent)
                    start = time.process_time()
                    scores[absent].append(run(model, X, y))
                    seconds[absent].append(time.process_time() - start)
                    if absent is None:
                        n_together = model._tree.engine.n_columns - 1
            faster = median(b / a for a, b in zip(seconds[None], seconds["missing"], strict=True))
            table.add_row(
                name,
                str(m),
                str(n_together),
                f"{mean(scores[None]):.4f}",
                f"{mean(scores['missing']):.4f}",
                f"{faster:.1f}",
            )
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=names([*STREAMS]), default=[*STREAMS])
    parser.add_argument("--widths", type=lambda text: [int(m) for m in text.split(",")])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--above", type=int, default=400, help="columns up to which none is wide")
    given = parser.parse_args()
    tables.WIDE = given.above
    widths = given.widths or [500, 600]
    Console(width=120).print(measure(given.streams, widths, given.rows, given.seeds))


if __name__ == "__main__":
    main()
