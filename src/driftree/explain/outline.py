"""Outline: the whole tree as one plain object, now or at an earlier step; what pictures draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from driftree.explain.changes import births_at, history_of, replay
from driftree.explain.curves import leaf_curves
from driftree.explain.describe import (
    centre,
    children_of,
    class_shares,
    divide_rows,
    inside,
    level_groups,
    mean_prediction,
    outputs,
    possible_inputs,
    row_shares,
    strongest_inputs,
    typical_error,
)
from driftree.explain.sparse import merge, node_words
from driftree.learn.units import node_effects

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from driftree.explain.curves import LeafCurve
    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Condition
    from driftree.learn.history import History, NodeSample, Structure
    from driftree.learn.tree import Tree


MAX_SPARSE = 10  # sparse features of a node


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineNode:
    """A node of an outline.

    Attributes
    ----------
    node : int
        Its id, as `apply` gives it.
    depth : int
        Conditions above it.
    condition : Condition or None
        Its split: rows that pass go left. None at a leaf.
    left, right : int
        Its children, -1 at a leaf.
    share : float
        Share of the stream's rows that reach it, each condition above counted since it was made;
        NaN while one of them has seen no rows.
    probabilities : dict or None
        Share of each label among the rows that reached it, as in `Rule`; None in the past, and as
        long as no row has reached it. Of numbers there are none.
    effects : dict of dict or None
        Per label (two labels: of the second only) and input: by how much its own model's log-odds
        change when a number grows by two standard deviations (the paper's setting: from its least
        to its largest value), or a 0/1 input from 0 to 1. Where the line of a number is bent: the
        most that they rise or fall when it grows by up to that. The strongest come first. Of
        sparse features, the ten strongest, and by how much each changes the log-odds when it goes
        from 0 to its usual size; none in the past. Inner
        nodes have a model too: it has learnt all rows below. None in the past where it was not
        sampled.
    curves : dict of dict or None
        Per label the curves of the numbers whose lines are bent, as in `LeafModel`; None in the
        past.
    mean, error : float or None
        Of a regressor: the mean prediction of its own model, and by how much rows lie around
        theirs; None in the past. Effects and curves are in the unit of the number, under "y".
    """

    node: int
    depth: int
    condition: Condition | None
    left: int
    right: int
    share: float
    probabilities: dict[Hashable, float] | None
    effects: dict[Hashable, dict[str, float]] | None
    curves: dict[Hashable, dict[str, LeafCurve]] | None = None
    mean: float | None = None
    error: float | None = None


def outline(model: Readable, *, step: int | None = None) -> dict[int, OutlineNode]:
    """Return the nodes of the tree by their ids, from the root (0) down, left before right.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    step : int, optional
        The tree after this step, as far as the history goes back; by default the present one. The
        past one has the shares and effects of the last sample up to that step, or of the first one
        after it for nodes that are new.

    Returns
    -------
    dict of int to OutlineNode

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> for node in outline(model).values():
    ...     print(node.depth, node.condition, f"{node.share:.0%}")
    0 x1 <= -0.01286 100%
    1 None 52%
    1 None 48%
    """
    tree, encoder = inside(model)
    if step is None:
        return _now(tree, encoder)
    return _then(tree, encoder, step, model.tree_at(step))


def unit_of_effects(model: Readable) -> str:
    """Say in words what change of an input an effect stands for."""
    tree, encoder = inside(model)
    grows = (
        "goes from its least to its largest value"
        if tree.parameters.setting == "paper"
        else "grows by 2 standard deviations"
    )
    if encoder.sparse is not None:
        grows += ", a sparse one from 0 to its usual size"
    return f"a number {grows}, or a 0/1 input from 0 to 1"


def effects_of(
    tree: Tree, encoder: Encoder, weights: NDArray[np.floating], path: tuple[Condition, ...]
) -> dict[Hashable, dict[str, float]]:
    """Return a simple model's `node_effects`, [outputs, columns], by label and name.

    One of a category's inputs is 1 in every row, so only the differences between its weights mean
    something: they are given as differences to their mean. Inputs that the path rules out have
    none. A model of the past may have known fewer columns and labels than there are now.
    """
    names = encoder.column_names()
    possible = possible_inputs(tree, encoder, path)
    scaled = centre(np.asarray(weights, dtype=np.float64), possible, level_groups(tree))
    return {
        label: {names[column]: float(row[column]) for column in strongest_inputs(row)}
        for label, row in zip(outputs(tree, len(scaled)), scaled, strict=False)
    }


# ---------------------------------------------------------------------- now and then
def _now(tree: Tree, encoder: Encoder) -> dict[int, OutlineNode]:
    engine = tree.engine
    children = children_of(tree)
    shares = row_shares(tree)
    found = {}
    for node in tree.walk():
        left, right = children.get(node, (-1, -1))
        is_leaf = left < 0
        found[node] = OutlineNode(
            node=node,
            depth=int(engine.depth[node]),
            condition=None if is_leaf else tree.path(left)[-1],
            left=left,
            right=right,
            share=shares[node],
            probabilities=(class_shares(tree, node) or None) if engine.rows[node] > 0 else None,
            effects=_effects_now(tree, encoder, node),
            curves=_curves_of(tree, encoder, node),
            mean=mean_prediction(tree, encoder, node),
            error=typical_error(tree, node),
        )
    return found


def _effects_now(tree: Tree, encoder: Encoder, node: int) -> dict[Hashable, dict[str, float]]:
    effects = effects_of(tree, encoder, node_effects(tree.engine, node), tree.path(node))
    if encoder.sparse is None:
        return effects
    sparse = node_words(tree, encoder, node, MAX_SPARSE).inputs
    pairs = zip(effects.items(), sparse, strict=False)
    return {label: merge(list(own.items()), words) for (label, own), words in pairs}


def _curves_of(tree: Tree, encoder: Encoder, node: int) -> dict[Hashable, dict[str, LeafCurve]]:
    names, columns = encoder.column_names(), tree.engine.value_column
    curves, _ = leaf_curves(tree, node, possible_inputs(tree, encoder, tree.path(node)))
    return {
        label: {names[columns[j]]: own[i] for j, own in curves.items()}
        for i, label in enumerate(outputs(tree, tree.engine.n_outputs))
    }


def _then(tree: Tree, encoder: Encoder, step: int, structure: Structure) -> dict[int, OutlineNode]:
    nodes = structure.nodes
    known = _seen_near(history_of(tree), step)
    rows = {node: known[node].rows if node in known else 0.0 for node in nodes}
    shares = divide_rows(structure.children(), rows)
    found = {}
    for node, spot in nodes.items():
        weights, path = known[node].weights if node in known else None, structure.path(node)
        found[node] = OutlineNode(
            node=node,
            depth=spot.depth,
            condition=spot.condition,
            left=spot.left,
            right=spot.right,
            share=shares[node],
            probabilities=None,
            effects=None if weights is None else effects_of(tree, encoder, weights, path),
        )
    return found


def _seen_near(history: History, step: int) -> dict[int, NodeSample]:
    """Return each node of a past tree as it was last sampled; a younger one, when it first was."""
    births = births_at(history, step)
    seen: dict[int, NodeSample] = {}
    for moment in replay(history)[0]:
        for node, sample in moment.sample.nodes.items():
            is_same = moment.births[node] == births.get(node)
            if is_same and (node not in seen or moment.sample.step <= step):
                seen[node] = sample
    return seen
