"""Nodes: the tree that an engine holds as arrays, in the user's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.learn.events import Condition, make_path

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from driftree.learn._kernels import _RowFace, _TreeEngine
    from driftree.learn.encoding import Encoder
    from driftree.learn.sparse import SparseFeatures
    from driftree.learn.target import Target


class TreeNodes:
    """Nodes, leaves and paths.

    A tree's encoder converts conditions to the user's names, and its target defines what y means.
    `state.connect` sets both; a tree without them calls its features x0, x1, ...
    """

    engine: _TreeEngine
    encoder: Encoder
    target: Target

    def __init__(self, engine: _TreeEngine) -> None:
        self.engine = engine

    def end_call(self) -> None:
        """Finish a call, after all its rows."""

    def sparse_features(
        self, row_face: _RowFace, categorical: frozenset[Hashable]
    ) -> SparseFeatures | None:
        """Return the reader of sparse rows; None if they are not supported."""
        return None

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.engine.n_nodes

    @property
    def n_changes(self) -> int:
        """How often it has changed; 0 if unknown."""
        return 0

    @property
    def recent_loss(self) -> float | None:
        """Mean loss of the last rows, predicted before learnt; None if unknown."""
        return None

    @property
    def label_rows(self) -> NDArray[np.float64] | None:
        """Rows of each label, as far as they are remembered; None if unknown."""
        return None

    def walk(self) -> Iterator[int]:
        """Yield the nodes from the root down, left before right."""
        left, right = self.engine.left, self.engine.right
        rest = [0]
        while rest:
            node = rest.pop()
            yield node
            if left[node] >= 0:
                rest += [int(right[node]), int(left[node])]

    def leaves(self) -> list[int]:
        """Return the leaves from left to right."""
        left = self.engine.left
        return [node for node in self.walk() if left[node] < 0]

    def leaves_below(self) -> dict[int, int]:
        """Return the number of leaves below each node; a leaf counts itself."""
        if self.engine.n_nodes == 1:  # as in every new tree
            return {0: 1}
        lefts, rights = self.engine.left, self.engine.right
        counts: dict[int, int] = {}
        for node in reversed(list(self.walk())):
            left, right = int(lefts[node]), int(rights[node])
            counts[node] = 1 if left < 0 else counts[left] + counts[right]
        return counts

    def check_depth(self, max_depth: int) -> None:
        """Raise if the tree is deeper than that."""
        if self.engine.n_nodes > 1 and self.engine.depth.max() > max_depth:
            raise ValueError(f"the tree is deeper than {max_depth}")

    def path(self, node: int) -> tuple[Condition, ...]:
        """Return the conditions from the root to a node."""
        parents, lefts = self.engine.parent, self.engine.left
        conditions = []
        while (parent := int(parents[node])) >= 0:
            condition = self._condition(parent)
            conditions.append(condition if lefts[parent] == node else condition.negated())
            node = parent
        return make_path(reversed(conditions))

    def _condition(self, node: int) -> Condition:
        engine = self.engine
        return self.words(
            int(engine.feature[node]),
            float(engine.threshold[node]),
            equality=bool(engine.equality[node]),
            missing_left=bool(engine.missing_left[node]),
        )

    def words(
        self, feature: int, threshold: float, *, equality: bool, missing_left: bool
    ) -> Condition:
        """Return a split in the user's names."""
        if not hasattr(self, "encoder"):
            return Condition(f"x{feature}", "==" if equality else "<=", threshold, missing_left)
        return self.encoder.condition(
            feature, threshold, equality=equality, missing_left=missing_left
        )
