"""One tree beside ARF(10) on streams whose concept changes, row by row.

Agrawal's loans, random RBF, STAGGER and the hyperplane, each with an abrupt change in the middle, a
gradual one over a fifth of the stream, and a concept that comes back; RBF and the hyperplane also
with a concept that always moves. Every row is predicted before it is learnt. The table shows the
share of wrong predictions, and in brackets that of the tenth of the stream after the first change.

    python benchmarks/drifts.py --rows 20000 --json results.json
    python benchmarks/drifts.py --learners tree,straight --seeds 3
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table
from river import forest

import driftree
from driftree.streams import agrawal, drift, hyperplane, random_rbf, stagger

Batches = Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]
Concept = Callable[[int, int, int], Batches]  # of rows, of its number, of a seed

CONCEPTS: dict[str, Concept] = {
    "agrawal": lambda n, i, seed: agrawal(n, function=(0, 4, 0)[i], seed=seed + i),
    "rbf": lambda n, i, seed: random_rbf(n, seed=(seed, seed + 100, seed)[i], n_classes=4),
    "stagger": lambda n, i, seed: stagger(n, function=(0, 1, 0)[i], seed=seed + i),
    "hyperplane": lambda n, i, seed: hyperplane(n, seed=(seed, seed + 100, seed)[i]),
}
MOVING: dict[str, Callable[[int, int], Batches]] = {
    "rbf": lambda n, seed: random_rbf(n, seed=seed, n_classes=4, speed=0.001),
    "hyperplane": lambda n, seed: hyperplane(n, seed=seed, n_drifting=10, magnitude=0.001),
}
STREAMS = [
    *(f"{concept} {kind}" for concept in CONCEPTS for kind in ("abrupt", "gradual", "recurring")),
    *(f"{concept} incremental" for concept in MOVING),
]
LEARNERS: dict[str, Callable[[], Any]] = {
    "tree": driftree.DynamicModelTreeClassifier,
    "straight": lambda: driftree.DynamicModelTreeClassifier(max_bends=0),
    "arf": lambda: forest.ARFClassifier(n_models=10, seed=1),
}
TITLES = {"tree": "driftree", "straight": "driftree, max_bends=0", "arf": "ARF(10), River"}


def load(stream: str, n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the rows of a stream and their labels."""
    name, kind = stream.split()
    if kind == "incremental":
        batches = MOVING[name](n, seed)
    elif kind == "recurring":
        first, second, again = (CONCEPTS[name](n, i, seed) for i in range(3))
        batches = drift(drift(first, second, at=n // 3), again, at=2 * n // 3)
    else:
        first, second = (CONCEPTS[name](n, i, seed) for i in range(2))
        batches = drift(first, second, at=n // 2, width=n // 5 if kind == "gradual" else 1)
    X, y = zip(*batches, strict=True)
    return np.concatenate(X)[:n], np.concatenate(y)[:n]


def change_of(stream: str, n: int) -> int:
    """Return the row of the first change; where all moves, the first row."""
    return {"incremental": 0, "recurring": n // 3}.get(stream.split()[1], n // 2)


def run(model: Any, X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows were predicted wrongly; before the first row all are."""
    wrong = np.ones(len(y), dtype=bool)
    columns = [f"x{j}" for j in range(X.shape[1])]
    for i, (values, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        row = dict(zip(columns, values, strict=True))
        if i:
            wrong[i] = model.predict_one(row) != label
        model.learn_one(row, label)
    return wrong


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="of each stream")
    parser.add_argument("--seeds", type=int, default=1, help="streams of each kind")
    parser.add_argument("--streams", type=names(STREAMS), default=STREAMS)
    parser.add_argument("--learners", type=names(list(LEARNERS)), default=list(LEARNERS))
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    given = parser.parse_args()
    console = Console()
    results: dict[str, dict[str, tuple[float, float]]] = {}
    for stream in given.streams:
        after = slice(start := change_of(stream, given.rows), start + given.rows // 10)
        data = [load(stream, given.rows, seed) for seed in range(1, given.seeds + 1)]
        results[stream] = {}
        for learner in given.learners:
            wrong = np.array([run(LEARNERS[learner](), X, y) for X, y in data])
            found = float(wrong.mean()), float(wrong[:, after].mean())
            results[stream][learner] = found
            console.print(stream, TITLES[learner], say(*found))
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")
    title = f"Share of wrong predictions, {given.rows:,} rows (after the first change)"
    table = Table(title=title, title_justify="left")
    table.add_column("stream")
    for learner in given.learners:
        table.add_column(TITLES[learner], justify="right")
    for stream, own in results.items():
        table.add_row(stream, *(say(*own[learner]) for learner in given.learners))
    means = (
        np.mean([own[learner] for own in results.values()], axis=0) for learner in given.learners
    )
    table.add_row("mean", *(say(*mean) for mean in means), style="bold")
    console.print(table)


def say(error: float, after: float) -> str:
    """Return the error of all rows, and of those after the change."""
    return f"{error:.3f} ({after:.3f})"


if __name__ == "__main__":
    main()
