"""Runs with checkpoints: killed at any moment and started again, they leave the same files."""

from __future__ import annotations

import csv
import math
import warnings
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from driftree.evaluate.learners import LEARNERS, measure_memory
from driftree.evaluate.records import RecordFile
from driftree.evaluate.resuming import Course
from driftree.evaluate.runs import (
    STANDARD_INPUT,
    RunResult,
    RunSettings,
    new_evaluation,
    open_source,
    tell_scores,
)
from driftree.learn.storage.atomic import TEMPORARY, whole_text
from driftree.streams.catalogue import DATA_SETS, Generated
from driftree.streams.datasets import fetch_data_set
from driftree.streams.download import digest_of
from driftree.streams.sources import BadRow, BadRows, BadRowsWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from driftree.evaluate.checkpoints import Checkpointer
    from driftree.evaluate.parallel import News
    from driftree.evaluate.records import Record
    from driftree.streams.stream import Stream

COSTS = ("predict_seconds", "learn_seconds", "memory")  # of a process: no two are alike


class CheckpointedTask(NamedTuple):
    """A learner that goes through a stream, and the files it leaves.

    Attributes
    ----------
    settings : RunSettings
        What to run; one learner of driftree's, and a file or data set.
    records : path
        A .csv or .jsonl file for the records, which is rewritten at every start.
    checkpointer : Checkpointer
        Where the checkpoints are.
    """

    settings: RunSettings
    records: Path
    checkpointer: Checkpointer


class CheckpointedResult(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    run : RunResult
        As of any run.
    records : list of Record
        All of them, with what they cost.
    """

    run: RunResult
    records: list[Record]


def check_settings(settings: RunSettings) -> None:
    """Raise if a run cannot have checkpoints.

    Examples
    --------
    >>> check_settings(RunSettings(source="loans.csv", learners=("efdt",)))
    Traceback (most recent call last):
    ValueError: efdt cannot have checkpoints, which hold no code: only driftree's own learners can
    (dmt, dmt-paper, fimtdd, logistic); a run of others cannot be resumed
    """
    if len(settings.learners) != 1:
        names = ", ".join(settings.learners)
        raise ValueError(f"checkpoints are of one learner, not of {names}: run each by itself")
    if not LEARNERS[settings.learners[0]].is_ours:
        ours = ", ".join(name for name, choice in LEARNERS.items() if choice.is_ours)
        raise ValueError(
            f"{settings.learners[0]} cannot have checkpoints, which hold no code: only driftree's "
            f"own learners can ({ours}); a run of others cannot be resumed"
        )
    if settings.source == STANDARD_INPUT:
        raise ValueError(
            "standard input cannot be read again from where it was: write it to a file first, or "
            "leave the checkpoints out"
        )


def run_with_checkpoints(
    task: CheckpointedTask, news: News, should_stop: Callable[[], bool]
) -> CheckpointedResult:
    """Test, then train, on every batch, with checkpoints; go on from the last one if there is one.

    Parameters
    ----------
    task : CheckpointedTask
        What to run, and where to.
    news : callable
        Is told the rows done, the rows in all or None, and words.
    should_stop : callable
        Asked after every batch. A stopped run resumes when it is started again.
    """
    check_settings(task.settings)
    stream = open_source(task.settings)
    evaluation = new_evaluation(task.settings)
    course = Course(evaluation, task.checkpointer, _facts(task, stream))
    for path in task.records.parent.glob(TEMPORARY):  # of a model file that was being written
        path.unlink(missing_ok=True)
    is_complete = bool(course.noted and course.noted["is_complete"])
    with RecordFile(task.records) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", BadRowsWarning)  # they are in the result
        for record in course.records:
            file.write(without_costs(record))
        if not is_complete:
            is_complete = _learn(course, stream, file, news, should_stop)
    bad_rows = _all_bad_rows(course, stream)
    if not (course.noted and course.noted["is_complete"]):
        course.commit(_note(bad_rows, is_complete=is_complete))
    run = RunResult(
        is_complete=is_complete,
        n_rows=evaluation.n_rows,
        batch_rows=stream.batch_rows,
        n_bad_rows=bad_rows.count,
        bad_rows=bad_rows.first,
        learners=evaluation.learners,
        memory={name: measure_memory(model) for name, model in evaluation.learners.items()},
    )
    return CheckpointedResult(run, course.records)


def _learn(
    course: Course,
    stream: Stream,
    file: RecordFile,
    news: News,
    should_stop: Callable[[], bool],
) -> bool:
    """Take the batches that are left; return False if the run was stopped before the end."""
    evaluation = course.evaluation
    recent = {
        name: deque((record.f1 for record in course.records), maxlen=20)
        for name in evaluation.learners
    }
    for X, y in course.batches(stream):
        for record in course.take(X, y, _note(_all_bad_rows(course, stream), is_complete=False)):
            file.write(without_costs(record))
            recent[record.learner].append(record.f1)
        news(evaluation.n_rows, stream.n_rows, tell_scores(recent))
        if should_stop():
            return False
    return True


# ---------------------------------------------------------------------- what must not change
def _facts(task: CheckpointedTask, stream: Stream) -> dict[str, Any]:
    settings = task.settings
    facts = {
        **asdict(settings),
        "batch_rows": stream.batch_rows,
    }
    path = Path(settings.source)
    if not path.is_file():  # a data set
        if isinstance(DATA_SETS[settings.source].origin, Generated):
            return facts
        path = fetch_data_set(settings.source)
    return facts | {f"SHA-256 of {path}": digest_of(path, "sha256")}


# ---------------------------------------------------------------------- malformed rows
def _all_bad_rows(course: Course, stream: Stream) -> BadRows:
    """Return what was skipped since the beginning of the stream.

    A file is read again from its beginning, unless no row of it is asked for any more.
    """
    noted = (course.noted or _note(BadRows(), is_complete=False))["bad_rows"]
    before = BadRows(noted["count"], [BadRow(*row) for row in noted["first"]])
    return max(stream.bad_rows, before, key=lambda rows: rows.count)


def _note(bad_rows: BadRows, *, is_complete: bool) -> dict[str, Any]:
    first = [tuple(row) for row in bad_rows.first]
    return {"is_complete": is_complete, "bad_rows": {"count": bad_rows.count, "first": first}}


# ---------------------------------------------------------------------- costs
def without_costs(record: Record) -> Record:
    """Return a record without what differs between two runs of the same: seconds and bytes.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> record = without_costs(next(prequential("dmt", sea(2000))))
    >>> round(record.f1, 2), record.learn_seconds, record.memory
    (0.88, nan, None)
    """
    return replace(record, predict_seconds=math.nan, learn_seconds=math.nan, memory=None)


def write_costs(path: Path, records: Iterable[Record]) -> None:
    """Write what each batch took: seconds and bytes.

    Examples
    --------
    >>> import tempfile
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> path = Path(tempfile.mkdtemp()) / "costs.csv"
    >>> write_costs(path, prequential("dmt", sea(2000)))
    >>> path.read_text().splitlines()[0]
    'learner,step,n_rows,predict_seconds,learn_seconds,memory'
    """
    with whole_text(path) as file:
        writer = csv.writer(file)
        writer.writerow(("learner", "step", "n_rows", *COSTS))
        for record in records:
            costs = [getattr(record, name) for name in COSTS]
            writer.writerow((record.learner, record.step, record.n_rows, *costs))
