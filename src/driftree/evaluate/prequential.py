"""Prequential evaluation: every batch is predicted first, then learnt."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.evaluate.grading import (
    LabelGrader,
    RowFace,
    choose_face,
    new_grader,
    read_metrics,
    task_of,
    update_metric,
)
from driftree.evaluate.learners import make_learner
from driftree.evaluate.quality import Quality, count_confusion, name_labels
from driftree.evaluate.records import Record
from driftree.evaluate.scores import Size, measure_memory, measure_size
from driftree.explain.changes import Listener, can_tell
from driftree.streams.rows import Rows
from driftree.streams.sources import is_row
from driftree.streams.stream import Stream, open_stream

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.evaluate.checkpoints import Checkpointer
    from driftree.evaluate.grading import Answer, Face
    from driftree.explain.changes import OnChange, OnDrift
    from driftree.streams.stream import Task

STANDARD_INPUT = "-"
SMALLEST_BATCH, UNKNOWN_ROWS_BATCH = 100, 1000
BATCH_SHARE = 0.001  # of the rows of a stream, in the paper


def prequential(
    model: Any,
    stream: Any,
    *,
    delay: int = 0,
    pretrain: bool = True,
    step_rows: int | None = None,
    classes: Sequence[Hashable] | None = None,
    text: Sequence[Hashable] = (),
    task: Task | None = None,
    checkpointer: Checkpointer | None = None,
    on_change: OnChange | None = None,
    on_drift: OnDrift | None = None,
    metrics: Any = (),
) -> Iterator[Record]:
    """Test, then train, batch by batch; yield a record for each batch and learner.

    Parameters
    ----------
    model : learner, name, or dict of names to learners or names
        One learner or several on the same rows: a name from `LEARNERS`, an estimator of driftree or
        of scikit-learn with `partial_fit`, or a classifier or regressor of River. They learn in
        place.
    stream : iterable of (X, y), tuple (X, y), or path
        Batches, such as `open_stream` and the generators in `driftree.streams` give. X is an array,
        a data frame, or a dict of columns. Anything else that `open_stream` takes, such as a table,
        a path, or rows (dict, label) as in River's data sets, is opened by it, in batches of 0.1 %
        of the rows, at least 100; of 1,000 rows if their number is unknown.
    delay : int, default=0
        Rows after which a label becomes known: row i is learnt as soon as row i + delay has been
        predicted. Labels that are still unknown at the end are not learnt.
    pretrain : bool, default=True
        Whether the first batch is only learnt, and not tested, as in the paper.
    step_rows : int, optional
        Rows that are predicted, then learnt, at a time; by default the whole batch, as in the
        paper. With 1 every row is learnt before the next is predicted.
    classes : sequence, optional
        All labels, if known. scikit-learn estimators need them; others learn them from the stream.
    text : sequence of names, default=()
        Columns that hold text: learners get word counts, as from River's `BagOfWords`. Rows are
        then predicted and learnt as dicts, one by one, even if the whole batch is predicted first.
        Learners need `learn_one`.
    task : {"classification", "regression"}, optional
        Whether labels or numbers are predicted. By default it is inferred from the learners; if
        there are only names, it is classification.
    checkpointer : Checkpointer, optional
        Keeps checkpoints of one of driftree's own learners. If there is a checkpoint already, its
        records come first, the model is restored, and the stream, which must be given from its
        beginning, is resumed: the result is that of an uninterrupted run.
    on_change, on_drift : callable, optional
        Called after the batch with each `Event` and each `Drift` of the model; with several
        learners, those of the first Dynamic Model Tree. It must keep its history.
    metrics : metric of River or sequence of these, or dict of learners' names to them, optional
        Updated in place with every row that is tested, after the batch; with several learners, a
        dict. `metrics=[river.metrics.MacroF1()]` says more than F1 where labels are rare. They skip
        rows that a classifier does not predict, as before it has learnt anything, whereas in
        records these count as wrong. They are not part of checkpoints: if an evaluation is resumed,
        they count only the rows after it.

    Yields
    ------
    Record
        One for each batch and learner, in the order of the learners.

    Examples
    --------
    >>> from driftree.streams import sea
    >>> for record in prequential("dmt", sea(4000)):
    ...     print(record.n_rows, round(record.f1, 2), record.n_splits)
    2000 0.87 0
    3000 0.89 0
    4000 0.87 0

    For regression, records have other scores:

    >>> import numpy as np
    >>> from driftree.streams import open_stream
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(3000, 2))
    >>> stream = open_stream((X, X[:, 0] + 20 * (X[:, 1] > 0)), task="regression")
    >>> for record in prequential({"dmt": "dmt", "mean": "mean"}, stream, task="regression"):
    ...     print(record.n_rows, record.learner, record.mae < 5, record.r2 > 0.5)
    2000 dmt True True
    2000 mean False False
    3000 dmt True True
    3000 mean False False
    """
    evaluation = Evaluation(
        model,
        delay=delay,
        pretrain=pretrain,
        step_rows=step_rows,
        classes=classes,
        text=text,
        task=task,
        on_change=on_change,
        on_drift=on_drift,
        metrics=metrics,
    )
    batches = _opened(stream, evaluation)
    if checkpointer is not None:
        yield from _resume(evaluation, batches, checkpointer)
        return
    for X, y in batches:
        yield from evaluation.take(X, y)


def _opened(stream: Any, evaluation: Evaluation) -> Iterable[tuple[Any, Any]]:
    """Return batches; anything else is opened as a stream."""
    numbers: Task | None = "regression" if evaluation.task == "regression" else None
    if isinstance(stream, Stream):
        if stream.task is None and numbers is not None:
            return open_stream(stream, batch=stream.batch_rows, task=numbers)
        return stream
    is_file = isinstance(stream, (str, PathLike)) or hasattr(stream, "readline")
    is_table = isinstance(stream, (tuple, np.ndarray)) or nw.dependencies.is_into_dataframe(stream)
    if is_file or is_table:
        is_counted = not hasattr(stream, "readline") and not (is_file and stream == STANDARD_INPUT)
    else:
        items = iter(stream)
        first = next(items, None)
        is_shared = iter(stream) is items  # the first item is gone, as it is from a generator
        pairs = chain([] if first is None else [first], items) if is_shared else stream
        if not is_row(first):
            return pairs
        is_counted = getattr(stream, "n_samples", None) is not None  # as River's data sets are
        stream = pairs
    batch = BATCH_SHARE if is_counted else UNKNOWN_ROWS_BATCH
    text = evaluation.text if is_file else ()
    opened = open_stream(stream, batch=batch, task=numbers, text=text)
    opened.batch_rows = max(SMALLEST_BATCH, opened.batch_rows)
    return opened


def _resume(
    evaluation: Evaluation, stream: Iterable[tuple[Any, Any]], checkpointer: Checkpointer
) -> Iterator[Record]:
    from driftree.evaluate.resuming import ResumableEvaluation

    facts = {"batch_rows": getattr(stream, "batch_rows", None)}
    resumable = ResumableEvaluation(evaluation, checkpointer, facts)
    yield from resumable.records
    for X, y in resumable.batches(stream):
        yield from resumable.take(X, y)
    resumable.commit()


class Evaluation:
    """The state of a prequential evaluation between two batches; it can be pickled.

    Parameters
    ----------
    model, delay, pretrain, step_rows, classes, text, task, on_change, on_drift, metrics
        As in `prequential`.

    Attributes
    ----------
    learners : dict
        Names to learners.
    n_rows : int
        Rows of the stream processed so far.
    step : int
        Number of the next batch.
    quality : dict of str to Quality
        Quality of each learner's predictions over all tested rows.
    """

    def __init__(
        self,
        model: Any,
        *,
        delay: int = 0,
        pretrain: bool = True,
        step_rows: int | None = None,
        classes: Sequence[Hashable] | None = None,
        text: Sequence[Hashable] = (),
        task: Task | None = None,
        on_change: OnChange | None = None,
        on_drift: OnDrift | None = None,
        metrics: Any = (),
    ) -> None:
        if delay < 0:
            raise ValueError(f"delay must be at least 0 rows, got {delay}")
        if step_rows is not None and step_rows < 1:
            raise ValueError(f"step_rows must be at least 1, got {step_rows}")
        if isinstance(text, str):
            raise TypeError(f"text must hold names of columns: write [{text!r}]")
        named = _named(model)
        if not named:
            raise ValueError("there is no learner to evaluate")
        self.task = task_of(named, task)
        self.learners = {
            name: make_learner(one, of_text=bool(text), task=self.task)
            if isinstance(one, str)
            else one
            for name, one in named.items()
        }
        self.delay = delay
        self.pretrain = pretrain
        self.step_rows = step_rows
        self.classes = None if classes is None else list(classes)
        self.grader = new_grader(self.task, self.classes)
        self.text: tuple[Any, ...] = tuple(text)
        self.n_rows = 0
        self.step = 0 if pretrain else 1
        self._faces = {
            name: choose_face(learner, self.grader, by_row=step_rows == 1, of_text=bool(text))
            for name, learner in self.learners.items()
        }
        self.quality = {name: Quality() for name in self.learners}
        self.metrics = read_metrics(metrics, self.learners)
        self._pending: deque[Rows] = deque()
        self._n_pending = 0
        self._n_features = 0
        self._words: set[Hashable] = set()
        self._listener = Listener(on_change, on_drift)
        self._told = self._find_told() if on_change or on_drift else None

    def _find_told(self) -> Any:
        """Return the learner whose changes and drifts are reported."""
        told = next((model for model in self.learners.values() if can_tell(model)), None)
        if told is None:
            raise ValueError(
                f"none of {', '.join(self.learners)} is a Dynamic Model Tree that keeps its "
                "history: omit on_change and on_drift"
            )
        self._listener.skip(told)
        return told

    def skip_told(self) -> None:
        """Skip changes and drifts so far: they were reported before a checkpoint."""
        if self._told is not None:
            self._listener.skip(self._told)

    def _read(self, X: Any, y: Any) -> Rows:
        """Return rows of the stream as input for the learners."""
        return Rows(X, y, self.text)

    def take(self, X: Any, y: Any) -> list[Record]:
        """Test, then train, on the next batch; return a record for each learner."""
        batch = self._read(X, y)
        if len(batch) == 0:
            return []
        self._check_target(batch)
        is_tested = self.step > 0
        self._n_features = max(self._n_features, self._count_features(batch))
        self.n_rows += len(batch)
        tests = {name: _Test() for name in self.learners}
        if is_tested and self._goes_row_by_row:
            truth = self.grader.truth(batch)
            for name, face in self._faces.items():
                tests[name].go(face, batch, truth)
        else:
            self._take_parts(batch, tests, is_tested=is_tested)
        records = [self._record(name, test) for name, test in tests.items()] if is_tested else []
        self.step += 1
        if self._told is not None and hasattr(self._told, "n_rows_seen_"):  # it has learnt rows
            self._listener.look(self._told)
        return records

    def _count_features(self, batch: Rows) -> int:
        """Count the features; words only for learners that do not count them themselves."""
        if not self.text or all(hasattr(type(one), "n_splits_") for one in self.learners.values()):
            return len(batch.names)
        self._words.update(*batch.dicts)
        return len(self._words)

    @property
    def _goes_row_by_row(self) -> bool:
        """Whether each row is learnt at once, so that learners need not be interleaved."""
        are_rivers = all(isinstance(face, RowFace) for face in self._faces.values())
        return self.step_rows == 1 and self.delay == 0 and are_rivers

    def _check_target(self, batch: Rows) -> None:
        """Raise for targets that no learner can learn."""
        try:
            self.grader.check(batch.y)
        except ValueError as error:
            first = self.n_rows
            what = "labels" if self.task == "classification" else "targets"
            raise ValueError(
                f"the {what} of rows {first:,} to {first + len(batch) - 1:,} of the stream (rows "
                f"count from 0): {error}"
            ) from None

    def _take_parts(self, batch: Rows, tests: dict[str, _Test], *, is_tested: bool) -> None:
        """Predict and learn in steps, only rows whose labels are known by then."""
        size = (self.step_rows or len(batch)) if is_tested else len(batch)
        if size < len(batch):
            for face in self._faces.values():
                face.prepare(batch)  # at once, rather than part by part
        for start in range(0, len(batch), size):
            part = batch if size >= len(batch) else batch[start : start + size]
            truth = self.grader.truth(part)
            if is_tested:
                for name, face in self._faces.items():
                    tests[name].predict(face, part, truth)
            self._pending.append(part)
            self._n_pending += len(part)
            for released in self._release(self.delay if is_tested else 0):
                for name, face in self._faces.items():
                    tests[name].learn(face, released)

    def _release(self, delay: int) -> Iterator[Rows]:
        """Yield the rows whose labels have become known."""
        while self._n_pending > delay:
            oldest = self._pending.popleft()
            n_known = min(len(oldest), self._n_pending - delay)
            if n_known < len(oldest):
                self._pending.appendleft(oldest[n_known:])
                oldest = oldest[:n_known]
            self._n_pending -= n_known
            yield oldest

    def _record(self, name: str, test: _Test) -> Record:
        model = self.learners[name]
        size = measure_size(model, self._n_features, self.grader.n_classes)
        scores = self.grader.score(name, test.truth, test.answers)
        for metric in self.metrics.get(name, ()):
            update_metric(metric, test.truth, test.answers, self.grader)
        is_due = self.step & (self.step - 1) == 0  # 1, 2, 4, 8, ...
        return Record(
            learner=name,
            step=self.step,
            n_rows=self.n_rows,
            **scores._asdict(),
            **self._beside_scores(name, test),
            **(dict.fromkeys(Size._fields) if size is None else size._asdict()),
            predict_seconds=test.predict_seconds,
            learn_seconds=test.learn_seconds,
            memory=measure_memory(model) if is_due or hasattr(model, "memory_usage") else None,
        )

    def _beside_scores(self, name: str, test: _Test) -> dict[str, Any]:
        """Add the batch to the quality; return the figures that put its scores into perspective."""
        truth = np.concatenate(test.truth)
        predicted = np.concatenate([answer.predicted for answer in test.answers])
        if not isinstance(self.grader, LabelGrader):
            with np.errstate(over="ignore", invalid="ignore"):  # it may have diverged
                return {
                    "target_mean": float(truth.mean()),
                    "predicted_mean": float(predicted.mean()),
                }
        known = [one.probability for one in test.answers if one.probability is not None]
        quality = self.quality[name]
        has_all = len(known) == len(test.answers)
        quality.add(truth, predicted, np.concatenate(known) if has_all else None)
        return {
            "majority": float((truth == quality.most_frequent).mean()),
            "macro_f1": quality.macro_f1,
            "auc": quality.auc,
            "confusion": count_confusion(truth, predicted, name_labels(self.grader.codes)),
        }


class _Test:
    """What one learner did with one batch."""

    def __init__(self) -> None:
        self.truth: list[NDArray[Any]] = []
        self.answers: list[Answer] = []
        self.predict_seconds = 0.0
        self.learn_seconds = 0.0

    def predict(self, face: Face, rows: Rows, truth: NDArray[Any]) -> None:
        face.prepare(rows)
        start = time.thread_time()
        answer = face.predict(rows)
        self.predict_seconds += time.thread_time() - start
        self._keep(face.read(answer, rows), truth)

    def go(self, face: Face, rows: Rows, truth: NDArray[Any]) -> None:
        """Predict, then learn, row by row."""
        ask, learn, answers = face.grader.asker(face.model), face.model.learn_one, []
        now = time.thread_time
        start = now()
        for x, target in zip(rows.dicts, rows.labels, strict=True):
            answers.append(ask(x))
            middle = now()
            learn(x, target)
            end = now()
            self.predict_seconds += middle - start
            self.learn_seconds += end - middle
            start = end
        self._keep(face.read(answers, rows), truth)

    def _keep(self, answer: Answer, truth: NDArray[Any]) -> None:
        self.truth.append(truth)
        self.answers.append(answer)

    def learn(self, face: Face, rows: Rows) -> None:
        face.prepare(rows)
        start = time.thread_time()
        face.learn(rows)
        self.learn_seconds += time.thread_time() - start


def _named(model: Any) -> dict[str, Any]:
    """Return learners, or names of them, by name."""
    if isinstance(model, str):
        return {model: model}
    if isinstance(model, Mapping) and not hasattr(model, "learn_one"):
        return {str(name): one for name, one in model.items()}
    return {type(model).__name__: model}
