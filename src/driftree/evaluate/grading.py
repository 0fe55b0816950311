"""Grading: how a learner is asked for predictions, and how these are read and scored.

Classification and regression differ only in this: `prequential` is the same for both. A learner is
called in batches, as in scikit-learn, or row by row, as in River.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from river import base
from river.metrics.base import ClassificationMetric, Metric, RegressionMetric
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from driftree.evaluate.scores import (
    Calibration,
    NumberScores,
    Scores,
    score,
    score_numbers,
    unwrapped,
)
from driftree.learn.faces import StreamClassifier
from driftree.learn.imbalance import decide, decide_one
from driftree.learn.target import check_labels, check_numbers, distinct_labels
from driftree.streams.stream import check_task

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.learn.imbalance import Cut
    from driftree.streams.rows import Rows
    from driftree.streams.stream import Task


NO_PREDICTION = -1


class Answer(NamedTuple):
    """Predictions of some rows: codes of labels or numbers, with probabilities.

    A row without a prediction has the code -1, a label that no row has had a code below that.
    `probability` is that of each row's true label, `confidence` that of the predicted one; None if
    the learner has no probabilities.
    """

    predicted: NDArray[Any]
    probability: NDArray[np.float64] | None = None
    confidence: NDArray[np.float64] | None = None


class Grader(ABC):
    """How learners of one task are asked and scored; it keeps what is known of the stream."""

    task: Task
    sample: dict[str, Any]  # what `partial_fit` gets besides the rows

    @abstractmethod
    def check(self, y: NDArray[Any]) -> None:
        """Raise if no learner could learn this."""

    @abstractmethod
    def truth(self, rows: Rows) -> NDArray[Any]:
        """Return the targets of the next rows of the stream."""

    @abstractmethod
    def ask(self, model: Any, X: Any) -> Any:
        """Return the predictions of a learner's scikit-learn methods."""

    @abstractmethod
    def ask_many(self, model: Any, rows: Any) -> Any:
        """Return the predictions of River's methods for many rows."""

    @abstractmethod
    def asker(self, model: Any) -> Any:
        """Return the method that predicts one row."""

    @abstractmethod
    def read(self, model: Any, answer: Any, rows: Rows) -> Answer:
        """Read what `ask` or `ask_many` returned; None if nothing was learnt yet."""

    @abstractmethod
    def read_each(self, answers: list[Any], rows: Rows) -> Answer:
        """Read what the asker returned for each row."""

    @abstractmethod
    def score(
        self, learner: str, truth: list[NDArray[Any]], answers: list[Answer]
    ) -> Scores | NumberScores:
        """Score a learner's batch, given in parts."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of known labels; 1 for regression."""

    @abstractmethod
    def knowledge(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""

    @abstractmethod
    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Restore the state of another grader."""


def new_grader(task: Task, classes: Sequence[Hashable] | None) -> Grader:
    """Return a new grader.

    Examples
    --------
    >>> new_grader("regression", classes=None).n_classes
    1
    """
    if check_task(task) == "classification":
        return LabelGrader(classes)
    if classes is not None:
        raise ValueError("classes are for classification: omit them for regression")
    return NumberGrader()


# ---------------------------------------------------------------------- labels
class LabelGrader(Grader):
    """Labels, by codes in the order of their appearance."""

    task = "classification"

    def __init__(self, classes: Sequence[Hashable] | None = None) -> None:
        self.codes: dict[Hashable, int] = {}
        self.others: dict[Hashable, int] = {None: NO_PREDICTION}
        """Codes of predicted labels that no row has had."""
        self.calibrations: dict[str, Calibration] = {}  # by learner
        self.classes = classes
        self.sample = {} if classes is None else {"classes": classes}

    def check(self, y: NDArray[Any]) -> None:
        """Refuse what no classifier can learn, for all learners alike."""
        check_labels(y)
        distinct_labels(y)

    def truth(self, rows: Rows) -> NDArray[np.intp]:
        """Return the codes of the labels; new ones get the next."""
        labels = rows.labels
        for label in labels:
            self.codes.setdefault(label, len(self.codes))
        return np.fromiter(map(self.codes.__getitem__, labels), np.intp, len(labels))

    def ask(self, model: Any, X: Any) -> Any:
        """Return probabilities, or labels from a learner that has none."""
        return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)

    def ask_many(self, model: Any, rows: Any) -> Any:
        """Return probabilities, a column for each label; None if nothing was learnt yet."""
        columns = model.predict_proba_many(rows)
        return np.column_stack(list(columns.values())) if columns else None

    def asker(self, model: Any) -> Any:
        """Return `predict_proba_one`; for a model with a threshold, also the threshold.

        It is `predict_one` if the model has no probabilities.
        """
        inner = unwrapped(model)
        own = getattr(inner, "predict_proba_one", None)
        is_default = getattr(own, "__func__", None) is base.Classifier.predict_proba_one
        if own is None or is_default:  # the default raises
            return model.predict_one
        if getattr(inner, "threshold", None) is None:
            return model.predict_proba_one
        return lambda x: _Decided(model.predict_proba_one(x), _cut_of(model))

    def read(self, model: Any, answer: Any, rows: Rows) -> Answer:
        """Return the predicted labels; without predictions, all known ones are equally probable.

        Probabilities of NaN, of a learner that has diverged, are no prediction.
        """
        by_chance = 1 / len(self.codes)
        if answer is None:
            shares = np.full(len(rows), by_chance)
            return Answer(np.full(len(rows), NO_PREDICTION), shares, shares)
        if np.ndim(answer) == 1:
            return Answer(self._codes_of(np.asarray(answer).tolist()))
        classes = model.classes_.tolist()
        codes = decide(answer, _cut_of(model))
        predicted = self._codes_of(classes)[codes]
        place_of = {label: i for i, label in enumerate(classes)}
        places = np.array([place_of.get(label, -1) for label in rows.labels], dtype=np.intp)
        probability = np.where(places >= 0, answer[np.arange(len(rows)), places], 0.0)
        confidence = answer[np.arange(len(rows)), codes]
        is_known = ~np.isnan(answer).any(axis=1)
        return Answer(
            np.where(is_known, predicted, NO_PREDICTION),
            np.where(is_known, probability, by_chance),
            np.where(is_known, confidence, by_chance),
        )

    def read_each(self, answers: list[Any], rows: Rows) -> Answer:
        """Return the predicted labels, from probabilities if there are any.

        These need not sum to 1.
        """
        if not isinstance(answers[0], Mapping):
            return Answer(self._codes_of(answers))
        predicted = [
            None if not proba or np.isnan(sum(proba.values())) else _predicted(proba)
            for proba in answers
        ]
        probability, confidence = np.full((2, len(rows)), 1 / len(self.codes))
        for i, (proba, label) in enumerate(zip(answers, rows.labels, strict=True)):
            total = sum(proba.values())
            if total > 0:
                probability[i] = proba.get(label, 0.0) / total
                confidence[i] = proba[predicted[i]] / total
        return Answer(self._codes_of(predicted), probability, confidence)

    def _codes_of(self, predicted: Iterable[Any]) -> NDArray[np.intp]:
        """Return the codes of predicted labels."""
        codes = []
        for label in predicted:
            code = self.codes.get(label)
            if code is None:
                code = self.others.setdefault(label, NO_PREDICTION - len(self.others))
            codes.append(code)
        return np.array(codes, dtype=np.intp)

    def score(self, learner: str, truth: list[NDArray[Any]], answers: list[Answer]) -> Scores:
        """Return F1 and others."""
        known = [one.probability for one in answers if one.probability is not None]
        predicted = np.concatenate([one.predicted for one in answers])
        calibration = self.calibrations.setdefault(learner, Calibration())
        for codes, one in zip(truth, answers, strict=True):
            if one.confidence is not None:
                calibration.add(codes == one.predicted, one.confidence)
        probability = np.concatenate(known) if known else None
        return score(np.concatenate(truth), predicted, probability, calibration)

    @property
    def n_classes(self) -> int:
        """Number of labels that were seen or given in `classes`."""
        return len(self.codes if self.classes is None else {*self.classes, *self.codes})

    def knowledge(self) -> dict[str, Any]:
        """Return the labels in the order of their codes, and the learners' calibration."""
        honesty = {
            name: [one.n_rows, *one.gaps.tolist()] for name, one in self.calibrations.items()
        }
        return {"labels": list(self.codes), "calibrations": honesty}

    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Restore both."""
        self.codes = {label: code for code, label in enumerate(knowledge["labels"])}
        for name, (n_rows, *gaps) in knowledge.get("calibrations", {}).items():
            calibration = self.calibrations[name] = Calibration()
            calibration.n_rows, calibration.gaps = int(n_rows), np.array(gaps)


class _Decided(dict[Any, float]):
    """Probabilities, and the threshold in use."""

    def __init__(self, proba: Mapping[Any, float], cut: Cut | None) -> None:
        super().__init__(proba)
        self.cut = cut


def _cut_of(model: Any) -> Cut | None:
    """Return the threshold of one of our models, also at the end of a River pipeline."""
    inner = unwrapped(model)
    tree = inner._tree if isinstance(inner, StreamClassifier) else None
    return None if tree is None else tree.target.cut


def _predicted(proba: Mapping[Any, float]) -> Any:
    return decide_one(proba, proba.cut if isinstance(proba, _Decided) else None)


# ---------------------------------------------------------------------- numbers
class NumberGrader(Grader):
    """Numbers, and their mean so far. A learner that has learnt nothing predicts 0, as in River."""

    task = "regression"
    n_classes = 1

    def __init__(self) -> None:
        self.n_rows = 0
        self.mean = 0.0
        self.sample = {}

    def check(self, y: NDArray[Any]) -> None:
        """Refuse what is not a number."""
        check_numbers(y)

    def truth(self, rows: Rows) -> NDArray[np.float64]:
        """Return the numbers."""
        numbers = check_numbers(rows.y)
        self.n_rows += len(numbers)
        self.mean += float((numbers - self.mean).sum()) / self.n_rows
        return numbers

    def ask(self, model: Any, X: Any) -> Any:
        """Return predictions."""
        return model.predict(X)

    def ask_many(self, model: Any, rows: Any) -> Any:
        """Return predictions."""
        return model.predict_many(rows)

    def asker(self, model: Any) -> Any:
        """Return `predict_one`."""
        return model.predict_one

    def read(self, model: Any, answer: Any, rows: Rows) -> Answer:
        """Return the numbers."""
        if answer is None:
            return Answer(np.zeros(len(rows)))
        return Answer(np.asarray(answer, dtype=np.float64).reshape(len(rows)))

    def read_each(self, answers: list[Any], rows: Rows) -> Answer:
        """Return the numbers."""
        known = (0.0 if number is None else number for number in answers)
        return Answer(np.fromiter(known, np.float64, len(answers)))

    def score(self, learner: str, truth: list[NDArray[Any]], answers: list[Answer]) -> NumberScores:
        """Return MAE and others."""
        predicted = np.concatenate([one.predicted for one in answers])
        return score_numbers(np.concatenate(truth), predicted, self.mean)

    def knowledge(self) -> dict[str, Any]:
        """Return the mean and the number of targets."""
        return {"targets": {"n_rows": self.n_rows, "mean": self.mean}}

    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Restore the mean."""
        self.n_rows, self.mean = (knowledge["targets"][name] for name in ("n_rows", "mean"))


# ---------------------------------------------------------------------- which of the two
def task_of(learners: Mapping[str, Any], task: Task | None) -> Task:
    """Return the task of learners; names alone do not determine it.

    Parameters
    ----------
    learners : mapping
        Names to learners, or to their names.
    task : str, optional
        The task given by the user.

    Examples
    --------
    >>> from river.linear_model import LinearRegression
    >>> task_of({"line": LinearRegression(), "dmt": "dmt"}, None)
    'regression'
    """
    if task is not None:
        check_task(task)
    told = {name: _tell_task(one) for name, one in learners.items() if not isinstance(one, str)}
    known: dict[str, Task] = {name: kind for name, kind in told.items() if kind is not None}
    labels: Task = "classification"
    found: Task = next(iter(known.values()), labels) if task is None else task
    for name, kind in known.items():
        if kind != found:
            raise ValueError(
                f"{name} is for {kind}, but the task is {found}"
                + ("" if task else f", as {next(iter(known))} says")
                + ": evaluate learners of one task at a time"
            )
    return found


def _tell_task(model: Any) -> Task | None:
    """Return the task of a River or scikit-learn learner; None if unknown."""
    if hasattr(model, "learn_one"):
        inner = unwrapped(model)
        if isinstance(inner, base.Regressor):
            return "regression"
        return "classification" if isinstance(inner, base.Classifier) else None
    try:
        if is_regressor(model):
            return "regression"
        return "classification" if is_classifier(model) else None
    except AttributeError:  # not a scikit-learn estimator
        return None


# ---------------------------------------------------------------------- how to speak to a learner
class Face(ABC):
    """How to call a learner; only `predict` and `learn` are timed."""

    def __init__(self, model: Any, grader: Grader) -> None:
        self.model = model
        self.grader = grader

    @abstractmethod
    def prepare(self, rows: Rows) -> None:
        """Convert rows to the learner's input."""

    @abstractmethod
    def predict(self, rows: Rows) -> Any:
        """Return the learner's raw output."""

    @abstractmethod
    def read(self, answer: Any, rows: Rows) -> Answer:
        """Return the predictions in the output."""

    @abstractmethod
    def learn(self, rows: Rows) -> None:
        """Train the learner."""


class BatchFace(Face):
    """scikit-learn: `partial_fit`, `predict_proba` or `predict`; River if columns change."""

    names: list[Hashable] | None = None  # of the first batch

    def prepare(self, rows: Rows) -> None:
        """Note the columns."""
        if self.names is None:
            self.names = rows.names

    def _named_rows(self, rows: Rows) -> Any:
        """Return columns or dicts to be matched by name; None if columns are those of before."""
        is_array = isinstance(rows.X, np.ndarray)  # whose columns have no names
        if is_array or not hasattr(self.model, "learn_many"):
            return None
        if isinstance(rows.X, list):
            return rows.X
        if rows.names == self.names:
            return None
        if isinstance(rows.X, Mapping):
            return rows.X
        return dict(nw.from_native(rows.X, eager_only=True).to_dict(as_series=False))

    def predict(self, rows: Rows) -> Any:
        """Ask for all rows; None if the learner has not learnt anything."""
        named = self._named_rows(rows)
        if named is not None:
            return self.grader.ask_many(self.model, named)
        try:
            return self.grader.ask(self.model, rows.X)
        except NotFittedError:
            return None

    def read(self, answer: Any, rows: Rows) -> Answer:
        """Read an answer for all rows."""
        return self.grader.read(self.model, answer, rows)

    def learn(self, rows: Rows) -> None:
        """Learn all rows."""
        named = self._named_rows(rows)
        if named is not None:
            self.model.learn_many(named, rows.y)
        else:
            self.model.partial_fit(rows.X, rows.y, **self.grader.sample)


class RowFace(Face):
    """River: `learn_one`, `predict_proba_one` or `predict_one`."""

    def prepare(self, rows: Rows) -> None:
        """Make dicts, once for all learners."""
        rows.dicts  # noqa: B018

    def predict(self, rows: Rows) -> Any:
        """Ask for each row."""
        ask = self.grader.asker(self.model)
        return [ask(x) for x in rows.dicts]

    def read(self, answer: Any, rows: Rows) -> Answer:
        """Read the answers for each row."""
        return self.grader.read_each(answer, rows)

    def learn(self, rows: Rows) -> None:
        """Learn each row."""
        learn = self.model.learn_one
        for x, label in zip(rows.dicts, rows.labels, strict=True):
            learn(x, label)


def choose_face(model: Any, grader: Grader, *, by_row: bool, of_text: bool) -> Face:
    """Return how to call a learner.

    Examples
    --------
    >>> from driftree.evaluate.grading import new_grader
    >>> from river.linear_model import LinearRegression
    >>> grader = new_grader("regression", None)
    >>> type(choose_face(LinearRegression(), grader, by_row=False, of_text=False)).__name__
    'RowFace'
    """
    takes_batches = hasattr(model, "partial_fit") and not of_text
    if hasattr(model, "learn_one") and (by_row or not takes_batches):
        return RowFace(model, grader)
    if of_text:
        raise TypeError(f"{model!r} cannot learn from text, which needs learn_one")
    if hasattr(model, "partial_fit"):
        return BatchFace(model, grader)
    kind = "classifier" if grader.task == "classification" else "regressor"
    raise TypeError(
        f"{model!r} is neither a River {kind} (learn_one) nor a scikit-learn estimator for "
        "streams (partial_fit)"
    )


# ---------------------------------------------------------------------- River's metrics
def read_metrics(metrics: Any, learners: Mapping[str, Any]) -> dict[str, list[Metric]]:
    """Return the metrics of each learner.

    Examples
    --------
    >>> from river.metrics import MacroF1
    >>> read_metrics(MacroF1(), {"dmt": None})
    {'dmt': [MacroF1: 0.00%]}
    >>> read_metrics([MacroF1()], {"dmt": None, "efdt": None})
    Traceback (most recent call last):
    ValueError: there are 2 learners, and each needs metrics of its own: give a dict from their
    names (dmt, efdt) to metrics
    """
    if isinstance(metrics, Metric):
        metrics = [metrics]
    if isinstance(metrics, Mapping):
        unknown = metrics.keys() - learners.keys()
        if unknown:
            raise ValueError(f"there is no learner {min(unknown)!r}, only {', '.join(learners)}")
        found = {
            name: [own] if isinstance(own, Metric) else list(own) for name, own in metrics.items()
        }
    elif metrics and len(learners) > 1:
        raise ValueError(
            f"there are {len(learners)} learners, and each needs metrics of its own: give a dict "
            f"from their names ({', '.join(learners)}) to metrics"
        )
    else:
        found = {name: list(metrics) for name in learners} if metrics else {}
    for metric in (one for own in found.values() for one in own):
        if not isinstance(metric, (ClassificationMetric, RegressionMetric)):
            raise TypeError(
                f"metrics must be River's, for classification or regression, got {metric!r}"
            )
    return found


def update_metric(
    metric: Any, truth: list[NDArray[Any]], answers: list[Answer], grader: Grader
) -> None:
    """Update a metric with the rows of a batch: labels or, if it needs them, probabilities.

    Rows without a prediction are skipped.
    """
    for targets, answer in zip(truth, answers, strict=True):
        if not isinstance(grader, LabelGrader):
            for y, said in zip(targets.tolist(), answer.predicted.tolist(), strict=True):
                metric.update(y, said)
            continue
        labels = list(grader.codes)
        is_known = answer.predicted != NO_PREDICTION
        codes = targets[is_known].tolist()
        if metric.requires_labels:
            label_of = {code: label for label, code in (grader.codes | grader.others).items()}
            for code, said in zip(codes, answer.predicted[is_known].tolist(), strict=True):
                metric.update(labels[code], label_of[said])
        elif answer.probability is not None:
            for code, share in zip(codes, answer.probability[is_known].tolist(), strict=True):
                metric.update(labels[code], _probabilities(labels, code, share))


def _probabilities(labels: list[Any], code: int, share: float) -> dict[Any, float]:
    """Return the probability of each label, of which only that of the true one is known.

    The others share the rest equally, which is exact for two labels.
    """
    rest = (1 - share) / max(1, len(labels) - 1)
    return {label: share if k == code else rest for k, label in enumerate(labels)}
