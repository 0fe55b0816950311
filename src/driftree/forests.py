"""Forests of Dynamic Model Trees, as classifier and as regressor."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.estimators import (
    Configured,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)
from driftree.explain.forest import BestTree, ReadableForest
from driftree.learn.events import MemberEvent
from driftree.learn.faces import StreamClassifier, StreamRegressor
from driftree.learn.forest import Forest
from driftree.learn.losses import BUILT_IN
from driftree.learn.members import light_constants
from driftree.learn.memory import bytes_of
from driftree.learn.parameters import FOREST_NUMBER_SETTINGS, FOREST_SETTINGS
from driftree.learn.state import (
    count_paper_splits,
    count_parameters,
    learnt_of,
    restore_seen,
    take_over,
    undisturbed,
)
from driftree.learn.target import Numbers, check_level

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from driftree.estimators import DynamicModelTree
    from driftree.learn.columns import Batch, News
    from driftree.learn.events import MemberReplaced
    from driftree.learn.forest_engine import Look
    from driftree.learn.state import LearningTree


class DynamicModelForest(ReadableForest, Configured):
    """Base of classifier and regressor: the trees, their events, the best tree."""

    setting = "measured"  # forests have no other setting
    _member: type[DynamicModelTree]
    _tree: Forest | None = None  # what a single tree has in its place
    if TYPE_CHECKING:

        @property
        def _fitted(self) -> Forest: ...

    # ------------------------------------------------------------------ the trees
    @property
    @undisturbed
    def trees_(self) -> list[Any]:
        """Copies of the present trees, which can explain themselves and learn independently.

        The first is a plain tree. The others have hinges of pairs of features as further inputs,
        with names such as "age & income #3", which only the forest can compute: read these trees,
        but predict with the forest.
        """
        forest = self._fitted
        return [self._copy_of(forest, place) for place in range(len(forest.members))]

    def _copy_of(self, forest: Forest, place: int) -> Any:
        tree = forest.trees[place]
        own = replace(tree.parameters, **forest.parameters.of_all)
        parameters = {name: getattr(own, name) for name in own.__dataclass_fields__}
        copied: Any = self._member(**parameters | {"categorical": self.categorical})
        copied._take_over(learnt_of(tree) | {"parameters": own} | forest.seen())
        return copied

    @undisturbed
    def best_tree(self) -> BestTree:
        """Return the single tree nearest to the forest, and the loss of both.

        Only trees without pairs can be used on their own: the first, or all if features are sparse.
        Of these it is the one with the lowest loss.

        Returns
        -------
        BestTree
            A copy of the tree, which learns independently, and both mean losses over the last rows.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
        >>> model = DynamicModelForestClassifier().partial_fit(X, X[:, 0] * X[:, 1] > 0.1)
        >>> tree, loss, loss_of_all, agreement = model.best_tree()
        >>> type(tree).__name__, loss > loss_of_all, agreement > 0.9
        ('DynamicModelTreeClassifier', True, True)
        """
        forest = self._fitted
        look = forest.core.look()
        plain = [i for i, member in enumerate(forest.members) if i == 0 or not len(member.pairs)]
        best = min(plain, key=lambda i: (np.isnan(look.losses[i]), look.losses[i]))
        return BestTree(
            self._copy_of(forest, best), look.losses[best], look.losses[-1], look.agreement[best]
        )

    @property
    @undisturbed
    def weights_(self) -> NDArray[np.float64]:
        """Weight of each tree: the factor of its log-odds, or its share of the mean."""
        engine = self._fitted.core
        return engine.stack.weights if engine.has_labels else engine.stack.shares

    @property
    @undisturbed
    def events_(self) -> list[MemberEvent | MemberReplaced]:
        """Changes of all trees, oldest first, each with the number of its tree."""
        engine = self._fitted.core
        events: list[MemberEvent | MemberReplaced] = list(engine.replaced)
        for place, member in enumerate(engine.members):
            history = member.tree.history
            own = () if history is None else history.events
            events += [MemberEvent(place, event, member.since) for event in own]
        return sorted(events, key=lambda event: event.n_rows)

    @property
    @undisturbed
    def looks_(self) -> list[Look]:
        """Agreement, weights and losses of the trees over time, at up to 200 points."""
        engine = self._fitted.core
        return [*engine.looks, engine.look()]

    # ------------------------------------------------------------------ size
    @property
    @undisturbed
    def n_leaves_(self) -> int:
        """Leaves of all trees."""
        return sum((tree.n_nodes + 1) // 2 for tree in self._fitted.trees)

    @property
    @undisturbed
    def depth_(self) -> int:
        """Number of conditions on the longest path of any tree."""
        return max(int(tree.engine.depth.max()) for tree in self._fitted.trees)

    @property
    @undisturbed
    def n_splits_(self) -> int:
        """Splits of all trees, which are their inner nodes."""
        return sum(tree.n_nodes // 2 for tree in self._fitted.trees)

    @property
    @undisturbed
    def n_paper_splits_(self) -> int:
        """Splits of all trees as the paper counts them, as for a single tree."""
        return sum(map(count_paper_splits, self._fitted.trees))

    @property
    @undisturbed
    def n_parameters_(self) -> int:
        """Parameters of all trees, and the weights of the trees."""
        trees = self._fitted.trees
        return sum(map(count_parameters, trees)) + len(trees)

    @undisturbed
    def memory_usage(self) -> int:
        """Return the bytes that the model holds, as for a single tree."""
        tree = self._tree
        return 0 if tree is None else tree.core.memory_usage() + bytes_of(self.__dict__)

    # ------------------------------------------------------------------ for the parent classes
    @classmethod
    def _new_tree(cls, parameters: Any, categorical: Sequence[Hashable] | None) -> Forest:
        return Forest(parameters, partial(cls._member._new_tree, categorical=categorical))

    @staticmethod
    def _learnt_of(tree: Any) -> dict[str, Any]:
        return {
            **tree.knowledge(),
            "parameters": tree.parameters,
            "categorical": sorted(tree.encoder.categorical, key=repr),
            "members": [learnt_of(member) for member in tree.trees],
        }

    def _take_over(self, learnt: dict[str, Any]) -> None:
        forest = self._new_tree(learnt["parameters"], learnt["categorical"])
        members = learnt["members"]
        if len(members) != len(forest.members):
            raise ValueError(
                f"there must be {len(forest.members)} trees, but there are {len(members)}"
            )
        for place, (member, one) in enumerate(zip(forest.members, members, strict=True)):
            if place > 0:
                constants = light_constants(one["parameters"], forest.parameters)
                member.tree = self._member._bare_tree(one, constants)
            take_over(member.tree, one)
        forest.restore(learnt)
        restore_seen(forest, learnt.get("seen", {}))
        self._tree = forest

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_trees": 3}

    def _unit_test_skips(self) -> set[str]:
        # As for a single tree: a batch is one step.
        return {"check_learn_many_matches_learn_one"}


class DynamicModelForestClassifier(DynamicModelForest, StreamClassifier):
    """Ensemble of a few Dynamic Model Trees, for the last points of accuracy.

    The first tree is a plain one. The others have, as further inputs, hinges of random pairs of
    numeric features, max(0, a z_p + b z_q + c), which model interactions; every other one of them
    never splits. All learn all rows. Their log-odds are added up with weights that minimise the
    loss, so that contributions of features and pairs still add up to the forest's log-odds.

    Parameters
    ----------
    n_trees : int, default=5
        Number of trees. Ten are slightly better than five, and cost twice as much.
    n_jobs : int or None, default=None
        Number of threads; -1 is one per core, None is one. The results do not depend on it.
    seed : int, default=1
        Order in which the rows of a batch are visited, and choice of the pairs.
    epsilon, categorical, max_nodes, max_depth, keep_history : optional
        As for `DynamicModelTreeClassifier`, for each tree.
    evidence_window, model_window, bins, trials, max_bends, absent, max_features : optional
        As for `DynamicModelTreeClassifier`, for each tree.
    class_weight, threshold : optional
        As for `DynamicModelTreeClassifier`; the threshold applies to the forest's probabilities.

    Attributes
    ----------
    classes_ : ndarray
        Labels, in the order of the columns of `predict_proba`.
    trees_ : list of DynamicModelTreeClassifier
        Copies of the trees.
    weights_ : ndarray
        Weight of each tree's log-odds.
    events_ : list of MemberEvent and MemberReplaced
        Changes of all trees, oldest first; `str(event)` says why.
    looks_ : list of Look
        Agreement, weights and losses of the trees over time.
    threshold_ : float or None
        The present decision threshold on the probability of the positive label, with `threshold`.
    n_nodes_, n_leaves_, n_splits_, n_paper_splits_, n_parameters_, depth_, n_rows_seen_ : int
        As for a single tree; sums over the trees, except depth and rows.

    See Also
    --------
    DynamicModelTreeClassifier : One tree: smaller, faster, easier to read.

    Notes
    -----
    A tree whose weight falls to 0 is replaced by a new one with other pairs, which is recorded as
    an event. docs/forest.md says how it works, docs/which.md when it is worth its cost.

    Examples
    --------
    A product is not a sum of two curves, but hinges of both features approximate it:

    >>> import numpy as np
    >>> from driftree import DynamicModelForestClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(3000, 2))
    >>> y = X[:, 0] * X[:, 1] > 0.1
    >>> model = DynamicModelForestClassifier().partial_fit(X[:2000], y[:2000])
    >>> bool(model.score(X[2000:], y[2000:]) > 0.95), len(model.trees_)
    (True, 5)
    >>> model.learn_one({"x0": 0.3, "x1": 0.5}, True)
    >>> model.predict_one({"x0": 0.3, "x1": 0.5})
    True
    """

    def __init__(
        self,
        n_trees: int = 5,
        *,
        n_jobs: int | None = None,
        seed: int = 1,
        epsilon: float | None = None,
        categorical: Sequence[Hashable] | None = None,
        max_nodes: int = 255,
        max_depth: int = 20,
        keep_history: bool = True,
        evidence_window: float | None = None,
        model_window: float | None = None,
        bins: int | None = None,
        trials: int | None = None,
        max_bends: int | None = None,
        absent: str | None = None,
        max_features: int | None = None,
        class_weight: Mapping[Hashable, float] | str | None = None,
        threshold: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.n_jobs = n_jobs
        self.seed = seed
        self.epsilon = epsilon
        self.categorical = categorical
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.keep_history = keep_history
        self.evidence_window = evidence_window
        self.model_window = model_window
        self.bins = bins
        self.trials = trials
        self.max_bends = max_bends
        self.absent = absent
        self.max_features = max_features
        self.class_weight = class_weight
        self.threshold = threshold

    _is_stored = True  # in model files; a subclass is not
    _settings = FOREST_SETTINGS
    _member = DynamicModelTreeClassifier


class DynamicModelForestRegressor(DynamicModelForest, StreamRegressor):
    """Ensemble of a few Dynamic Model Trees for regression.

    As `DynamicModelForestClassifier`, with the trees of `DynamicModelTreeRegressor`: the prediction
    is a weighted mean of theirs, with weights that minimise the error.

    Parameters
    ----------
    n_trees : int, default=5
        Number of trees.
    n_jobs : int or None, default=None
        Number of threads; -1 is one per core, None is one. The results do not depend on it.
    loss, quantiles, follow_target : optional
        As for `DynamicModelTreeRegressor`.
    seed, epsilon, categorical, max_nodes, max_depth, keep_history : optional
        As for `DynamicModelForestClassifier`.
    evidence_window, model_window, bins, trials, max_bends, absent, max_features : optional
        As for `DynamicModelTreeClassifier`, for each tree.

    Attributes
    ----------
    trees_, weights_, events_, looks_
        As for `DynamicModelForestClassifier`; weights are shares of the mean, losses are absolute
        errors.
    n_nodes_, n_leaves_, n_splits_, n_paper_splits_, n_parameters_, depth_, n_rows_seen_ : int
        As for a single tree; sums over the trees, except depth and rows.

    Examples
    --------
    >>> import random
    >>> from driftree import DynamicModelForestRegressor
    >>> draw = random.Random(1)
    >>> model = DynamicModelForestRegressor(n_trees=3)
    >>> for _ in range(500):
    ...     hour = draw.uniform(0, 24)
    ...     model.learn_one({"hour": hour}, 20.0 * hour + draw.gauss(5.0, 1.0))
    >>> print(f"{model.predict_one({'hour': 3}):.0f}")
    65
    """

    def __init__(
        self,
        n_trees: int = 5,
        *,
        n_jobs: int | None = None,
        loss: str | None = None,
        quantiles: Sequence[float] | None = None,
        follow_target: bool | None = None,
        seed: int = 1,
        epsilon: float | None = None,
        categorical: Sequence[Hashable] | None = None,
        max_nodes: int = 255,
        max_depth: int = 20,
        keep_history: bool = True,
        evidence_window: float | None = None,
        model_window: float | None = None,
        bins: int | None = None,
        trials: int | None = None,
        max_bends: int | None = None,
        absent: str | None = None,
        max_features: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.n_jobs = n_jobs
        self.loss = loss
        self.quantiles = quantiles
        self.follow_target = follow_target
        self.seed = seed
        self.epsilon = epsilon
        self.categorical = categorical
        self.max_nodes = max_nodes
        self.max_depth = max_depth
        self.keep_history = keep_history
        self.evidence_window = evidence_window
        self.model_window = model_window
        self.bins = bins
        self.trials = trials
        self.max_bends = max_bends
        self.absent = absent
        self.max_features = max_features

    _is_stored = True  # in model files; a subclass is not
    _settings = FOREST_NUMBER_SETTINGS
    _member = DynamicModelTreeRegressor

    def _whole(self, tree: LearningTree, n_rows: int, news: News) -> AbstractContextManager[None]:
        """Learn all rows or none, as for a tree; even in one step, a loss may fail at any tree."""
        if tree.parameters.loss in BUILT_IN:
            return nullcontext()
        return self._all_or_nothing(self.__getstate__() if tree is self._tree else None)

    @undisturbed
    def predict_interval(self, X: Any, level: float = 0.9) -> NDArray[np.float64]:
        """Return an interval for each row, around the prediction.

        From there to an end is the weighted sum of the trees' distances from their own predictions
        to their ends. Each tree's interval has the coverage `level`. The forest errs less than its
        trees, so the coverage of its intervals is higher.

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
        return self._intervals(batch, level)

    def predict_interval_one(
        self, x: Mapping[Hashable, Any], level: float = 0.9
    ) -> tuple[float, float]:
        """Return the interval for one row; of zero width before anything is learnt."""
        check_level(level)
        forest = self._tree
        if forest is None:
            return 0.0, 0.0
        with forest.core.reading():
            low, high = self._intervals(forest.encoder.read_dict(x, learning=False), level)[0]
        return float(low), float(high)

    def _intervals(self, batch: Batch, level: float) -> NDArray[np.float64]:
        forest = self._fitted
        found = forest.target.predict(*batch.rows)[:, np.newaxis]
        for member, share in zip(forest.members, forest.core.stack.shares, strict=True):
            target = member.tree.target
            assert isinstance(target, Numbers)
            rows = forest.core.rows_of(member, *batch.rows)
            away = target.intervals(*rows, level) - target.predict(*rows)[:, np.newaxis]
            found = found + abs(share) * away  # a share may be negative, a distance may not
        return np.maximum(found, 0.0) if forest.core.has_log_link else found

    @undisturbed
    def predict_quantiles(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted quantiles of each row, ascending, with ``loss="quantile"``."""
        batch = self._encoded(X)
        forest = self._fitted
        if getattr(forest.parameters, "loss", None) != "quantile":
            raise AttributeError('predict_quantiles needs a model with loss="quantile"')
        return forest.core.numbers(*batch.rows)
