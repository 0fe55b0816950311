"""Alarms: `model.drifts()` beside River's drift detectors on the errors of the same model.

Runs without a change say how many alarms per million rows are false; runs with one in the middle,
how many of these are missed within 10,000 rows, and how late the others are noticed. Batches of 200
rows are predicted, then learnt. River's detectors get 1 for a wrong label and 0 for a right one, or
the size of a number's error, row by row, with the parameters that River gives them. KSWIN takes a
millisecond per row, so that it has few runs, of which it sees the 12,000 rows around the change.

    python benchmarks/alarms.py                     140 runs of 100,000 rows without a change
    python benchmarks/alarms.py --runs 1 --rows 30000 --no-write
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
import page
from numpy.typing import NDArray
from river import drift as detectors

import driftree
from driftree.streams import agrawal, drift, hyperplane, random_rbf, sea

Batches = Iterator[tuple[NDArray[np.float64], NDArray[Any]]]
BATCH = 200
SOON = 10_000  # rows after a change within which it must be noticed
SLOW, SLOW_RUNS = "KSWIN", (1, 3)  # of each kind, without a change and with one
RIVER: dict[str, Callable[[], Any]] = {
    "ADWIN": detectors.ADWIN,
    "PageHinkley": detectors.PageHinkley,
    "KSWIN": lambda: detectors.KSWIN(seed=1),
}
OURS = "driftree, `drifts()`"
RESULTS = page.ROOT / "benchmarks" / "results" / "alarms.json"


def friedman(n_rows: int, *, seed: int, swapped: bool = False) -> Batches:
    """Yield Friedman's numbers of five inputs among ten; swapped, others are these five."""
    rng = np.random.default_rng(seed)
    for _ in range(n_rows // BATCH):
        X = rng.random((BATCH, 10))
        a, b, c, d, e = (X[:, ::-1] if swapped else X)[:, :5].T
        y = 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e
        yield X, y + rng.normal(size=BATCH)


def shifted(batches: Batches, at: int) -> Batches:
    """Yield numbers whose first input means less from row `at` on: a mild drift."""
    for i, (X, y) in enumerate(batches):
        yield X, y - 1.0 * X[:, 3] if i * BATCH >= at else y


STILL: dict[str, Callable[[int, int], Batches]] = {
    "SEA": lambda n, seed: sea(n, batch_rows=BATCH, seed=seed, function=seed % 4),
    "Agrawal": lambda n, seed: agrawal(n, batch_rows=BATCH, seed=seed, function=seed % 10),
    "hyperplane": lambda n, seed: hyperplane(n, batch_rows=BATCH, seed=seed),
    "RBF": lambda n, seed: random_rbf(n, batch_rows=BATCH, seed=seed, n_classes=4),
    "Friedman": lambda n, seed: friedman(n, seed=seed),
}
CHANGING: dict[str, Callable[[int, int], Batches]] = {
    "SEA 0 to 2": lambda n, seed: drift(
        sea(n, seed=seed), sea(n // 2, seed=seed + 1000, function=2), at=n // 2, batch_rows=BATCH
    ),
    "Agrawal, next function": lambda n, seed: drift(
        agrawal(n, seed=seed, function=seed % 10),
        agrawal(n // 2, seed=seed + 1000, function=(seed + 1) % 10),
        at=n // 2,
        batch_rows=BATCH,
    ),
    "Friedman, a slope 10 % less": lambda n, seed: shifted(friedman(n, seed=seed), n // 2),
    "Friedman, other inputs": lambda n, seed: drift(
        friedman(n, seed=seed),
        friedman(n // 2, seed=seed + 1000, swapped=True),
        at=n // 2,
        batch_rows=BATCH,
    ),
}


@dataclass
class Tally:
    """Alarms of one detector: without a change, and after one."""

    still_rows: int = 0
    n_false: int = 0
    delays: dict[str, list[int | None]] = field(default_factory=dict)


def alarms_of(batches: Batches, river: list[str], slow_rows: range) -> dict[str, list[int]]:
    """Return the rows at which each detector raised an alarm; the slow one sees some rows."""
    model: Any = None
    found: dict[str, list[int]] = {name: [] for name in (OURS, *river)}
    watching = {name: RIVER[name]() for name in river}
    n_rows = 0
    for X, y in batches:
        if model is None:
            is_number = y.dtype.kind == "f"
            kind = driftree.DynamicModelTreeRegressor if is_number else None
            model = (kind or driftree.DynamicModelTreeClassifier)()
        else:
            said = model.predict(X)
            errors = np.abs(said - y) if is_number else (said != y).astype(float)
            for name, detector in watching.items():
                if name == SLOW and n_rows not in slow_rows:
                    continue
                for i, error in enumerate(errors.tolist()):
                    detector.update(error)
                    if detector.drift_detected:
                        found[name].append(n_rows + i + 1)
        model.partial_fit(X, y)
        n_rows += len(y)
    found[OURS] = [alarm.n_rows for alarm in model.drifts()]
    return found


def run(n_runs: int, n_changing: int, n_rows: int) -> dict[str, Tally]:
    """Return the tallies of all detectors."""
    tallies = {name: Tally() for name in (OURS, *RIVER)}
    at = n_rows // 2
    seen = range(at - 2000, at + SOON)
    for kind, make in STILL.items():
        for seed in range(1, n_runs + 1):
            river = [name for name in RIVER if name != SLOW or seed <= SLOW_RUNS[0]]
            for name, found in alarms_of(make(n_rows, seed), river, seen).items():
                tallies[name].still_rows += len(seen) if name == SLOW else n_rows
                tallies[name].n_false += len(found)
        print(kind, {name: (t.n_false, t.still_rows) for name, t in tallies.items()}, flush=True)
    for kind, make in CHANGING.items():
        for seed in range(1, n_changing + 1):
            river = [name for name in RIVER if name != SLOW or seed <= SLOW_RUNS[1]]
            for name, found in alarms_of(make(n_rows, seed), river, seen).items():
                late = [row - at for row in found if at < row <= at + SOON]
                tallies[name].delays.setdefault(kind, []).append(late[0] if late else None)
        print(kind, {name: t.delays[kind] for name, t in tallies.items()}, flush=True)
    return tallies


def tabulate(tallies: dict[str, dict[str, Any]]) -> str:
    """Return the table as Markdown: a detector a row."""
    kinds = list(next(iter(tallies.values()))["delays"])
    head = [
        "detector",
        "false alarms per million rows",
        *(f"{kind}: found, rows" for kind in kinds),
    ]
    body = []
    for name, tally in tallies.items():
        rate = tally["n_false"] / tally["still_rows"] * 1e6
        cells = [f"{rate:.1f} ({tally['n_false']} in {tally['still_rows'] / 1e6:g} M)"]
        for kind in kinds:
            delays = tally["delays"][kind]
            found = [delay for delay in delays if delay is not None]
            late = f", {median(found):,.0f}" if found else ""
            cells.append(f"{len(found)} of {len(delays)}{late}")
        body.append([name, *cells])
    return page.markdown(head, body)


def main() -> None:
    """Run what the command line says; print the table, and write it into docs/monitor.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=28, help="of each of five kinds, unchanging")
    parser.add_argument("--changing", type=int, default=15, help="of each kind with a change")
    parser.add_argument("--rows", type=int, default=100_000, help="of each run")
    parser.add_argument("--no-write", action="store_true", help="only print")
    given = parser.parse_args()
    found = {k: asdict(t) for k, t in run(given.runs, given.changing, given.rows).items()}
    table = tabulate(found)
    print(table)
    if not given.no_write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        page.write_table("alarms", "## How reliable the alarms are", table, page="monitor")


if __name__ == "__main__":
    main()
