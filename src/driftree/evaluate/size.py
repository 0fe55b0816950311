"""How large a learner is, counted as the paper counts, by walking the real tree.

Each inner node is one split and one parameter. A leaf that predicts the majority is no split and
one parameter. A leaf with a model of its own splits its rows once more: one split for two classes,
c for c classes; its parameters are m (two classes) or m (c - 1), m the number of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Size(NamedTuple):
    """Splits and parameters as the paper counts them, nodes, and conditions on the longest path."""

    n_splits: int
    n_parameters: int
    n_nodes: int
    depth: int


def measure_size(model: Any, n_features: int, n_classes: int) -> Size | None:
    """Return the size of a learner; of an ensemble the sum over its trees, and the largest depth.

    Parameters
    ----------
    model : object
        A learner of driftree, a Hoeffding tree or an ensemble of them or a dummy of River's, or a
        linear model of scikit-learn's.
    n_features, n_classes : int
        What it learns from; the driftree learners know that themselves.

    Returns
    -------
    Size or None
        None where nobody has said how to count such a learner.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> model = HoeffdingTreeClassifier(leaf_prediction="nba", grace_period=50)
    >>> for i in range(200):
    ...     model.learn_one({"age": 40 * (i % 2), "height": 1}, i % 2)
    >>> measure_size(model, n_features=2, n_classes=2)
    Size(n_splits=3, n_parameters=5, n_nodes=3, depth=1)
    """
    if hasattr(model, "n_splits_"):
        return Size(model.n_splits_, model.n_parameters_, model.n_nodes_, model.depth_)
    if hasattr(model, "_root"):
        return _measure_tree(model, n_features, n_classes)
    if hasattr(model, "models") and not isinstance(model, dict):
        return _sum(measure_size(part, n_features, n_classes) for part in model.models)
    if type(model).__module__.startswith("river.dummy"):
        return Size(n_splits=0, n_parameters=1, n_nodes=1, depth=0)
    if hasattr(model, "coef_"):
        return _measure_leaves(1, n_features, n_classes, has_models=True)
    return None


def _measure_tree(model: Any, n_features: int, n_classes: int) -> Size:
    """Walk a River tree: a node with children is an inner node, whatever its class."""
    n_inner = n_leaves = depth = 0
    waiting = [(model._root, 0)]
    while waiting:
        node, level = waiting.pop()
        depth = max(depth, level)
        children = getattr(node, "children", None)
        if children:
            n_inner += 1
            waiting.extend((child, level + 1) for child in children)
        else:
            n_leaves += 1
    has_models = getattr(model, "leaf_prediction", "mc") != "mc"
    leaves = _measure_leaves(n_leaves, n_features, n_classes, has_models=has_models)
    return Size(
        n_splits=n_inner + leaves.n_splits,
        n_parameters=n_inner + leaves.n_parameters,
        n_nodes=n_inner + n_leaves,
        depth=depth,
    )


def _measure_leaves(n_leaves: int, n_features: int, n_classes: int, *, has_models: bool) -> Size:
    if not has_models:
        return Size(n_splits=0, n_parameters=n_leaves, n_nodes=n_leaves, depth=0)
    n_splits = n_classes if n_classes > 2 else 1
    n_parameters = n_features * max(1, n_classes - 1)
    return Size(n_leaves * n_splits, n_leaves * n_parameters, n_leaves, depth=0)


def _sum(sizes: Iterable[Size | None]) -> Size | None:
    known = list(sizes)
    if None in known:
        return None
    parts = [size for size in known if size is not None]
    return Size(
        n_splits=sum(size.n_splits for size in parts),
        n_parameters=sum(size.n_parameters for size in parts),
        n_nodes=sum(size.n_nodes for size in parts),
        depth=max((size.depth for size in parts), default=0),
    )
