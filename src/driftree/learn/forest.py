"""Forest: several trees that learn the same rows, behind the interface of one.

For the estimators a forest is like a tree: it has an engine, an encoder and a target, and learns in
steps. The first member is a plain tree. It reads the rows for all (`encoder`), and its table scales
them; the others share its features, levels and labels, and have hinges of pairs of features as
further inputs (`pairs`). The `Stack` adds up their predictions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn.columns import level_names
from driftree.learn.constants import FOREST
from driftree.learn.encoding import Encoder
from driftree.learn.forest_engine import ForestEngine, Look
from driftree.learn.imbalance import Imbalance
from driftree.learn.losses import BUILT_IN
from driftree.learn.target import Labels, Numbers

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import SparseRows, _RowFace
    from driftree.learn.forest_engine import MakeTree
    from driftree.learn.members import Member
    from driftree.learn.memory import SchemaSize
    from driftree.learn.parameters import ForestParameters
    from driftree.learn.target import Codes
    from driftree.learn.tree import Tree


class ForestFace:
    """The counterpart of a tree's row face: reads dicts for all members."""

    def __init__(self, engine: ForestEngine) -> None:
        self.engine = engine
        self._face: _RowFace = engine.leader.tree.encoder.row_face
        self._may_fail = getattr(engine.parameters, "loss", BUILT_IN[0]) not in BUILT_IN

    def __getattr__(self, name: str) -> Any:
        if name in ("engine", "_face", "_may_fail"):
            raise AttributeError(name)
        return getattr(self._face, name)

    def commit(self, known: object, **growth: Any) -> None:
        """Let all members grow; the others follow the first."""
        with self.engine.changing():
            self._face.commit(known, **growth)
            self.engine.follow()

    def learn(self, x: Any, y: Any, weight: float = 1.0) -> Any:
        """Learn one dict in a step; returns what a tree's row face does.

        With a custom loss, which may fail after some of the trees have learnt, Python learns the
        row, and can undo it.
        """
        if self._may_fail:
            return NotImplemented
        self.engine.mend()
        return self.engine.kernel.learn_row(self._face, x, y, weight)

    def predict(self, x: Any) -> Any:
        """Return the most probable label or the number; NotImplemented if Python must read x."""
        self.engine.mend()
        return self.engine.kernel.predict_row(self._face, x)

    def probabilities(self, x: Any) -> dict[Any, float] | None:
        """Return the probability of each label; None if Python must read x."""
        self.engine.mend()
        return self.engine.kernel.probabilities_row(self._face, x)


class Forest:
    """A forest with the interface of a tree.

    Parameters
    ----------
    parameters : ForestParameters or ForestNumberParameters
        Checked.
    make_tree : callable
        Creates a connected tree from a member's parameters.
    """

    def __init__(self, parameters: ForestParameters, make_tree: MakeTree) -> None:
        self.parameters = parameters
        self.core = ForestEngine(parameters, make_tree)
        self.engine: Any = self.core  # as the estimators take it
        leader = self.core.leader.tree
        if leader.encoder.sparse is not None:
            leader.encoder.sparse.naming = self.core.kernel.writing
        self.face = ForestFace(self.core)
        self.encoder = Encoder(
            self.face,  # type: ignore[arg-type]
            leader.engine,
            leader.encoder.categorical,
            indicators=True,
            sparse=leader.encoder.sparse,
        )
        target = Labels if leader.engine.has_labels else Numbers
        self.target = target(self.face, self.engine)  # type: ignore[arg-type]
        self.target.imbalance = Imbalance.of(parameters)
        self.core.follow()  # with follow_target there are features from the start

    @property
    def members(self) -> list[Member]:
        """The members, the plain tree first."""
        return self.core.members

    @property
    def trees(self) -> list[Tree]:
        """Their trees."""
        return [member.tree for member in self.core.members]

    # ------------------------------------------------------------------ as a tree does
    @property
    def n_nodes(self) -> int:
        """Nodes of all trees."""
        return self.core.n_nodes

    @property
    def n_changes(self) -> int:
        """How often the trees have changed, or were replaced."""
        return self.core.n_replaced + sum(tree.n_changes for tree in self.trees)

    @property
    def recent_loss(self) -> float | None:
        """Mean loss of the first tree."""
        return self.core.leader.tree.recent_loss

    @property
    def label_rows(self) -> NDArray[np.float64] | None:
        """Rows of each label, as counted by the first tree."""
        return self.core.leader.tree.label_rows

    @property
    def step_rows(self) -> int:
        """Rows of a batch that are learnt at a time, at most."""
        own = min(tree.step_rows for tree in self.trees)
        return own if self.core.most_rows is None else min(own, self.core.most_rows)

    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
        wholes: NDArray[np.float64] | None = None,
    ) -> None:
        """Learn one step; the caller holds the engine's lock."""
        self.core.learn(X, y, w, sparse, wholes)

    def decide(self) -> None:
        """Decide what is due."""
        self.core.decide()

    def leaves(self) -> list[int]:
        """Return the leaves of the first tree from left to right."""
        return self.core.leader.tree.leaves()

    def leaf_bytes(self, size: SchemaSize) -> int:
        """Return the bytes of trees of one leaf each."""
        n_bytes = self.core.leader.tree.leaf_bytes(size)
        for member in self.members[1:]:
            n_pairs = member.count_pairs(size.n_features)
            n_features, n_columns = size.n_features + n_pairs, size.n_columns + n_pairs
            wide = replace(size, n_features=n_features, n_columns=n_columns)
            n_bytes += member.tree.leaf_bytes(wide)
        return n_bytes

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Prepare for new labels."""
        for tree in self.trees:
            tree.expect_classes(labels)

    def end_call(self) -> None:
        """Finish a call, after all its rows."""
        for tree in self.trees:
            tree.end_call()

    def finish(self) -> None:
        """Complete what is new or was interrupted, in all trees."""
        with self.core.writing():
            self.core.mend()
            for tree in self.trees:
                tree.finish()

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to finish."""
        return self.core.is_whole and all(tree.is_finished for tree in self.trees)

    def check(self, histories: Iterable[Any]) -> None:
        """Raise unless each tree conforms to its parameters, and each history to its tree."""
        for tree, history in zip(self.trees, histories, strict=True):
            tree.check(history)

    # ------------------------------------------------------------------ keeping
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of the state besides the trees, by name."""
        engine = self.core
        found = {f"stack.{name}": array for name, array in engine.stack.arrays().items()}
        for i, member in enumerate(self.members[1:], 1):
            pairs = member.pairs.arrays()
            found |= {f"pairs{i}.{name}": array for name, array in pairs.items()}
        looks = [
            [look.n_rows, *look.agreement, *look.weights, *look.losses] for look in engine.looks
        ]
        counts = [engine.next_scale, engine.next_look, engine.n_replaced]
        return found | {
            "scale": engine.scale,
            "looks": np.array(looks, dtype=np.float64).reshape(-1),
            "counts": np.array(counts, dtype=np.int64),
            "since": np.array([member.since for member in self.members], dtype=np.int64),
        }

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of the state besides the trees."""
        self.finish()
        found = {"arrays": self.arrays(), "replaced": list(self.core.replaced)}
        return found | self.seen()

    def seen(self) -> dict[str, Any]:
        """Return a copy of the label statistics, in the form of a target's knowledge."""
        return {} if self.target.imbalance is None else {"seen": self.target.imbalance.seen()}

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Restore such a copy, after the trees were restored; raise if it is invalid."""
        arrays = knowledge["arrays"]
        engine, n = self.core, len(self.members)
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            start, _, rest = name.rpartition(".")
            parts.setdefault(start, {})[rest] = array
        own = parts.get("", {})
        wanted = {"", "stack", *(f"pairs{i}" for i in range(1, n))}
        is_whole = parts.keys() == wanted and own.keys() == {"scale", "looks", "counts", "since"}
        if not is_whole:
            raise ValueError("a forest must have weights, pairs, a scale and looks")
        stack = parts["stack"]
        if "rows" in stack and stack["rows"].size == 1:  # as in older files: one number for all
            stack["rows"] = np.full(n + 1, stack["rows"])
        stack.setdefault("seen", np.ones(engine.n_classes if engine.has_labels else 0))  # likewise
        engine.stack.restore(stack)
        is_sparse = self.encoder.sparse is not None  # then only those of the target are shared
        n_features = len(level_names(engine.leader.engine) if is_sparse else self.encoder.names)
        for i, member in enumerate(self.members[1:], 1):
            member.pairs.restore(parts[f"pairs{i}"], n_features)
            if not is_sparse and len(member.pairs.sources) != member.engine.n_features:
                raise ValueError("the pairs are not those of the tree's features")
            if member.tree.encoder.sparse is not None:
                member.tree.encoder.sparse.is_wide = False  # the first tree reads tables for all
            ends = member.pairs.ends
            if len(ends) and (len(own["scale"]) % 2 or ends.max() >= len(own["scale"]) // 2):
                raise ValueError("the scale is not that of the pairs")
        width = 2 + 3 * n
        looks, counts, since = own["looks"], own["counts"], own["since"]
        is_sound = (
            own["scale"].dtype == looks.dtype == np.float64
            and bool(np.isfinite(own["scale"]).all() and not np.isinf(looks).any())
            and len(looks) % width == 0
            and len(looks) <= width * (FOREST.most_looks + 1)
            and counts.dtype == since.dtype == np.int64
            and counts.shape == (3,)
            and since.shape == (n,)
            and bool((counts >= 0).all() and (since >= 0).all())
        )
        if not is_sound:
            raise ValueError("the state of the members is invalid")
        engine.scale = own["scale"]
        engine.looks = [
            Look(int(row[0]), *(tuple(part.tolist()) for part in np.split(row[1:], [n, 2 * n])))
            for row in looks.reshape(-1, width)
        ]
        engine.next_scale, engine.next_look, engine.n_replaced = counts.tolist()
        engine.replaced = list(knowledge["replaced"])
        for place in range(n):
            engine.seat(place)
        engine.wait()
        for member, rows in zip(self.members, since.tolist(), strict=True):
            member.since = rows
