"""`driftree paper`: the paper's experiments, tables and figures."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftree.cli.data import fetch_with_progress
from driftree.cli.screen import Progress, consoles, names_of, one_line, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from driftree.evaluate.experiments import Experiment
    from driftree.evaluate.findings import Findings, Results

ALL = "all"


def paper(
    data: Annotated[
        str, typer.Option(help="Data sets, separated by commas; driftree data list has them.")
    ] = ALL,
    models: Annotated[
        str, typer.Option(help="Learners, separated by commas; driftree compare --help has them.")
    ] = ALL,
    jobs: Annotated[int, typer.Option(min=1, help="Experiments at a time, a process each.")] = 1,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Only the first rows of each stream, to try it out.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For learners that draw.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of tables and figures.")] = Path(
        "driftree-results/paper"
    ),
    download: Annotated[
        bool, typer.Option(help="Whether to download data sets that are not here.")
    ] = True,
) -> None:
    """Run the paper's experiments; print and write its tables I to VI and figures 3 and 4.

    Every figure has the paper's beside it. Results are remembered: what has been run once with the
    same rows, settings and code is not run again. All of it takes hours on two cores.
    """
    from driftree.evaluate import LEARNERS
    from driftree.evaluate.findings import Findings
    from driftree.evaluate.published import TITLES
    from driftree.streams import DATA_SETS

    console, error_console = consoles()
    with one_line():
        names = list(TITLES) if data == ALL else names_of(data, DATA_SETS, "data set")
        learners = list(LEARNERS) if models == ALL else names_of(models, LEARNERS, "learner")
        here, missing = _find(names, error_console, download=download)
        if not here:
            raise ValueError(f"none of the data sets is here: {'; '.join(missing.values())}")
        results = _run(error_console, here, learners, rows=rows, seed=seed, jobs=jobs)
        findings = Findings.from_records(
            results, counts={name: _count(name) for name in here}, missing=missing
        )
        note = f"Only the first {rows:,} rows of each stream were run." if rows else ""
        _write(console, out, findings, results, note)


def _find(
    names: Sequence[str], console: Console, *, download: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the data sets that can be had, some in part, and why others cannot."""
    from driftree.evaluate.findings import STAND_INS
    from driftree.streams import DATA_SETS, DataSetUnavailable, list_data_sets

    status = {found.name: found for found in list_data_sets(DATA_SETS.values())}
    here, missing = [], {}
    for name in names:
        stand_in = STAND_INS.get(name, (name,))[0]
        if not status[name].found.startswith("not here"):
            here.append(name)
        elif not status[stand_in].found.startswith("not here"):
            here.append(stand_in)
        elif status[name].found == "not here: download" and download:
            try:
                fetch_with_progress(name, console)
                here.append(name)
            except DataSetUnavailable as error:
                missing[name] = "could not be downloaded"
                console.print(f"{error}", style="yellow", soft_wrap=True)
        else:
            by_hand = status[name].found == "not here: by hand"
            missing[name] = "to be fetched by hand" if by_hand else "not here"
    return here, missing


def _run(
    console: Console,
    data_sets: Sequence[str],
    learners: Sequence[str],
    *,
    rows: int | None,
    seed: int,
    jobs: int,
) -> Results:
    """Run all experiments, or find their results again."""
    from driftree.evaluate.experiments import Experiment, ExperimentTask, run_experiment
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.records import summarise
    from driftree.streams.cache import cache_folder

    folder = cache_folder() / "results"
    tasks = [
        ExperimentTask(Experiment(data_set, learner, max_rows=rows, seed=seed), folder)
        for data_set in data_sets
        for learner in learners
    ]
    titles = [f"{task.experiment.data_set} {task.experiment.learner}" for task in tasks]
    costs = [_cost(task.experiment) for task in tasks]
    results = {}

    def tell_to_wait() -> None:
        console.print("Stopping; finished experiments are remembered. Ctrl-C again stops at once")

    with Progress(console, titles, what="experiments") as progress:
        for place, records in run_tasks(
            run_experiment,
            tasks,
            n_jobs=jobs,
            costs=costs,
            asked=tell_to_wait,
            news=progress.tell,
        ):
            if records is None:
                continue
            experiment = tasks[place].experiment
            results[experiment.data_set, experiment.learner] = records
            f1 = summarise(records)[experiment.learner]["f1"]
            progress.finish(place, f"F1 {f1}")
    in_order = [(task.experiment.data_set, task.experiment.learner) for task in tasks]
    return {key: results[key] for key in in_order}


def _cost(experiment: Experiment) -> float:
    """Return about how long an experiment takes beside others, if nothing is remembered."""
    from driftree.evaluate import LEARNERS
    from driftree.streams import DATA_SETS

    counts = DATA_SETS[experiment.data_set].counts
    n_rows = min(counts.n_rows, experiment.max_rows or counts.n_rows)
    return LEARNERS[experiment.learner].cost * n_rows * counts.n_features


def _count(name: str) -> tuple[int, int, int, int | None]:
    """Return rows, features, classes and the rows of the most frequent class."""
    import numpy as np

    from driftree.streams import DATA_SETS, load_data_set

    loaded = load_data_set(name)
    counts = np.unique(loaded.y, return_counts=True)[1]
    is_counted = DATA_SETS[name].counts.n_majority is not None
    majority = int(counts.max()) if is_counted else None
    return loaded.n_rows, len(loaded.feature_names), len(counts), majority


def _write(console: Console, folder: Path, findings: Findings, results: Results, note: str) -> None:
    from driftree.evaluate import WRITERS, make_tables

    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables(findings)
    if note:
        tables = [replace(table, notes=(note, *table.notes)) for table in tables]
    written = []
    for suffix, write in WRITERS.items():
        for table in tables:
            name = f"table{table.number}_{table.name}{suffix}"
            (folder / name).write_text(write(table), encoding="utf-8")
            written.append(name)
            if suffix == ".md":
                console.print(write(table), soft_wrap=True)
    _write_summary(folder / "results.json", findings, results)
    written.append("results.json")
    if find_spec("matplotlib") is None:
        console.print("No figures without matplotlib: pip install 'driftree[plot]'", style="dim")
    else:
        written += _draw(folder, results)
    console.print(f"{folder}: {', '.join(written)}", soft_wrap=True)


def _write_summary(path: Path, findings: Findings, results: Results) -> None:
    from driftree.show.reproduce import versions

    what = {
        "versions": versions(),
        "missing": dict(findings.missing),
        "results": [
            {
                "data_set": data_set,
                "learner": learner,
                "rows": records[-1].n_rows,
                "batches": len(records),
                **{
                    name: [round(figure.mean, 6), round(figure.std, 6)]
                    for name, figure in findings.summaries[data_set, learner].items()
                    if name not in ("memory", "n_rows") and not math.isnan(figure.mean)
                },
            }
            for (data_set, learner), records in results.items()
        ],
    }
    write_json(path, what)


def _draw(folder: Path, results: Results) -> list[str]:
    """Draw figures 3 and 4, which show the stand-alone trees, for the screen and for print."""
    from driftree.show.figures import TREES, figure_drift, figure_tradeoff
    from driftree.show.style import save_figure
    from driftree.streams import DATA_SETS

    drifts = {name: list(record.drifts) for name, record in DATA_SETS.items() if record.drifts}
    data_sets = {data_set for data_set, learner in results if learner in TREES}
    figures = {}
    if data_sets & drifts.keys():
        figures["figure3"] = figure_drift(results, drifts)
    if data_sets:
        figures["figure4"] = figure_tradeoff(results)
    for name, figure in figures.items():
        for suffix in ("png", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
    return [f"{name}.{suffix}" for name in figures for suffix in ("png", "pdf")]
