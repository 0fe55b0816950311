"""How good are the trees? The paper's protocol on eight streams, in both settings of the learner.

Test-then-train on batches of 0.1 % of the stream; the first batch only trains. F1 of a batch is the
harmonic mean of weighted precision and weighted recall; the table shows the mean and the standard
deviation over batches, and the mean number of splits and parameters, counted as in the paper. The
default setting reads the streams as they come, text included; the paper's gets them factorised and
normalised.

    DRIFTREE_DATA=folder python benchmarks/quality.py --jobs 2
    python benchmarks/quality.py --streams sea,agrawal --settings default --set seed=3

`driftree paper` compares all learners; this compares settings and parameters of the one tree.
"""

import argparse
import ast
import json
import platform
from collections.abc import Callable, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from options import names
from rich.console import Console
from rich.table import Table

import driftree
from driftree.cli.screen import Progress, one_line
from driftree.evaluate import summarise
from driftree.evaluate.parallel import News, run_tasks
from driftree.evaluate.runs import BATCH_SHARE
from driftree.paper import published
from driftree.paper.experiments import run_protocol
from driftree.streams import load_data_set

SETTINGS = ("default", "paper")


class Prototype(NamedTuple):
    """F1 and splits that a prototype reached while the algorithm was designed.

    In the default and the paper's setting batch by batch, and in the default setting, without its
    noise floor, row by row. The first saw only 100,000 rows of KDD.
    """

    default: tuple[float, float]
    paper: tuple[float, float]
    row: float = nan


STREAMS = {
    "electricity": "electricity",
    "bank": "bank_marketing",
    "kdd": "kddcup99_10pct",
    "covertype": "covertype",
    "airlines": "airlines_5of7_features",
    "sea": "sea",
    "agrawal": "agrawal",
    "hyperplane": "hyperplane",
}
PROTOTYPES = {
    "electricity": Prototype((0.831, 4.1), (0.748, 3.2), 0.886),
    "bank": Prototype((0.905, 1.5), (0.883, 1.7), 0.905),
    "kdd": Prototype((0.998, 23.0), (0.989, 23.0)),
    "covertype": Prototype((0.855, 32.3), (0.807, 7.0), 0.912),
    "airlines": Prototype((0.660, 1.4), (0.633, 2.9)),
    "sea": Prototype((0.907, 1.0), (0.891, 1.0), 0.898),
    "agrawal": Prototype((0.847, 53.5), (0.816, 34.4), 0.848),
    "hyperplane": Prototype((0.879, 1.0), (0.841, 1.0), 0.861),
}


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
    ece: float
    n_paper_splits: float
    n_parameters: float
    n_nodes: int
    rows_per_second: float


def run(task: Task, news: News, should_stop: Callable[[], bool]) -> Result | None:
    """Run the paper's protocol on one stream; None if it was stopped."""
    is_paper = task.setting == "paper"
    data = load_data_set(STREAMS[task.stream], preprocess="paper" if is_paper else "none")
    batch_rows = max(1, round(BATCH_SHARE * data.n_rows))
    n_rows = min(data.n_rows, task.max_rows or data.n_rows)
    tree: Any = driftree.DynamicModelTreeClassifier
    model = tree.paper(categorical=data.categorical) if is_paper else tree()
    model.set_params(**task.parameters)
    step_rows = 1 if task.mode == "row" else None
    records = []
    for record in run_protocol(
        {task.setting: model}, data, max_rows=task.max_rows, step_rows=step_rows
    ):
        records.append(record)
        news(record.n_rows, n_rows, f"F1 {record.f1:.3f}")
        if should_stop():
            return None
    figures = summarise(records)[task.setting]
    seconds = sum(record.seconds for record in records)
    return Result(
        stream=task.stream,
        setting=task.setting,
        n_rows=n_rows,
        batch_rows=batch_rows,
        f1=figures["f1"].mean,
        f1_std=figures["f1"].std,
        ece=figures["ece"].mean,
        n_paper_splits=figures["n_paper_splits"].mean,
        n_parameters=figures["n_parameters"].mean,
        n_nodes=model.n_nodes_,
        rows_per_second=(n_rows - batch_rows) / seconds,
    )


def run_all(tasks: Sequence[Task], n_jobs: int, console: Console) -> list[Result]:
    """Run all tasks, `n_jobs` at a time, and show their progress."""
    results: dict[int, Result] = {}
    titles = [f"{task.stream} {task.setting}" for task in tasks]
    with Progress(console, titles, what="runs") as progress:
        for place, result in run_tasks(run, tasks, n_jobs=n_jobs, news=progress.tell):
            if result is not None:
                results[place] = result
                progress.finish(place, f"F1 {result.f1:.3f}")
    return [results[i] for i in range(len(tasks))]


def tabulate(results: Sequence[Result], mode: str) -> Table:
    """Lay out the results, grouped by setting, with the mean over streams under each group."""
    table = Table(title=f"{mode} by {mode}", title_justify="left")
    for heading in ("stream", "setting"):
        table.add_column(heading)
    for heading in ("F1", "ECE", "paper's splits", "parameters", "rows/s"):
        table.add_column(heading, justify="right")
    for heading in ("paper F1", "splits", "parameters", "prototype F1", "splits"):
        table.add_column(heading, justify="right", style="dim")

    def show(figures: Sequence[float], f1_std: float = nan, paper_std: float = nan) -> list[str]:
        digits = (3, 3, 1, 0, 0, 2, 1, 0, 3, 1)
        stds = (f1_std, nan, nan, nan, nan, paper_std, nan, nan, nan, nan)
        return [
            "-" if isnan(f) else f"{f:,.{d}f}" + ("" if isnan(std) else f" ± {std:.2f}")
            for f, d, std in zip(figures, digits, stds, strict=True)
        ]

    for setting in SETTINGS:
        group = []
        for row in (result for result in results if result.setting == setting):
            # The paper's Airlines has all seven features.
            where = (STREAMS[row.stream].removesuffix("_5of7_features"), "dmt-paper")
            paper_f1 = published.F1[where]
            prototype = PROTOTYPES[row.stream]
            expected = prototype.paper if setting == "paper" else prototype.default
            if mode == "row":
                expected = (prototype.row if setting == "default" else nan, nan)
            group.append(
                [row.f1, row.ece, row.n_paper_splits, row.n_parameters, row.rows_per_second]
            )
            group[-1] += [paper_f1.mean, published.SPLITS[where].mean]
            group[-1] += [published.PARAMETERS[where].mean, *expected]
            table.add_row(row.stream, setting, *show(group[-1], row.f1_std, paper_f1.std))
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
            "driftree": driftree.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mode": options.mode,
            "parameters": parameters,
            "results": [result._asdict() for result in results],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    with one_line():
        main()
