"""How does the cost of a row grow? With rows before it, features, classes, depth of the tree.

One process, one thread, one core; processor time of learning batches of 1000 rows (partial_fit).
The cost at a point is the median over its batches. An exponent is the slope of a line through the
logarithms: 0 is a cost that does not grow, 1 a linear one. Along rows it is that of the cost per
node on a row's path, since a stream may make a tree grow at any time; along features and classes
the tree is kept at one leaf, which tries splits but never makes one.

    python benchmarks/growth.py                      minutes; writes docs/pictures/growth.png
    python benchmarks/growth.py --rows 100000        fewer rows of life; writes nothing
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import page
from numpy.typing import NDArray
from rich.console import Console

from driftree import DynamicModelTreeClassifier, streams
from driftree.learn import _kernels
from driftree.show.scores import STYLES
from driftree.show.style import FONT_SIZE
from driftree.show.style import page as empty_figure

SEED = 1
BATCH_ROWS = 1000
MOST_ROWS = 10**7
SETTINGS: dict[str, Callable[..., DynamicModelTreeClassifier]] = {
    "default": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
}
FEATURES = (3, 6, 12, 25, 50, 100, 200, 400)
CLASSES = (2, 3, 5, 10, 20, 50)
DEPTHS = (0, 1, 2, 3, 4, 5, 6)
ONE_LEAF: dict[str, dict[str, Any]] = {
    "default": {"epsilon": 1e-300},  # no gain is enough; at max_depth=0 nothing would be tried
    "paper": {"max_depth": 0},
}
DEEP: dict[str, dict[str, Any]] = {"default": {}, "paper": {"learning_rate": 0.2}}  # splits sooner
GROWN_ROWS = 100_000  # by then a tree has about its natural depth
MANY_FEATURES = 50  # from here on, what grows with the square of m outweighs the rest
LATE = {"rows": GROWN_ROWS, "features": MANY_FEATURES}
DEPTH = "nodes on the path"
LIMITS = {"rows": 0, "features": 2, "classes": 1, DEPTH: 1}
RESULTS = page.ROOT / "benchmarks" / "results" / "growth.json"
PICTURE = page.ROOT / "docs" / "pictures" / "growth.png"

Batch = tuple[NDArray[np.float64], NDArray[np.int64]]


class Curve(NamedTuple):
    """Microseconds per row along one quantity, and the nodes that a row passes there on average."""

    quantity: str
    setting: str
    stream: str
    places: list[float]
    microseconds: list[float]
    nodes: list[float]

    def per_node(self) -> list[float]:
        """Return the cost per row and node on its path: a tree that grows is no slow-down."""
        if self.quantity == DEPTH:
            return self.microseconds
        return [cost / nodes for cost, nodes in zip(self.microseconds, self.nodes, strict=True)]

    def exponent(self, least: float = 0.0) -> float:
        """Return the slope of the cost per node in logarithms, from the place `least` on."""
        pairs = [
            (place, cost)
            for place, cost in zip(self.places, self.per_node(), strict=True)
            if place >= least
        ]
        places, costs = zip(*pairs, strict=True)
        return float(np.polyfit(np.log(places), np.log(costs), 1)[0])


# ---------------------------------------------------------------------- streams
def endless_sea() -> Iterator[Batch]:
    """Draw SEA with another concept every 50,000 rows, for ever."""
    for i in itertools.count():
        yield from streams.sea(50_000, seed=SEED + i, function=i % 4)


def endless_agrawal() -> Iterator[Batch]:
    """Draw loan applications with another rule every 100,000 rows: the trees are deep."""
    for i in itertools.count():
        yield from streams.agrawal(100_000, seed=SEED + i, function=i % 4, perturbation=0.1)


def moving_plane(n_features: int) -> Iterator[Batch]:
    """Draw a hyperplane that never stands still."""
    for i in itertools.count():
        yield from streams.hyperplane(
            1_000_000,
            seed=SEED + i,
            n_features=n_features,
            n_drifting=n_features // 2,
            magnitude=0.5,
            noise=0.1,
        )


def linear_classes(n_classes: int, n_features: int = 10) -> Iterator[Batch]:
    """Draw rows whose label has the largest of some linear scores: no tree is needed."""
    draws = np.random.default_rng(SEED)
    weights = draws.normal(size=(n_features, n_classes))
    while True:
        X = draws.random((BATCH_ROWS, n_features))
        y = ((X - 0.5) @ weights).argmax(axis=1)
        y[:n_classes] = np.arange(n_classes)  # all are known from the first batch on
        yield X, y


def nested_planes(n_levels: int = 6, n_features: int = 5) -> Iterator[Batch]:
    """Draw rows whose plane depends on where x0 lies, more finely from level to level.

    Every half of an interval moves and turns the plane further, so every split of x0 pays.
    """
    draws = np.random.default_rng(SEED)
    turns = [draws.normal(size=(2**level, n_features + 1)) for level in range(n_levels + 1)]
    while True:
        X = draws.random((BATCH_ROWS, n_features + 1))
        inputs = np.hstack([np.full((BATCH_ROWS, 1), 3.0), X[:, 1:] - 0.5])
        weights = sum(turn[(X[:, 0] * len(turn)).astype(int)] for turn in turns)
        yield X, ((inputs * weights).sum(axis=1) > 0).astype(np.int64)


# ---------------------------------------------------------------------- measuring
def time_batch(learner: Any, batch: Batch) -> float:
    """Learn a batch; return the microseconds per row."""
    begin = time.process_time_ns()
    learner.partial_fit(*batch)
    return (time.process_time_ns() - begin) / 1000 / len(batch[1])


def nodes_on_path(learner: Any, X: NDArray[np.float64]) -> float:
    """Return the nodes that a row passes on average, root and leaf included."""
    engine = learner._tree.engine
    return 1 + float(engine.depth[engine.leaves(X)].mean())


def cost_of(
    learner: Any, stream: Iterator[Batch], n_warm: int, n_timed: int
) -> tuple[float, float]:
    """Return the median cost of a row after some batches to warm up, and the nodes on its path."""
    for batch in itertools.islice(stream, n_warm):
        learner.partial_fit(*batch)
    gc.collect()
    cost = median(time_batch(learner, batch) for batch in itertools.islice(stream, n_timed))
    return cost, nodes_on_path(learner, next(stream)[0])


def along_rows(setting: str, name: str, stream: Iterator[Batch], most: int) -> Curve:
    """Measure the cost of a row late and early in a tree's life, ten times a decade."""
    n_batches = most // BATCH_ROWS
    n_points = 1 + round(10 * np.log10(n_batches / 5))
    ends = np.unique(np.geomspace(5, n_batches, n_points).round().astype(int)).tolist()
    learner = SETTINGS[setting]()
    figures = []
    for begin, end in itertools.pairwise([0, *ends]):
        batches = itertools.islice(stream, end - begin)
        costs, paths = [], []
        for i, batch in enumerate(batches):
            costs.append(time_batch(learner, batch))
            if i % max(1, (end - begin) // 20) == 0:
                paths.append(nodes_on_path(learner, batch[0]))
        figures.append((BATCH_ROWS * end, median(costs), float(np.mean(paths))))
    places, costs, nodes = map(list, zip(*figures[1:], strict=True))  # the first warms up
    return Curve("rows", setting, name, places, costs, nodes)


def along_features(setting: str) -> Curve:
    """Measure the cost of a row by the number of features."""
    figures = [
        cost_of(
            SETTINGS[setting](**ONE_LEAF[setting]), linear_classes(2, m), 5, 5 if m >= 200 else 20
        )
        for m in FEATURES
    ]
    costs, nodes = map(list, zip(*figures, strict=True))
    return Curve("features", setting, "linear scores", list(FEATURES), costs, nodes)


def along_classes(setting: str) -> Curve:
    """Measure the cost of a row by the number of classes."""
    figures = [
        cost_of(SETTINGS[setting](**ONE_LEAF[setting]), linear_classes(n), 5, 20) for n in CLASSES
    ]
    costs, nodes = map(list, zip(*figures, strict=True))
    return Curve("classes", setting, "linear scores, m = 10", list(CLASSES), costs, nodes)


def along_depth(setting: str) -> Curve:
    """Measure the cost of a row by the mean number of nodes on its path."""
    figures: list[tuple[float, float]] = []
    for depth in DEPTHS:
        learner = SETTINGS[setting](max_depth=depth, **DEEP[setting])
        cost, nodes = cost_of(learner, nested_planes(), 200, 60)
        if not figures or nodes > figures[-1][1] + 0.1:  # deeper may be allowed, but not wanted
            figures.append((cost, nodes))
    costs, places = map(list, zip(*figures, strict=True))
    return Curve(DEPTH, setting, "nested planes, m = 6", places, costs, places)


# ---------------------------------------------------------------------- output
def tabulate(curves: Sequence[Curve]) -> str:
    """Lay out the fitted exponents."""
    body = []
    for curve in curves:
        least = {"classes": 3}.get(curve.quantity, 0)  # two classes have one output
        fit = f"{curve.exponent(least):+.2f}"
        late = LATE.get(curve.quantity, 0)
        if 0 < late < curve.places[-2]:
            fit += f" (from {late:,} on: {curve.exponent(late):+.2f})"
        spans = [
            f"{values[0]:,.3g} to {values[-1]:,.3g}".replace("e+0", "e")
            for values in (curve.places, curve.microseconds, curve.nodes)
        ]
        words = f"{curve.quantity}, {curve.setting}, {curve.stream}"
        body.append([words, *spans, fit, str(LIMITS[curve.quantity])])
    head = ["cost of a row by", "from, to", "µs per row", "nodes on the path", "exponent", "limit"]
    return page.markdown(head, body)


def draw(curves: Sequence[Curve]) -> None:
    """Draw a panel per quantity, all with two logarithmic axes."""
    figure, panels = empty_figure(2, 2, height=5.4)
    looks = {"default": STYLES["dmt"], "paper": STYLES["dmt-paper"]}
    for panel, quantity in zip(panels.flat, LIMITS, strict=True):
        own = [curve for curve in curves if curve.quantity == quantity]
        names = list(dict.fromkeys(curve.stream for curve in own))
        for curve in own:
            least = {"classes": 3, **LATE}.get(quantity, 0)
            panel.loglog(
                curve.places,
                curve.per_node(),
                color=looks[curve.setting].colour,
                marker="os^"[names.index(curve.stream)],
                markersize=3,
                markerfacecolor="white" if curve.setting == "paper" else None,
                linewidth=1,
                label=f"{curve.setting}, {curve.stream}: {curve.exponent(least):+.2f}",
            )
        set_axes(panel, quantity, own)
    figure.savefig(PICTURE, dpi=160)


def set_axes(panel: Any, quantity: str, curves: Sequence[Curve]) -> None:
    """Write plain numbers at the axes, and leave room for the legend above the curves."""
    costs = [cost for curve in curves for cost in curve.per_node()]
    low, high = np.log10(min(costs)), np.log10(max(costs))
    margin = 0.05 * (high - low)
    room = 0.09 * (len(curves) + 0.5)  # of the height, for the legend
    panel.set_ylim(10 ** (low - margin), 10 ** (high + margin + (high - low) * room / (1 - room)))
    ticks = [k * 10.0**e for e in range(-2, 4) for k in (1, 2, 5)]
    ticks = [tick for tick in ticks if low - margin < np.log10(tick) < high + margin]
    panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=FONT_SIZE)
    if quantity != "rows":
        places = range(1, 8) if quantity == DEPTH else curves[0].places
        panel.set_xticks(list(places), [f"{place:g}" for place in places], fontsize=FONT_SIZE)
    panel.minorticks_off()
    panel.set_xlabel(quantity, fontsize=FONT_SIZE)
    words = "µs per row" if quantity == DEPTH else "µs per row and node on its path"
    panel.set_ylabel(words, fontsize=FONT_SIZE)
    panel.legend(fontsize=FONT_SIZE - 1.5, frameon=False, loc="upper left", handlelength=1.5)


def measure_all(most_rows: int, say: Callable[[str], object]) -> list[Curve]:
    """Measure all curves, one after the other."""
    lives = {
        "SEA": endless_sea,
        "Hyperplane": lambda: moving_plane(10),
        "Agrawal": endless_agrawal,
    }
    curves = []
    for name, draw_stream in lives.items():
        for setting in SETTINGS:
            curves.append(along_rows(setting, name, draw_stream(), most_rows))
            say(f"rows, {name}, {setting}: {curves[-1].exponent():+.3f}")
    for along in (along_features, along_classes, along_depth):
        for setting in SETTINGS:
            curves.append(along(setting))
            say(f"{curves[-1].quantity}, {setting}: {curves[-1].exponent():+.3f}")
    return curves


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="rows that a tree lives")
    options = parser.parse_args(arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    gc.freeze()
    curves = measure_all(options.rows, Console(stderr=True).print)
    table = tabulate(curves)
    print(table)
    if options.rows < MOST_ROWS:
        return
    records: dict[str, Any] = {
        "instruction_set": _kernels.instruction_set(),
        "curves": [curve._asdict() for curve in curves],
    }
    RESULTS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    page.write_table("growth", "## How cost grows", table)
    draw(curves)


if __name__ == "__main__":
    main()
