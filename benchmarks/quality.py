"""How good are the trees? The paper's protocol on eight streams, in both settings of the learner.

Test-then-train on batches of 0.1 % of the stream; the first batch only trains. F1 of a batch is the
harmonic mean of weighted precision and weighted recall; the table shows the mean and the standard
deviation over batches, and the mean number of splits and parameters.

    DRIFTREE_DATA=folder python benchmarks/quality.py --jobs 2
    python benchmarks/quality.py --streams sea,agrawal --settings default --set seed=3

The folder named by DRIFTREE_DATA holds the five real streams as NAME.csv.gz, features first, last
column `target`. The three synthetic streams are drawn once and kept in DRIFTREE_CACHE, by default
~/.cache/driftree.
"""

import argparse
import ast
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import driftree
from driftree import streams

KDD_SHUFFLE_SEED = 112
SETTINGS = ("default", "paper")


class Figures(NamedTuple):
    """Published or measured figures to compare with; not a number where there are none."""

    f1: float = nan
    n_splits: float = nan
    n_parameters: float = nan
    f1_std: float = nan


class Stream(NamedTuple):
    """Where a stream comes from, which columns the authors call categorical, and what to expect.

    The prototypes were measured while the algorithm was designed: default and paper setting batch
    by batch, and the default setting without its noise floor row by row.
    """

    source: str | Callable[[], tuple[Any, Any]]
    categorical: tuple[int, ...]
    paper: Figures
    default_prototype: Figures
    paper_prototype: Figures
    row_prototype: Figures = Figures()


# The paper's Dynamic Model Tree: tables II to IV. Its Airlines has all seven columns. The default
# prototype saw the first 100,000 rows of KDD.
BANK_CATEGORIES = (1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15)
# fmt: off
STREAMS = {
    "electricity": Stream("electricity", (1, 2),
        Figures(0.76, 6.5, 33, 0.20), Figures(0.831, 4.1), Figures(0.748, 3.2), Figures(0.886)),
    "bank": Stream("bank_marketing", BANK_CATEGORIES,
        Figures(0.88, 2.3, 27, 0.11), Figures(0.905, 1.5), Figures(0.883, 1.7), Figures(0.905)),
    "kdd": Stream("kddcup99_10pct", (1, 3, *range(6, 22)),
        Figures(0.99, 24.8, 970, 0.01), Figures(0.998, 23.0), Figures(0.989, 23.0)),
    "covertype": Stream("covertype", tuple(range(10, 54)),
        Figures(0.80, 10.7, 474, 0.09), Figures(0.855, 32.3), Figures(0.807, 7.0), Figures(0.912)),
    "airlines": Stream("airlines_5of7_features", (0, 2),
        Figures(0.63, 35.7, 146, 0.05), Figures(0.660, 1.4), Figures(0.633, 2.9)),
    "sea": Stream(streams.paper_sea, (),
        Figures(0.88, 35.1, 71, 0.02), Figures(0.907, 1.0), Figures(0.891, 1.0), Figures(0.898)),
    "agrawal": Stream(streams.paper_agrawal, (3, 4, 5, 6, 7),
        Figures(0.82, 75.4, 381, 0.08), Figures(0.847, 53.5), Figures(0.816, 34.4), Figures(0.848)),
    "hyperplane": Stream(streams.paper_hyperplane, (),
        Figures(0.84, 2.2, 80, 0.04), Figures(0.879, 1.0), Figures(0.841, 1.0), Figures(0.861)),
}
# fmt: on


class Task(NamedTuple):
    """One run: a learner in one setting on one stream."""

    stream: str
    setting: str
    mode: str
    max_rows: int | None
    parameters: dict[str, Any]


class Result(NamedTuple):
    """Scores of one run. Speed is in rows per second of processor time, predicting and learning."""

    stream: str
    setting: str
    n_rows: int
    batch_rows: int
    f1: float
    f1_std: float
    n_splits: float
    n_parameters: float
    n_nodes: int
    rows_per_second: float


def load(name: str, setting: str) -> tuple[Any, NDArray[Any]]:
    """Load a stream: as it comes for the default setting, else with the paper's preprocessing."""
    source = STREAMS[name].source
    if callable(source):
        return load_cached(source)
    frame = pd.read_csv(data_folder() / f"{source}.csv.gz")
    y = frame.pop("target").to_numpy()
    if setting == "paper":
        for column in frame.select_dtypes(exclude="number"):
            frame[column] = pd.factorize(frame[column])[0]
        X = frame.to_numpy(dtype=np.float64)
        spread = np.ptp(X, axis=0)
        frame = (X - X.min(axis=0)) / np.where(spread == 0, 1, spread)
        y = pd.factorize(y)[0]
    if name == "kdd":  # ordered by kind of attack; the authors shuffled it
        order = np.random.default_rng(KDD_SHUFFLE_SEED).permutation(len(y))
        frame = frame[order] if setting == "paper" else frame.iloc[order].reset_index(drop=True)
        y = y[order]
    return frame, y


def data_folder() -> Path:
    """Return the folder of the real streams."""
    folder = os.environ.get("DRIFTREE_DATA")
    if not folder or not Path(folder).is_dir():
        sys.exit(
            "Set DRIFTREE_DATA to the folder that holds the real streams (electricity.csv.gz and "
            "so on), or choose synthetic ones with --streams sea,agrawal,hyperplane"
        )
    return Path(folder)


def load_cached(draw: Callable[[], tuple[Any, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a synthetic stream, drawn the first time and read from the cache afterwards."""
    folder = Path(os.environ.get("DRIFTREE_CACHE", Path.home() / ".cache" / "driftree"))
    file = folder / f"{draw.__name__}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        X, y = draw()
        unfinished = folder / f"{draw.__name__}.{os.getpid()}.npz"
        np.savez(unfinished, X=X, y=y)
        unfinished.rename(file)  # at once, since another process may be reading
    with np.load(file) as arrays:
        return arrays["X"], arrays["y"]


def f1_of_batch(y: NDArray[np.int64], predicted: NDArray[np.int64], n_classes: int) -> float:
    """Return the harmonic mean of weighted precision and weighted recall, 0 where undefined."""
    hits = np.bincount(y[y == predicted], minlength=n_classes)
    n_predicted = np.bincount(predicted, minlength=n_classes)
    support = np.bincount(y, minlength=n_classes)
    precision = float(support @ (hits / np.maximum(n_predicted, 1))) / len(y)
    recall = float(hits.sum()) / len(y)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def build(task: Task) -> Any:
    """Build the learner that a task asks for."""
    learner: Any = driftree.DynamicModelTreeClassifier
    if task.setting == "paper":
        learner = learner.paper(categorical=STREAMS[task.stream].categorical)
    else:
        learner = learner()
    return learner.set_params(**task.parameters)


def walk_batches(
    learner: Any, X: Any, y: NDArray[Any], classes: NDArray[Any], batch_rows: int
) -> Iterator[tuple[NDArray[Any], float]]:
    """Predict a batch, then learn it; yield the predictions and the processor time of both."""
    for start in range(0, len(y), batch_rows):
        rows = slice(start, start + batch_rows)
        batch = X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
        begin = time.process_time()
        predicted = learner.predict(batch) if start else y[rows]
        learner.partial_fit(batch, y[rows], classes=classes)
        yield np.asarray(predicted), time.process_time() - begin


def walk_rows(
    learner: Any, X: Any, y: NDArray[Any], classes: NDArray[Any], batch_rows: int
) -> Iterator[tuple[NDArray[Any], float]]:
    """Predict a row, then learn it; yield once per batch, as `walk_batches` does."""
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    for start in range(0, len(y), batch_rows):
        rows = slice(start, start + batch_rows)
        records, labels = frame.iloc[rows].to_dict("records"), y[rows].tolist()
        predicted = []
        begin = time.process_time()
        for x, label in zip(records, labels, strict=True):
            predicted.append(learner.predict_one(x) if start else label)
            learner.learn_one(x, label)
        seconds = time.process_time() - begin
        # Before it has seen any label a learner may predict None, which counts as the first class.
        yield np.array([classes[0] if p is None else p for p in predicted]), seconds


def run(task: Task, report: Callable[[float], object]) -> Result:
    """Run the paper's protocol on one stream."""
    X, y = load(task.stream, task.setting)
    batch_rows = max(1, round(0.001 * len(y)))
    classes, codes = np.unique(y, return_inverse=True)
    X, y, codes = X[: task.max_rows], y[: task.max_rows], codes[: task.max_rows]
    if len(y) <= batch_rows:
        raise ValueError(f"--rows must be more than the first batch of {batch_rows} rows")
    learner = build(task)
    walk = walk_batches if task.mode == "batch" else walk_rows
    scores, n_splits, n_parameters, seconds = [], [], [], 0.0
    for i, (labels, duration) in enumerate(walk(learner, X, y, classes, batch_rows)):
        seconds += duration
        if i:  # the first batch only trains
            truth = codes[i * batch_rows : (i + 1) * batch_rows]
            scores.append(f1_of_batch(truth, np.searchsorted(classes, labels), len(classes)))
            n_splits.append(learner.n_splits_)
            n_parameters.append(learner.n_parameters_)
            report((i + 1) * batch_rows / len(y))
    return Result(
        stream=task.stream,
        setting=task.setting,
        n_rows=len(y),
        batch_rows=batch_rows,
        f1=float(np.mean(scores)),
        f1_std=float(np.std(scores)),
        n_splits=float(np.mean(n_splits)),
        n_parameters=float(np.mean(n_parameters)),
        n_nodes=int(learner.n_nodes_),
        rows_per_second=len(y) / seconds,
    )


def run_in_worker(index: int, task: Task, reports: Any) -> Result:
    """Run a task in another process, which puts its progress into a queue."""
    return run(task, lambda fraction: reports.put((index, fraction)))


def run_all(tasks: Sequence[Task], n_jobs: int, console: Console) -> list[Result]:
    """Run all tasks, `n_jobs` at a time, and show their progress."""
    context = multiprocessing.get_context("spawn")
    progress = Progress(console=console, disable=not console.is_terminal)
    bars = [progress.add_task(f"{task.stream} {task.setting}", total=1.0) for task in tasks]
    results: dict[int, Result] = {}

    def report(index: int) -> Callable[[float], None]:
        return lambda fraction: progress.update(bars[index], completed=fraction)

    def finish(index: int, result: Result) -> None:
        results[index] = result
        progress.update(bars[index], completed=1.0)
        if not console.is_terminal:
            console.print(f"{result.stream} {result.setting}: F1 {result.f1:.3f}", soft_wrap=True)

    with progress:
        if n_jobs == 1:  # in this process, where a debugger or profiler can see it
            for i, task in enumerate(tasks):
                finish(i, run(task, report(i)))
            return [results[i] for i in range(len(tasks))]
        with context.Manager() as manager, ProcessPoolExecutor(n_jobs, context) as pool:
            reports = manager.Queue()
            pending = {pool.submit(run_in_worker, i, t, reports): i for i, t in enumerate(tasks)}
            try:
                while pending:
                    done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                    while not reports.empty():
                        index, fraction = reports.get()
                        report(index)(fraction)
                    for future in done:
                        finish(pending.pop(future), future.result())
            finally:
                pool.shutdown(cancel_futures=True)
    return [results[i] for i in range(len(tasks))]


def tabulate(results: Sequence[Result], mode: str) -> Table:
    """Lay out the results, grouped by setting, with the mean over streams under each group."""
    table = Table(title=f"{mode} by {mode}", title_justify="left")
    for heading in ("stream", "setting"):
        table.add_column(heading)
    for heading in ("F1", "splits", "parameters", "rows/s"):
        table.add_column(heading, justify="right")
    for heading in ("paper F1", "splits", "parameters", "prototype F1", "splits"):
        table.add_column(heading, justify="right", style="dim")

    def show(figures: Sequence[float], f1_std: float = nan, paper_std: float = nan) -> list[str]:
        digits = (3, 1, 0, 0, 2, 1, 0, 3, 1)
        stds = (f1_std, nan, nan, nan, paper_std, nan, nan, nan, nan)
        return [
            "-" if isnan(f) else f"{f:,.{d}f}" + ("" if isnan(std) else f" ± {std:.2f}")
            for f, d, std in zip(figures, digits, stds, strict=True)
        ]

    for setting in SETTINGS:
        group = []
        for row in (result for result in results if result.setting == setting):
            stream, paper = STREAMS[row.stream], STREAMS[row.stream].paper
            if mode == "row":
                prototype = stream.row_prototype if setting == "default" else Figures()
            else:
                prototype = getattr(stream, f"{setting}_prototype")
            group.append([row.f1, row.n_splits, row.n_parameters, row.rows_per_second])
            group[-1] += [paper.f1, paper.n_splits, paper.n_parameters]
            group[-1] += [prototype.f1, prototype.n_splits]
            figures = show(group[-1], row.f1_std, paper.f1_std)
            table.add_row(row.stream, setting, *figures)
        if group:
            table.add_row("mean", setting, *show(np.mean(group, axis=0).tolist()), style="bold")
            table.add_section()
    return table


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def pair(text: str) -> tuple[str, Any]:
        name, equals, value = text.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"expected name=value, not {text}")
        try:
            return name, ast.literal_eval(value)
        except (SyntaxError, ValueError):
            return name, value

    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--settings", type=names(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--rows", type=int, help="only the first rows of each stream")
    parser.add_argument("--mode", choices=("batch", "row"), default="batch")
    parser.add_argument("--seed", type=int, help="seed of the learner")
    parser.add_argument(
        "--set",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of the learner; may be repeated",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_arguments(arguments)
    if any(isinstance(STREAMS[name].source, str) for name in options.streams):
        data_folder()  # complain before hours of work
    parameters = dict(options.set)
    if options.seed is not None:
        parameters["seed"] = options.seed
    tasks = [
        Task(name, setting, options.mode, options.rows, parameters)
        for setting in options.settings
        for name in options.streams
    ]
    results = run_all(tasks, options.jobs, Console(stderr=True))
    width = max(Console().width, 136)  # rather wrapped lines than shortened figures
    Console(width=width).print(tabulate(results, options.mode))
    if options.json:
        record = {
            "driftree": getattr(driftree, "__version__", None),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mode": options.mode,
            "parameters": parameters,
            "results": [result._asdict() for result in results],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
