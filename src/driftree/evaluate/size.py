"""Size: how large a learner is, counted as the paper counts, by walking the real tree.

Each inner node is one split and one parameter. A leaf that predicts the majority, or a mean, is no
split and one parameter. A leaf with a model of its own splits its rows once more: one split for two
classes or a number, c for c classes; its parameters are m (two classes or a number) or m (c - 1), m
the number of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from river.rules import AMRules

from driftree.evaluate.regressors import NoChange, RunningMean

if TYPE_CHECKING:
    from collections.abc import Iterable


class Size(NamedTuple):
    """Splits and parameters as the paper counts them, nodes, and conditions on the longest path."""

    n_splits: int
    n_parameters: int
    n_nodes: int
    depth: int


def measure_size(  # noqa: PLR0911 (a return for each kind of learner)
    model: Any, n_features: int, n_classes: int
) -> Size | None:
    """Return the size of a learner; of an ensemble the sum over its trees, and the largest depth.

    Parameters
    ----------
    model : object
        A learner of driftree; a Hoeffding tree, rules or an ensemble of them, a linear model or a
        dummy of River's, also at the end of a pipeline; or a linear model of scikit-learn's.
    n_features, n_classes : int
        What it learns from; the driftree learners know that themselves. A number is one class.

    Returns
    -------
    Size or None
        None where it is not defined how to count such a learner.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> model = HoeffdingTreeClassifier(leaf_prediction="nba", grace_period=50)
    >>> for i in range(200):
    ...     model.learn_one({"age": 40 * (i % 2), "height": 1}, i % 2)
    >>> measure_size(model, n_features=2, n_classes=2)
    Size(n_splits=3, n_parameters=5, n_nodes=3, depth=1)
    """
    if hasattr(type(model), "n_splits_"):
        if not hasattr(model, "n_splits_"):  # it has learnt nothing yet
            return Size(n_splits=1, n_parameters=0, n_nodes=1, depth=0)
        return Size(model.n_splits_, model.n_parameters_, model.n_nodes_, model.depth_)
    inner = unwrapped(model)
    if inner is not model:
        return measure_size(inner, n_features, n_classes)
    if hasattr(model, "_root"):
        return _measure_tree(model, n_features, n_classes)
    if isinstance(model, AMRules):  # each rule, and the default one, has a model
        n_rules = len(model._rules)
        leaves = _measure_leaves(n_rules + 1, n_features, n_classes, has_models=True)
        n_tests = sum(len(rule.literals) for rule in model._rules.values())
        return Size(n_tests + leaves.n_splits, n_tests + leaves.n_parameters, n_rules + 1, depth=0)
    if hasattr(model, "models") and not isinstance(model, dict):
        return _sum(measure_size(part, n_features, n_classes) for part in model.models)
    if type(model).__module__.startswith("river.dummy") or isinstance(
        model, (NoChange, RunningMean)
    ):
        return Size(n_splits=0, n_parameters=1, n_nodes=1, depth=0)
    if hasattr(model, "coef_") or type(model).__module__.startswith("river.linear_model"):
        return _measure_leaves(1, n_features, n_classes, has_models=True)
    return None


def unwrapped(model: Any) -> Any:
    """Return the learner inside of a pipeline, and inside of what scales its target.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> unwrapped(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    LogisticRegression (...
    """
    steps = getattr(model, "steps", None)
    if isinstance(steps, dict) and steps:  # River's; scikit-learn's is a list of pairs
        return unwrapped(list(steps.values())[-1])
    if isinstance(steps, list) and steps:
        return unwrapped(steps[-1][1])
    inner = getattr(model, "regressor", None)
    return model if inner is None else unwrapped(inner)


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
    has_models = getattr(model, "leaf_prediction", "mc") not in ("mc", "mean")
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


def measure_memory(model: Any) -> int | None:
    """Return the bytes that a learner holds; None if it cannot be told.

    River's learners are measured by walking all their objects, which is slow.

    Examples
    --------
    >>> from driftree.evaluate import make_learner
    >>> measure_memory(make_learner("majority")) > 0
    True
    """
    if hasattr(model, "memory_usage"):
        return int(model.memory_usage())
    if hasattr(type(model), "_raw_memory_usage"):  # a property: hasattr would compute it
        return int(model._raw_memory_usage)
    return None
