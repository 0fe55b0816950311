"""Does memory stay where it is? Ten million rows of a drifting stream through both settings.

Loan applications (Agrawal) whose rule changes every 50,000 rows, in turn abruptly and gradually; a
text column with ever new levels, many more than the model keeps apart; values that are missing. And
words: messages as dicts of up to eight words, drawn by Zipf's law from all whole numbers, so that
there are new ones however long it goes on; the model knows at most 20,000 names. The resident size
of the process is taken down fifty times. It must be flat: after the first fifth of the rows, in
which the tree, its history and the allocator find their sizes, it may not grow by more than 3 %.
Otherwise the program fails.

    python benchmarks/soak.py                        minutes; writes docs/memory.md
    python benchmarks/soak.py --rows 300000          fewer rows; writes nothing
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import page
from resident import require_linux, resident_bytes
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftree import DynamicModelTreeClassifier
from driftree.streams import AGRAWAL_FEATURES, agrawal, drift

SEED = 1
BATCH_ROWS = 1000
MOST_ROWS = 10**7
CONCEPT_ROWS = 50_000
GRADUAL_ROWS = 20_000
N_LEVELS = 500
N_POINTS = 50
N_SHOWN = 10
MOST_GROWTH = 0.03
MOST_NAMES = 20_000
Batches = Iterator[tuple[Any, Any]]


class Point(NamedTuple):
    """What was held after so many rows, and how fast the rows since the last point went."""

    n_rows: int
    resident: int
    usage: int
    nodes: int
    rows_per_second: float


def draw() -> Batches:
    """Draw batches of applications for ever."""
    rng = np.random.default_rng(SEED)
    concepts = (
        agrawal(CONCEPT_ROWS, seed=SEED + i, function=i % 10, perturbation=0.05)
        for i in itertools.count()
    )
    n_drawn = 0
    while True:
        pair = drift(
            next(concepts),
            next(concepts),
            at=CONCEPT_ROWS - GRADUAL_ROWS,
            width=GRADUAL_ROWS,
            seed=SEED + n_drawn,
            batch_rows=BATCH_ROWS,
        )
        for X, y in pair:
            n_drawn += len(y)
            n_levels = min(N_LEVELS, 2 + n_drawn // 1000)
            shops = np.array([f"shop {i}" for i in range(n_levels)], dtype=object)
            X[rng.random(len(X)) < 0.02, 2] = np.nan
            columns = dict(zip(AGRAWAL_FEATURES, X.T, strict=True))
            columns["shop"] = shops[rng.integers(0, n_levels, len(X))]
            yield columns, y


def draw_words() -> Batches:
    """Draw messages for ever, as dicts; what the first ten words mean changes now and then."""
    rng = np.random.default_rng(SEED)
    for i in itertools.count():
        words = np.minimum(rng.zipf(1.3, size=(BATCH_ROWS, 8)), 2**53)
        effect = np.random.default_rng(i * BATCH_ROWS // CONCEPT_ROWS).normal(size=11)
        log_odds = effect[np.minimum(words, 11) - 1].sum(axis=1)
        y = rng.random(BATCH_ROWS) < 1 / (1 + np.exp(-log_odds))
        yield [dict.fromkeys(map("w{}".format, row), 1) for row in words.tolist()], y.tolist()


def learn_rows(model: DynamicModelTreeClassifier, rows: Any, labels: Any) -> None:
    """Learn row by row."""
    for row, label in zip(rows, labels, strict=True):
        model.learn_one(row, label)


class Setting(NamedTuple):
    """A model, its rows, and how it learns them."""

    make: Callable[[], DynamicModelTreeClassifier]
    draw: Callable[[], Batches] = draw
    learn: Callable[[DynamicModelTreeClassifier, Any, Any], None] = (
        DynamicModelTreeClassifier.learn_many
    )


SETTINGS = {
    "default": Setting(DynamicModelTreeClassifier),
    "paper": Setting(DynamicModelTreeClassifier.paper),
    "words": Setting(
        lambda: DynamicModelTreeClassifier(max_features=MOST_NAMES), draw_words, learn_rows
    ),
}


def soak(
    setting: str, n_rows: int, tell: Callable[[int], object], n_points: int = N_POINTS
) -> list[Point]:
    """Let a model learn so many rows; return the curve."""
    make, draw, learn = SETTINGS[setting]
    model, batches, points = make(), draw(), []
    for i in range(1, n_points + 1):
        n_before, seconds = getattr(model, "n_rows_seen_", 0), 0.0
        while getattr(model, "n_rows_seen_", 0) < i * n_rows // n_points:
            X, y = next(batches)
            since = time.perf_counter()
            learn(model, X, y)
            seconds += time.perf_counter() - since
            tell(model.n_rows_seen_)
        speed = (model.n_rows_seen_ - n_before) / seconds
        held = resident_bytes(), model.memory_usage(), model.n_nodes_
        points.append(Point(model.n_rows_seen_, *held, speed))
    return points


def growth(points: Sequence[Point]) -> float:
    """Return by what share the resident size grew after the first fifth, at most."""
    later = [point.resident for point in points[len(points) // 5 :]]
    return max(later) / later[0] - 1


def tabulate(curves: dict[str, list[Point]]) -> str:
    """Lay out the curves of all settings beside each other, at some of their points."""
    head, columns = ["rows"], []
    for setting, points in curves.items():
        shown = points[:: max(1, len(points) // N_SHOWN)]
        if points[-1] not in shown:
            shown.append(points[-1])
        columns += [
            [f"{p.resident / 1e6:,.1f}" for p in shown],
            [f"{p.usage / 1e3:,.0f}" for p in shown],
            [str(p.nodes) for p in shown],
            [f"{p.rows_per_second:,.0f}" for p in shown],
        ]
        head += [f"{setting}: MB resident", "kB `memory_usage()`", "nodes", "rows/s"]
        places = [f"{p.n_rows:,}" for p in shown]
    return page.markdown(head, list(zip(places, *columns, strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Soak, print, write, judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="rows for each setting")
    options = parser.parse_args(arguments)
    require_linux()
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    curves = {}
    with Progress(*bar, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        for setting in SETTINGS:
            task = progress.add_task(setting, total=options.rows)
            curves[setting] = soak(
                setting, options.rows, lambda n, task=task: progress.update(task, completed=n)
            )
    table = tabulate(curves)
    print(table)
    if options.rows >= MOST_ROWS:
        page.write_table("soak", "## Ten million rows", table, page="memory")
    grown = {setting: growth(points) for setting, points in curves.items()}
    for setting, share in grown.items():
        print(f"{setting}: the resident size grew by {share:.2%} after the first fifth")
    if max(grown.values()) > MOST_GROWTH:
        sys.exit(f"that is more than {MOST_GROWTH:.0%}: memory is not flat")


if __name__ == "__main__":
    main()
