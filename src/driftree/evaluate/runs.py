"""Runs: learners on a data set or file, with records in a folder.

A run with checkpoints can be killed at any moment and started again: it writes the same files.
"""

from __future__ import annotations

import warnings
from collections import deque
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from driftree.evaluate.learners import check_takes_text, learners_for, make_learner, title_of
from driftree.evaluate.prequential import (
    BATCH_SHARE,
    SMALLEST_BATCH,
    STANDARD_INPUT,
    UNKNOWN_ROWS_BATCH,
    Evaluation,
)
from driftree.evaluate.records import (
    SCORES,
    RecordFile,
    read_records,
    show_number,
    without_costs,
    write_records,
)
from driftree.evaluate.resuming import ResumableEvaluation
from driftree.evaluate.scores import measure_memory
from driftree.explain.changes import can_tell
from driftree.learn.storage.atomic import TEMPORARY
from driftree.learn.validation import InputWarning
from driftree.streams.catalogue import DATA_SETS, Generated, check_name, hint
from driftree.streams.csv_columns import ColumnHints
from driftree.streams.datasets import fetch_data_set, load_data_set
from driftree.streams.download import digest_of
from driftree.streams.findings import Findings
from driftree.streams.rows import Rows, check_text
from driftree.streams.sources import BadRow, BadRows, BadRowsWarning
from driftree.streams.stream import Stream, open_stream
from driftree.streams.stream import open_source as open_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from driftree.evaluate.checkpoints import Checkpointer
    from driftree.evaluate.parallel import News
    from driftree.evaluate.quality import Quality
    from driftree.evaluate.records import Record
    from driftree.explain import Drift, Event
    from driftree.streams.stream import Task


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings that determine the records of a run, except for times.

    Attributes
    ----------
    source : str
        A file, "-" for standard input, or the name of one of the paper's data sets.
    learners : tuple of str
        Names from `learners_for`.
    target, n_rows, on_bad_row
        As in `open_stream`.
    batch : int, float or None
        Rows per batch, or a fraction of the stream. None is 0.1 %, but at least 100 rows; for
        standard input, whose length is unknown, 1,000.
    categorical, numeric, time, drop, header
        As in `open_stream`.
    text : tuple of str
        Text columns, whose words are learnt.
    delay, step_rows
        As in `prequential`.
    seed : int
        Of the learners that use random numbers.
    task : {"classification", "regression"}
        Whether the target is a label or a number.
    parameters : tuple of pairs
        Names and values of the learners' parameters that are not the default.
    """

    source: str
    learners: tuple[str, ...]
    target: str | None = None
    batch: float | None = None
    n_rows: int | None = None
    on_bad_row: Literal["stop", "skip"] = "stop"
    categorical: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    delay: int = 0
    step_rows: int | None = None
    seed: int = 1
    task: Task = "classification"
    numeric: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    header: bool = True
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def categorical_features(self) -> tuple[str, ...]:
        """Features that are categories; the target may be among them if it holds labels."""
        return tuple(name for name in self.categorical if name != self.target)


def look_at(settings: RunSettings) -> Findings | None:
    """Return what the first rows of a source show; None for standard input, which is read once."""
    if settings.source == STANDARD_INPUT:
        return None
    return _open(settings, UNKNOWN_ROWS_BATCH).findings


def check_learners(settings: RunSettings) -> None:
    """Raise if the learners of a run cannot be created."""
    _new_evaluation(settings)


def open_source(settings: RunSettings) -> Stream:
    """Open the file or data set of a run."""
    stream = _open_in_batches(settings)
    if settings.text:
        _check_text(settings, stream)
    return stream


def _open_in_batches(settings: RunSettings) -> Stream:
    batch = settings.batch
    if settings.source == STANDARD_INPUT:
        return _open(settings, batch or UNKNOWN_ROWS_BATCH)
    # As a fraction, because then the rows are counted, which progress bars need.
    is_share = isinstance(batch, float)
    stream = _open(settings, batch if is_share and batch is not None else BATCH_SHARE)
    if batch is None:
        stream.batch_rows = max(SMALLEST_BATCH, stream.batch_rows)
    elif not is_share:
        stream.batch_rows = int(batch)
    return stream


def _open(settings: RunSettings, batch: float) -> Stream:
    source = settings.source
    if source == STANDARD_INPUT or Path(source).is_file():
        task: Task | None = "regression" if settings.task == "regression" else None
        hints = ColumnHints(
            categorical=settings.categorical,
            numeric=settings.numeric,
            time=settings.time,
            text=settings.text,
            drop=settings.drop,
            leaves_prose=True,
        )
        found = open_rows(
            source,
            target=settings.target,
            hints=hints,
            on_bad_row=settings.on_bad_row,
            header=settings.header,
            task=task,
        )
        stream = Stream(found, batch, settings.n_rows, task)
    elif source in DATA_SETS:
        if settings.target not in (None, "target"):
            raise ValueError(f"{source} is a data set, whose target is known: omit the target")
        if settings.task != "classification":
            raise ValueError(f"{source} is a data set with labels: omit --task {settings.task}")
        data = load_data_set(source, preprocess="none", max_rows=settings.n_rows)
        stream = open_stream((data.X, data.y), batch=batch)
    else:
        raise ValueError(
            f"there is no file {source!r}, nor a data set of that name{hint(source, DATA_SETS)}: "
            "give a CSV, JSON Lines, Parquet or Feather file, - for standard input, or one of "
            f"{', '.join(DATA_SETS)}"
        )
    if stream.feature_names is not None:
        target = None if stream.findings is None else stream.findings.target
        for name in settings.categorical:
            if target is not None and name == target.name:
                continue
            check_name(name, stream.feature_names, "feature")
    return stream


def _check_text(settings: RunSettings, stream: Stream) -> None:
    """Raise, before anything is learnt or written, if a text column does not hold text."""
    for name in settings.learners:
        check_takes_text(name, settings.task)
    if stream.feature_names is None:  # standard input, which can be read once
        return
    check_text(settings.text, stream.feature_names, stream.name)
    rows = Rows(*next(stream.batches()), settings.text).dicts
    for name in settings.categorical_features:
        if not all(isinstance(row.get(name, ""), str) for row in rows):
            raise ValueError(
                f"{name!r} is categorical, but not stored as text, which is needed together with "
                "text columns: store it as text, or give CSV"
            )


class RunResult(NamedTuple):
    """The result of a run, or of one learner's part of it.

    Attributes
    ----------
    is_complete : bool
        Whether the run reached the end of the stream.
    n_rows, batch_rows : int
        Rows of the stream, and of a batch.
    n_bad_rows : int
        Malformed rows that were skipped.
    bad_rows : list of BadRow
        The first of them.
    learners : dict
        Names to the final learners.
    memory : dict
        Names to their memory in bytes.
    quality : dict
        Names to the quality of their predictions; empty for regression.
    labels : list
        The labels in the order of their codes.
    findings : Findings or None
        What the first rows showed.
    """

    is_complete: bool
    n_rows: int
    batch_rows: int
    n_bad_rows: int
    bad_rows: list[BadRow]
    learners: dict[str, Any]
    memory: dict[str, int | None]
    quality: dict[str, Quality]
    labels: list[Any]
    findings: Findings | None = None


class RunTask(NamedTuple):
    """Learners that run on the same stream, and the file of their records.

    Attributes
    ----------
    settings : RunSettings
        What to run.
    records : path
        A .csv or .jsonl file for the records.
    tell : callable, optional
        Called with what the first rows show, if that was not known before.
    hear : callable, optional
        Called with every change and every drift of a Dynamic Model Tree, after the batch. None for
        a task in another process.
    """

    settings: RunSettings
    records: Path
    tell: Callable[[Findings], None] | None = None
    hear: Callable[[Event | Drift], object] | None = None


def run_stream(task: RunTask, news: News, should_stop: Callable[[], bool]) -> RunResult:
    """Test, then train, on every batch; records are written immediately.

    Parameters
    ----------
    task : RunTask
        What to run, and where to write.
    news : callable
        Called with the rows done, the rows in all or None, and a text to show.
    should_stop : callable
        Asked after every batch.
    """
    stream = open_source(task.settings)
    _check_rows(stream)
    evaluation = _new_evaluation(task.settings, task.hear)
    is_told = stream.findings is not None
    recent: dict[str, deque[float]] = {name: deque(maxlen=20) for name in evaluation.learners}
    is_complete = True
    with warnings.catch_warnings(), ExitStack() as stack:
        _keep_for_result()
        batches = stack.enter_context(closing(stream.batches()))
        first = list(islice(batches, 1))
        if task.tell is not None and stream.findings is not None and not is_told:
            task.tell(stream.findings)  # which may raise before anything is written
        file = stack.enter_context(RecordFile(task.records))
        for X, y in chain(first, batches):
            for record in evaluation.take(X, y):
                file.write(record)
                recent[record.learner].append(main_score(record))
            news(evaluation.n_rows, stream.n_rows, _tell_scores(recent, evaluation.task))
            if should_stop():
                is_complete = False
                break
    return _result(evaluation, stream, stream.bad_rows, is_complete=is_complete)


def _check_rows(stream: Stream) -> None:
    """Raise before anything is learnt if there are too few rows."""
    if stream.n_rows is not None and stream.n_rows <= stream.batch_rows:
        raise ValueError(
            f"{stream.name} has {stream.n_rows:,} rows, no more than one batch, and the first "
            f"batch only trains: give more rows, or a smaller --batch than {stream.batch_rows:,}"
        )


def _keep_for_result() -> None:
    """Suppress warnings about what the result contains."""
    for kind in (BadRowsWarning, InputWarning):
        warnings.simplefilter("ignore", kind)


def _result(
    evaluation: Evaluation, stream: Stream, bad_rows: BadRows, *, is_complete: bool
) -> RunResult:
    return RunResult(
        is_complete=is_complete,
        n_rows=evaluation.n_rows,
        batch_rows=stream.batch_rows,
        n_bad_rows=bad_rows.count,
        bad_rows=bad_rows.first,
        learners=evaluation.learners,
        memory={name: measure_memory(model) for name, model in evaluation.learners.items()},
        findings=stream.findings,
        quality=evaluation.quality if evaluation.task == "classification" else {},
        labels=list(getattr(evaluation.grader, "codes", ())),
    )


def _new_evaluation(
    settings: RunSettings, tell: Callable[[Event | Drift], object] | None = None
) -> Evaluation:
    """Return an evaluation of the learners of a run."""
    learners = {
        name: make_learner(
            name,
            categorical=settings.categorical_features,
            seed=settings.seed,
            of_text=bool(settings.text),
            task=settings.task,
            parameters=dict(settings.parameters),
        )
        for name in settings.learners
    }
    if not any(map(can_tell, learners.values())):
        tell = None
    return Evaluation(
        learners,
        delay=settings.delay,
        step_rows=settings.step_rows,
        text=settings.text,
        task=settings.task,
        on_change=tell,
        on_drift=tell,
    )


def main_score(record: Record) -> float:
    """Return the main score: F1 for classification, MAE for regression."""
    return float(getattr(record, SCORES[record.task][0]))


def _tell_scores(recent: dict[str, deque[float]], task: Task) -> str:
    """Return the recent scores of the learners, as text for a line of progress."""
    means = {name: sum(scores) / len(scores) for name, scores in recent.items() if scores}
    is_share = task == "classification"
    shown = {name: f"{mean:.3f}" if is_share else show_number(mean) for name, mean in means.items()}
    if not shown:
        return "training"
    recent_score = f"recent {SCORES[task][0].upper()}"
    if len(recent) == 1:  # of the learner itself
        return f"{recent_score} {shown.popitem()[1]}"
    words = ", ".join(f"{title_of(name)} {score}" for name, score in shown.items())
    return f"{recent_score}: {words}"


def merge_records(paths: list[Path], into: Path) -> None:
    """Write the records of several files into one, step by step."""
    records = [record for path in paths for record in read_records(path)]
    write_records(into, sorted(records, key=lambda record: record.step))


# ---------------------------------------------------------------------- with checkpoints
class CheckpointedTask(NamedTuple):
    """A learner that runs on a stream, and the files that it writes.

    Attributes
    ----------
    settings : RunSettings
        What to run: one of driftree's own learners, and a file or data set.
    records : path
        A .csv or .jsonl file for the records, which is rewritten at every start.
    checkpointer : Checkpointer
        Where the checkpoints are.
    """

    settings: RunSettings
    records: Path
    checkpointer: Checkpointer


class CheckpointedResult(NamedTuple):
    """The result of a run with checkpoints.

    Attributes
    ----------
    run : RunResult
        As for any run.
    records : list of Record
        All of them, with their costs.
    """

    run: RunResult
    records: list[Record]


def check_resumable(settings: RunSettings) -> None:
    """Raise if a run cannot have checkpoints.

    Examples
    --------
    >>> check_resumable(RunSettings(source="loans.csv", learners=("efdt",)))
    Traceback (most recent call last):
    ValueError: efdt cannot have checkpoints, which hold no code: only driftree's own learners can
    (dmt, forest, dmt-paper, fimtdd, logistic); runs of others cannot be resumed
    """
    if len(settings.learners) != 1:
        names = ", ".join(settings.learners)
        raise ValueError(f"checkpoints support one learner, not {names}: run each separately")
    known = learners_for(settings.task)
    if not known[settings.learners[0]].is_ours:
        ours = ", ".join(name for name, choice in known.items() if choice.is_ours)
        raise ValueError(
            f"{settings.learners[0]} cannot have checkpoints, which hold no code: only driftree's "
            f"own learners can ({ours}); runs of others cannot be resumed"
        )
    if settings.source == STANDARD_INPUT:
        raise ValueError(
            "standard input cannot be read again: write it to a file first, or run without "
            "checkpoints"
        )


def run_with_checkpoints(
    task: CheckpointedTask, news: News, should_stop: Callable[[], bool]
) -> CheckpointedResult:
    """Test, then train, on every batch, with checkpoints; resume from the last one, if any.

    Parameters
    ----------
    task : CheckpointedTask
        What to run, and where to write.
    news : callable
        Called with the rows done, the rows in all or None, and a text to show.
    should_stop : callable
        Asked after every batch. A stopped run resumes when it is started again.
    """
    check_resumable(task.settings)
    stream = open_source(task.settings)
    _check_rows(stream)
    evaluation = _new_evaluation(task.settings)
    resumable = ResumableEvaluation(evaluation, task.checkpointer, _facts(task, stream))
    for path in task.records.parent.glob(TEMPORARY):  # left by an interrupted save
        path.unlink(missing_ok=True)
    is_complete = bool(resumable.noted and resumable.noted["is_complete"])
    with RecordFile(task.records) as file, warnings.catch_warnings():
        _keep_for_result()
        for record in resumable.records:
            file.write(without_costs(record))
        if not is_complete:
            is_complete = _learn(resumable, stream, file, news, should_stop)
    bad_rows = _all_bad_rows(resumable, stream)
    if not (resumable.noted and resumable.noted["is_complete"]):
        resumable.commit(_note(bad_rows, is_complete=is_complete))
    run = _result(evaluation, stream, bad_rows, is_complete=is_complete)
    return CheckpointedResult(run, resumable.records)


def _learn(
    resumable: ResumableEvaluation,
    stream: Stream,
    file: RecordFile,
    news: News,
    should_stop: Callable[[], bool],
) -> bool:
    """Process the remaining batches; return False if the run was stopped before the end."""
    evaluation = resumable.evaluation
    recent = {
        name: deque(map(main_score, resumable.records), maxlen=20) for name in evaluation.learners
    }
    for X, y in resumable.batches(stream):
        note = _note(_all_bad_rows(resumable, stream), is_complete=False)
        for record in resumable.take(X, y, note):
            file.write(without_costs(record))
            recent[record.learner].append(main_score(record))
        news(evaluation.n_rows, stream.n_rows, _tell_scores(recent, evaluation.task))
        if should_stop():
            return False
    return True


def _facts(task: CheckpointedTask, stream: Stream) -> dict[str, Any]:
    """Return what must not change between two starts of a run."""
    settings = task.settings
    facts = {**asdict(settings), "batch_rows": stream.batch_rows}
    for name in ("task", "numeric", "time", "drop", "header", "parameters"):
        if facts[name] == getattr(RunSettings, name):  # as before there was this option
            del facts[name]
    path = Path(settings.source)
    if not path.is_file():  # a data set
        if isinstance(DATA_SETS[settings.source].origin, Generated):
            return facts
        path = fetch_data_set(settings.source)
    return facts | {f"SHA-256 of {path}": digest_of(path, "sha256")}


def _all_bad_rows(resumable: ResumableEvaluation, stream: Stream) -> BadRows:
    """Return the rows skipped since the beginning of the stream.

    A file is read again from its beginning, unless no more rows of it are needed.
    """
    noted = (resumable.noted or _note(BadRows(), is_complete=False))["bad_rows"]
    before = BadRows(noted["count"], [BadRow(*row) for row in noted["first"]])
    return max(stream.bad_rows, before, key=lambda rows: rows.count)


def _note(bad_rows: BadRows, *, is_complete: bool) -> dict[str, Any]:
    first = [tuple(row) for row in bad_rows.first]
    return {"is_complete": is_complete, "bad_rows": {"count": bad_rows.count, "first": first}}
