"""DynamicModelTreeClassifier: one learner with the faces of scikit-learn and River."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from river.base import MiniBatchClassifier
from river.utils import dataframe
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from driftree.learn._kernels import DUE, LEARNED
from driftree.learn.checks import check_labels, check_rows, check_weights, to_frame, to_labels
from driftree.learn.evidence import MeasuredTrials
from driftree.learn.state import LearntState

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray


class DynamicModelTreeClassifier(LearntState, ClassifierMixin, BaseEstimator, MiniBatchClassifier):
    """Shallow decision tree with a linear model in every node, for streams that change.

    It learns row by row or batch by batch. A leaf is split, a split replaced and a branch pruned
    only when the measured loss says so, and every such change is recorded with its reason in
    `events_`. Inputs are taken as they come: numbers of any scale, text and truth values as
    categories, missing values, new features and new labels at any time.

    `DynamicModelTreeClassifier()` is our setting: second-order simple models on inputs scaled
    online, and gains measured by trials. `DynamicModelTreeClassifier.paper()` is the paper's:
    gradient descent and gains approximated by the gradient.

    Parameters
    ----------
    epsilon : float, default=1e-14
        The risk of a change that was only luck. Smaller: fewer splits, later.
    evidence_window : float, default=20000
        Rows of the stream that evidence for or against a split remembers. Larger: surer decisions,
        slower to forget.
    memory : float, default=1000
        Rows that the simple models remember (at least 20 per input). Smaller: follows drift faster,
        noisier weights.
    categorical : sequence of names or positions, default=None
        Features whose values are categories although they look like numbers. Text, truth values and
        categorical columns of data frames are found by themselves. A position counts the columns of
        the array or frame, or the keys of the first row, that shows the feature.
    max_nodes : int, default=255
        Hard cap on the number of nodes.
    max_depth : int, default=20
        Hard cap on the depth; 0 is a single linear model.
    bins : int, default=64
        Thresholds considered per numeric feature and node. Fewer: less memory, coarser splits.
    trials : int, default=3
        Candidate splits that a leaf trains at the same time. One is faster, and finds
        splits later.
    setting : {"measured", "paper"}, default="measured"
        Which of the two settings; see `paper`.
    learning_rate : float, default=0.05
        Paper's setting: step of the simple models' gradient descent.
    gain_step : float or None, default=None
        Paper's setting: lambda in (6) and (7); None is the learning rate. Larger: gains look
        larger, more splits.
    candidates : int, default=3
        Paper's setting: split candidates stored per node and feature.
    replacement_rate : float, default=0.5
        Paper's setting: share of the stored candidates that one step may replace.
    seed : int, default=1
        Order in which the rows of a batch are visited. Same seed, same rows: same tree.

    Attributes
    ----------
    classes_ : ndarray
        Labels, in the order of the columns of `predict_proba`.
    events_ : list of Event
        The last 1,000 changes of the tree, oldest first; `str(event)` says why.
    n_splits_, n_parameters_ : int
        Size as the paper counts it: inner nodes plus one (two classes) or c per leaf; inner nodes
        plus the weights.
    n_nodes_, n_leaves_, depth_, n_rows_seen_ : int
        Nodes, leaves, longest path, rows learnt.

    See Also
    --------
    export_text : The tree as text.

    Notes
    -----
    None, NaN and an absent key are all the same: missing. From the first time that a feature is
    missing the simple models have an input that says so; a split sends such rows to the side that
    suits them, or asks for them itself. Errors leave the model as it was.

    Haug, Broelemann and Kasneci: Dynamic Model Tree for Interpretable Data Stream Learning, ICDE
    2022. Each equation's place in the code, and each deviation with its reason, are in
    docs/algorithm.md.

    Examples
    --------
    An exclusive or is not linear, but one split makes both sides linear:

    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(4000, 2))
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    >>> model = DynamicModelTreeClassifier().partial_fit(X[:3000], y[:3000])
    >>> bool(model.score(X[3000:], y[3000:]) > 0.95), model.n_leaves_
    (True, 2)
    >>> model.learn_one({"x0": 0.3, "x1": -0.2}, True)
    >>> model.predict_one({"x0": 0.3, "x1": -0.2})
    True
    """

    def __init__(
        self,
        *,
        epsilon: float = 1e-14,
        evidence_window: float = 20000,
        memory: float = 1000,
        categorical: Sequence[Hashable] | None = None,
        max_nodes: int = 255,
        max_depth: int = 20,
        bins: int = 64,
        trials: int = 3,
        setting: str = "measured",
        learning_rate: float = 0.05,
        gain_step: float | None = None,
        candidates: int = 3,
        replacement_rate: float = 0.5,
        seed: int = 1,
    ) -> None:
        self.epsilon = epsilon
        self.evidence_window = evidence_window
        self.memory = memory
        self.categorical = categorical
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.bins = bins
        self.trials = trials
        self.setting = setting
        self.learning_rate = learning_rate
        self.gain_step = gain_step
        self.candidates = candidates
        self.replacement_rate = replacement_rate
        self.seed = seed

    @classmethod
    def paper(cls, *, epsilon: float = 1e-7, **parameters: Any) -> Self:
        """Return a learner in the paper's setting, with the paper's defaults.

        Parameters
        ----------
        epsilon : float, default=1e-7
            Threshold of the confidence test (11), the paper's "10e-8".
        **parameters
            Any other parameter of the class.

        Examples
        --------
        >>> DynamicModelTreeClassifier.paper(candidates=5)
        DynamicModelTreeClassifier(candidates=5, epsilon=1e-07, setting='paper')
        """
        return cls(setting="paper", epsilon=epsilon, **parameters)

    # ------------------------------------------------------------------ scikit-learn: learning
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        # At the paper's learning rate one pass over the 300 rows of scikit-learn's check is not
        # enough for its 83 %.
        tags.classifier_tags.poor_score = self.setting == "paper"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._tree is not None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows in their order, in steps of at most 200.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
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
        with self._all_or_nothing():
            self._tree = self._encoder = None
            return self._learn_rows(
                X, y, sample_weight, is_first=True, step_rows=MeasuredTrials.STEP_ROWS
            )

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
        X : array or data frame of shape (n_rows, n_features)
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
            expected=to_labels(classes),
            is_first=is_first,
            step_rows=step_rows,
        )
        return self

    # ------------------------------------------------------------------ scikit-learn: predicting
    def _matrix(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        assert self._encoder is not None
        rows, names = check_rows(X, self, is_first=False)
        return self._encoder.read(rows, names, learning=False).matrix

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        codes = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label (in the order of `classes_`) for each row."""
        matrix = self._matrix(X)
        assert self._tree is not None
        return self._tree.engine.probabilities(matrix)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]` (two classes) or one logit per label.

        With a noise floor the zero is moved to where both labels are equally probable, so that the
        sign agrees with `predict`.
        """
        matrix = self._matrix(X)
        assert self._tree is not None
        engine = self._tree.engine
        logits = engine.logits(matrix)
        if engine.n_outputs > 1:
            return logits
        leaves, places = np.unique(engine.leaves(matrix), return_inverse=True)
        floors = np.array([engine.floor(int(engine.model[leaf])) for leaf in leaves]).reshape(-1, 2)
        even = np.clip((0.5 - floors[:, 1]) / (1.0 - floors.sum(axis=1)), 1e-12, 1 - 1e-12)
        return np.asarray(logits[:, 0] - np.log(even / (1 - even))[places])

    def apply(self, X: Any) -> NDArray[np.int32]:
        """Return the id of the leaf that each row reaches."""
        matrix = self._matrix(X)
        assert self._tree is not None
        return self._tree.engine.leaves(matrix)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, in the order of the columns of `predict_proba`."""
        if self._encoder is None:
            raise AttributeError("classes_ is known once something was learnt")
        return self._encoder.classes

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
        if self._tree is not None and w == 1.0:
            status = self._tree.engine.learn_row(self._encoder.reader, x, y)  # type: ignore[union-attr]
            if status == LEARNED:
                return
            if status == DUE:
                self._tree.decide()
                return
        weights = check_weights([w], 1)
        parts = self._parts()
        if w > 0:  # something in the row is new, wrong or weighted
            batch = parts[1].read_dict(x, learning=True)
            self._learn(parts, batch, parts[1].read_labels([y]), weights)

    def predict_one(self, x: Mapping[Hashable, Any], **_: Any) -> Any:
        """Return the most probable label of one row, or None before anything was learnt."""
        if self._tree is None:
            return None
        encoder = self._encoder
        code = self._tree.engine.predict_row(encoder.reader, x)  # type: ignore[union-attr]
        if code < 0:
            proba = self.predict_proba_one(x)
            return max(proba, key=proba.__getitem__)
        return encoder.label_list[code]  # type: ignore[union-attr]

    def predict_proba_one(self, x: Mapping[Hashable, Any], **_: Any) -> dict[Any, float]:
        """Return the probability of each label for one row; empty before anything was learnt."""
        if self._tree is None or self._encoder is None:
            return {}
        known = self._tree.engine.probabilities_row(self._encoder.reader, x)
        if known is not None:
            return known
        matrix = self._encoder.read_dict(x, learning=False).matrix
        proba = self._tree.engine.probabilities(matrix)[0]
        return dict(zip(self._encoder.label_list, proba.tolist(), strict=True))

    # ------------------------------------------------------------------ River: frames
    def learn_many(self, X: Any, y: Any, w: ArrayLike | None = None) -> None:
        """Learn a data frame (pandas, polars, pyarrow, ...); its columns may come and go.

        Parameters
        ----------
        X : data frame
            Columns are known by name, in any order.
        y : series or sequence
            Labels of any hashable type.
        w : sequence of float, optional
            Weight 2 is the row twice, weight 0 is no row.
        """
        self._learn_checked(to_frame(X), None, to_labels(y), w)

    def predict_many(self, X: Any) -> Any:
        """Return the labels as a series of the same kind as the frame."""
        frame, proba = self._proba_many(X)
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

    def predict_proba_many(self, X: Any) -> Any:
        """Return the probabilities as a frame of the same kind, one column per label.

        Only pandas has columns whose names are not text; elsewhere the names are `str(label)`.
        """
        frame, proba = self._proba_many(X)
        labels = [] if self._encoder is None else self._encoder.label_list
        columns = {label: proba[:, code] for code, label in enumerate(labels)}
        return dataframe.to_native_frame(columns, like=frame)

    def _proba_many(self, X: Any) -> tuple[nw.DataFrame[Any], NDArray[np.float64]]:
        frame = to_frame(X)
        if self._tree is None or self._encoder is None:
            return frame, np.empty((len(frame), 0))
        matrix = self._encoder.read(frame, learning=False).matrix
        return frame, self._tree.engine.probabilities(matrix)

    # ------------------------------------------------------------------ River: cloning and checking
    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"setting": "paper", "epsilon": 1e-7}

    def _unit_test_skips(self) -> set[str]:
        # A batch is ONE time step (a set of rows) in the paper, so learning rows one at a time,
        # each seen by models that know the rows before it, is another, not worse, computation.
        return {"check_learn_many_matches_learn_one"}
