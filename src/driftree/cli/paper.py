"""`driftree paper`, `driftree data`: the paper's experiments, and its data sets."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from driftree.cli.screen import Progress, consoles, names_of, one_line, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from driftree.paper.experiments import PaperResults, Results

ALL = "all"

data_app = typer.Typer(
    no_args_is_help=True, help="List and download the paper's data sets, or print a sample."
)


def paper(
    data: Annotated[
        str, typer.Option(help="Data sets, separated by commas; driftree data list shows them.")
    ] = ALL,
    models: Annotated[
        str, typer.Option(help="Learners, separated by commas; driftree compare --help lists them.")
    ] = ALL,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Experiments that run in parallel, each in its own process."),
    ] = 1,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Use only the first rows of each stream, to try it out."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of learners that use random numbers.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path(
        "driftree-results/paper"
    ),
    download: Annotated[
        bool, typer.Option(help="Whether to download data sets that are missing.")
    ] = True,
) -> None:
    """Run the paper's experiments; print and write its tables I to VI and figures 3 and 4.

    Every figure is compared with the paper's. Results are cached: what was run with the same rows,
    settings and code is not run again. All of it takes hours on two cores.
    """
    from driftree.evaluate.learners import LEARNERS
    from driftree.paper.experiments import PaperResults, count_data_set, find_data_sets
    from driftree.paper.published import TITLES
    from driftree.streams import DATA_SETS

    console, error_console = consoles()
    with one_line():
        names = list(TITLES) if data == ALL else names_of(data, DATA_SETS, "data set")
        learners = list(LEARNERS) if models == ALL else names_of(models, LEARNERS, "learner")
        fetch = partial(_fetch, console=error_console) if download else None
        here, missing = find_data_sets(names, fetch)
        if not here:
            raise ValueError(f"none of the data sets is available: {'; '.join(missing.values())}")
        results = _run(error_console, here, learners, rows=rows, seed=seed, jobs=jobs)
        findings = PaperResults.from_records(
            results, counts={name: count_data_set(name) for name in here}, missing=missing
        )
        note = f"Only the first {rows:,} rows of each stream were run." if rows else ""
        _write(console, out, findings, results, note)


def _fetch(name: str, *, console: Console) -> bool:
    """Download a data set; print a message if that fails."""
    from driftree.streams import DataSetUnavailable

    try:
        fetch_with_progress(name, console)
    except DataSetUnavailable as error:
        console.print(f"{error}", style="yellow", soft_wrap=True)
        return False
    return True


def _run(
    console: Console,
    data_sets: Sequence[str],
    learners: Sequence[str],
    *,
    rows: int | None,
    seed: int,
    jobs: int,
) -> Results:
    """Run all experiments that are not cached."""
    from driftree.evaluate.learners import title_of
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.records import summarise
    from driftree.paper.experiments import (
        Experiment,
        ExperimentTask,
        estimate_cost,
        run_experiment,
    )
    from driftree.streams.datasets import cache_folder

    folder = cache_folder() / "results"
    tasks = [
        ExperimentTask(Experiment(data_set, learner, max_rows=rows, seed=seed), folder)
        for data_set in data_sets
        for learner in learners
    ]
    titles = [f"{task.experiment.data_set} {title_of(task.experiment.learner)}" for task in tasks]
    costs = [estimate_cost(task.experiment) for task in tasks]
    results = {}

    def tell_to_wait() -> None:
        console.print("Stopping; finished experiments are cached. Ctrl-C again stops at once")

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


def _write(
    console: Console, folder: Path, findings: PaperResults, results: Results, note: str
) -> None:
    from driftree.paper.experiments import sum_up
    from driftree.paper.figures import draw_figures
    from driftree.paper.six_tables import write_tables
    from driftree.paper.table_formats import to_markdown

    folder.mkdir(parents=True, exist_ok=True)
    tables, written = write_tables(folder, findings, note=note)
    for table in tables:
        console.print(to_markdown(table), soft_wrap=True)
    write_json(folder / "results.json", sum_up(findings, results))
    written.append("results.json")
    if find_spec("matplotlib") is None:
        console.print("No figures without matplotlib: pip install matplotlib", style="dim")
    else:
        written += draw_figures(folder, results)
    console.print(f"{folder}: {', '.join(written)}", soft_wrap=True)


# ---------------------------------------------------------------------- data sets
@data_app.command("list")
def list_() -> None:
    """List the paper's thirteen data sets, and where those that are present are stored."""
    from rich import box
    from rich.table import Table

    from driftree.streams import DATA_SETS, cache_folder, list_data_sets
    from driftree.streams.datasets import data_folder

    console, _ = consoles()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("name")
    for heading in ("rows", "features", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("here")
    with one_line():
        for status in list_data_sets():
            counts = DATA_SETS[status.name].counts
            where = status.found
            if status.path is not None:
                where += f" ({status.n_bytes / 1e6:.1f} MB)"
            table.add_row(
                status.name,
                f"{counts.n_rows:,}",
                str(counts.n_features),
                str(counts.n_classes),
                where,
            )
        folder = data_folder()
        console.print(table)
        console.print(
            f"\nDRIFTREE_DATA: {folder or 'not set'}; cache: {cache_folder()}. Put others into one "
            "of these as NAME.csv.gz (features first, last column `target`), or get them with: "
            "driftree data get NAME",
            style="dim",
            soft_wrap=True,
        )


@data_app.command()
def get(
    names: Annotated[str, typer.Argument(help="One or more names, separated by commas.")],
) -> None:
    """Download data sets into the cache; an interrupted download is resumed."""
    from driftree.streams import DATA_SETS

    console, error_console = consoles()
    with one_line():
        for name in names_of(names, DATA_SETS, "data set"):
            console.print(f"{name}: {fetch_with_progress(name, error_console)}", soft_wrap=True)


@data_app.command()
def sample(
    name: Annotated[str, typer.Argument(help="loans, rents or messages.")] = "loans",
    rows: Annotated[int, typer.Option(min=1, help="Number of rows.")] = 5000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random rows.")] = 1,
) -> None:
    """Print a synthetic table as CSV, to try the commands on: driftree data sample > loans.csv."""
    from driftree.streams.catalogue import check_name
    from driftree.streams.datasets import SAMPLES, sample_lines

    with one_line():
        for line in sample_lines(check_name(name, SAMPLES, "sample"), rows, seed):
            typer.echo(line, nl=False)


def fetch_with_progress(name: str, console: Console) -> Path:
    """Download a data set unless it is present, with a progress bar."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from driftree.streams import fetch_data_set

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task(name, total=None)

        def show(done: int, total: int | None) -> None:
            progress.update(bar, completed=done, total=total)

        return fetch_data_set(name, progress=show)
