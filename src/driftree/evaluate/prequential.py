"""Prequential evaluation: every batch is predicted first, then learnt."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.exceptions import NotFittedError

from driftree.evaluate.learners import make_learner, measure_memory, measure_size
from driftree.evaluate.records import Record, score
from driftree.learn.target import check_labels, distinct_labels
from driftree.streams.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.evaluate.checkpoints import Checkpointer
    from driftree.evaluate.records import Scores


def prequential(
    model: Any,
    stream: Iterable[tuple[Any, Any]],
    *,
    delay: int = 0,
    pretrain: bool = True,
    step_rows: int | None = None,
    classes: Sequence[Hashable] | None = None,
    text: Sequence[Hashable] = (),
    checkpointer: Checkpointer | None = None,
) -> Iterator[Record]:
    """Test, then train, batch by batch; yield what was seen.

    Parameters
    ----------
    model : learner, name, or dict of names to learners or names
        One learner or several side by side: a name from `LEARNERS`, an estimator of driftree or of
        scikit-learn with `partial_fit`, or a classifier of River. They learn where they stand.
    stream : iterable of (X, y)
        Batches, such as `open_stream` and the generators in `driftree.streams` give. X is an
        array, a data frame, or a dict of columns.
    delay : int, default=0
        Rows after which a label becomes known: row i is learnt as soon as row i + delay has been
        predicted. Labels that are still unknown at the end are not learnt.
    pretrain : bool, default=True
        Whether the first batch is only learnt, and not tested, as in the paper.
    step_rows : int, optional
        Rows that are predicted, then learnt, at a time; by default the whole batch, as in the
        paper. With 1 every row is learnt before the next is predicted.
    classes : sequence, optional
        All labels, if known. Estimators of scikit-learn need them; others get to know them.
    text : sequence of names, default=()
        Columns that hold text: what a learner gets is how often each word occurs, as River's
        `BagOfWords` counts. Rows are predicted and learnt as dicts then, one by one, also where
        the whole batch is predicted first. Learners need `learn_one`.
    checkpointer : Checkpointer, optional
        Where to keep checkpoints of one learner of driftree's. If there is one already, its records
        come first, the model takes over what was learnt, and the stream, which is given from its
        beginning, is resumed: the result is that of an uninterrupted run.

    Yields
    ------
    Record
        One for each batch and learner, in the order of the learners.

    Examples
    --------
    >>> from driftree.streams import sea
    >>> for record in prequential("dmt", sea(4000)):
    ...     print(record.n_rows, round(record.f1, 2), record.n_splits)
    2000 0.87 1
    3000 0.89 1
    4000 0.87 1
    """
    evaluation = Evaluation(
        model, delay=delay, pretrain=pretrain, step_rows=step_rows, classes=classes, text=text
    )
    if checkpointer is not None:
        yield from _resume(evaluation, stream, checkpointer)
        return
    for X, y in stream:
        yield from evaluation.take(X, y)


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
    """A prequential evaluation between two batches; it can be pickled, and continues where it was.

    Parameters
    ----------
    model, delay, pretrain, step_rows, classes, text
        As in `prequential`.

    Attributes
    ----------
    learners : dict
        Names to learners.
    n_rows : int
        Rows of the stream that were taken.
    step : int
        Number of the next batch.
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
    ) -> None:
        if delay < 0:
            raise ValueError(f"delay must be at least 0 rows, got {delay}")
        if step_rows is not None and step_rows < 1:
            raise ValueError(f"step_rows must be at least 1, got {step_rows}")
        if isinstance(text, str):
            raise TypeError(f"text must hold names of columns: write [{text!r}]")
        self.learners = _name_learners(model, of_text=bool(text))
        if not self.learners:
            raise ValueError("there is no learner to evaluate")
        self.delay = delay
        self.pretrain = pretrain
        self.step_rows = step_rows
        self.classes = None if classes is None else list(classes)
        self.text = tuple(text)
        self.n_rows = 0
        self.step = 0 if pretrain else 1
        self._faces = {
            name: _choose_face(learner, by_row=step_rows == 1, of_text=bool(text))
            for name, learner in self.learners.items()
        }
        self._codes: dict[Hashable, int] = {}
        self._pending: deque[Rows] = deque()
        self._n_pending = 0
        self._n_features = 0
        self._words: set[Hashable] = set()

    def _read(self, X: Any, y: Any) -> Rows:
        """Return rows of the stream as the learners get them."""
        return Rows(X, y, self.text)

    def take(self, X: Any, y: Any) -> list[Record]:
        """Test, then train, on the next batch; return a record for each learner."""
        batch = self._read(X, y)
        if len(batch) == 0:
            return []
        self._check_labels(batch)
        is_tested = self.step > 0
        self._n_features = max(self._n_features, self._count_features(batch))
        self.n_rows += len(batch)
        tests = {name: _Test() for name in self.learners}
        if is_tested and self._goes_row_by_row:
            truth = self._encode(batch.labels)
            for name, face in self._faces.items():
                tests[name].go(face, batch, truth, self._codes)
        else:
            self._take_parts(batch, tests, is_tested=is_tested)
        records = [self._record(name, test) for name, test in tests.items()] if is_tested else []
        self.step += 1
        return records

    def _count_features(self, batch: Rows) -> int:
        """Count the features; words so far only for learners that do not know it themselves."""
        if not self.text or all(hasattr(type(one), "n_splits_") for one in self.learners.values()):
            return len(batch.names)
        self._words.update(*batch.dicts)
        return len(self._words)

    @property
    def _goes_row_by_row(self) -> bool:
        """Whether each row is learnt at once, so that learners need not wait for each other."""
        are_rivers = all(isinstance(face, _RowFace) for face in self._faces.values())
        return self.step_rows == 1 and self.delay == 0 and are_rivers

    def _check_labels(self, batch: Rows) -> None:
        """Refuse what no classifier can learn, for all learners alike."""
        try:
            check_labels(batch.y)
            distinct_labels(batch.y)
        except ValueError as error:
            first = self.n_rows
            raise ValueError(
                f"the labels of rows {first:,} to {first + len(batch) - 1:,} of the stream (rows "
                f"count from 0): {error}"
            ) from None

    def _take_parts(self, batch: Rows, tests: dict[str, _Test], *, is_tested: bool) -> None:
        """Predict and learn in steps, and learn only what is known by then."""
        size = (self.step_rows or len(batch)) if is_tested else len(batch)
        if size < len(batch):
            for face in self._faces.values():
                face.prepare(batch)  # at once, rather than part by part
        for start in range(0, len(batch), size):
            part = batch if size >= len(batch) else batch[start : start + size]
            truth = self._encode(part.labels)
            if is_tested:
                for name, face in self._faces.items():
                    tests[name].predict(face, part, truth, self._codes)
            self._pending.append(part)
            self._n_pending += len(part)
            for released in self._release(self.delay if is_tested else 0):
                for name, face in self._faces.items():
                    tests[name].learn(face, released, self.classes)

    def _encode(self, labels: list[Hashable]) -> NDArray[np.intp]:
        for label in labels:
            self._codes.setdefault(label, len(self._codes))
        return np.fromiter(map(self._codes.__getitem__, labels), np.intp, len(labels))

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
        n_classes = len(self._codes if self.classes is None else {*self.classes, *self._codes})
        size = measure_size(model, self._n_features, n_classes)
        scores = test.score()
        is_due = self.step & (self.step - 1) == 0  # 1, 2, 4, 8, ...
        return Record(
            learner=name,
            step=self.step,
            n_rows=self.n_rows,
            **scores._asdict(),
            n_splits=size and size.n_splits,
            n_parameters=size and size.n_parameters,
            n_nodes=size and size.n_nodes,
            depth=size and size.depth,
            predict_seconds=test.predict_seconds,
            learn_seconds=test.learn_seconds,
            memory=measure_memory(model) if is_due or hasattr(model, "memory_usage") else None,
        )


class _Test:
    """What one learner did with one batch."""

    def __init__(self) -> None:
        self.truth: list[NDArray[np.intp]] = []
        self.predicted: list[NDArray[np.intp]] = []
        self.probability: list[NDArray[np.float64]] = []
        self.predict_seconds = 0.0
        self.learn_seconds = 0.0

    def predict(
        self, face: _Face, rows: Rows, truth: NDArray[np.intp], codes: Mapping[Hashable, int]
    ) -> None:
        face.prepare(rows)
        start = time.thread_time()
        answer = face.predict(rows)
        self.predict_seconds += time.thread_time() - start
        self._keep(face, answer, rows, truth, codes)

    def go(
        self, face: _Face, rows: Rows, truth: NDArray[np.intp], codes: Mapping[Hashable, int]
    ) -> None:
        """Predict, then learn, row by row."""
        model, answer = face.model, []
        now = time.thread_time
        start = now()
        for x, label in zip(rows.dicts, rows.labels, strict=True):
            answer.append(model.predict_proba_one(x))
            middle = now()
            model.learn_one(x, label)
            end = now()
            self.predict_seconds += middle - start
            self.learn_seconds += end - middle
            start = end
        self._keep(face, answer, rows, truth, codes)

    def _keep(
        self,
        face: _Face,
        answer: Any,
        rows: Rows,
        truth: NDArray[np.intp],
        codes: Mapping[Hashable, int],
    ) -> None:
        predicted, probability = face.read(answer, rows, codes)
        self.truth.append(truth)
        self.predicted.append(predicted)
        if probability is not None:
            self.probability.append(probability)

    def learn(self, face: _Face, rows: Rows, classes: list[Hashable] | None) -> None:
        face.prepare(rows)
        start = time.thread_time()
        face.learn(rows, classes)
        self.learn_seconds += time.thread_time() - start

    def score(self) -> Scores:
        probability = np.concatenate(self.probability) if self.probability else None
        return score(np.concatenate(self.truth), np.concatenate(self.predicted), probability)


# ---------------------------------------------------------------------- faces
class _Face(ABC):
    """How to speak to a learner; only `predict` and `learn` are on the clock."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @abstractmethod
    def prepare(self, rows: Rows) -> None:
        """Bring rows into the learner's form."""

    @abstractmethod
    def predict(self, rows: Rows) -> Any:
        """Return the learner's answer as it comes."""

    @abstractmethod
    def read(
        self, answer: Any, rows: Rows, codes: Mapping[Hashable, int]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
        """Return the codes of the predicted labels, and the true labels' probabilities."""

    @abstractmethod
    def learn(self, rows: Rows, classes: list[Hashable] | None) -> None:
        """Let the learner learn."""


class _BatchFace(_Face):
    """scikit-learn's: `partial_fit`, `predict_proba` or `predict`; River's for other columns."""

    names: list[Hashable] | None = None  # of the first batch

    def prepare(self, rows: Rows) -> None:
        if self.names is None:
            self.names = rows.names

    def _other_columns(self, rows: Rows) -> Mapping[Hashable, Any] | None:
        """Return the columns if they are not those of the first batch, and the model allows it."""
        is_array = isinstance(rows.X, np.ndarray)  # whose columns have no names to come and go by
        if is_array or rows.names == self.names or not hasattr(self.model, "learn_many"):
            return None
        if isinstance(rows.X, Mapping):
            return rows.X
        return dict(nw.from_native(rows.X, eager_only=True).to_dict(as_series=False))

    def predict(self, rows: Rows) -> Any:
        columns = self._other_columns(rows)
        if columns is not None:
            return np.column_stack(list(self.model.predict_proba_many(columns).values()))
        try:
            if hasattr(self.model, "predict_proba"):
                return self.model.predict_proba(rows.X)
            return self.model.predict(rows.X)
        except NotFittedError:
            return None

    def read(
        self, answer: Any, rows: Rows, codes: Mapping[Hashable, int]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
        if answer is None:
            return np.full(len(rows), -1), np.full(len(rows), 1 / len(codes))
        if np.ndim(answer) == 1:
            return _look_up(codes, np.asarray(answer).tolist()), None
        classes = self.model.classes_.tolist()
        predicted = _look_up(codes, classes)[np.argmax(answer, axis=1)]
        places = _look_up({label: i for i, label in enumerate(classes)}, rows.labels)
        probability = np.where(places >= 0, answer[np.arange(len(rows)), places], 0.0)
        return predicted, probability

    def learn(self, rows: Rows, classes: list[Hashable] | None) -> None:
        columns = self._other_columns(rows)
        if columns is not None:
            self.model.learn_many(columns, rows.y)
        elif classes is None:
            self.model.partial_fit(rows.X, rows.y)
        else:
            self.model.partial_fit(rows.X, rows.y, classes=classes)


class _RowFace(_Face):
    """River's: `learn_one`, `predict_proba_one`."""

    def prepare(self, rows: Rows) -> None:
        rows.dicts  # noqa: B018 (made once, for all learners)

    def predict(self, rows: Rows) -> Any:
        return [self.model.predict_proba_one(x) for x in rows.dicts]

    def read(
        self, answer: Any, rows: Rows, codes: Mapping[Hashable, int]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
        predicted = [max(proba, key=proba.__getitem__) if proba else _NOTHING for proba in answer]
        probability = np.empty(len(rows))
        for i, (proba, label) in enumerate(zip(answer, rows.labels, strict=True)):
            total = sum(proba.values())
            probability[i] = proba.get(label, 0.0) / total if total > 0 else 1 / len(codes)
        return _look_up(codes, predicted), probability

    def learn(self, rows: Rows, classes: list[Hashable] | None) -> None:
        learn = self.model.learn_one
        for x, label in zip(rows.dicts, rows.labels, strict=True):
            learn(x, label)


_NOTHING = object()  # the label of a row for which a learner has no answer


def _look_up(codes: Mapping[Any, int], labels: Iterable[Any]) -> NDArray[np.intp]:
    return np.array([codes.get(label, -1) for label in labels], dtype=np.intp)


def _choose_face(model: Any, *, by_row: bool, of_text: bool) -> _Face:
    takes_batches = hasattr(model, "partial_fit") and not of_text
    if hasattr(model, "learn_one") and (by_row or not takes_batches):
        return _RowFace(model)
    if of_text:
        raise TypeError(f"{model!r} cannot learn from words, row by row: it has no learn_one")
    if hasattr(model, "partial_fit"):
        return _BatchFace(model)
    raise TypeError(
        f"{model!r} can be evaluated neither as a River classifier (learn_one) nor as an "
        "estimator of scikit-learn that learns from streams (partial_fit)"
    )


def _name_learners(model: Any, *, of_text: bool) -> dict[str, Any]:
    if isinstance(model, str):
        return {model: make_learner(model, of_text=of_text)}
    if isinstance(model, Mapping) and not hasattr(model, "learn_one"):
        return {
            str(name): make_learner(one, of_text=of_text) if isinstance(one, str) else one
            for name, one in model.items()
        }
    return {type(model).__name__: model}
