"""DynamicModelTreeClassifier: one learner with the faces of scikit-learn and River."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from river.base import MiniBatchClassifier
from river.utils import dataframe
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from driftree.learn._kernels import DUE, LEARNED
from driftree.learn.encoding import Batch, Encoder
from driftree.learn.parameters import Parameters
from driftree.learn.tree import CHUNK_ROWS, Tree

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from driftree.learn.events import Event

MAX_COPIES = 8  # an integer weight up to this is as many rows; a larger one is this many heavier rows


class DynamicModelTreeClassifier(ClassifierMixin, BaseEstimator, MiniBatchClassifier):  # type: ignore[misc]
    """Shallow decision tree with a linear model in every node, for streams that change.

    It learns row by row or batch by batch. A leaf is split, a split replaced and a branch pruned only when the measured
    loss says so, and every such change is recorded with its reason in `events_`. Inputs are taken as they come: numbers
    of any scale, text and truth values as categories, missing values, new features and new labels at any time.

    `DynamicModelTreeClassifier()` is our setting: second-order simple models on inputs scaled online, and gains
    measured by trials. `DynamicModelTreeClassifier.paper()` is the paper's: gradient descent and gains approximated by
    the gradient.

    Parameters
    ----------
    epsilon : float, default=1e-14
        The risk of a change that was only luck. Smaller: fewer splits, later.
    evidence_window : float, default=20000
        Rows of the stream that evidence for or against a split remembers. Larger: surer decisions, slower to forget.
    memory : float, default=1000
        Rows that the simple models remember (at least 20 per input). Smaller: follows drift faster, noisier weights.
    categorical : sequence of names or positions, default=()
        Features whose values are categories although they look like numbers. Text and truth values are found by
        themselves.
    max_nodes : int, default=255
        Hard cap on the number of nodes.
    max_depth : int, default=20
        Hard cap on the depth; 0 is a single linear model.
    bins : int, default=64
        Thresholds considered per numeric feature and node. Fewer: less memory, coarser splits.
    trials : int, default=3
        Candidate splits that a leaf trains at the same time. One takes half the time, and finds splits later.
    setting : {"measured", "paper"}, default="measured"
        Which of the two settings; see `paper`.
    learning_rate : float, default=0.05
        Paper's setting: step of the simple models' gradient descent.
    gain_step : float or None, default=None
        Paper's setting: lambda in (6) and (7); None is the learning rate. Larger: gains look larger, more splits.
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
        Size as the paper counts it: inner nodes plus one (two classes) or c per leaf; inner nodes plus the weights.
    n_nodes_, n_leaves_, depth_, n_rows_seen_ : int
        Nodes, leaves, longest path, rows learnt.

    See Also
    --------
    export_text : The tree as text.

    Notes
    -----
    Haug, Broelemann and Kasneci: Dynamic Model Tree for Interpretable Data Stream Learning, ICDE 2022. Each equation's
    place in the code, and each deviation with its reason, are in docs/algorithm.md.

    Examples
    --------
    An exclusive or is not linear; two splits make it so:

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

    _tree: Tree | None = None
    _encoder: Encoder | None = None
    # River's generic checks: a batch is ONE time step (a set of rows) in the paper, so learning rows one at a time,
    # each seen by models that know the rows before it, is another, not worse, computation.
    _SKIPPED_RIVER_CHECKS = frozenset({"check_learn_many_matches_learn_one"})

    def __init__(
        self,
        *,
        epsilon: float = 1e-14,
        evidence_window: float = 20000,
        memory: float = 1000,
        categorical: tuple[Hashable, ...] = (),
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

    # ------------------------------------------------------------------ learning: both faces
    def _begin(self, n_classes: int = 1) -> tuple[Tree, Encoder]:
        if self._tree is None or self._encoder is None:
            tree = Tree(Parameters.of(self), n_classes)
            encoder = Encoder(
                tree.engine, self.categorical or (), indicators=self.setting != "paper"
            )
            tree.names = encoder
            self._tree, self._encoder = tree, encoder
        return self._tree, self._encoder

    def _learn(
        self, batch: Batch, labels: Iterable[Any], weights: NDArray[np.float64] | None
    ) -> None:
        """Learn a batch that has been read; labels are checked before anything is registered."""
        tree, encoder = self._begin()
        codes, new_labels = encoder.read_labels(labels)
        if len(codes) != len(batch.matrix):
            raise ValueError(f"X has {len(batch.matrix)} rows, but y has {len(codes)} labels")
        matrix, codes, weights = _apply_weights(batch.matrix, codes, weights)
        if not len(matrix):
            return
        encoder.commit_labels(new_labels)
        encoder.commit(batch)
        tree.schema_grew()
        tree.learn(matrix, codes, weights)

    # ------------------------------------------------------------------ scikit-learn
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._encoder is not None and bool(self._encoder.labels)

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows in their order, in steps of at most 200.

        Parameters
        ----------
        X : array or data frame of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice, weight 0 is no row.

        Returns
        -------
        self
        """
        self._tree = self._encoder = None
        return self._partial_fit(
            X, y, sample_weight=sample_weight, first=True, step_rows=CHUNK_ROWS
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
            The same features in every call; use `learn_many` or `learn_one` when features come and go.
        y : array of shape (n_rows,)
        classes : array, optional
            Labels to expect. Others may still come later.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice, weight 0 is no row.

        Returns
        -------
        self
        """
        first = not self.__sklearn_is_fitted__() or not hasattr(self, "n_features_in_")
        return self._partial_fit(X, y, classes=classes, sample_weight=sample_weight, first=first)

    def _partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        first: bool,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        step_rows: int | None = None,
    ) -> Self:
        if not first and getattr(X, "shape", (1,))[0] == 0:
            return self
        declared = None if classes is None else np.unique(np.asarray(classes))
        labels = _check_labels(y)
        _, encoder = self._begin(1 if declared is None else max(1, len(declared)))
        batch = self._read(X, reset=first, learning=True)
        check_consistent_length(batch.matrix, labels)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, batch.matrix, dtype=np.float64, ensure_non_negative=True
            )
            if first and not weights.any():
                raise ValueError("Sample weights must contain at least one non-zero number.")
        if declared is not None:
            encoder.commit_labels(encoder.read_labels(declared)[1])
        if step_rows is None:
            self._learn(batch, labels, weights)
            return self
        encoder.commit_labels(encoder.read_labels(labels)[1])
        for start in range(0, len(labels), step_rows):
            rows = slice(start, start + step_rows)
            part = Batch(batch.matrix[rows])
            if start == 0:
                part.new_features, part.new_levels = batch.new_features, batch.new_levels
                part.new_missing = batch.new_missing
            self._learn(part, labels[rows], None if weights is None else weights[rows])
        return self

    def _read(self, X: Any, *, reset: bool, learning: bool) -> Batch:
        """Read an array or a data frame under scikit-learn's rules: the features are those of the first call."""
        assert self._encoder is not None
        encoder = self._encoder
        is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2
        if (
            not reset
            and is_plain
            and not hasattr(self, "feature_names_in_")
            and X.shape[1] == getattr(self, "n_features_in_", -1)
        ):
            return encoder.read_array(np.ascontiguousarray(X), learning=learning)
        validate_data(self, X, reset=reset, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        if nw.dependencies.is_into_dataframe(X):
            if len(X) == 0:
                raise ValueError(
                    f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required."
                )
            if names is not None:
                return encoder.read_frame(X, learning=learning)
            return encoder.read_array(nw.from_native(X, eager_only=True).to_numpy(), learning=learning)
        if not hasattr(X, "dtype"):
            X = np.asarray(X, dtype=None if _is_rectangular(X) else object)
        is_text = getattr(X, "dtype", None) is not None and X.dtype.kind in "OUSb"
        checked = check_array(
            X,
            dtype=None if is_text else np.float64,
            ensure_all_finite=False if is_text else "allow-nan",
            estimator=self,
            order="C",
        )
        return encoder.read_array(checked, names, learning=learning)

    def _matrix(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        if not hasattr(self, "n_features_in_"):  # learnt through River's face
            return self._read_any(X, learning=False).matrix
        return np.ascontiguousarray(self._read(X, reset=False, learning=False).matrix)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row."""
        proba = self._proba(self._matrix(X))
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each label (in the order of `classes_`) for each row."""
        return self._proba(self._matrix(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]` (two classes) or one logit per label.

        With a noise floor the zero is moved to where both labels are equally probable, so that the sign agrees with
        `predict`.
        """
        matrix = self._matrix(X)
        assert self._tree is not None
        engine = self._tree.engine
        logits = engine.logits(matrix)
        if engine.n_outputs > 1:
            return logits
        floor = np.array([engine.floor(int(engine.model[leaf])) for leaf in engine.leaves(matrix)])
        return logits[:, 0] - _floor_shift(floor.reshape(-1, 2))

    def apply(self, X: Any) -> NDArray[np.int32]:
        """Return the id of the leaf that each row reaches."""
        matrix = self._matrix(X)
        assert self._tree is not None
        return self._tree.engine.leaves(matrix)

    def _proba(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        assert self._tree is not None
        return self._tree.engine.probabilities(matrix)

    # ------------------------------------------------------------------ River: rows
    @property
    def _multiclass(self) -> bool:
        return True

    @classmethod
    def _unit_test_params(cls) -> Iterable[dict[str, Any]]:
        yield {}
        yield {"setting": "paper", "epsilon": 1e-7}

    def _unit_test_skips(self) -> set[str]:
        return set(self._SKIPPED_RIVER_CHECKS)

    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Feature names to values; what is absent or None is missing.
        y : hashable
            The label.
        w : float, default=1.0
            Weight; 2 is the row twice.
        """
        if self._tree is not None and w == 1.0:
            status = self._tree.engine.learn_row(self._encoder.reader, x, y)  # type: ignore[union-attr]
            if status == LEARNED:
                return
            if status == DUE:
                self._tree.decide()
                return
        _, encoder = self._begin()
        self._learn(encoder.read_dict(x, learning=True), [y], np.array([w], dtype=np.float64))

    def predict_one(self, x: Mapping[Hashable, Any], **_: Any) -> Any:
        """Return the most probable label of one row, or None before anything was learnt."""
        if not self.__sklearn_is_fitted__():
            return None
        code = self._tree.engine.predict_row(self._encoder.reader, x)  # type: ignore[union-attr]
        if code < 0:
            proba = self.predict_proba_one(x)
            return max(proba, key=proba.__getitem__)
        return self._labels()[code]

    def predict_proba_one(self, x: Mapping[Hashable, Any], **_: Any) -> dict[Any, float]:
        """Return the probability of each label for one row; empty before anything was learnt."""
        if not self.__sklearn_is_fitted__():
            return {}
        assert self._encoder is not None
        proba = self._proba(self._encoder.read_dict(x, learning=False).matrix)[0]
        return dict(zip(self._labels(), proba.tolist(), strict=True))

    def _labels(self) -> list[Any]:
        assert self._encoder is not None
        return list(self._encoder.labels)

    # ------------------------------------------------------------------ River: frames
    def _read_any(self, X: Any, *, learning: bool) -> Batch:
        """Read a frame (or an array) whose features may differ from those of earlier calls."""
        _, encoder = self._begin()
        if nw.dependencies.is_into_dataframe(X):
            return encoder.read_frame(X, learning=learning)
        return encoder.read_array(check_array(X, dtype=None, ensure_all_finite=False), learning=learning)

    def learn_many(self, X: Any, y: Any, w: ArrayLike | None = None) -> None:
        """Learn a data frame (pandas, polars, pyarrow, ...); its columns may differ from earlier ones.

        Parameters
        ----------
        X : data frame
        y : series or sequence of labels
        w : sequence of float, optional
            Weights.
        """
        batch = self._read_any(X, learning=True)
        if not len(batch.matrix):
            return
        labels = y.to_list() if hasattr(y, "to_list") else y.to_pylist() if hasattr(y, "to_pylist") else y
        weights = None if w is None else np.asarray(w, dtype=np.float64)
        self._learn(batch, labels, weights)

    def predict_many(self, X: Any) -> Any:
        """Return the labels as a series of the same kind as the frame."""
        frame = nw.from_native(X, eager_only=True)
        if not self.__sklearn_is_fitted__():
            return dataframe.to_native_series([None] * len(frame), name=None, like=frame)
        codes = self._proba(self._read_any(X, learning=False).matrix).argmax(axis=1)
        labels = self._labels()
        return dataframe.to_native_series([labels[code] for code in codes], name=None, like=frame)

    def predict_proba_many(self, X: Any) -> Any:
        """Return the probabilities as a frame of the same kind, one column per label."""
        frame = nw.from_native(X, eager_only=True)
        proba = (
            self._proba(self._read_any(X, learning=False).matrix)
            if self.__sklearn_is_fitted__()
            else np.empty((len(frame), 0))
        )
        keep = frame.implementation.is_pandas_like()
        names = self._labels() if proba.shape[1] else []
        columns = {
            name if keep else str(name): proba[:, k] for k, name in enumerate(names)
        }
        return dataframe.to_native_frame(columns, like=frame)

    # ------------------------------------------------------------------ what it knows
    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, in the order of the columns of `predict_proba`."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("classes_ is known once something was learnt")
        labels = self._labels()
        array = np.asarray(labels)
        if array.ndim != 1 or array.tolist() != labels:
            array = np.empty(len(labels), dtype=object)
            array[:] = labels
        return array

    @property
    def events_(self) -> list[Event]:
        """Changes of the tree, oldest first."""
        return [] if self._tree is None else list(self._tree.events)

    @property
    def n_nodes_(self) -> int:
        """Number of nodes."""
        return 1 if self._tree is None else self._tree.n_nodes

    @property
    def n_leaves_(self) -> int:
        """Number of leaves."""
        return (self.n_nodes_ + 1) // 2

    @property
    def depth_(self) -> int:
        """Number of conditions on the longest path."""
        if self._tree is None:
            return 0
        return max(int(self._tree.engine.depth[leaf]) for leaf in self._tree.leaves())

    @property
    def n_splits_(self) -> int:
        """Splits as the paper counts them: inner nodes, plus 1 (two classes) or c for each leaf model."""
        n_classes = 0 if self._encoder is None else len(self._encoder.labels)
        per_leaf = n_classes if n_classes > 2 else 1
        return self.n_leaves_ - 1 + self.n_leaves_ * per_leaf

    @property
    def n_parameters_(self) -> int:
        """Parameters as the paper counts them: inner nodes, plus the weights of each leaf model."""
        if self._tree is None:
            return 0
        engine = self._tree.engine
        weights = (engine.n_columns - 1) * max(1, engine.n_classes - 1)
        return self.n_leaves_ - 1 + self.n_leaves_ * weights

    @property
    def n_rows_seen_(self) -> int:
        """Rows learnt so far."""
        return 0 if self._tree is None else self._tree.engine.n_rows

    def memory_usage(self) -> int:
        """Return the bytes that the tree's arrays hold."""
        return 0 if self._tree is None else self._tree.engine.memory_usage()

    # ------------------------------------------------------------------ copying
    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        tree, encoder = state.pop("_tree", None), state.pop("_encoder", None)
        if tree is not None and encoder is not None:
            state["_learnt"] = {
                "arrays": tree.engine.arrays(),
                "events": list(tree.events),
                "names": encoder.names,
                "levels": encoder.levels,
                "labels": encoder.labels,
                "parameters": tree.parameters,
                "categorical": sorted(encoder.categorical, key=repr),
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        learnt = state.pop("_learnt", None)
        self.__dict__.update(state)
        if learnt is None:
            return
        tree = Tree(learnt["parameters"], 1)
        tree.engine.restore(learnt["arrays"])
        tree.events.extend(learnt["events"])
        encoder = Encoder(
            tree.engine,
            learnt["categorical"],
            indicators=learnt["parameters"].setting != "paper",
        )
        encoder.names.update(learnt["names"])
        encoder.levels.extend(learnt["levels"])
        encoder.labels.update(learnt["labels"])
        tree.names = encoder
        tree.schema_grew()
        self._tree, self._encoder = tree, encoder


def _check_labels(y: Any) -> NDArray[Any]:
    """Return the labels as one-dimensional array; numbers that are not classes are refused."""
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "iub":
        return y
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    return labels


def _is_rectangular(X: Any) -> bool:
    try:
        np.asarray(X)
    except ValueError:
        return False
    return True


def _apply_weights(
    matrix: NDArray[np.float64], codes: NDArray[np.int32], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Turn weights into rows: weight 2.5 is two rows and one of weight 0.5; weight 0 is none."""
    if weights is None:
        return np.ascontiguousarray(matrix), codes, np.ones(len(codes))
    weights = np.asarray(weights, dtype=np.float64)
    if len(weights) != len(codes):
        raise ValueError(f"there are {len(codes)} rows, but {len(weights)} weights")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("weights must be finite and not negative")
    copies = np.minimum(np.ceil(weights), MAX_COPIES).astype(int)
    rows = np.repeat(np.arange(len(codes)), copies)
    whole = np.where(weights > MAX_COPIES, weights / MAX_COPIES, 1.0)
    shares = whole[rows]
    last = np.cumsum(copies)[copies > 0] - 1
    rest = weights - np.floor(weights)
    has_rest = (rest > 0) & (weights <= MAX_COPIES)
    shares[last[has_rest[copies > 0]]] = rest[has_rest]
    return np.ascontiguousarray(matrix[rows]), codes[rows], shares


def _floor_shift(floor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-odds at which both labels are equally probable under a noise floor."""
    clean = 1.0 - floor.sum(axis=1)
    even = np.clip((0.5 - floor[:, 1]) / clean, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(even / (1 - even)))
