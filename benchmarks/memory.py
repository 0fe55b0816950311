"""Does `memory_usage()` say what a process really holds? And what does the formula say?

For each case a process of its own makes as many equal models as take some tens of MB, and compares
the growth of its resident size with what the models say. Nothing else in it grows meanwhile: a few
models were made and thrown away before.

And what does a small model cost, one of many? What it holds and saves, and the CPU time to make it,
to load it, to pickle it and back: the least of many repetitions.

    python benchmarks/memory.py                      two minutes; writes docs/memory.md
    python benchmarks/memory.py --small              seconds; writes only its table of small models
    python benchmarks/memory.py --case 'paper, m = 3, 2 classes' --megabytes 20
                                                     one case; prints its figures as JSON
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import itertools
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import page
from growth import SETTINGS, Batch, linear_classes, moving_plane, nested_planes
from resident import require_linux, resident_bytes
from rich.console import Console

from driftree import (
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
    load,
)
from driftree.learn._kernels import LANES
from driftree.learn.storage import manifest

LEARNERS: dict[str, Callable[[], Any]] = {**SETTINGS, "FIMT-DD": FIMTDDClassifier}
TREE_BYTES = 32  # numbers that a tree has once
LINK_BYTES = 76  # of those about the default setting's two links
NODE_BYTES = 99  # links, condition and sums of a place for a node; there are as many as were needed
GRID_BYTES = 12  # of the default setting's grid, even if it has not been chosen yet
TRIAL_BYTES = 82  # of each place for a trial
BEND_BYTES = 48  # of each place for a trial of bends
FEATURE_BYTES = 198  # what is known of a feature's columns, and its scale
SMALL_ROWS = 50  # of the small models


class Case(NamedTuple):
    """A learner and what it learns."""

    learner: str
    words: str
    stream: Callable[[], Iterator[Batch]]
    n_batches: int = 10
    by_rows: bool = False

    @property
    def name(self) -> str:
        """Say it."""
        return f"{self.learner}, {self.words}{', row by row' if self.by_rows else ''}"


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for learner in LEARNERS:
        yield Case(learner, "m = 3, 2 classes", lambda: moving_plane(3))
        yield Case(learner, "m = 3, 2 classes", lambda: moving_plane(3), by_rows=True)
        yield Case(learner, "m = 50, 2 classes", lambda: moving_plane(50))
        yield Case(learner, "m = 200, 2 classes", lambda: moving_plane(200))
        yield Case(learner, "m = 3, 7 classes", lambda: linear_classes(7, 3))
        yield Case(learner, "m = 50, 7 classes", lambda: linear_classes(7, 50))
        yield Case(learner, "m = 50, 7 classes", lambda: linear_classes(7, 50), by_rows=True)
        yield Case(learner, "m = 6, 2 classes, deep", nested_planes, 100)


class Figures(NamedTuple):
    """Bytes of a model: by the formula (of its arrays only), as it says, as the process holds."""

    nodes: int
    trials: int
    formula: int
    arrays: int
    usage: int
    resident: int


def formula(model: DynamicModelTreeClassifier) -> int:
    """Return the bytes of a tree's arrays; docs/memory.md has the formula in words."""
    p = model._tree.parameters
    engine = model._tree.engine
    size = engine.n_outputs * engine.stride
    n_places = len(engine.parent)
    arrays = engine.arrays()
    fixed = TREE_BYTES + FEATURE_BYTES * engine.n_features
    fixed += n_places * (NODE_BYTES + 8 * engine.n_classes)
    fixed += 8 * (engine.n_features + 3) * len(arrays.get("watch_targets", ()))
    if p.setting == "paper":
        n_candidates = len(arrays["candidates.feature"])
        return fixed + model.n_nodes_ * 16 * size + n_candidates * (52 + 16 * size)
    fixed += LINK_BYTES + n_places * (GRID_BYTES + BEND_BYTES + TRIAL_BYTES * p.trials)
    is_model = arrays["model.numbers.lengths"] > 0
    bends = arrays["model.bend_feature.lengths"][is_model].tolist()
    models = sum(model_bytes(engine, n_bends) for n_bends in bends)
    bins = model._tree.evidence.grid_bins(engine.n_columns, 4 * size, 0, engine.n_features)
    grid = engine.n_features * ((bins + 1) * (24 + 4 * size) + 8) + 4 + 8 * size
    n_grids = sum(length > 0 for length in arrays["grid.edges.lengths"].tolist())
    first_rows = 8 * len(arrays["grid.first_rows"])
    return fixed + models + n_grids * grid + first_rows


def model_bytes(engine: Any, n_bends: int) -> int:
    """Return the bytes of a simple model's arrays."""
    stride = -(-(engine.n_columns + n_bends) // LANES) * LANES if n_bends else engine.stride
    return 8 * (10 + 3 * engine.n_outputs * stride + stride**2) + 20 * n_bends


def count_trials(engine: Any) -> int:
    """Return the number of trials that run; the paper's setting has none."""
    return sum(int(feature >= 0) for feature in engine.arrays().get("trial.feature", ()))


def measure(case: Case, megabytes: int) -> Figures:
    """Make models of a case until they say that they hold so much; compare."""
    batches = list(itertools.islice(case.stream(), case.n_batches))
    rows = [
        (dict(zip(map("x{}".format, range(len(x))), x, strict=True)), label)
        for X, y in (batches if case.by_rows else [])
        for x, label in zip(X.tolist(), y.tolist(), strict=True)
    ]

    def build() -> Any:
        model = LEARNERS[case.learner]()
        if case.by_rows:
            for x, label in rows:
                model.learn_one(x, label)
        else:
            for X, y in batches:
                model.partial_fit(X, y)
        return model

    usages = [build().memory_usage() for _ in range(3)]
    n_models = max(4, int(megabytes * 1e6 / usages[0]))
    models: list[Any] = [None] * n_models
    before = resident_bytes()
    for i in range(n_models):
        models[i] = build()
    resident = (resident_bytes() - before) // n_models
    engine = models[0]._tree.engine
    is_ours = isinstance(models[0], DynamicModelTreeClassifier)
    return Figures(
        models[0].n_nodes_,
        count_trials(engine) if is_ours else 0,
        formula(models[0]) if is_ours else 0,
        sum(a.nbytes for name, a in engine.arrays().items() if not name.endswith(".lengths")),
        sum(model.memory_usage() for model in models) // n_models,
        resident,
    )


def tabulate(figures: dict[str, Figures]) -> str:
    """Lay out the figures."""
    body = [
        [
            name,
            str(f.nodes),
            str(f.trials),
            f"{f.formula / 1e3:,.0f}" if f.formula else "",
            f"{f.arrays / 1e3:,.0f}",
            f"{f.usage / 1e3:,.0f}",
            f"{f.resident / 1e3:,.0f}",
            f"{f.usage / f.resident:.2f}",
        ]
        for name, f in figures.items()
    ]
    head = ["model", "nodes", "trials", "formula, kB", "arrays", "`memory_usage()`", "resident"]
    return page.markdown([*head, "ratio"], body)


# ---------------------------------------------------------------------- small models
class Small(NamedTuple):
    """What a model of 3 features after 50 rows takes: bytes, and microseconds of CPU."""

    held: int
    saved: int
    made: float
    first_row: float
    loaded: float
    loaded_first: float
    pickled: float
    unpickled: float


def cpu_time(call: Callable[[], object], n_calls: int = 100, n_repeats: int = 20) -> float:
    """Return the microseconds of CPU that a call takes: the least of some means."""
    means = []
    for _ in range(n_repeats):
        begin = time.process_time_ns()
        for _ in range(n_calls):
            call()
        means.append((time.process_time_ns() - begin) / n_calls / 1e3)
    return min(means)


def measure_small(make: Callable[[], Any]) -> Small:
    """Make a small model and take its figures.

    A model makes its tree with its first row. `made` is the model and the tree, `first_row` the
    rest of that call: to read a row in which all is new, to register it, to learn it.
    """
    X, y = next(moving_plane(3))
    rows = [
        ({"x0": x[0], "x1": x[1], "x2": x[2]}, label)
        for x, label in zip(X[:SMALL_ROWS].tolist(), y[:SMALL_ROWS].tolist(), strict=True)
    ]
    model = make()
    for x, label in rows:
        model.learn_one(x, label)
    pickled = pickle.dumps(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.dmt")
        model.save(path)
        saved, loaded = path.stat().st_size, cpu_time(lambda: load(path))
        loaded_first = cpu_time(lambda: (manifest._read_common.cache_clear(), load(path)))
    made = cpu_time(lambda: make()._own_tree())
    return Small(
        held=model.memory_usage(),
        saved=saved,
        made=made,
        first_row=cpu_time(lambda: make().learn_one(*rows[0])) - made,
        loaded=loaded,
        loaded_first=loaded_first,
        pickled=cpu_time(lambda: pickle.dumps(model)),
        unpickled=cpu_time(lambda: pickle.loads(pickled)),
    )


def tabulate_small(figures: dict[str, Small]) -> str:
    """Lay out the figures of small models."""
    head = ["model", "kB held", "kB saved", "µs to make", "its first row", "to load"]
    body = [
        [name, *(f"{n / 1e3:.1f}" for n in f[:2]), *(f"{n:,.0f}" for n in f[2:])]
        for name, f in figures.items()
    ]
    return page.markdown([*head, "the first such", "to pickle", "to unpickle"], body)


def print_small() -> None:
    """Measure the small models, and put their table on the page."""
    learners = {**LEARNERS, "regressor": DynamicModelTreeRegressor}  # 1 and 0 are numbers, too
    table = tabulate_small({name: measure_small(make) for name, make in learners.items()})
    print(table)
    page.write_table("small", "## A small model", table, page="memory")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one case, or all of them in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {case.name: case for case in cases()}
    parser.add_argument("--case", choices=known, metavar="NAME", help="; ".join(known))
    parser.add_argument("--small", action="store_true", help="the table of small models only")
    parser.add_argument("--megabytes", type=int, default=60, help="how much to build")
    options = parser.parse_args(arguments)
    require_linux()
    if options.case:
        print(json.dumps(measure(known[options.case], options.megabytes)._asdict()))
        return
    print_small()
    if options.small:
        return
    console = Console(stderr=True)
    figures = {}
    for name in known:
        command = [sys.executable, __file__, "--case", name, "--megabytes", str(options.megabytes)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures[name] = Figures(**json.loads(done.stdout))
        console.print(f"{name}: {figures[name].usage / figures[name].resident:.3f}")
    table = tabulate(figures)
    print(table)
    page.write_table("memory", "## What a model holds", table, page="memory")


if __name__ == "__main__":
    main()
