"""`driftree run` and `driftree compare`: learners on a file or data set, tested over time.

With `run --resume`, a run that was killed at any moment continues.
"""

from __future__ import annotations

import ast
import errno
import math
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from driftree.cli.results import LABELS, conclude, save_model, stem_of
from driftree.cli.screen import HOOK_HELP, Progress, consoles, names_of, one_line, run_for_drift

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from driftree.evaluate.runs import (
        CheckpointedResult,
        CheckpointedTask,
        RunResult,
        RunSettings,
    )
    from driftree.explain import Drift, Event
    from driftree.streams import Findings

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CHECKPOINTS = "checkpoints"  # folder for checkpoints within that of the results
COMPARED: dict[Literal["classification", "regression"], str] = {
    "classification": "dmt,dmt-paper,fimtdd,vfdt-mc,vfdt-nba,ht-ada,efdt,majority",
    "regression": "dmt,dmt-paper,fimtdd,linear,pa,ewa,htr,hatr,sgt,amrules,mean,no-change",
}

Source = Annotated[
    str,
    typer.Argument(
        help="A CSV, JSON Lines, Parquet or Feather file, - for stdin, or a data set's name."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="The target's column; by default the one called target, or else the last."),
]
ToPredict = Annotated[
    Literal["classification", "regression"] | None,
    typer.Option(
        "--task",
        help="Whether the target is a label or a number; by default its first values decide.",
    ),
]
BatchSize = Annotated[
    float | None,
    typer.Option(
        "--batch",
        min=0,
        help="Rows per batch, or below 1 a share of the stream; by default 0.1 %, at least 100.",
    ),
]
Categorical = Annotated[
    str, typer.Option(help="Columns of numbers that are categories, separated by commas.")
]
Numeric = Annotated[
    str,
    typer.Option(help="Columns that are numbers, whatever they look like, separated by commas."),
]
Time = Annotated[str, typer.Option(help="Columns that are dates or times, separated by commas.")]
Drop = Annotated[str, typer.Option(help="Columns to leave out, separated by commas.")]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header", help="The first line is a row, not a header; columns are called x0, x1, ..."
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", help="A parameter of the tree, as name=value; may be repeated."),
]
Text = Annotated[
    str,
    typer.Option(
        help="Columns of text, separated by commas: each word becomes a feature that counts how "
        "often it occurs. Rows are then learnt one by one, even in a batch."
    ),
]
MaxRows = Annotated[int | None, typer.Option("--rows", min=1, help="Use only the first rows.")]
OnBadRow = Annotated[
    Literal["stop", "skip"], typer.Option(help="What to do with a malformed row of a CSV file.")
]
Delay = Annotated[int, typer.Option(min=0, help="Rows after which a label becomes known.")]
RowByRow = Annotated[
    bool, typer.Option("--row-by-row", help="Learn each row before the next is predicted.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of learners that use random numbers.")]
Folder = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder for the results; by default driftree-results/NAME."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results in the folder.")]


def run(
    source: Source,
    target: Target = None,
    task: ToPredict = None,
    model: Annotated[
        str, typer.Option(help="The learner; driftree compare --help lists them.")
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
    delay: Delay = 0,
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    param: Parameters = None,
    out: Folder = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume from the last checkpoint; without one, start a run with checkpoints. If "
            "killed at any moment, the same command resumes, with the results of an "
            "uninterrupted run.",
        ),
    ] = False,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rows between checkpoints, kept in OUT/checkpoints; by default 50,000."
        ),
    ] = None,
    on_drift: Annotated[str | None, typer.Option(help=HOOK_HELP)] = None,
) -> None:
    """Test, then train a learner on a stream, batch by batch, and show its scores over time.

    The first batch only trains. Records go to OUT/records.csv as they are measured, a summary to
    OUT/summary.json, a plot to OUT/plot.png, the report on a Dynamic Model Tree to OUT/report.html,
    the model to OUT/model.dmt. With checkpoints, seconds and bytes go to OUT/costs.csv.
    """
    go: Callable[..., None] = partial(_run_once, on_drift=on_drift)
    if resume or checkpoint_every is not None:
        if on_drift is not None:
            raise typer.BadParameter("--on-drift is for runs without checkpoints")
        go = partial(_run_with_checkpoints, every=checkpoint_every, resume=resume)
    go(
        source,
        models=model,
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
        delay=delay,
        row_by_row=row_by_row,
        seed=seed,
        parameters=param or [],
        out=out,
        overwrite=overwrite,
    )


def compare(
    source: Source,
    models: Annotated[
        str | None,
        typer.Option(
            help="Learners, separated by commas: dmt, forest, dmt-paper, fimtdd, vfdt-mc, "
            "vfdt-nba, ht-ada, efdt, arf3, levbag3, logistic, majority, no-change; for regression: "
            "dmt, forest, dmt-paper, fimtdd, linear, pa, ewa, htr, hatr, sgt, amrules, mean, "
            "no-change. By default all except forest and, for classification, arf3, levbag3, "
            "logistic and no-change; with text, only those that support it."
        ),
    ] = None,
    target: Target = None,
    task: ToPredict = None,
    batch: BatchSize = None,
    categorical: Categorical = "",
    numeric: Numeric = "",
    time: Time = "",
    text: Text = "",
    drop: Drop = "",
    no_header: NoHeader = False,
    rows: MaxRows = None,
    on_bad_row: OnBadRow = "stop",
    delay: Delay = 0,
    row_by_row: RowByRow = False,
    seed: Seed = 1,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Learners that run in parallel, each in its own process."),
    ] = 1,
    out: Folder = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare learners on the same rows: their scores, size and speed over time.

    The first batch only trains. Records go to OUT/records.csv as they are measured, a summary to
    OUT/summary.json, a plot to OUT/plot.png, the report on a Dynamic Model Tree to OUT/report.html.
    """
    _run_once(
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
        delay=delay,
        row_by_row=row_by_row,
        seed=seed,
        jobs=jobs,
        out=out,
        overwrite=overwrite,
    )


def _run_once(
    source: str,
    *,
    out: Path | None,
    overwrite: bool,
    jobs: int = 1,
    on_drift: str | None = None,
    **options: Any,
) -> None:
    """Run learners from the beginning of a stream to its end."""
    with one_line():
        settings = read_settings(source, **options)
        folder = out or Path("driftree-results") / stem_of(source)
        own_process = jobs > 1 and len(settings.learners) > 1
        if own_process and source == "-":
            raise ValueError("standard input can be read by only one process: omit --jobs")
        _prepare(folder, settings, overwrite=overwrite)
        _run(settings, folder, jobs=jobs if own_process else 1, on_drift=on_drift)


def read_settings(
    source: str,
    *,
    models: str | None,
    batch: float | None,
    rows: int | None,
    row_by_row: bool,
    task: Literal["classification", "regression"] | None = None,
    parameters: Sequence[str] = (),
    header: bool = True,
    **more: Any,
) -> RunSettings:
    """Return the settings of a run from a command's options, and print what the first rows show."""
    from driftree.evaluate import learners_for
    from driftree.evaluate.runs import RunSettings, check_learners

    if batch is not None and not math.isfinite(batch):
        raise ValueError(f"--batch must be a number of rows or a fraction of them, got {batch}")
    columns: dict[str, Any] = {
        name: columns_in(more.pop(name))
        for name in ("categorical", "numeric", "time", "text", "drop")
    }
    settings = RunSettings(
        source=source,
        learners=(),
        batch=batch if batch is None or batch < 1 else round(batch),
        n_rows=rows,
        step_rows=1 if row_by_row else None,
        task=task or "classification",
        parameters=tuple(map(read_parameter, parameters)),
        header=header,
        **columns,
        **more,
    )
    settings = tell_input(settings, is_asked=task is not None)
    known = learners_for(settings.task)
    if models is None:
        compared = COMPARED[settings.task].split(",")
        models = ",".join(name for name in compared if known[name].takes_text or not settings.text)
    settings = replace(settings, learners=tuple(names_of(models, known, "learner")))
    check_learners(settings)
    return settings


def tell_input(settings: RunSettings, *, is_asked: bool) -> RunSettings:
    """Print what the first rows show; return settings for regression if the target is a number.

    For standard input, that is printed while it is read.
    """
    from driftree.evaluate.runs import look_at

    findings = look_at(settings)
    if findings is None:
        return settings
    is_number = findings.target is not None and findings.target.is_continuous
    if is_number and not is_asked:
        settings = replace(settings, task="regression")
    if findings.target is not None and findings.target.name in settings.categorical:
        settings = replace(settings, target=str(findings.target.name))
    findings = replace(findings, task=settings.task)
    _check_target(findings)
    print_findings(findings, is_guess=is_number and not is_asked)
    return settings


def _check_target(findings: Findings) -> None:
    """Raise if the target does not look like labels, or no features are left."""
    target = findings.target
    if findings.n_rows and not any(column.is_used for column in findings.columns):
        raise ValueError(f"no column of {findings.source} is left to learn from")
    if target is not None and target.is_unlikely and findings.task == "classification":
        name = "the target" if target.name is None else f"the target {target.name!r}"
        how = f" ({target.how})" if target.how else ""
        shown = ", ".join(f"{label}" for label in list(target.shares)[:3])
        raise ValueError(
            f"{name}{how} takes {len(target.shares):,} different values in the first "
            f"{findings.n_rows:,} rows of {findings.source} ({shown}, ...), but labels should "
            "repeat: name the target in --target, and also in --categorical if these are labels"
        )


def print_findings(findings: Findings, *, is_guess: bool = False) -> None:
    """Print what the first rows show."""
    console, _ = consoles()
    if not findings.n_rows:  # an error about all of them follows
        return
    lines = findings.lines("--{} ".format)
    if is_guess:
        target = "" if findings.target is None else findings.target.name
        lines[0] += f" (--categorical {target} treats each value as a label)"
    console.print("\n".join(lines), soft_wrap=True)


def _tell_of_stream(findings: Findings, settings: RunSettings) -> None:
    """Print what the first rows of standard input show, before they are learnt."""
    findings = replace(findings, task=settings.task)
    _check_target(findings)
    print_findings(findings)
    target = findings.target
    is_label = settings.task == "classification"
    if is_label and target is not None and target.is_continuous and target.low is not None:
        raise ValueError(
            f"{findings.source}: the target looks like a number, not a label: give --task "
            "regression, or name it in --target and in --categorical if each value is a label"
        )


def read_parameter(text: str) -> tuple[str, Any]:
    """Read name=value; a value that is not a number, a list, true, false or none is text.

    Examples
    --------
    >>> read_parameter("max_nodes=31"), read_parameter("loss=poisson"), read_parameter("a=true")
    (('max_nodes', 31), ('loss', 'poisson'), ('a', True))
    """
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ValueError(f"--param must be name=value, such as max_nodes=31, got {text!r}")
    words = {"true": True, "false": False, "none": None}
    if value.strip().lower() in words:
        return name.strip(), words[value.strip().lower()]
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()


def columns_in(names: str) -> tuple[str, ...]:
    """Return the names in an option, separated by commas."""
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def _prepare(
    folder: Path, settings: RunSettings, *, overwrite: bool = False, resume: bool = False
) -> None:
    """Create the folder; overwrite results only if told to."""
    from driftree.evaluate import learners_for
    from driftree.evaluate.checkpoints import positions_in, remove_all
    from driftree.evaluate.runs import open_source

    learners = {name for task in COMPARED for name in learners_for(task)}
    records = [folder / f"records-{name}.csv" for name in learners] + [folder / "records.csv"]
    names = ("summary.json", "plot.png", "report.html", "model.dmt", "costs.csv", LABELS)
    ours = [*records, *(folder / name for name in names)]
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder for the results, --out FOLDER")
    if Path(settings.source).resolve() in [path.resolve() for path in ours]:
        raise ValueError(
            f"{settings.source} would be overwritten by the results: choose another --out"
        )
    has_checkpoints = bool(positions_in(folder / CHECKPOINTS))
    has_results = has_checkpoints or any(path.exists() for path in records)
    if has_results and not (overwrite or (resume and has_checkpoints)):
        how = "add --resume to continue, " if has_checkpoints else ""
        what = "" if has_checkpoints else " without checkpoints, which cannot be resumed"
        raise ValueError(
            f"{folder} holds results of an earlier run{what}: {how}--overwrite to replace it, or "
            "--out for another folder"
        )
    if overwrite:
        open_source(settings)  # which may fail before anything is deleted
        remove_all(folder / CHECKPOINTS)
        for path in ours:
            path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def _run(settings: RunSettings, folder: Path, *, jobs: int, on_drift: str | None = None) -> None:
    """Run the learners, in one process or in parallel, and print the results."""
    from driftree.evaluate.learners import learners_for, title_of
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.records import read_records
    from driftree.evaluate.runs import RunTask, merge_records, run_stream

    console, error_console = consoles()
    known = learners_for(settings.task)
    whole, names = folder / "records.csv", settings.learners
    tell = partial(_tell_of_stream, settings=settings)
    hear = partial(
        _tell, error_console, settings, None if on_drift is None else run_for_drift(on_drift)
    )
    tasks, costs = [RunTask(settings, whole, tell, hear)], None
    titles = [title_of(names[0]) if len(names) == 1 else f"{len(names)} learners"]
    if jobs > 1:
        titles = [title_of(name) for name in names]
        tasks = [
            RunTask(replace(settings, learners=(name,)), folder / f"records-{name}.csv")
            for name in names
        ]
        costs = [known[name].cost for name in names]

    results: dict[int, RunResult] = {}
    try:
        with Progress(error_console, titles) as progress:
            for place, result in run_tasks(
                run_stream,
                tasks,
                n_jobs=jobs,
                costs=costs,
                asked=partial(_tell_to_wait, error_console),
                news=progress.tell,
            ):
                results[place] = result
                words = "done" if result.is_complete else "stopped"
                progress.finish(place, f"{words} after {result.n_rows:,} rows")
    except KeyboardInterrupt:
        save_model(folder, settings, results.values())
        words = f"Stopped. Results so far are in {folder}"
        if len(names) == 1 and known[names[0]].is_ours:
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
            f"{settings.source} has no more rows than one batch, and the first batch only trains: "
            "give more rows, or a smaller --batch"
        )
    save_model(folder, settings, results.values())
    conclude(console, settings, folder, records, [results[i] for i in range(len(tasks))])


def _tell(
    console: Console,
    settings: RunSettings,
    on_drift: Callable[[Drift], None] | None,
    happened: Event | Drift,
) -> None:
    """Print a drift and, for standard input, which may never end, every change."""
    from driftree.explain import Drift

    if isinstance(happened, Drift) or settings.source == "-":
        console.print(str(happened), soft_wrap=True, highlight=False)
    if isinstance(happened, Drift) and on_drift is not None:
        on_drift(happened)


def _tell_to_wait(console: Console) -> None:
    console.print("Stopping after this batch; Ctrl-C again stops at once")


# ---------------------------------------------------------------------- with checkpoints
def _run_with_checkpoints(
    source: str,
    *,
    every: int | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Run a learner with checkpoints, or resume it."""
    from driftree.evaluate.checkpoints import EVERY, Checkpointer
    from driftree.evaluate.runs import CheckpointedTask, check_resumable

    with one_line():
        if resume and overwrite:
            raise ValueError(
                "--resume continues a run, --overwrite replaces it: give only one of them"
            )
        settings = read_settings(source, **options)
        check_resumable(settings)
        folder = out or Path("driftree-results") / stem_of(source)
        _prepare(folder, settings, overwrite=overwrite, resume=resume)
        with Checkpointer(folder / CHECKPOINTS, every=every or EVERY) as checkpointer:
            _run_checkpointed(CheckpointedTask(settings, folder / "records.csv", checkpointer))


def _run_checkpointed(task: CheckpointedTask) -> None:
    from driftree.evaluate.learners import title_of
    from driftree.evaluate.parallel import run_tasks
    from driftree.evaluate.runs import run_with_checkpoints

    console, error_console = consoles()

    try:
        titles = [title_of(name) for name in task.settings.learners]
        with _warnings_on(error_console), Progress(error_console, titles) as bars:
            [(_, result)] = run_tasks(
                run_with_checkpoints,
                [task],
                asked=partial(_tell_to_wait, error_console),
                news=bars.tell,
            )
            bars.finish(0, f"done after {result.run.n_rows:,} rows")
        if not result.records:
            raise ValueError(
                f"{task.settings.source} has no more rows than one batch, and the first batch "
                "only trains: give more rows or a smaller --batch, and --overwrite"
            )
        _conclude_checkpointed(console, task, result)
    except KeyboardInterrupt:
        error_console.print(
            "Stopped; with --resume, the same command continues from the last checkpoint"
        )
        raise
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise OSError(
            f"{error}; free some space, then resume with the same command and --resume"
        ) from error


def _conclude_checkpointed(
    console: Console, task: CheckpointedTask, result: CheckpointedResult
) -> None:
    """Write the results; the costs of the run go to a file of their own and to the screen."""
    from driftree.evaluate.records import without_costs, write_costs

    folder = task.records.parent
    save_model(folder, task.settings, [result.run])
    write_costs(folder / "costs.csv", result.records)
    records = [without_costs(record) for record in result.records]
    conclude(console, task.settings, folder, records, [result.run], result.records)
    console.print(f"{folder}: costs.csv", soft_wrap=True)


@contextmanager
def _warnings_on(console: Console) -> Iterator[None]:
    """Print warnings about the checkpoints, one per line."""
    from driftree.evaluate.checkpoints import CheckpointWarning

    show = warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *more: Any, **named: Any) -> None:
        if issubclass(category, CheckpointWarning):
            console.print(f"driftree: warning: {message}", soft_wrap=True)
        else:
            show(message, category, *more, **named)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = say
        yield
