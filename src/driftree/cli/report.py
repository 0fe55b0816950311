"""`driftree report`: a tree learns a stream, and its story becomes one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from driftree.cli.results import known_drifts, stem_of
from driftree.cli.run import (
    BatchSize,
    Categorical,
    MaxRows,
    OnBadRow,
    RowByRow,
    Seed,
    Source,
    Target,
    Text,
    ToPredict,
    read_settings,
)
from driftree.cli.screen import Progress, consoles, one_line

if TYPE_CHECKING:
    from driftree.evaluate.runs import RunSettings


def report(
    context: typer.Context,
    source: Source,
    target: Target = None,
    task: ToPredict = "classification",
    models: Annotated[
        str,
        typer.Option(
            help="The tree (dmt or dmt-paper), then learners to compare it with, separated by "
            "commas; driftree compare --help has all."
        ),
    ] = "dmt",
    batch: BatchSize = None,
    categorical: Categorical = "",
    text: Text = "",
    rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Let a tree learn a stream, and write what it knows and why it changed as one HTML page.

    The page needs no network: the tree at any time of the stream, the reason of every change, the
    rules, how well it did, and how others did on the same rows.
    """
    with one_line():
        settings = read_settings(
            source,
            models=models,
            target=target,
            task=task,
            batch=batch,
            categorical=categorical,
            text=text,
            rows=rows,
            on_bad_row=on_bad_row,
            row_by_row=row_by_row,
            seed=seed,
        )
        if not settings.learners[0].startswith("dmt"):
            raise ValueError(
                "the report is about a tree: name dmt or dmt-paper first, not "
                f"{settings.learners[0]}"
            )
        if out.is_dir():
            raise ValueError(f"{out} is a folder: name the page in it, --out {out / 'report.html'}")
        if out.exists() and not overwrite:
            raise ValueError(f"{out} exists: add --overwrite to replace it, or another --out")
        _write(settings, out, title or stem_of(source), command_line(context))


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
    n_leaves, n_changes = model.n_leaves_, len(model.events_)
    console.print(
        f"{out}: {result.n_rows:,} rows, {n_changes} change{'s' if n_changes != 1 else ''}, "
        f"{n_leaves} lea{'ves' if n_leaves != 1 else 'f'} at the end",
        soft_wrap=True,
    )
    if result.n_bad_rows:
        console.print(f"{result.n_bad_rows:,} malformed rows were skipped, the first:")
        for row in result.bad_rows[:3]:
            console.print(f"  {row}", soft_wrap=True)


def command_line(context: typer.Context) -> str:
    """Return a command as it can be given again; what was not given is left out."""
    words = ["driftree", context.info_name or ""]
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        origin = context.get_parameter_source(name)
        if origin is None or origin.name != "COMMANDLINE":
            continue
        is_option = parameter.param_type_name == "option"
        words += [parameter.opts[0]] if is_option else []
        words += [] if isinstance(value, bool) else [str(value)]
    return shlex.join(words)
