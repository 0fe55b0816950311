"""The Dynamic Model Tree as classifier and as regressor."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from driftree.explain.explanation import zero_of
from driftree.explain.readable import Readable
from driftree.learn.columns import News, level_names
from driftree.learn.constants import MEASURED
from driftree.learn.encoding import register
from driftree.learn.estimator import StreamEstimator
from driftree.learn.faces import StreamClassifier, StreamRegressor
from driftree.learn.imbalance import Imbalance
from driftree.learn.losses import BUILT_IN
from driftree.learn.parameters import (
    NUMBER_SETTINGS,
    SETTINGS,
    MeasuredParameters,
    Parameters,
    Settings,
    read_parameters,
)
from driftree.learn.state import connect, undisturbed
from driftree.learn.target import Labels, Numbers, check_level
from driftree.learn.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from driftree.learn.constants import MeasuredConstants
    from driftree.learn.events import Event
    from driftree.learn.losses import Loss
    from driftree.learn.state import LearningTree
    from driftree.learn.target import Target


class Configured(StreamEstimator):
    """Base of trees and forests: how their parameters are read."""

    setting: str
    absent: str | None
    _settings: Settings
    FIT_ROWS = MEASURED.step_rows

    def _read_parameters(self, *, is_sparse: bool = False) -> Parameters:
        """Return the validated parameters; `sparse` if the first rows are sparse."""
        parameters = read_parameters(self, self._settings)
        if is_sparse and self.absent is None and isinstance(parameters, MeasuredParameters):
            return replace(parameters, absent="zero")
        return parameters

    @property
    def _takes_sparse(self) -> bool:
        """Whether sparse matrices may be given."""
        return self.setting != "paper"


class DynamicModelTree(Readable, Configured):
    """Base of classifier and regressor: the settings, the tree, its events."""

    _target: type[Target]

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Return a learner in the paper's setting, with the paper's defaults.

        Short for `setting="paper"`; takes all parameters except those of the measured setting.

        Examples
        --------
        >>> import driftree
        >>> driftree.DynamicModelTreeClassifier.paper(candidates=5)
        DynamicModelTreeClassifier(candidates=5, setting='paper')
        """
        return cls(setting="paper", **parameters)

    # ------------------------------------------------------------------ for the parent classes
    _tree: Tree | None = None
    if TYPE_CHECKING:

        @property
        def _fitted(self) -> Tree: ...

    @classmethod
    def _new_tree(
        cls,
        parameters: Parameters,
        categorical: Sequence[Hashable] | None,
        constants: MeasuredConstants | None = None,
    ) -> Tree:
        tree = cls._connected(Tree(parameters, constants=constants), categorical)
        if getattr(parameters, "follow_target", False):
            tree.engine.has_level = True
            register(tree, News([(name, False, True) for name in level_names(tree.engine)]))
        return tree

    @classmethod
    def _bare_tree(
        cls, learnt: Mapping[str, Any], constants: MeasuredConstants | None = None
    ) -> Tree:
        tree = Tree(learnt["parameters"], history=learnt["history"], constants=constants)
        return cls._connected(tree, learnt["categorical"])

    @classmethod
    def _connected(cls, tree: Tree, categorical: Sequence[Hashable] | None) -> Tree:
        is_measured = tree.parameters.setting != "paper"
        connect(tree, categorical, indicators=is_measured, target=cls._target)
        tree.target.imbalance = Imbalance.of(tree.parameters)
        return tree

    @property
    @undisturbed
    def events_(self) -> list[Event]:
        """Changes of the tree, oldest first."""
        history = self._fitted.history
        return [] if history is None else list(history.events)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"setting": "paper"}

    def _unit_test_skips(self) -> set[str]:
        # A batch is ONE time step (a set of rows) in the paper. Learning rows one at a time, each
        # with models that have learnt the rows before it, is a different computation, not a worse
        # one.
        return {"check_learn_many_matches_learn_one"}


class DynamicModelTreeClassifier(DynamicModelTree, StreamClassifier):
    """Shallow decision tree with a linear model in every node, for streams that change.

    It learns row by row or batch by batch. A leaf is split, a split moved or replaced or a branch
    pruned only when the measured loss justifies it, and every such change is recorded with its
    reason in `events_`. Input needs no preprocessing: it may hold numbers of any scale, text and
    booleans as categories, missing values, and new features and labels at any time.

    `DynamicModelTreeClassifier()` is our setting: second-order simple models on inputs scaled
    online, and gains measured by trials. `DynamicModelTreeClassifier.paper()` is the paper's:
    gradient descent and gains approximated by the gradient.

    Parameters
    ----------
    epsilon : float or None, default=None
        The risk that a change is due to chance. Smaller: fewer splits, later. None is 1e-8
        (1e-14 with ``max_bends=0``), in the paper's setting 1e-7, its "10e-8" for the confidence
        test (11).
    categorical : sequence of names or positions, default=None
        Features whose values are categories although they look like numbers. Text, booleans and
        categorical columns of data frames are recognised. A position refers to the columns of the
        array or frame, or the keys of the row, in which the feature first appears.
    max_nodes : int, default=255
        Hard cap on the number of nodes.
    max_depth : int, default=20
        Hard cap on the depth; 0 is a single linear model.
    seed : int, default=1
        Order in which the rows of a batch are visited. Same seed, same rows: same tree.
    keep_history : bool, default=True
        Whether to record why the tree changed and how its models developed. Learning is the same
        without.
    setting : {"measured", "paper"}, default="measured"
        Which variant of the algorithm; see `paper`. Each setting has parameters of its own, whose
        default is None; setting one of the other setting raises an error when learning starts.
    evidence_window : float or None, default=None
        Measured setting: rows of the stream over which the evidence for or against a split is
        summed. Larger: more certain decisions, slower forgetting. None is 20,000.
    model_window : float or None, default=None
        Measured setting: rows that the simple models remember (at least 20 per input). Smaller:
        follows drift faster, noisier weights. None is 1,000.
    bins : int or None, default=None
        Measured setting: thresholds considered per numeric feature and node. Fewer: less memory,
        coarser splits. None is 64.
    trials : int or None, default=None
        Measured setting: candidate splits that a leaf trains at the same time. One is faster, and
        finds splits later. None is 3.
    max_bends : int or None, default=None
        Measured setting: pieces of curves that a leaf's model may have, over all features. A
        feature gets a piecewise linear curve of up to four pieces if that pays, and one of few
        values, which may be codes, a knot at each value; only the latter may exceed 64 pieces in
        all. 0: only lines. None is 128.
    absent : {"missing", "zero"} or None, default=None
        Measured setting: the value of a feature that is absent from a row. "missing": unknown.
        "zero": 0, as for words of a text; then the cost of a row depends only on the features that
        it holds, and there may be very many features. None is "missing", but "zero" if the first
        rows are sparse: a sparse matrix, or a dict among the first ten that has new names and lacks
        most of the known ones; the model then starts again with that row. A first table of more
        than 512 numeric columns is learnt column by column, too, unless this is "missing"; see
        docs/input.md.
    max_features : int or None, default=None
        Measured setting, ``absent="zero"``: the largest number of names. When there are more, those
        that occurred in the fewest rows are forgotten. None is 262,144.
    learning_rate : float or None, default=None
        Paper's setting: learning rate of the simple models' gradient descent. None is 0.05.
    gain_step : float or None, default=None
        Paper's setting: lambda in (6) and (7). Larger: gains look larger, more splits. None is the
        learning rate.
    candidates : int or None, default=None
        Paper's setting: split candidates stored per node and feature. None is 3.
    replacement_rate : float or None, default=None
        Paper's setting: share of the stored candidates that one step may replace. None is 0.5.
    class_weight : dict, "balanced" or None, default=None
        Weights of the labels, multiplied with `sample_weight`; 1 for labels that are not in the
        dict. "balanced": inversely proportional to the frequency of the label up to the row. Only
        ratios matter: weights above 6 are scaled down together. See docs/imbalance.md.
    threshold : dict or None, default=None
        Chooses the decision threshold of two labels online, for a precision or recall,
        ``{"precision": 0.9}`` or ``{"recall": 0.8}``, or for the costs of false positives and
        negatives, ``{"fp": 1, "fn": 20}``; with ``"positive"``, the positive label, unless that is
        1 or True. More than two labels are refused. None: the most probable label is predicted.
    n_jobs : int or None, default=None
        Threads that work on a batch, where that saves time; -1 is one per core, None is one. The
        results do not depend on it, bit for bit. Model files do not contain it. See
        docs/threads.md.

    Attributes
    ----------
    classes_ : ndarray
        Labels, in the order of the columns of `predict_proba`.
    events_ : list of Event
        The last 1,000 changes of the tree, oldest first; `str(event)` says why.
    threshold_ : float or None
        The present decision threshold on the probability of the positive label, with `threshold`.
    n_paper_splits_, n_parameters_ : int
        Size as the paper counts it: inner nodes plus one (two classes) or c per leaf; inner nodes
        plus the weights.
    n_nodes_, n_splits_, n_leaves_, depth_, n_rows_seen_ : int
        Nodes, leaves, longest path, rows learnt.

    See Also
    --------
    export_text : The tree as text.

    Notes
    -----
    None, NaN and an absent key all mean missing, or 0 with ``absent="zero"``. Once a feature has
    been missing, the simple models have an indicator input for it; a split sends such rows to the
    side with the lower loss, or tests for missing values itself. `fit` learns the rows in steps of
    at most 200. An error leaves the model unchanged.

    Haug, Broelemann and Kasneci: Dynamic Model Tree for Interpretable Data Stream Learning, ICDE
    2022. docs/algorithm.md maps each equation to the code, and lists each deviation with its
    reason.

    Examples
    --------
    XOR is not linear, but one split makes both sides linear:

    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(4000, 2))
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    >>> model = DynamicModelTreeClassifier().partial_fit(X[:3000], y[:3000])
    >>> bool(model.score(X[3000:], y[3000:]) > 0.95), model.n_leaves_
    (True, 4)
    >>> model.learn_one({"x0": 0.3, "x1": -0.2}, True)
    >>> model.predict_one({"x0": 0.3, "x1": -0.2})
    True
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        categorical: Sequence[Hashable] | None = None,
        max_nodes: int = 255,
        max_depth: int = 20,
        seed: int = 1,
        keep_history: bool = True,
        setting: str = "measured",
        evidence_window: float | None = None,
        model_window: float | None = None,
        bins: int | None = None,
        trials: int | None = None,
        max_bends: int | None = None,
        absent: str | None = None,
        max_features: int | None = None,
        learning_rate: float | None = None,
        gain_step: float | None = None,
        candidates: int | None = None,
        replacement_rate: float | None = None,
        class_weight: Mapping[Hashable, float] | str | None = None,
        threshold: Mapping[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.categorical = categorical
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.seed = seed
        self.keep_history = keep_history
        self.setting = setting
        self.evidence_window = evidence_window
        self.model_window = model_window
        self.bins = bins
        self.trials = trials
        self.max_bends = max_bends
        self.absent = absent
        self.max_features = max_features
        self.learning_rate = learning_rate
        self.gain_step = gain_step
        self.candidates = candidates
        self.replacement_rate = replacement_rate
        self.class_weight = class_weight
        self.threshold = threshold
        self.n_jobs = n_jobs

    # ------------------------------------------------------------------ for the parent classes
    _is_stored = True  # in model files; a subclass is not
    _settings = SETTINGS
    _target = Labels

    @undisturbed
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]` (two classes) or one logit per label.

        With a noise floor the zero is shifted to where both labels are equally probable, so that
        the sign agrees with `predict`, unless there is a `threshold`, which does not shift it.
        """
        rows = self._encoded(X).rows
        assert self._tree is not None
        engine = self._tree.engine
        logits = engine.logits(*rows)
        if engine.n_outputs > 1:
            return logits
        leaves, places = np.unique(engine.leaves(*rows), return_inverse=True)
        zeros = np.array([zero_of(engine.floor(int(engine.model[leaf]))) for leaf in leaves])
        return np.asarray(logits[:, 0] - zeros[places])

    # ------------------------------------------------------------------ more than one label
    @undisturbed
    def predict_set(self, X: Any, level: float = 0.9) -> NDArray[np.bool_]:
        """Return a set of labels for each row that contains the true one with a given probability.

        A label is in the set if its probability is large enough. The limit adapts to the true
        labels, so that in the long run at least a share of `level` of the sets contain the true
        label, whatever the models and the stream do. No set is empty: the most probable label is in
        it.

        Parameters
        ----------
        X : array, data frame or dict of columns
            The rows.
        level : float, default=0.9
            From 0.5 to 0.99.

        Returns
        -------
        array of bool of shape (n_rows, n_classes)
            Whether each label is in the set, in the order of `classes_`.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelTreeClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(3000, 2))
        >>> y = np.where(X[:, 0] + rng.normal(0, 0.3, size=3000) > 0, "high", "low")
        >>> model = DynamicModelTreeClassifier().fit(X, y)
        >>> model.predict_set([[0.9, 0.0], [0.0, 0.0]])
        array([[ True, False],
               [ True,  True]])
        >>> model.predict_set_one({"x0": 0.9, "x1": 0.0})
        ['high']
        """
        rows = self._encoded(X).rows
        engine = self._fitted.engine
        return self._labels.sets(engine.reaches, engine.probabilities(*rows), level)

    def predict_set_one(self, x: Mapping[Hashable, Any], level: float = 0.9) -> list[Any]:
        """Return the set of labels for one row, most probable first; at first it is empty."""
        check_level(level)
        tree = self._tree
        if tree is None:
            return []
        with tree.engine.reading():
            known = self.predict_proba_one(x)
            found = self._labels.sets(tree.engine.reaches, np.array([[*known.values()]]), level)[0]
        held = [label for label, is_held in zip(known, found.tolist(), strict=True) if is_held]
        return sorted(held, key=known.__getitem__, reverse=True)

    # ------------------------------------------------------------------ checking
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # At the paper's learning rate one pass over the 300 rows of scikit-learn's check is not
        # enough for its 83 %.
        tags.classifier_tags.poor_score = self.setting == "paper"
        tags.input_tags.sparse = self._takes_sparse
        return tags


class DynamicModelTreeRegressor(DynamicModelTree, StreamRegressor):
    """Shallow regression tree with a linear model in every node, for streams that change.

    The same tree as `DynamicModelTreeClassifier`, for numeric targets: the same decisions and
    events, both settings, all inputs. Losses are negative log-likelihoods, in nats, whose spread
    each node learns, so that results do not depend on the unit of the target.

    Parameters
    ----------
    loss : {"gaussian", "student", "poisson", "quantile"}, Loss or None, default=None
        What is minimised. "gaussian" is for means; "student" for means with outliers; "poisson" for
        counts and rates, with a log link (a row with exposure e is the rate y / e with weight e);
        "quantile" for `quantiles`. A `Loss` is a custom loss (measured setting; slower). None is
        "gaussian".
    quantiles : sequence of float or None, default=None
        Measured setting, ``loss="quantile"``: the quantiles that `predict_quantiles` predicts;
        `predict` returns the middle one, of an even number the upper of the two. None is 0.1, 0.5
        and 0.9.
    follow_target : bool or None, default=None
        Measured setting: whether recent targets are inputs of the models: the last one, and the
        means over about 3 and 20 rows. Within a batch of up to 20 rows these keep their values from
        before the batch, as when a batch is predicted; larger batches are learnt without them, and
        predictions leave them out until fewer rows are learnt. None is True.
    epsilon, categorical, max_nodes, max_depth, seed, keep_history, setting : optional
        As for `DynamicModelTreeClassifier`.
    evidence_window, model_window, bins, trials, max_bends, absent, max_features : optional
        As for `DynamicModelTreeClassifier`.
    learning_rate, gain_step, candidates, replacement_rate, n_jobs : optional
        As for `DynamicModelTreeClassifier`.

    Attributes
    ----------
    events_, n_splits_, n_paper_splits_, n_parameters_, n_nodes_, n_leaves_, depth_, n_rows_seen_
        As for `DynamicModelTreeClassifier`; one output counts like two classes.

    See Also
    --------
    FIMTDDRegressor : A published model tree, as a baseline.

    Notes
    -----
    Use ``follow_target=False`` if targets arrive late, rows have no order in time, or rows of
    several series are mixed. docs/regression.md is a guide, with all limits; the equations are in
    docs/algorithm.md.

    Examples
    --------
    >>> import random
    >>> from driftree import DynamicModelTreeRegressor
    >>> draw = random.Random(1)
    >>> model = DynamicModelTreeRegressor()
    >>> for _ in range(500):
    ...     hour = draw.uniform(0, 24)
    ...     model.learn_one({"hour": hour}, 20.0 * hour + draw.gauss(5.0, 1.0))
    >>> print(f"{model.predict_one({'hour': 3}):.0f}")
    65
    >>> low, high = model.predict_interval_one({"hour": 3}, level=0.9)
    >>> print(f"{low:.0f} to {high:.0f}")
    63 to 67
    """

    def __init__(
        self,
        loss: str | Loss | None = None,
        *,
        quantiles: Sequence[float] | None = None,
        epsilon: float | None = None,
        categorical: Sequence[Hashable] | None = None,
        max_nodes: int = 255,
        max_depth: int = 20,
        seed: int = 1,
        keep_history: bool = True,
        setting: str = "measured",
        follow_target: bool | None = None,
        evidence_window: float | None = None,
        model_window: float | None = None,
        bins: int | None = None,
        trials: int | None = None,
        max_bends: int | None = None,
        absent: str | None = None,
        max_features: int | None = None,
        learning_rate: float | None = None,
        gain_step: float | None = None,
        candidates: int | None = None,
        replacement_rate: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.quantiles = quantiles
        self.epsilon = epsilon
        self.categorical = categorical
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.seed = seed
        self.keep_history = keep_history
        self.setting = setting
        self.follow_target = follow_target
        self.evidence_window = evidence_window
        self.model_window = model_window
        self.bins = bins
        self.trials = trials
        self.max_bends = max_bends
        self.absent = absent
        self.max_features = max_features
        self.learning_rate = learning_rate
        self.gain_step = gain_step
        self.candidates = candidates
        self.replacement_rate = replacement_rate
        self.n_jobs = n_jobs

    _is_stored = True  # in model files; a subclass is not
    _settings = NUMBER_SETTINGS
    _target = Numbers

    def _whole(self, tree: LearningTree, n_rows: int, news: News) -> AbstractContextManager[None]:
        """Learn all rows or none, as a custom loss may fail at any step.

        A step that fails undoes itself; this undoes those before it, and new names.
        """
        if tree.parameters.loss in BUILT_IN:
            return nullcontext()
        has_more = n_rows > tree.step_rows or news.brings_columns or news.brings_words
        has_learnt = has_more and tree is self._tree
        return self._all_or_nothing(self.__getstate__() if has_learnt else None)

    # ------------------------------------------------------------------ more than one number
    @undisturbed
    def predict_interval(self, X: Any, level: float = 0.9) -> NDArray[np.float64]:
        """Return an interval for each row that contains the target with a given probability.

        Its width is the spread that the leaf has learnt, times a factor that adapts to the true
        targets: in the long run a share of `level` of the rows is inside, whatever the models and
        the stream do. With ``loss="quantile"``, use `predict_quantiles` instead.

        Parameters
        ----------
        X : array, data frame or dict of columns
            The rows.
        level : float, default=0.9
            From 0.5 to 0.99.

        Returns
        -------
        array of shape (n_rows, 2)
            Lower and upper ends.
        """
        batch = self._encoded(X)
        return self._numbers.intervals(*batch.rows, level)

    @property
    def _numbers(self) -> Numbers:
        target = self._fitted.target
        assert isinstance(target, Numbers)
        return target

    def predict_interval_one(
        self, x: Mapping[Hashable, Any], level: float = 0.9
    ) -> tuple[float, float]:
        """Return the interval for one row; of zero width before anything is learnt."""
        check_level(level)
        tree = self._tree
        if tree is None:
            return 0.0, 0.0
        with tree.engine.reading():
            batch = tree.encoder.read_dict(x, learning=False)
            low, high = self._numbers.intervals(*batch.rows, level)[0].tolist()
        return low, high

    @undisturbed
    def predict_quantiles(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted quantiles of each row, ascending, with ``loss="quantile"``."""
        batch = self._encoded(X)
        tree = self._fitted
        if getattr(tree.parameters, "loss", None) != "quantile":
            raise AttributeError('predict_quantiles needs a model with loss="quantile"')
        return self._numbers.engine.numbers(*batch.rows)

    # ------------------------------------------------------------------ checking
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.setting == "paper"
        tags.input_tags.sparse = self._takes_sparse
        return tags
