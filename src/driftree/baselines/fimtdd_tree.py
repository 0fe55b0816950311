"""FIMT-DD: when a leaf is split, and when a branch is deleted.

The kernels learn the rows one by one: they route a row, pass the error of its leaf back up to the
Page-Hinkley tests of the inner nodes, train the leaf's linear model and count the row in the leaf's
split points. They stop where a decision is due; the decisions are all in this file.

Ikonomovska, Gama and Dzeroski: Learning model trees from evolving data streams, Data Mining and
Knowledge Discovery 23, 2011. The target is numeric there; here it is the indicator of each class.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn._kernels import FimtddEngine
from driftree.learn.nodes import TreeNodes

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from driftree.learn.memory import Size
    from driftree.learn.parameters import FIMTDDParameters

DRIFT_ROWS = 30  # rows of an inner node before its mean error means anything
STEP_ROWS = 1000  # rows handed to the kernels at a time
LEAST_KEYS, MOST_KEYS, KEY_BUDGET = 16, 256, 16384  # of a leaf's search trees, as in the kernels


class SplitPoint(NamedTuple):
    """The best split of one feature, by the reduction of the target's standard deviation (SDR)."""

    reduction: float
    feature: int
    threshold: float
    equality: bool
    missing_left: bool


def hoeffding_bound(delta: float, n_rows: float) -> float:
    """Return how far the mean of `n_rows` values in [0, 1] may be off, but for the risk `delta`.

    Examples
    --------
    >>> round(hoeffding_bound(0.01, 200), 4)
    0.1073
    """
    return math.sqrt(math.log(1 / delta) / (2 * n_rows))


class FIMTDDTree(TreeNodes):
    """Node arrays (in the engine) and the decisions over them."""

    engine: FimtddEngine

    def __init__(self, parameters: FIMTDDParameters, n_classes: int) -> None:
        p = parameters
        self.parameters = p
        self.engine = FimtddEngine(
            n_classes,
            learning_rate=p.learning_rate,
            grace_period=p.grace_period,
            drift_tolerance=p.drift_tolerance,
            drift_threshold=p.drift_threshold,
            drift_rows=DRIFT_ROWS,
            max_nodes=p.max_nodes,
        )
        super().__init__(self.engine)

    # ------------------------------------------------------------------ learning
    def learn(self, X: NDArray[np.float64], y: NDArray[np.int32], w: NDArray[np.float64]) -> None:
        """Learn rows in their order; a decision comes right after the row that calls for it.

        Who calls has the engine's turn: nobody looks between a row and its decisions.
        """
        start = 0
        targets = y.astype(np.float64)
        while start < len(X):
            start += self.engine.learn(X[start:], targets[start:], w[start:])
            if self.engine.has_due:
                self.decide()

    @property
    def step_rows(self) -> int:
        """Rows of a batch that are learnt at a time, at most."""
        return STEP_ROWS

    def decide(self) -> None:
        """Decide the nodes that are due, from the root down."""
        for node in self.engine.due:
            if not self.engine.has_node(node):
                continue  # it went with a branch
            if self.engine.left[node] >= 0:
                self._decide_inner(node)
            else:
                self._decide_leaf(node)

    def _decide_leaf(self, leaf: int) -> None:
        """Split if the best feature is surely better than the second, or both are as good."""
        if not self._may_split(leaf):
            return
        ranked = sorted(
            (SplitPoint(*point) for point in self.engine.best_splits(leaf)),
            key=lambda point: (-point.reduction, point.feature),
        )
        if not ranked:
            return
        best = ranked[0]
        ratio = ranked[1].reduction / best.reduction if len(ranked) > 1 else 0.0
        bound = hoeffding_bound(self.parameters.delta, float(self.engine.rows[leaf]))
        if ratio + bound < 1 or bound < self.parameters.tie_threshold:
            self.engine.split(leaf, best.feature, best.threshold, best.equality, best.missing_left)

    def _decide_inner(self, node: int) -> None:
        """Delete the branch if its error has risen by more than the Page-Hinkley test allows."""
        rise = float(self.engine.error_sum[node] - self.engine.least_sum[node])
        if rise > self.parameters.drift_threshold:
            self.engine.delete_branch(node)

    def _may_split(self, leaf: int) -> bool:
        p = self.parameters
        return self.n_nodes + 2 <= p.max_nodes and int(self.engine.depth[leaf]) < p.max_depth

    # ------------------------------------------------------------------ what the estimator needs
    def leaf_bytes(self, size: Size) -> int:
        """Return the bytes of a tree of one leaf: its model, and a search tree per feature."""
        key = 2 + max(2, size.n_classes)
        n_keys = max(LEAST_KEYS, min(MOST_KEYS, KEY_BUDGET // key))
        return 8 * (size.n_weights + size.n_features * (n_keys * key + size.n_classes))

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Make ready for labels to come: nothing to do."""

    is_finished = True

    def finish(self) -> None:
        """Bring to an end what is new or was interrupted: nothing ever is."""

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of all that was learnt."""
        return {"arrays": self.engine.arrays()}

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Take over the knowledge of another tree with the same parameters, if it is sound."""
        self.engine.restore(knowledge["arrays"])
        self.check(knowledge.get("history"))

    def check(self, history: None) -> None:
        """Raise unless the tree keeps to its parameters; it has no history."""
        self.check_depth(self.parameters.max_depth)
        if history is not None:
            raise ValueError("a tree of FIMT-DD has no history")
