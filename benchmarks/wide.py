"""Wide tables: what is lost, and what is gained, by learning them with less work.

Batches of 100 rows of numbers, test-then-train, two models in turn in the same run. Streams: a
moving hyperplane, whose inputs are independent; and correlated inputs, noisy sums of twenty
factors. The tables show the macro F1 of both models, the mean over seeds, and how many times the
rows the first takes per second of CPU.

`--what rest`: rows of many columns are costly, so that models on trial that earn nothing look at
some of them only, and Newton works on half of its matrix; beside a model that spares neither. All
columns are learnt together.

`--what columns`: tables of many columns are learnt one by one, but for the most informative ones;
beside `absent="missing"`, which learns all of them together whatever that costs. Tables count as
wide from `--above` on, also where the library would not yet take them for that.

    python benchmarks/wide.py
    python benchmarks/wide.py --what rest --widths 200 --rows 4000 --seeds 1
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table
from sklearn.metrics import f1_score

from driftree import DynamicModelTreeClassifier
from driftree.learn import constants, tables

BATCH = 100
USUAL = constants.MEASURED
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


def pieces(n: int, m: int, seed: int) -> Rows:
    """Draw rows whose rule is another one below a value of the first input: a split is needed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    below, above = rng.normal(size=(2, m)) * (rng.random(m) < 0.1)
    score = np.where(X[:, 0] < 0, X @ below, X @ above)
    shares = 1 / (1 + np.exp(-4 * score / score.std()))
    return X, (rng.random(n) < shares).astype(np.int64)


STREAMS: dict[str, Callable[[int, int, int], Rows]] = {
    "hyperplane": hyperplane,
    "correlated": correlated,
    "pieces": pieces,
}


class Way(NamedTuple):
    """How a model learns."""

    name: str
    absent: str | None = "missing"
    numbers: constants.MeasuredConstants = USUAL


WAYS = {
    "rest": (Way("spared"), Way("all", numbers=replace(USUAL, costly_columns=2**31 - 1))),
    "columns": (Way("some together", absent=None), Way("all together")),
}
WIDTHS = {"rest": [150, 200, 300, 500], "columns": [500, 600]}


def run(model: DynamicModelTreeClassifier, X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Return the F1 of all batches but the first."""
    model.partial_fit(X[:BATCH], y[:BATCH], classes=[0, 1])
    found = []
    for i in range(BATCH, len(X), BATCH):
        found.append(model.predict(X[i : i + BATCH]))
        model.partial_fit(X[i : i + BATCH], y[i : i + BATCH])
    return float(f1_score(y[BATCH:], np.concatenate(found), average="macro"))


def measure(what: str, streams: list[str], widths: list[int], n_rows: int, n_seeds: int) -> Table:
    """Run both ways on all streams and return the table."""
    ways = WAYS[what]
    heads = [head for way in ways for head in (f"F1, {way.name}", "leaves")]
    table = Table("stream", "columns", "together", *heads, "times the rows/s")
    for name in streams:
        for m in widths:
            scores: dict[str, list[float]] = {way.name: [] for way in ways}
            seconds: dict[str, list[float]] = {way.name: [] for way in ways}
            leaves: dict[str, list[int]] = {way.name: [] for way in ways}
            together = []
            for seed in range(1, n_seeds + 1):
                X, y = STREAMS[name](n_rows, m, seed)
                for way in ways:
                    constants.MEASURED = way.numbers  # a tree keeps those that it is made with
                    model = DynamicModelTreeClassifier(absent=way.absent)
                    start = time.process_time()
                    scores[way.name].append(run(model, X, y))
                    seconds[way.name].append(time.process_time() - start)
                    leaves[way.name].append(model.n_leaves_)
                    together.append(model._tree.engine.n_columns - 1)
            first, second = (seconds[way.name] for way in ways)
            figures = [
                f"{figure:{form}}"
                for way in ways
                for figure, form in (
                    (mean(scores[way.name]), ".4f"),
                    (mean(leaves[way.name]), ".1f"),
                )
            ]
            faster = median(b / a for a, b in zip(first, second, strict=True))
            table.add_row(name, str(m), str(together[-2]), *figures, f"{faster:.1f}")
    constants.MEASURED = USUAL
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", type=names([*WAYS]), default=[*WAYS])
    parser.add_argument("--streams", type=names([*STREAMS]), default=[*STREAMS])
    parser.add_argument("--widths", type=lambda text: [int(m) for m in text.split(",")])
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--above", type=int, default=400, help="columns up to which none is wide")
    given = parser.parse_args()
    tables.WIDE = given.above
    for what in given.what:
        widths = given.widths or WIDTHS[what]
        Console(width=120).print(measure(what, given.streams, widths, given.rows, given.seeds))


if __name__ == "__main__":
    main()
