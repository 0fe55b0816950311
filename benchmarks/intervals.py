"""Intervals of driftree's regressor beside adaptive conformal inference on others' predictions.

Each row is predicted with an interval at 90 %, then learnt; all get the same rows in the same run.
The others are River's, prepared as for `driftree compare --task regression`; theirs are intervals
by adaptive conformal inference (Gibbs and Candes 2021: steps of 0.005 on the level, quantiles of
the last 1,000 absolute errors), and of each stream the one with the least mean absolute error
counts. The Winkler score is the width, plus 20 times the distance of a target outside, over the
range from the 5 % to the 95 % quantile of the stream's targets. Where the rule changes at once, it
is counted how many rows pass until coverage is within 3 points again, for 500 rows.

    DRIFTREE_DATA=folder python benchmarks/intervals.py
    python benchmarks/intervals.py --streams piecewise,mv --rows 5000
"""

from __future__ import annotations

import argparse
import sys
import warnings
from bisect import bisect_left, insort
from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from options import names
from regression_streams import STREAMS
from rich.console import Console
from rich.table import Table

from driftree import DynamicModelTreeRegressor
from driftree.evaluate import make_learner

if TYPE_CHECKING:
    from regression_streams import NumberStream

LEVEL = 0.9
PEERS = ("linear", "pa", "ewa", "htr", "hatr")
ACI_STEP, ACI_ROWS = 0.005, 1000
WINDOW = 500
LONG = 10_000  # rows of a stream whose coverage is promised
CHANGES = {"piecewise": (1 / 2,), "friedman_gra": (1 / 3, 2 / 3)}  # at once, as shares of the rows


class AdaptiveConformal:
    """Adaptive conformal inference on the absolute errors of any learner."""

    def __init__(self) -> None:
        self.miss = 1 - LEVEL  # what share of rows may be outside, by what has happened
        self.recent: deque[float] = deque()
        self.ordered: list[float] = []

    def half(self) -> float:
        """Return half of the width."""
        if not self.ordered:
            return 0.0
        place = int(np.ceil((1 - self.miss) * (len(self.ordered) + 1))) - 1
        return self.ordered[min(max(place, 0), len(self.ordered) - 1)]

    def learn(self, error: float) -> None:
        """Take in the error of a row."""
        self.miss += ACI_STEP * ((1 - LEVEL) - (error > self.half()))
        self.recent.append(error)
        insort(self.ordered, error)
        if len(self.recent) > ACI_ROWS:
            del self.ordered[bisect_left(self.ordered, self.recent.popleft())]


# ---------------------------------------------------------------------- one run
class Run(NamedTuple):
    """Lower and upper ends of all rows, and the mean absolute error."""

    low: np.ndarray
    high: np.ndarray
    mae: float


def run_tree(stream: NumberStream) -> Run:
    """Predict an interval, then learn, row by row."""
    model, ends, errors = DynamicModelTreeRegressor(), [], []
    for x, y in zip(stream.X, stream.y.tolist(), strict=True):
        ends.append(model.predict_interval_one(x, LEVEL))
        errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x, y)
    low, high = np.array(ends).T
    return Run(low, high, fmean(errors[1:]))


def run_peer(name: str, stream: NumberStream) -> Run:
    """Do the same with a learner that knows no intervals."""
    model: Any = make_learner(name, task="regression")
    conformal, ends, errors = AdaptiveConformal(), [], []
    for x, y in zip(stream.X, stream.y.tolist(), strict=True):
        said, half = model.predict_one(x), conformal.half()
        ends.append((said - half, said + half))
        errors.append(abs(said - y))
        conformal.learn(errors[-1])
        model.learn_one(x, y)
    low, high = np.array(ends).T
    return Run(low, high, fmean(errors[1:]))


# ---------------------------------------------------------------------- how good that is
class Figures(NamedTuple):
    """Shares of rows inside, the Winkler score, and rows until coverage is back after a change."""

    n_rows: int
    coverage: float
    worst: float
    winkler: float
    recovery: list[int]


def measure(name: str, stream: NumberStream, run: Run) -> Figures:
    """Return the figures of a run; of the first row nobody can know anything."""
    y, low, high = stream.y[1:], run.low[1:], run.high[1:]
    inside = (low <= y) & (y <= high)
    shares = share_of_windows(inside)
    outside = np.maximum(np.maximum(low - y, y - high), 0.0)
    scores = high - low + 2 / (1 - LEVEL) * outside
    least, most = np.quantile(stream.y, [0.05, 0.95])
    recovery = []
    for change in CHANGES.get(name, ()):
        after = shares[int(change * len(stream.y)) :]
        is_back = after >= LEVEL - 0.03
        recovery.append(int(is_back.argmax()) if is_back.any() else len(after))
    return Figures(
        len(stream.y),
        float(inside.mean()),
        float(shares.min()),
        float(scores.mean()) / float(most - least),
        recovery,
    )


def share_of_windows(inside: np.ndarray) -> np.ndarray:
    """Return the share inside of each 500 consecutive rows, by the first of them."""
    counts = np.concatenate([[0], np.cumsum(inside)])
    window = min(WINDOW, len(inside))
    return (counts[window:] - counts[:-window]) / window


# ---------------------------------------------------------------------- what comes out
def tabulate(ours: dict[str, Figures], theirs: dict[str, tuple[str, Figures]]) -> Table:
    """Lay out the figures, stream by stream, and their means."""
    table = Table("stream", "rows", title=f"Intervals at {LEVEL:.0%}", title_justify="left")
    for whose in ("dmt", "ACI"):
        for heading in ("coverage", f"worst {WINDOW}", "Winkler", "back after"):
            table.add_column(f"{whose}: {heading}", justify="right")
    table.add_column("on")
    for name, own in ours.items():
        peer, other = theirs[name]
        table.add_row(name, f"{own.n_rows:,}", *_cells(own), *_cells(other), peer)
    means = [
        [fmean(getattr(one, field) for one in group) for field in ("coverage", "worst", "winkler")]
        for group in (ours.values(), [other for _, other in theirs.values()])
    ]
    cells = [f"{mean:.3f}" for mean in means[0]] + [""] + [f"{mean:.3f}" for mean in means[1]]
    table.add_row("mean", "", *cells, "", "", style="bold")
    return table


def _cells(found: Figures) -> list[str]:
    recovery = ", ".join(f"{rows:,}" for rows in found.recovery) or "-"
    return [f"{found.coverage:.3f}", f"{found.worst:.3f}", f"{found.winkler:.3f}", recovery]


def promises(ours: dict[str, Figures], theirs: dict[str, tuple[str, Figures]]) -> dict[str, bool]:
    """Return what is promised, and whether it is so on these streams."""
    own = ours.values()
    others = [other.winkler for _, other in theirs.values()]
    return {
        f"coverage 88.5 to 91.5 % where there are {LONG:,} rows": all(
            0.885 <= one.coverage <= 0.915 for one in own if one.n_rows >= LONG
        ),
        f"no {WINDOW} consecutive rows below 84 %": min(one.worst for one in own) >= 0.84,
        "mean Winkler score below that of adaptive conformal inference": fmean(
            one.winkler for one in own
        )
        < fmean(others),
        "within 3 points again 1,000 rows after a change": all(
            rows <= 1000 for one in own for rows in one.recovery
        ),
    }


def main() -> None:
    """Run, and print the table and the promises."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=names([*STREAMS]), default=[*STREAMS])
    parser.add_argument("--peers", type=names(PEERS), default=[*PEERS])
    parser.add_argument("--rows", type=int, default=10_000, help="of each stream, the first")
    given = parser.parse_args()
    ours: dict[str, Figures] = {}
    theirs: dict[str, tuple[str, Figures]] = {}
    for name in given.streams:
        stream = STREAMS[name](given.rows)
        ours[name] = measure(name, stream, run_tree(stream))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of peers that overflow
            runs = {peer: run_peer(peer, stream) for peer in given.peers}
        best = min(runs, key=lambda peer: runs[peer].mae)
        theirs[name] = best, measure(name, stream, runs[best])
        print(f"{name}: {ours[name]}, {best} {theirs[name][1]}", file=sys.stderr, flush=True)
    console = Console(width=150)
    console.print(tabulate(ours, theirs))
    for promise, is_kept in promises(ours, theirs).items():
        console.print(f"{promise}: {'yes' if is_kept else 'NO'}")


if __name__ == "__main__":
    main()
