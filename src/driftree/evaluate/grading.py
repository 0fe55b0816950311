"""Grading: what a learner is asked, how its answer is read, and how it is scored.

Labels and numbers differ in nothing else: what `prequential` does is the same for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from river import base
from sklearn.base import is_classifier, is_regressor

from driftree.evaluate.scores import Calibration, NumberScores, Scores, score, score_numbers
from driftree.evaluate.size import unwrapped
from driftree.learn.faces import StreamClassifier
from driftree.learn.imbalance import decide
from driftree.learn.target import check_labels, check_numbers, distinct_labels
from driftree.streams.stream import check_task

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn.imbalance import Cut
    from driftree.streams.rows import Rows
    from driftree.streams.stream import Task


class Answer(NamedTuple):
    """What a learner said of some rows: codes of labels or numbers, and how sure it was.

    `probability` is that of each row's true label, `confidence` that of the predicted one; None if
    the learner does not say it.
    """

    predicted: NDArray[Any]
    probability: NDArray[np.float64] | None = None
    confidence: NDArray[np.float64] | None = None


class Grader(ABC):
    """How learners of one task are asked and scored; it remembers what the stream has shown."""

    task: Task
    sample: dict[str, Any]  # what `partial_fit` gets beside the rows

    @abstractmethod
    def check(self, y: NDArray[Any]) -> None:
        """Raise if no learner could learn this."""

    @abstractmethod
    def truth(self, rows: Rows) -> NDArray[Any]:
        """Return the targets of the next rows of the stream."""

    @abstractmethod
    def ask(self, model: Any, X: Any) -> Any:
        """Return what scikit-learn's face of a learner says."""

    @abstractmethod
    def ask_many(self, model: Any, columns: Mapping[Hashable, Any]) -> Any:
        """Return what River's face says of many rows."""

    @abstractmethod
    def asker(self, model: Any) -> Any:
        """Return the method that says something of one row."""

    @abstractmethod
    def read(self, model: Any, answer: Any, rows: Rows) -> Answer:
        """Read what `ask` or `ask_many` returned, None if the learner had not learnt anything."""

    @abstractmethod
    def read_each(self, answers: list[Any], rows: Rows) -> Answer:
        """Read what the asker returned for each row."""

    @abstractmethod
    def score(
        self, learner: str, truth: list[NDArray[Any]], answers: list[Answer]
    ) -> Scores | NumberScores:
        """Score the parts of a learner's batch."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Labels that are known; 1 if the target is a number."""

    @abstractmethod
    def knowledge(self) -> dict[str, Any]:
        """Return what to keep in a checkpoint."""

    @abstractmethod
    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Take over what another one knew."""


def new_grader(task: Task, classes: Sequence[Hashable] | None) -> Grader:
    """Return a grader that knows nothing.

    Examples
    --------
    >>> new_grader("regression", classes=None).n_classes
    1
    """
    if check_task(task) == "classification":
        return LabelGrader(classes)
    if classes is not None:
        raise ValueError("classes are for classification: leave them out where y is a number")
    return NumberGrader()


# ---------------------------------------------------------------------- labels
class LabelGrader(Grader):
    """Labels, by codes in the order of their appearance."""

    task = "classification"

    def __init__(self, classes: Sequence[Hashable] | None = None) -> None:
        self.codes: dict[Hashable, int] = {}
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

    def ask_many(self, model: Any, columns: Mapping[Hashable, Any]) -> Any:
        """Return probabilities, a column for each label."""
        return np.column_stack(list(model.predict_proba_many(columns).values()))

    def asker(self, model: Any) -> Any:
        """Return `predict_proba_one`; with a threshold it says what that was."""
        if getattr(unwrapped(model), "threshold", None) is None:
            return model.predict_proba_one
        return lambda x: _Decided(model.predict_proba_one(x), _cut_of(model))

    def read(self, model: Any, answer: Any, rows: Rows) -> Answer:
        """Return the predicted labels; without an answer all known ones are as probable."""
        if answer is None:
            by_chance = np.full(len(rows), 1 / len(self.codes))
            return Answer(np.full(len(rows), -1), by_chance, by_chance)
        if np.ndim(answer) == 1:
            return Answer(_look_up(self.codes, np.asarray(answer).tolist()))
        classes = model.classes_.tolist()
        codes = decide(answer, _cut_of(model))
        predicted = _look_up(self.codes, classes)[codes]
        places = _look_up({label: i for i, label in enumerate(classes)}, rows.labels)
        probability = np.where(places >= 0, answer[np.arange(len(rows)), places], 0.0)
        return Answer(predicted, probability, answer[np.arange(len(rows)), codes])

    def read_each(self, answers: list[Any], rows: Rows) -> Answer:
        """Return the predicted labels, of probabilities that need not sum to 1."""
        predicted = [_predicted(proba) if proba else _NOTHING for proba in answers]
        probability, confidence = np.full((2, len(rows)), 1 / len(self.codes))
        for i, (proba, label) in enumerate(zip(answers, rows.labels, strict=True)):
            total = sum(proba.values())
            if total > 0:
                probability[i] = proba.get(label, 0.0) / total
                confidence[i] = proba[predicted[i]] / total
        return Answer(_look_up(self.codes, predicted), probability, confidence)

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
        """Labels that were seen or announced."""
        return len(self.codes if self.classes is None else {*self.classes, *self.codes})

    def knowledge(self) -> dict[str, Any]:
        """Return the labels in the order of their codes, and how honest the learners are."""
        honesty = {
            name: [one.n_rows, *one.gaps.tolist()] for name, one in self.calibrations.items()
        }
        return {"labels": list(self.codes), "calibrations": honesty}

    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Take over both."""
        self.codes = {label: code for code, label in enumerate(knowledge["labels"])}
        for name, (n_rows, *gaps) in knowledge.get("calibrations", {}).items():
            calibration = self.calibrations[name] = Calibration()
            calibration.n_rows, calibration.gaps = int(n_rows), np.array(gaps)


class _Decided(dict[Any, float]):
    """Probabilities, and the threshold at that time."""

    def __init__(self, proba: Mapping[Any, float], cut: Cut | None) -> None:
        super().__init__(proba)
        self.cut = cut


def _cut_of(model: Any) -> Cut | None:
    """Return the threshold of one of our models, also behind River's transformers."""
    inner = unwrapped(model)
    tree = inner._tree if isinstance(inner, StreamClassifier) else None
    return None if tree is None else tree.target.cut


def _predicted(proba: Mapping[Any, float]) -> Any:
    if isinstance(proba, _Decided):
        return [*proba][int(decide(np.array([[*proba.values()]]), proba.cut)[0])]
    return max(proba, key=proba.__getitem__)


_NOTHING = object()  # the label of a row for which a learner has no answer


def _look_up(codes: Mapping[Any, int], labels: Iterable[Any]) -> NDArray[np.intp]:
    return np.array([codes.get(label, -1) for label in labels], dtype=np.intp)


# ---------------------------------------------------------------------- numbers
class NumberGrader(Grader):
    """Numbers, and their mean so far. Who has learnt nothing has predicted 0, as in River."""

    task = "regression"
    n_classes = 1

    def __init__(self) -> None:
        self.n_rows = 0
        self.mean = 0.0
        self.sample = {}

    def check(self, y: NDArray[Any]) -> None:
        """Refuse what is no number."""
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

    def ask_many(self, model: Any, columns: Mapping[Hashable, Any]) -> Any:
        """Return predictions."""
        return model.predict_many(columns)

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
        """Return the mean and what it is of."""
        return {"targets": {"n_rows": self.n_rows, "mean": self.mean}}

    def restore(self, knowledge: Mapping[str, Any]) -> None:
        """Take over the mean."""
        self.n_rows, self.mean = (knowledge["targets"][name] for name in ("n_rows", "mean"))


# ---------------------------------------------------------------------- which of the two
def task_of(learners: Mapping[str, Any], task: Task | None) -> Task:
    """Return what learners predict, labels or numbers; names do not say it.

    Parameters
    ----------
    learners : mapping
        Names to learners, or to their names.
    task : str, optional
        What the user has said it is.

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
    """Return the task of a learner of River's or scikit-learn's; None if it does not say."""
    if hasattr(model, "learn_one"):
        inner = unwrapped(model)
        if isinstance(inner, base.Regressor):
            return "regression"
        return "classification" if isinstance(inner, base.Classifier) else None
    try:
        if is_regressor(model):
            return "regression"
        return "classification" if is_classifier(model) else None
    except AttributeError:  # not scikit-learn's: it only looks like it
        return None
