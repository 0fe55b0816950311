"""`driftree report`: what a model has learnt and how it changed, as one HTML page."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from driftree.cli.results import has_report, known_drifts, stem_of
from driftree.cli.run import (
    BatchSize,
    Categorical,
    Drop,
    MaxRows,
    NoHeader,
    Numeric,
    OnBadRow,
    Parameters,
    RowByRow,
    Seed,
    Target,
    Text,
    Time,
    ToPredict,
    read_settings,
)
from driftree.cli.screen import Progress, consoles, one_line

if TYPE_CHECKING:
    from driftree.evaluate.runs import RunSettings


def report(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A model file; or a CSV, JSON Lines, Parquet or Feather file, - for stdin, or a "
            "data set's name, which a tree learns first."
        ),
    ],
    target: Target = None,
    task: ToPredict = None,
    models: Annotated[
        str,
        typer.Option(
            help="The tree or forest (dmt, dmt-paper or forest), then learners to compare it with, "
            "separated by commas; driftree compare --help lists them."
        ),
    ] = "dmt",
    batch: BatchSize = None,
    categorical: Categorical = "",
    numeric: Numeric = "",
    time: Time = "",
    text: Text = "",
    drop: Drop = "",
    no_header: NoHeader = False,
    rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    param: Parameters = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it exists.")
    ] = False,
) -> None:
    """Write what a model has learnt and why it changed as one HTML page; a stream is learnt first.

    The page works offline. It shows the tree at any time of the stream, the reason for every
    change, the rules, its scores, and those of other learners on the same rows.
    """
    from driftree.streams.formats import is_model

    with one_line():
        if out.is_dir():
            raise ValueError(f"{out} is a folder: name the page in it, --out {out / 'report.html'}")
        if out.exists() and not overwrite:
            raise ValueError(f"{out} exists: add --overwrite to replace it, or another --out")
        if Path(source).is_file() and is_model(Path(source)):
            _write_of_model(Path(source), out, title, command_line(context))
            return
        settings = read_settings(
            source,
            models=models,
            target=target,
            task=task,
            batch=batch,
            categorical=categorical,
            numeric=numeric,
            time=time,
            text=text,
            drop=drop,
            header=not no_header,
            rows=rows,
            on_bad_row=on_bad_row,
            row_by_row=row_by_row,
            seed=seed,
            parameters=param or [],
        )
        _check_first(settings)
        _write(settings, out, title or stem_of(source), command_line(context))


def _check_first(settings: RunSettings) -> None:
    from driftree.evaluate import make_learner

    first = settings.learners[0]
    if not has_report(make_learner(first, task=settings.task)):
        raise ValueError(
            "the report is about a tree or a forest: name dmt, forest or dmt-paper first, not "
            f"{first}"
        )


def _write_of_model(path: Path, out: Path, title: str | None, command: str) -> None:
    """Write the page of an existing model."""
    import driftree

    model = driftree.load(path)
    if not has_report(model):
        raise ValueError(
            f"{path} holds a {type(model).__name__}: the report is about a tree or a forest"
        )
    if not model.__sklearn_is_fitted__():
        raise ValueError(f"{path} has learnt nothing yet")
    driftree.report(
        model, path=out, title=title or stem_of(str(path)), settings={"command": command}
    )
    _tell_page(out, model, model.n_rows_seen_)


def _write(settings: RunSettings, out: Path, title: str, command: str) -> None:
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.records import read_records
    from driftree.evaluate.runs import RunTask, run_stream
    from driftree.show.provenance import tell_run
    from driftree.show.report import report as write_report

    console, error_console = consoles()
    with TemporaryDirectory() as folder:
        task = RunTask(settings, Path(folder) / "records.csv")
        with Progress(error_console, [title]) as progress:
            [(_, result)] = run_tasks(run_stream, [task], n_jobs=1, news=progress.tell)
            progress.finish(0, f"done after {result.n_rows:,} rows")
        records = read_records(task.records)
    model = result.learners[settings.learners[0]]
    drifts = known_drifts(settings.source, result.n_rows)
    told = {"command": command, **tell_run(settings, result)}
    write_report(model, records or None, out, title=title, drifts=drifts, settings=told)
    _tell_page(out, model, result.n_rows)
    if result.n_bad_rows:
        console.print(f"{result.n_bad_rows:,} malformed rows were skipped, the first:")
        for row in result.bad_rows[:3]:
            console.print(f"  {row}", soft_wrap=True)


def _tell_page(out: Path, model: Any, n_rows: int) -> None:
    n_leaves, n_changes = model.n_leaves_, len(model.events_)
    consoles()[0].print(
        f"{out}: {n_rows:,} rows, {n_changes} change{'s' if n_changes != 1 else ''}, "
        f"{n_leaves} lea{'ves' if n_leaves != 1 else 'f'} at the end",
        soft_wrap=True,
    )


def command_line(context: typer.Context) -> str:
    """Return a command line that repeats a command; options that were not given are left out."""
    words = ["driftree", context.info_name or ""]
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        origin = context.get_parameter_source(name)
        if origin is None or origin.name != "COMMANDLINE":
            continue
        is_option = parameter.param_type_name == "option"
        for one in value if isinstance(value, (list, tuple)) else [value]:
            words += [parameter.opts[0]] if is_option else []
            words += [] if isinstance(one, bool) else [str(one)]
    return shlex.join(words)
