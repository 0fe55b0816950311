"""`driftree run` and `driftree compare`: learners on a file or data set, tested over time."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import driftree
from driftree.cli.screen import (
    Progress,
    consoles,
    names_of,
    one_line,
    tabulate,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from driftree.evaluate.records import Record
    from driftree.evaluate.runs import RunResult, RunSettings

CHECKPOINTS = "checkpoints"  # the folder of them, in that of the results
COMPARED = "dmt,dmt-paper,fimtdd,vfdt-mc,vfdt-nba,ht-ada,efdt,majority"

Source = Annotated[
    str,
    typer.Argument(help="A CSV, CSV.gz or Parquet file, - for CSV on stdin, or a data set's name."),
]
Target = Annotated[
    str | None,
    typer.Option(help="Column of the labels; else the one called target, else the last."),
]
BatchSize = Annotated[
    float | None,
    typer.Option(
        "--batch",
        min=0,
        help="Rows per batch, or below 1 their share; else 0.1 % of the stream, at least 100 rows.",
    ),
]
Categorical = Annotated[
    str, typer.Option(help="Columns, separated by commas, that are categories despite numbers.")
]
MaxRows = Annotated[int | None, typer.Option("--rows", min=1, help="Only the first rows.")]
OnBadRow = Annotated[
    Literal["stop", "skip"], typer.Option(help="What a malformed row of a CSV file does.")
]
Delay = Annotated[int, typer.Option(min=0, help="Rows after which a label becomes known.")]
RowByRow = Annotated[
    bool, typer.Option("--row-by-row", help="Learn each row before the next is predicted.")
]
Seed = Annotated[int, typer.Option(min=0, help="For learners that draw.")]
Folder = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the results; driftree-results/NAME if not given."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the results that are in the folder.")
]


def run(
    source: Source,
    target: Target = None,
    model: Annotated[
        str, typer.Option(help="The learner; driftree compare --help has all.")
    ] = "dmt",
    batch: BatchSize = None,
    categorical: Categorical = "",
    rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    delay: Delay = 0,
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    out: Folder = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the last checkpoint, or begin and keep checkpoints: killed at any "
            "moment, the same command goes on, and the results are those of a run that was not.",
        ),
    ] = False,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Keep checkpoints in OUT/checkpoints, one per so many rows; else 50,000."
        ),
    ] = None,
) -> None:
    """Let a learner predict, then learn, a stream, batch by batch, and see how it does over time.

    The first batch only trains. Records go to OUT/records.csv as they come, a summary to
    OUT/summary.json, a plot to OUT/plot.png, the story of a Dynamic Model Tree to OUT/report.html.
    With checkpoints, the model goes to OUT/model.dmt, and seconds and bytes to OUT/costs.csv.
    """
    from driftree.cli.checkpointed import run_checkpointed

    go: Callable[..., None] = compare
    if resume or checkpoint_every is not None:
        go = partial(run_checkpointed, every=checkpoint_every, resume=resume)
    go(
        source,
        models=model,
        target=target,
        batch=batch,
        categorical=categorical,
        rows=rows,
        on_bad_row=on_bad_row,
        delay=delay,
        row_by_row=row_by_row,
        seed=seed,
        out=out,
        overwrite=overwrite,
    )


def compare(
    source: Source,
    models: Annotated[
        str,
        typer.Option(
            help="Learners, separated by commas: dmt, dmt-paper, fimtdd, vfdt-mc, vfdt-nba, "
            "ht-ada, efdt, arf3, levbag3, logistic, majority, no-change."
        ),
    ] = COMPARED,
    target: Target = None,
    batch: BatchSize = None,
    categorical: Categorical = "",
    rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    delay: Delay = 0,
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Learners at a time, a process each.")] = 1,
    out: Folder = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare learners on the same rows: how good, how simple and how fast each is, over time.

    The first batch only trains. Records go to OUT/records.csv as they come, a summary to
    OUT/summary.json, a plot to OUT/plot.png, the story of a Dynamic Model Tree to OUT/report.html.
    """
    with one_line():
        settings = read_settings(
            source,
            models=models,
            target=target,
            batch=batch,
            categorical=categorical,
            rows=rows,
            on_bad_row=on_bad_row,
            delay=delay,
            row_by_row=row_by_row,
            seed=seed,
        )
        folder = out or Path("driftree-results") / stem_of(source)
        own_process = jobs > 1 and len(settings.learners) > 1
        if own_process and source == "-":
            raise ValueError("standard input can be read by one process only: leave --jobs out")
        prepare(folder, settings, overwrite=overwrite)
        _run(settings, folder, jobs=jobs if own_process else 1)


def read_settings(
    source: str,
    *,
    models: str,
    batch: float | None,
    categorical: str,
    rows: int | None,
    row_by_row: bool,
    **more: Any,
) -> RunSettings:
    """Return what the options of a command ask for."""
    from driftree.evaluate import LEARNERS
    from driftree.evaluate.runs import RunSettings

    if batch is not None and not math.isfinite(batch):
        raise ValueError(f"--batch must be a number of rows or their share, got {batch}")
    return RunSettings(
        source=source,
        learners=tuple(names_of(models, LEARNERS, "learner")),
        batch=batch if batch is None or batch < 1 else round(batch),
        n_rows=rows,
        categorical=tuple(name.strip() for name in categorical.split(",") if name.strip()),
        step_rows=1 if row_by_row else None,
        **more,
    )


def stem_of(source: str) -> str:
    """Return a short name of a source."""
    return "stdin" if source == "-" else Path(source).name.split(".")[0]


def prepare(
    folder: Path, settings: RunSettings, *, overwrite: bool = False, resume: bool = False
) -> None:
    """Make the folder; never write over anything without being told to."""
    from driftree.evaluate import LEARNERS
    from driftree.evaluate.checkpoints import positions_in, remove_all
    from driftree.evaluate.runs import open_source

    records = [folder / f"records-{name}.csv" for name in LEARNERS] + [folder / "records.csv"]
    names = ("summary.json", "plot.png", "report.html", "model.dmt", "costs.csv")
    ours = [*records, *(folder / name for name in names)]
    if Path(settings.source).resolve() in [path.resolve() for path in ours]:
        raise ValueError(
            f"{settings.source} would be written over by the results: choose another --out"
        )
    has_checkpoints = bool(positions_in(folder / CHECKPOINTS))
    has_results = has_checkpoints or any(path.exists() for path in records)
    if has_results and not (overwrite or (resume and has_checkpoints)):
        how = "add --resume to go on, " if has_checkpoints else ""
        what = "" if has_checkpoints else " without checkpoints, which cannot be resumed"
        raise ValueError(
            f"{folder} holds results of an earlier run{what}: {how}--overwrite to replace it, or "
            "--out for another folder"
        )
    if overwrite:
        open_source(settings)  # which may fail, and then nothing is lost
        remove_all(folder / CHECKPOINTS)
        for path in ours:
            path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def _run(settings: RunSettings, folder: Path, *, jobs: int) -> None:
    """Run the learners, side by side or in processes of their own, and show what came out."""
    from driftree.evaluate import LEARNERS
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.records import read_records
    from driftree.evaluate.runs import RunTask, merge_records, run_stream

    console, error_console = consoles()
    whole, names = folder / "records.csv", settings.learners
    tasks, costs = [RunTask(settings, whole)], None
    titles = [names[0] if len(names) == 1 else f"{len(names)} learners"]
    if jobs > 1:
        titles = list(names)
        tasks = [
            RunTask(replace(settings, learners=(name,)), folder / f"records-{name}.csv")
            for name in names
        ]
        costs = [LEARNERS[name].cost for name in names]

    def tell_to_wait() -> None:
        error_console.print("Stopping after this batch; Ctrl-C again stops at once")

    results: dict[int, RunResult] = {}
    try:
        with Progress(error_console, titles) as progress:
            for place, result in run_tasks(
                run_stream, tasks, n_jobs=jobs, costs=costs, asked=tell_to_wait, news=progress.tell
            ):
                results[place] = result
                words = "done" if result.is_complete else "stopped"
                progress.finish(place, f"{words} after {result.n_rows:,} rows")
    except KeyboardInterrupt:
        words = f"Stopped. Results so far are in {folder}"
        if len(names) == 1 and LEARNERS[names[0]].is_ours:
            words += "; a run that begins with --resume can be resumed"
        error_console.print(words, soft_wrap=True)
        raise
    finally:
        if jobs > 1:
            merge_records([task.records for task in tasks if task.records.exists()], whole)
    records = read_records(whole)
    if not records:
        for task in tasks:
            task.records.unlink(missing_ok=True)
        whole.unlink(missing_ok=True)
        raise ValueError(
            f"{settings.source} has no more rows than one batch, which only trains: give more "
            "rows, or a smaller --batch"
        )
    conclude(console, settings, folder, records, [results[i] for i in range(len(tasks))])


def conclude(
    console: Console,
    settings: RunSettings,
    folder: Path,
    records: list[Record],
    results: list[RunResult],
    measured: list[Record] | None = None,
) -> None:
    """Write summary and plot, and print the table.

    `measured` are the records with what they cost, where the files are to be without.
    """
    first = results[0]
    memory = {name: n_bytes for result in results for name, n_bytes in result.memory.items()}
    kept = memory if measured is None else {}
    _write_summary(folder / "summary.json", settings, records, first, kept)
    has_plot = _plot(folder / "plot.png", records, settings.source)
    console.print(tabulate(measured or records, first.batch_rows, memory, console.width))
    n_batches = len({record.step for record in records})
    console.print(
        f"\nMeans over {n_batches:,} batch{'es' if n_batches > 1 else ''} of up to "
        f"{first.batch_rows:,} rows, predicted before learnt; F1: harmonic mean of weighted "
        "precision and recall. Splits and parameters: after each batch, counted as in the paper. "
        "Rows/s: processor time, one thread. MB: at the end.",
        style="dim",
    )
    if first.n_bad_rows:
        console.print(f"\n{first.n_bad_rows:,} malformed rows were skipped, the first:")
        for row in first.bad_rows[:3]:
            console.print(f"  {row}", soft_wrap=True)
    learners = {name: model for result in results for name, model in result.learners.items()}
    if len(learners) == 1:
        _tell_tree(console, *learners.values())
    files = ["records.csv", "summary.json"] + ["plot.png"] * has_plot
    if _report(folder / "report.html", settings, records, first, learners):
        files.append("report.html")
    console.print(f"\n{folder}: {', '.join(files)}", soft_wrap=True)
    if not has_plot:
        console.print("No plot without matplotlib: pip install 'driftree[plot]'", style="dim")


def _report(
    path: Path,
    settings: RunSettings,
    records: list[Record],
    result: RunResult,
    learners: dict[str, Any],
) -> bool:
    """Write the story of the first Dynamic Model Tree among the learners; False if none is."""
    from driftree.show.provenance import tell_run

    trees = [
        name
        for name in settings.learners
        if isinstance(learners[name], driftree.DynamicModelTreeClassifier)
    ]
    if not trees:
        return False
    driftree.report(
        learners[trees[0]],
        sorted(records, key=lambda record: record.learner != trees[0]),
        path,
        title=stem_of(settings.source),
        drifts=known_drifts(settings.source, result.n_rows),
        settings=tell_run(settings, result),
    )
    return True


def _tell_tree(console: Console, model: Any) -> None:
    """Print what a Dynamic Model Tree knows at the end, and what it changed last."""
    if not isinstance(model, driftree.DynamicModelTreeClassifier):
        return
    console.print("\nThe tree at the end:\n", style="bold")
    text = driftree.export_text(model, max_weights=4, width=console.width)
    console.print(text, soft_wrap=True)
    if model.events_:
        console.print("\nIts last changes:", style="bold")
        for event in model.events_[-3:]:
            console.print(f"- {event}")


def _write_summary(
    path: Path,
    settings: RunSettings,
    records: list[Record],
    result: RunResult,
    memory: dict[str, int | None],
) -> None:
    from driftree.evaluate.records import summarise
    from driftree.show.provenance import versions

    learners: dict[str, dict[str, Any]] = {}
    for learner, figures in summarise(records).items():
        learners[learner] = {
            name: None if math.isnan(mean) else {"mean": mean, "std": std}
            for name, (mean, std) in figures.items()
            if name not in ("memory", "n_rows")
        }
        learners[learner]["memory_at_end"] = memory.get(learner)
    what = {
        "settings": asdict(settings),
        "versions": versions(),
        "rows": result.n_rows,
        "batch_rows": result.batch_rows,
        "malformed_rows": result.n_bad_rows,
        "learners": learners,
    }
    write_json(path, what)


def _plot(path: Path, records: list[Record], source: str) -> bool:
    """Draw F1 and splits over time, and known drifts; False if that is not possible here."""
    if find_spec("matplotlib") is None:
        return False
    from driftree.show.scores import plot_records
    from driftree.show.style import save_figure

    drifts = known_drifts(source, records[-1].n_rows)
    save_figure(plot_records(records, drifts=drifts, title=stem_of(source)), path)
    return True


def known_drifts(source: str, n_rows: int) -> list[tuple[int, int]]:
    """Return where a data set is known to change, within so many rows; of files nothing is."""
    from driftree.streams import DATA_SETS

    if source not in DATA_SETS or Path(source).is_file():
        return []
    drifts = DATA_SETS[source].drifts
    return [(first, min(last, n_rows)) for first, last in drifts if first < n_rows]
