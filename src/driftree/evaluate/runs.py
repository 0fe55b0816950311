"""Runs: learners on a stream by name or file, kept in a folder, which can be gone on with later."""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections import deque
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from driftree.evaluate.experiments import BATCH_SHARE
from driftree.evaluate.learners import make_learner
from driftree.evaluate.prequential import Evaluation
from driftree.evaluate.records import RecordFile, read_records
from driftree.streams.bad_rows import BadRow, BadRowsWarning
from driftree.streams.catalogue import DATA_SETS
from driftree.streams.datasets import load_data_set
from driftree.streams.files import Stream, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from driftree.evaluate.parallel import News

SAVE_SECONDS = 10  # between two states of a run on the disk
STANDARD_INPUT = "-"
SMALLEST_BATCH, UNKNOWN_ROWS_BATCH = 100, 1000


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What determines the records of a run, but for the times.

    Attributes
    ----------
    source : str
        A file, "-" for standard input, or the name of one of the paper's data sets.
    learners : tuple of str
        Names from `LEARNERS`.
    target, n_rows, on_bad_row
        As in `open_stream`.
    batch : int, float or None
        Rows per batch, or their share. None is 0.1 %, but at least 100 rows; on standard input,
        where that is not known, 1,000.
    categorical : tuple of str
        Features whose values are categories although they are numbers.
    delay, pretrain, step_rows
        As in `prequential`.
    seed : int
        For those learners that draw.
    """

    source: str
    learners: tuple[str, ...]
    target: str | None = None
    batch: float | None = None
    n_rows: int | None = None
    on_bad_row: Literal["stop", "skip"] = "stop"
    categorical: tuple[str, ...] = ()
    delay: int = 0
    pretrain: bool = True
    step_rows: int | None = None
    seed: int = 1


def open_source(settings: RunSettings, batch_rows: int | None = None) -> Stream:
    """Open the file or data set that a run is about.

    Parameters
    ----------
    settings : RunSettings
        Its name, and how to read it.
    batch_rows : int, optional
        Rows per batch, if they are known from an earlier part of the run.
    """
    batch = batch_rows or settings.batch
    if batch is not None:
        return _open(settings, batch)
    if settings.source == STANDARD_INPUT:
        return _open(settings, UNKNOWN_ROWS_BATCH)
    stream = _open(settings, BATCH_SHARE)
    return stream if stream.batch_rows >= SMALLEST_BATCH else _open(settings, SMALLEST_BATCH)


def _open(settings: RunSettings, batch: float) -> Stream:
    source = settings.source
    if source == STANDARD_INPUT or Path(source).exists():
        return open_stream(
            source,
            target=settings.target,
            batch=batch,
            n_rows=settings.n_rows,
            on_bad_row=settings.on_bad_row,
            categorical=settings.categorical,
        )
    if source in DATA_SETS:
        data = load_data_set(source, preprocess="none", max_rows=settings.n_rows)
        return open_stream((data.X, data.y), batch=batch)
    close = get_close_matches(source, DATA_SETS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise ValueError(
        f"there is no file {source!r}, nor a data set of that name{hint}: give a CSV, CSV.gz or "
        f"Parquet file, - for CSV on standard input, or one of {', '.join(DATA_SETS)}"
    )


class RunResult(NamedTuple):
    """How a run, or a learner's part of it, ended."""

    is_complete: bool
    n_rows: int
    n_bad_rows: int
    bad_rows: list[BadRow]  # the first of them
    learners: dict[str, Any]


class _State(NamedTuple):
    """A run between two batches, as it is kept on the disk."""

    settings: RunSettings
    evaluation: Evaluation
    n_records: int = 0
    batch_rows: int | None = None


class RunTask(NamedTuple):
    """Learners that go side by side through the stream, and the files they leave.

    Attributes
    ----------
    settings : RunSettings
        What to run.
    records : path
        A .csv or .jsonl file for the records. Beside it lies, with the suffix .state, what is
        needed to go on: a pickle, so go on only with runs of your own.
    resume : bool
        Whether to go on with what is there.
    """

    settings: RunSettings
    records: Path
    resume: bool = False


def run_stream(task: RunTask, news: News, should_stop: Callable[[], bool]) -> RunResult:
    """Test, then train, on every batch; records are on the disk as soon as they are known.

    Parameters
    ----------
    task : RunTask
        What to run, and where to.
    news : callable
        Is told the rows done, the rows in all or None, and words.
    should_stop : callable
        Asked after every batch. A run that was stopped can be gone on with.
    """
    settings = task.settings
    state = _load_state(task) if task.resume else None
    if state is None:
        learners = {
            name: make_learner(name, categorical=settings.categorical, seed=settings.seed)
            for name in settings.learners
        }
        evaluation = Evaluation(
            learners,
            delay=settings.delay,
            pretrain=settings.pretrain,
            step_rows=settings.step_rows,
        )
        state = _State(settings, evaluation)
    evaluation = state.evaluation
    stream = open_source(settings, state.batch_rows)
    saved, stopped = time.monotonic(), False
    recent: dict[str, deque[float]] = {name: deque(maxlen=20) for name in evaluation.learners}
    with RecordFile(task.records, keep=state.n_records) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", BadRowsWarning)  # they are in the result
        state = state._replace(batch_rows=stream.batch_rows)
        for X, y in stream.batches(skip_rows=evaluation.n_rows):
            records = evaluation.take(X, y)
            for record in records:
                file.write(record)
                recent[record.learner].append(record.f1)
            state = state._replace(n_records=state.n_records + len(records))
            news(evaluation.n_rows, stream.n_rows, _tell(recent))
            stopped = should_stop()
            if stopped:
                break
            if time.monotonic() - saved > SAVE_SECONDS:
                _save_state(task, state)
                saved = time.monotonic()
        _save_state(task, state)
    bad = stream.bad_rows
    return RunResult(not stopped, evaluation.n_rows, bad.count, bad.first, evaluation.learners)


def _tell(recent: dict[str, deque[float]]) -> str:
    means = {name: sum(scores) / len(scores) for name, scores in recent.items() if scores}
    words = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    return f"recent F1: {words}" if words else "training"


# ---------------------------------------------------------------------- states on the disk
def _state_path(task: RunTask) -> Path:
    return task.records.with_suffix(".state")


def _save_state(task: RunTask, state: _State) -> None:
    path = _state_path(task)
    unfinished = path.with_suffix(f".{os.getpid()}.state")
    try:
        with open(unfinished, "wb") as file:
            pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _load_state(task: RunTask) -> _State | None:
    """Return what was saved; None if the run was stopped before that."""
    path = _state_path(task)
    if not path.exists():
        return None
    with open(path, "rb") as file:
        state: _State = pickle.load(file)
    now, then = task.settings, replace(state.settings, n_rows=task.settings.n_rows)
    if now != then:
        pairs = [(name, vars(then)[name], value) for name, value in vars(now).items()]
        changes = ", ".join(f"{name} was {a!r}, is {b!r}" for name, a, b in pairs if a != b)
        raise ValueError(
            f"{path.parent} holds a run with other settings ({changes}): use the same ones to go "
            "on, or another folder"
        )
    return state


def merge_records(paths: list[Path], into: Path) -> None:
    """Write the records of several files into one, step by step."""
    records = [record for path in paths for record in read_records(path)]
    with RecordFile(into) as file:
        for record in sorted(records, key=lambda record: record.step):
            file.write(record)
