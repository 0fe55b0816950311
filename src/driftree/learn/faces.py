"""Faces: the scikit-learn and River interfaces of every stream classifier and regressor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from river.base import MiniBatchClassifier, MiniBatchRegressor
from river.utils import dataframe
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from driftree.learn.estimator import StreamEstimator
from driftree.learn.imbalance import decide_one
from driftree.learn.losses import has_log_link
from driftree.learn.state import undisturbed
from driftree.learn.tables import Columns, read_frame
from driftree.learn.target import Labels

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import ArrayLike, NDArray


class StreamClassifier(StreamEstimator, ClassifierMixin, BaseEstimator, MiniBatchClassifier):
    """The interfaces of scikit-learn and River to a tree that predicts labels."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = getattr(self, "threshold", None) is None
        return tags

    # ------------------------------------------------------------------ scikit-learn
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn a batch.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            The same features in every call; use `learn_many` or `learn_one` when features come and
            go.
        y : array of shape (n_rows,)
            Labels of any hashable type.
        classes : array, optional
            Labels to expect. Others may still appear later.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 counts the row twice, weight 0 leaves it out.

        Returns
        -------
        self
            If anything in the input is wrong, an error is raised and the model is unchanged.
        """
        return self._learn_batch(X, y, sample_weight, classes)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, in the order of the columns of `predict_proba`."""
        return self._labels.classes

    @property
    def threshold_(self) -> float | None:
        """The present decision threshold of the positive label; None without one."""
        known = self._labels.imbalance
        return None if known is None or known.threshold is None else known.threshold.probability

    @property
    def _labels(self) -> Labels:
        target = self._fitted.target
        assert isinstance(target, Labels)
        return target

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row, or the one chosen by the threshold."""
        tree = self._manned_tree
        if tree is not None and (matrix := self._ready(X, tree)) is not None:
            return tree.target.predict(matrix)
        return self._read_and_predict(X)

    @undisturbed
    def _read_and_predict(self, X: Any) -> NDArray[Any]:
        batch = self._encoded(X)
        return self._fitted.target.predict(*batch.rows)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label (in the order of `classes_`) for each row."""
        tree = self._manned_tree
        if tree is not None and (matrix := self._ready(X, tree)) is not None:
            return tree.engine.probabilities(matrix)
        return self._read_and_predict_proba(X)

    @undisturbed
    def _read_and_predict_proba(self, X: Any) -> NDArray[np.float64]:
        batch = self._encoded(X)
        return self._fitted.engine.probabilities(*batch.rows)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @undisturbed
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]` (two classes) or one logit per label."""
        batch = self._encoded(X)
        engine = self._fitted.engine
        logits = engine.logits(*batch.rows)
        return logits if engine.n_outputs > 1 else logits[:, 0]

    # ------------------------------------------------------------------ River
    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:  # type: ignore[override]
        """Return the most probable label of one row, or None before anything is learnt."""
        tree = self._tree
        if tree is None:
            return None
        known = tree.target.imbalance
        if known is None or known.threshold is None:
            label = tree.encoder.row_face.predict(x)
            if label is not NotImplemented:  # nothing in the row is new or invalid
                return label
        with tree.engine.reading():
            return decide_one(self.predict_proba_one(x), tree.target.cut)

    def predict_proba_one(  # type: ignore[override]
        self, x: Mapping[Hashable, Any]
    ) -> dict[Any, float]:
        """Return the probability of each label for one row; empty before anything is learnt."""
        tree = self._tree
        if tree is None:
            return {}
        known: dict[Any, float] | None = tree.encoder.row_face.probabilities(x)
        if known is not None:
            return known
        with tree.engine.reading():
            return self._labels.probabilities_of(*tree.encoder.read_dict(x, learning=False).rows)

    @undisturbed
    def predict_many(self, X: Any) -> Any:
        """Return the labels as a series of the frame's library; for a dict, as an array."""
        frame, tree = read_frame(X), self._manned_tree
        if tree is not None:
            return tree.target.to_column(*self._encoded_by_name(X, frame, tree).rows, frame)
        if isinstance(frame, Columns):
            return np.full(len(frame), None)
        return dataframe.to_native_series([None] * len(frame), name=None, like=frame)

    @undisturbed
    def predict_proba_many(self, X: Any) -> Any:
        """Return the probabilities as a frame of the same library, one column per label.

        Only pandas and dicts allow column names that are not text; otherwise the names are
        `str(label)`.
        """
        frame, tree = read_frame(X), self._manned_tree
        columns: dict[Any, NDArray[np.float64]] = {}
        if tree is not None:
            columns = self._labels.to_columns(*self._encoded_by_name(X, frame, tree).rows)
        if isinstance(frame, Columns):
            return columns
        if not frame.implementation.is_pandas_like() and len(set(map(str, columns))) < len(columns):
            raise TypeError(
                f"labels with the same text ({list(columns)[:8]!r}, ...) cannot name columns of "
                f"{type(frame.to_native())!r}: give a pandas data frame, or use predict_proba_one "
                "or predict_proba"
            )
        return dataframe.to_native_frame(columns, like=frame)

    @property
    def _multiclass(self) -> bool:
        return True


class StreamRegressor(StreamEstimator, RegressorMixin, BaseEstimator, MiniBatchRegressor):
    """The interfaces of scikit-learn and River to a tree that predicts numbers."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = has_log_link(getattr(self, "loss", None))
        return tags

    # ------------------------------------------------------------------ scikit-learn
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn a batch.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            The same features in every call; use `learn_many` or `learn_one` when features come and
            go.
        y : array of shape (n_rows,)
            Numbers.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 counts the row twice, weight 0 leaves it out.

        Returns
        -------
        self
            If anything in the input is wrong, an error is raised and the model is unchanged.
        """
        return self._learn_batch(X, y, sample_weight)

    @undisturbed
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted number of each row."""
        batch = self._encoded(X)
        return self._fitted.target.predict(*batch.rows)

    # ------------------------------------------------------------------ River
    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the prediction for one row; 0 before anything is learnt."""
        tree = self._tree
        if tree is None:
            return 0.0
        number = tree.encoder.row_face.predict(x)
        if number is NotImplemented:  # something in the row is new or invalid
            with tree.engine.reading():
                batch = tree.encoder.read_dict(x, learning=False)
                return float(tree.target.predict(*batch.rows)[0])
        return float(number)

    @undisturbed
    def predict_many(self, X: Any) -> Any:
        """Return the predictions as a series of the frame's library; for a dict, as an array."""
        frame, tree = read_frame(X), self._manned_tree
        if tree is not None:
            return tree.target.to_column(*self._encoded_by_name(X, frame, tree).rows, frame)
        if isinstance(frame, Columns):
            return np.zeros(len(frame))
        return dataframe.to_native_series([0.0] * len(frame), name=None, like=frame)
