"""Faces: how to speak to a learner, in batches as scikit-learn does, or by rows as River does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.exceptions import NotFittedError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from driftree.evaluate.grading import Answer, Grader
    from driftree.streams.rows import Rows


class Face(ABC):
    """How to speak to a learner; only `predict` and `learn` are on the clock."""

    def __init__(self, model: Any, grader: Grader) -> None:
        self.model = model
        self.grader = grader

    @abstractmethod
    def prepare(self, rows: Rows) -> None:
        """Bring rows into the learner's form."""

    @abstractmethod
    def predict(self, rows: Rows) -> Any:
        """Return the learner's answer as it comes."""

    @abstractmethod
    def read(self, answer: Any, rows: Rows) -> Answer:
        """Return what the answer says."""

    @abstractmethod
    def learn(self, rows: Rows) -> None:
        """Let the learner learn."""


class BatchFace(Face):
    """scikit-learn's: `partial_fit`, `predict_proba` or `predict`; River's for other columns."""

    names: list[Hashable] | None = None  # of the first batch

    def prepare(self, rows: Rows) -> None:
        """Note the columns."""
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
        """Ask for all rows; None if the learner has not learnt anything."""
        columns = self._other_columns(rows)
        if columns is not None:
            return self.grader.ask_many(self.model, columns)
        try:
            return self.grader.ask(self.model, rows.X)
        except NotFittedError:
            return None

    def read(self, answer: Any, rows: Rows) -> Answer:
        """Read an answer for all rows."""
        return self.grader.read(self.model, answer, rows)

    def learn(self, rows: Rows) -> None:
        """Learn all rows."""
        columns = self._other_columns(rows)
        if columns is not None:
            self.model.learn_many(columns, rows.y)
        else:
            self.model.partial_fit(rows.X, rows.y, **self.grader.sample)


class RowFace(Face):
    """River's: `learn_one`, `predict_proba_one` or `predict_one`."""

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
    """Return how to speak to a learner.

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
        raise TypeError(f"{model!r} cannot learn from words, row by row: it has no learn_one")
    if hasattr(model, "partial_fit"):
        return BatchFace(model, grader)
    kind = "classifier" if grader.task == "classification" else "regressor"
    raise TypeError(
        f"{model!r} can be evaluated neither as a River {kind} (learn_one) nor as an "
        "estimator of scikit-learn that learns from streams (partial_fit)"
    )
