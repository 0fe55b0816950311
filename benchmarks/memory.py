"""Does `memory_usage()` say what a process really holds? And what does the formula say?

For each case a process of its own makes as many equal models as take some tens of MB, and compares
the growth of its resident size with what the models say. Nothing else in it grows meanwhile: a few
models were made and thrown away before.

    python benchmarks/memory.py                      two minutes; writes docs/memory.md
    python benchmarks/memory.py --case 'paper, m = 3, 2 classes' --megabytes 20
                                                     one case; prints its figures as JSON
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import page
from growth import SETTINGS, Batch, linear_classes, moving_plane, nested_planes
from resident import require_linux, resident_bytes
from rich.console import Console

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier

LEARNERS: dict[str, Callable[[], Any]] = {**SETTINGS, "FIMT-DD": FIMTDDClassifier}
NODE_BYTES = 131  # of a node that may come: its places in the tree's arrays
TRIAL_BYTES = 82  # of each of its trials
FEATURE_BYTES = 222  # what is known of a feature's columns, and its scale


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
    n_trials = 0 if p.setting == "paper" else p.trials
    fixed = p.max_nodes * (NODE_BYTES + TRIAL_BYTES * n_trials) + FEATURE_BYTES * engine.n_features
    if p.setting == "paper":
        candidate = 52 + 16 * size
        node = 8 * (8 + size) + 8 * engine.n_classes + 8 * size
        return fixed + model.n_nodes_ * (node + p.candidates * engine.n_features * candidate)
    weights = 8 * (8 + 3 * size + engine.stride**2)
    room = model._tree.evidence.GRID_BYTES // (4 * size) // engine.n_features - 1
    bins = min(p.bins, max(room, model._tree.evidence.LEAST_BINS))
    grid = engine.n_features * ((bins + 1) * (24 + 4 * size) + 8) + 8 * size
    n_models = model.n_nodes_ + 2 * count_trials(engine) + (engine.challenger >= 0)
    return fixed + n_models * weights + model.n_nodes_ * (grid + 8 * engine.n_classes)


def count_trials(engine: Any) -> int:
    """Return the number of trials that run."""
    return int((engine.trial_feature >= 0).sum())


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one case, or all of them in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {case.name: case for case in cases()}
    parser.add_argument("--case", choices=known, metavar="NAME", help="; ".join(known))
    parser.add_argument("--megabytes", type=int, default=60, help="how much to build")
    options = parser.parse_args(arguments)
    require_linux()
    if options.case:
        print(json.dumps(measure(known[options.case], options.megabytes)._asdict()))
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
