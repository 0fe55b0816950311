"""Where do the instructions of a row go, Python included? callgrind counts, so noise is no matter.

Every learner first learns its stream at full speed, and is pickled; then a Python under valgrind
loads it, and only some further rows are counted, each predicted and then learnt. Start-up and
imports are not counted. callgrind knows AVX2 but not AVX-512: the AVX2 kernels are counted.

    python benchmarks/profile_learning.py
    python benchmarks/profile_learning.py --streams sea --settings paper --modes dict

`make profile` runs it with kernels that know the names of their functions (DRIFTREE_PROFILE=ON).
"""

import argparse
import ctypes
import json
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import callgrind
import harness
import numpy as np
import page
from numpy.typing import NDArray
from options import names
from speed_streams import SEED, draw_friedman, draw_hyperplane

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, streams
from driftree.learn import _kernels
from driftree.learn.tables import array_names

GROWN_ROWS = 20_000
BATCH_ROWS = 200
PYTHON = "Python around"
FIGURES = harness.ROOT / "benchmarks" / "results" / "profile.json"
SETTINGS = {
    "default": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
}
REGRESSORS = {"default": DynamicModelTreeRegressor, "paper": DynamicModelTreeRegressor.paper}
NUMBERS = ("friedman",)  # streams of numbers, which regressors learn
MODES = ("dict", "batch")


# ---------------------------------------------------------------------- streams
def draw_cover(n_rows: int) -> Iterable[Any]:
    """Draw 10 numbers and 4 + 40 indicators for 7 classes, in the shape of covertype."""
    draws = np.random.default_rng(SEED)
    for X, y in streams.random_rbf(n_rows, seed=SEED, n_features=10, n_classes=7):
        area = np.eye(4)[(y + draws.integers(0, 2, len(y))) % 4]
        soil = np.eye(40)[(5 * y + draws.integers(0, 10, len(y))) % 40]
        yield np.hstack([X, area, soil]), y


STREAMS = {
    "sea": partial(streams.sea, seed=SEED),
    "agrawal": partial(streams.agrawal, seed=SEED, function=2),
    "hyperplane10": partial(draw_hyperplane, n_features=10),
    "hyperplane50": partial(draw_hyperplane, n_features=50),
    "hyperplane200": partial(draw_hyperplane, n_features=200),
    "cover54x7": draw_cover,
    "friedman": draw_friedman,
}


def settings_of(stream: str) -> dict[str, Any]:
    """Return what builds a learner of the stream's target, by setting."""
    return REGRESSORS if stream in NUMBERS else SETTINGS


class Workload(NamedTuple):
    """A grown learner and the rows that are to be counted."""

    name: str
    mode: str
    learner: DynamicModelTreeClassifier | DynamicModelTreeRegressor
    X: NDArray[np.float64]
    y: NDArray[np.int64]


def grow(stream: str, setting: str, modes: Sequence[str]) -> list[Workload]:
    """Let a learner learn the stream, and keep some rows to count."""
    features, labels = zip(*STREAMS[stream](GROWN_ROWS + 1000), strict=True)
    X, y = np.concatenate(features), np.concatenate(labels)
    X = (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-9)
    n_grown = GROWN_ROWS // 4 if X.shape[1] > 100 else GROWN_ROWS
    learner = settings_of(stream)[setting]()
    for start in range(0, n_grown, 1000):
        learner.partial_fit(X[start : start + 1000], y[start : start + 1000])
    n_counted = 2 * BATCH_ROWS if X.shape[1] > 100 else 4 * BATCH_ROWS
    rest = slice(n_grown, n_grown + n_counted)
    return [
        Workload(f"{stream} {setting} {mode}", mode, learner, X[rest], y[rest]) for mode in modes
    ]


# ---------------------------------------------------------------------- under valgrind
def run_counted(file: Path, library: Path) -> None:
    """Let the learners in `file` predict and learn; the second half of their rows is counted."""
    requests = ctypes.CDLL(str(library))
    for name, mode, learner, X, y in pickle.loads(file.read_bytes()):
        walk = walk_dicts if mode == "dict" else walk_batches
        half = len(y) // 2
        own = pickle.loads(pickle.dumps(learner))  # two modes, one learner
        columns = array_names(X.shape[1])
        rows = [dict(zip(columns, row, strict=True)) for row in X.tolist()]
        walk(own, X[:half], y[:half], rows[:half])
        requests.start_counting()
        walk(own, X[half:], y[half:], rows[half:])
        requests.stop_counting(name.encode())


def walk_dicts(
    learner: Any, X: NDArray[np.float64], y: NDArray[np.int64], rows: list[dict[Any, float]]
) -> None:
    """Predict and learn row by row."""
    del X
    for row, label in zip(rows, y.tolist(), strict=True):
        learner.predict_one(row)
        learner.learn_one(row, label)


def walk_batches(
    learner: Any, X: NDArray[np.float64], y: NDArray[np.int64], rows: list[dict[Any, float]]
) -> None:
    """Predict and learn batch by batch."""
    del rows
    for start in range(0, len(y), BATCH_ROWS):
        batch = slice(start, start + BATCH_ROWS)
        learner.predict(X[batch])
        learner.partial_fit(X[batch], y[batch])


# ---------------------------------------------------------------------- outside
def count(workloads: list[Workload]) -> dict[str, dict[str, float]]:
    """Return the instructions per row of every workload by kernel."""
    callgrind.check_names()
    kernels = Path(_kernels.__file__)
    if b".debug_info" not in kernels.read_bytes():
        raise SystemExit(
            "these kernels know no names: run 'make profile', which builds some that do"
        )
    if shutil.which("valgrind") is None:
        raise SystemExit("no valgrind: install it (Debian/Ubuntu: apt install valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "workloads")
        file.write_bytes(pickle.dumps(workloads))
        words = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-instr=yes"]
        words += [f"--callgrind-out-file={folder}/counted", sys.executable, __file__]
        words += ["--inside", str(file), str(harness.build_requests())]
        harness.run(words)
        parts = [callgrind.read_part(file) for file in Path(folder).glob("counted.*")]
    found = {part.name: part for part in parts}
    figures = {}
    for workload in workloads:
        n, part = len(workload.y) // 2, found[workload.name]
        kernel_counts = callgrind.count_by_kernel(part, kernels)
        counts = {
            "total": part.total,
            PYTHON: kernel_counts.pop(callgrind.OUTSIDE),
            **kernel_counts,
        }
        figures[workload.name] = {kernel: count / n for kernel, count in counts.items()}
    return figures


def tabulate(columns: dict[str, dict[str, float]]) -> str:
    """Lay out the figures: a line per kernel, a column per stream."""
    kernels = sorted(
        {kernel for column in columns.values() for kernel in column},
        key=lambda kernel: -max(c.get(kernel, 0) / c["total"] for c in columns.values()),
    )
    body = []
    for kernel in kernels:
        shares = [column.get(kernel, 0) / column["total"] for column in columns.values()]
        if max(shares) < 0.005:
            continue
        figures = [f"{column.get(kernel, 0):,.0f}" for column in columns.values()]
        if kernel != "total":
            figures = [f"{f} ({s:.0%})" for f, s in zip(figures, shares, strict=True)]
        body.append([kernel, *figures])
    return page.markdown(["instructions per row", *columns], body)


def summarise(figures: dict[str, dict[str, float]]) -> str:
    """Lay out where most instructions go, a line per workload."""
    body = []
    for workload, counts in figures.items():
        shares = {kernel: count / counts["total"] for kernel, count in counts.items()}
        largest = sorted(shares.items(), key=lambda item: -item[1])[1:6]  # all of them come first
        words = ", ".join(f"{kernel} {share:.0%}" for kernel, share in largest if share >= 0.03)
        body.append([workload, f"{counts['total']:,.0f}", words])
    return page.markdown(["stream, setting, mode", "instructions per row", "of which"], body)


def main(arguments: Sequence[str] | None = None) -> None:
    """Grow the learners, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--settings", type=names(list(SETTINGS)), default=list(SETTINGS))
    parser.add_argument("--modes", type=names(MODES), default=list(MODES))
    parser.add_argument("--inside", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        run_counted(*options.inside)
        return
    workloads = [
        workload
        for setting in options.settings
        for stream in options.streams
        for workload in grow(stream, setting, options.modes)
    ]
    figures = count(workloads)
    for setting in options.settings:
        for mode in options.modes:
            own = {stream: figures[f"{stream} {setting} {mode}"] for stream in options.streams}
            print(f"{setting} setting, {mode} mode\n{tabulate(own)}")
    if (options.streams, options.settings, options.modes) == (
        list(STREAMS),
        list(SETTINGS),
        list(MODES),
    ):
        rounded = {w: {k: round(c) for k, c in column.items()} for w, column in figures.items()}
        FIGURES.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
        page.write_table("profile", "## Where the instructions of a row go", summarise(figures))


if __name__ == "__main__":
    # The Python under valgrind takes these over: one thread, and the same hashes every time.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0")
    os.environ.update(callgrind.ENVIRONMENT)
    main()
