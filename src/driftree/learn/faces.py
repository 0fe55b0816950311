"""Faces: what scikit-learn and River see of every stream classifier of this library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from river.base import MiniBatchClassifier
from river.utils import dataframe
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from driftree.learn._kernels import LEARNED
from driftree.learn.state import LearntState, undisturbed
from driftree.learn.tables import Columns, check_rows, read_frame
from driftree.learn.validation import check_labels, check_weights, to_labels

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from driftree.learn.tables import Frame


class StreamClassifier(LearntState, ClassifierMixin, BaseEstimator, MiniBatchClassifier):
    """The faces of scikit-learn and River over a tree and an encoder (`LearntState`)."""

    # ------------------------------------------------------------------ scikit-learn: learning
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._tree is not None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows in their order.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            Numbers, text or truth values; None and NaN are missing.
        y : array of shape (n_rows,)
            Labels of any hashable type.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice, weight 0 is no row.

        Returns
        -------
        self
            If anything in the input is wrong, an error is raised and the model is what it was
            before.
        """
        step_rows = self._fit_step_rows()
        with self._learning(), self._all_or_nothing():
            return self._learn_rows(
                X, y, sample_weight, is_first=True, afresh=True, step_rows=step_rows
            )

    @staticmethod
    def _fit_step_rows() -> int | None:
        """Return how many rows `fit` learns at a time; None is all of them."""
        return None

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
            Labels to expect. Others may still come later.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice, weight 0 is no row.

        Returns
        -------
        self
            If anything in the input is wrong, an error is raised and the model is what it was
            before.
        """
        with self._learning():
            if classes is None and sample_weight is None and self._learn_ready(X, y):
                return self
            if self._tree is not None and "n_features_in_" in self.__dict__:
                return self._learn_rows(X, y, sample_weight, classes)
            with self._all_or_nothing():
                return self._learn_rows(X, y, sample_weight, classes, is_first=True)

    def _learn_rows(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None = None,
        *,
        is_first: bool = False,
        afresh: bool = False,
        step_rows: int | None = None,
    ) -> Self:
        labels = check_labels(y)
        if not is_first and len(labels) == 0 and np.shape(X)[:1] == (0,):
            return self
        rows, names = check_rows(X, self, is_first=is_first)
        self._learn_checked(
            rows,
            names,
            labels,
            sample_weight,
            expected=None if classes is None else to_labels(classes, "classes"),
            is_first=is_first,
            afresh=afresh,
            step_rows=step_rows,
        )
        return self

    # ------------------------------------------------------------------ scikit-learn: predicting
    def _matrix(self, X: Any) -> NDArray[np.float64]:
        if self._is_ready(X, self._tree):
            return X  # type: ignore[no-any-return]
        check_is_fitted(self)
        assert self._encoder is not None
        rows, names = check_rows(X, self, is_first=False)
        return self._encoder.read(rows, names, learning=False).matrix

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        tree = self._tree
        if tree is not None and self._is_ready(X, tree):
            codes = tree.engine.most_probable(X)
            return np.asarray(tree.encoder.classes[codes])
        return self._read_and_predict(X)

    @undisturbed
    def _read_and_predict(self, X: Any) -> NDArray[Any]:
        matrix = self._matrix(X)
        assert self._tree is not None
        return np.asarray(self.classes_[self._tree.engine.most_probable(matrix)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label (in the order of `classes_`) for each row."""
        tree = self._tree
        if tree is not None and self._is_ready(X, tree):
            return tree.engine.probabilities(X)
        return self._read_and_predict_proba(X)

    @undisturbed
    def _read_and_predict_proba(self, X: Any) -> NDArray[np.float64]:
        matrix = self._matrix(X)
        assert self._tree is not None
        return self._tree.engine.probabilities(matrix)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @undisturbed
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]` (two classes) or one logit per label."""
        matrix = self._matrix(X)
        assert self._tree is not None
        engine = self._tree.engine
        logits = engine.logits(matrix)
        return logits if engine.n_outputs > 1 else logits[:, 0]

    @undisturbed
    def apply(self, X: Any) -> NDArray[np.int32]:
        """Return the id of the leaf that each row reaches."""
        matrix = self._matrix(X)
        assert self._tree is not None
        return self._tree.engine.leaves(matrix)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, in the order of the columns of `predict_proba`."""
        classes: NDArray[Any] = self._fitted.encoder.classes
        return classes

    # ------------------------------------------------------------------ River: rows
    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent, None or NaN is missing.
        y : hashable
            The label.
        w : float, default=1.0
            Weight; 2 is a batch of the row twice, 0 is no row.
        """
        tree = self._tree
        if tree is not None and w == 1.0 and tree.encoder.row_face.learn(x, y, tree) == LEARNED:
            return
        weights = check_weights([w], 1)
        with self._learning():
            parts = self._parts()
            if w > 0:  # something in the row is new, wrong or weighted
                batch = parts[1].read_dict(x, learning=True)
                self._learn(parts, batch, parts[1].read_labels([y]), weights)

    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:  # type: ignore[override]
        """Return the most probable label of one row, or None before anything was learnt."""
        tree = self._tree
        if tree is None:
            return None
        label = tree.encoder.row_face.predict(x)
        if label is NotImplemented:  # something in the row is new or wrong
            proba = self.predict_proba_one(x)
            return max(proba, key=proba.__getitem__)
        return label

    def predict_proba_one(  # type: ignore[override]
        self, x: Mapping[Hashable, Any]
    ) -> dict[Any, float]:
        """Return the probability of each label for one row; empty before anything was learnt."""
        tree = self._tree
        if tree is None:
            return {}
        known: dict[Any, float] | None = tree.encoder.row_face.probabilities(x)
        if known is not None:
            return known
        with tree.engine.reading():
            matrix = tree.encoder.read_dict(x, learning=False).matrix
            proba = tree.engine.probabilities(matrix)[0]
            return dict(zip(tree.encoder.label_list, proba.tolist(), strict=True))

    # ------------------------------------------------------------------ River: frames
    def learn_many(self, X: Any, y: Any, w: ArrayLike | None = None) -> None:
        """Learn a data frame (pandas, polars, pyarrow, ...); its columns may come and go.

        Parameters
        ----------
        X : data frame or dict of columns
            Columns are known by name, in any order.
        y : series or sequence
            Labels of any hashable type.
        w : sequence of float, optional
            Weight 2 is the row twice, weight 0 is no row.
        """
        with self._learning():
            self._learn_checked(read_frame(X), None, to_labels(y), w)

    @undisturbed
    def predict_many(self, X: Any) -> Any:
        """Return the labels as a series of the same kind as the frame; of a dict, as an array."""
        frame, proba = self._proba_many(X)
        if isinstance(frame, Columns):
            nothing = np.full(len(frame), None)
            return nothing if self._encoder is None else self.classes_[proba.argmax(axis=1)]
        if self._encoder is None:
            return dataframe.to_native_series([None] * len(frame), name=None, like=frame)
        labels = self._encoder.label_list
        if not frame.implementation.is_pandas_like() and len(set(map(type, labels))) > 1:
            raise TypeError(
                f"labels of several types ({labels[:8]!r}, ...) fit into no column of {type(X)!r}: "
                "give a pandas data frame, or use predict_one or predict"
            )
        chosen = [labels[code] for code in proba.argmax(axis=1)]
        return dataframe.to_native_series(chosen, name=None, like=frame)

    @undisturbed
    def predict_proba_many(self, X: Any) -> Any:
        """Return the probabilities as a frame of the same kind, one column per label.

        Only pandas and dicts have columns whose names are not text; elsewhere the names are
        `str(label)`.
        """
        frame, proba = self._proba_many(X)
        labels = [] if self._encoder is None else self._encoder.label_list
        columns = dict(zip(labels, proba.T, strict=True))
        if isinstance(frame, Columns):
            return columns
        return dataframe.to_native_frame(columns, like=frame)

    def _proba_many(self, X: Any) -> tuple[Frame, NDArray[np.float64]]:
        frame = read_frame(X)
        if self._tree is None or self._encoder is None:
            return frame, np.empty((len(frame), 0))
        matrix = self._encoder.read(frame, learning=False).matrix
        return frame, self._tree.engine.probabilities(matrix)

    # ------------------------------------------------------------------ River: checking
    @property
    def _multiclass(self) -> bool:
        return True
