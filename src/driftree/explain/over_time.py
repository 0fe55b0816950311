"""Over time: the tree as plain data, now or at an earlier step; candidates and models over time.

This is the data of plots: `outline` is the whole tree at a step; candidates and models over time
come from the samples in its history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from driftree.explain.changes import births_at, history_of, replay
from driftree.explain.describe import (
    centre,
    children_of,
    class_shares,
    divide_rows,
    inside,
    leaf_curves,
    level_groups,
    mean_prediction,
    outputs,
    possible_inputs,
    row_shares,
    strongest_inputs,
    typical_error,
)
from driftree.explain.sparse import merge, node_words
from driftree.learn.events import Replace, Split
from driftree.learn.units import node_effects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from numpy.typing import NDArray

    from driftree.explain.describe import LeafCurve
    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Condition, Event
    from driftree.learn.history import History, NodeSample, Structure
    from driftree.learn.tree import Tree

MAX_SPARSE = 10  # sparse features of a node

FLIP = 0.1  # share of the strongest effect: smaller effects have no sign


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
        Share of each label among the rows that reached it, as in `Rule`; None in the past, and
        without rows. Empty for regressors.
    effects : dict of dict or None
        Per label (two labels: of the second only) and input: by how much its own model's log-odds
        change when a number grows by two standard deviations (the paper's setting: from its least
        to its largest value), or a 0/1 input from 0 to 1. Where the line of a number is bent: the
        most that they rise or fall when it grows by up to that. The strongest come first. Of sparse
        features, the ten strongest, with the change when they go from 0 to their usual size; none
        in the past. Inner nodes have a model, too, of all rows below. None in the past if it was
        not sampled.
    curves : dict of dict or None
        Per label the curves of the numbers whose lines are bent, as in `LeafModel`; None in the
        past.
    mean, error : float or None
        Regressors: the mean prediction of its own model, and its typical error; None in the past.
        Effects and curves are in the unit of the number, under "y".
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
        The tree after this step, as far as the history goes back; by default the present one. A
        past tree has the shares and effects of the last sample up to that step, or of the first one
        after it for new nodes.

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
    """Describe the change of an input that effects refer to."""
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

    One of a category's inputs is 1 in every row, so only the differences between its weights are
    meaningful: they are given as differences from their mean. Inputs that the path excludes have
    none. A model of the past may have fewer columns and labels than there are now.
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
    """Return the last sample of each node of a past tree; for a younger one, the first."""
    births = births_at(history, step)
    seen: dict[int, NodeSample] = {}
    for moment in replay(history)[0]:
        for node, sample in moment.sample.nodes.items():
            is_same = moment.births[node] == births.get(node)
            if is_same and (node not in seen or moment.sample.step <= step):
                seen[node] = sample
    return seen


# ---------------------------------------------------------------------- gains over time
@dataclass(frozen=True, slots=True, eq=False)
class GainRace:
    """The gains of a node's candidates over time, and the required gain.

    Attributes
    ----------
    node : int
        Id of the node.
    path : tuple of Condition
        The conditions from the root to it.
    n_rows : ndarray of int
        Rows of the stream learnt at each time: those of the samples, and of the node's changes.
    threshold : ndarray of float
        The required gain; NaN while the tree could not grow there.
    gains : dict of Condition to ndarray of float
        Gain of each candidate, NaN when it was not among the best three; the largest ever first.
    events : list of Event
        The changes of the node.
    """

    node: int
    path: tuple[Condition, ...]
    n_rows: NDArray[np.int64]
    threshold: NDArray[np.float64]
    gains: dict[Condition, NDArray[np.float64]]
    events: list[Event]


def gain_race(model: Readable, node: int | None = None) -> GainRace:
    """Return the gains of a node's best candidates over time, and the required gain.

    At a leaf it is the gain of a split, at an inner node that of replacing the branch by another
    split.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    node : int, optional
        A node of the present tree, by default the one that changed last.

    Returns
    -------
    GainRace

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> race = gain_race(model)
    >>> best, gains = next(iter(race.gains.items()))
    >>> print(best, np.nanmax(gains) >= race.threshold[np.nanargmax(gains)])
    x1 <= -0.01286 True
    """
    tree, _ = inside(model)
    history = history_of(tree)
    if node is None:
        node = history.events[-1].node if history.events else 0
    _check_node(history.now, node)
    moments, births = replay(history)
    levels: dict[int, float] = {}
    gains: dict[Condition, dict[int, float]] = {}
    for moment in moments:
        if moment.births.get(node) != births[node]:
            continue
        seen, row = moment.sample.nodes[node], moment.sample.n_rows
        levels[row] = seen.needed if math.isfinite(seen.needed) else math.nan
        for entrant in seen.entrants:
            condition = tree.words(
                entrant.feature,
                entrant.threshold,
                equality=entrant.equality,
                missing_left=entrant.missing_left,
            )
            gains.setdefault(condition, {})[row] = entrant.gain
    events = [
        event for event in history.events if event.node == node and event.n_rows > births[node]
    ]
    _add_decisions(events, levels, gains)
    rows = sorted(levels)
    ranked = sorted(gains, key=lambda condition: -max(gains[condition].values()))
    return GainRace(
        node=node,
        path=history.now.path(node),
        n_rows=np.array(rows, dtype=np.int64),
        threshold=np.array([levels[row] for row in rows]),
        gains={
            condition: np.array([gains[condition].get(row, math.nan) for row in rows])
            for condition in ranked
        },
        events=events,
    )


def _add_decisions(
    events: Iterable[Event], levels: dict[int, float], gains: dict[Condition, dict[int, float]]
) -> None:
    """Add the numbers that were compared when a candidate won, between samples."""
    for event in events:
        if isinstance(event, (Split, Replace)):
            levels[event.n_rows] = event.threshold
            gains.setdefault(event.condition, {})[event.n_rows] = event.gain
            if event.runner_up is not None:
                second = gains.setdefault(event.runner_up.condition, {})
                second[event.n_rows] = event.runner_up.gain


# ---------------------------------------------------------------------- weights over time
@dataclass(frozen=True, slots=True, eq=False)
class WeightsOverTime:
    """The effects of a leaf's inputs over time, including earlier leaves that held its rows.

    Attributes
    ----------
    leaf : int
        Id of the leaf.
    path : tuple of Condition
        The conditions from the root to it.
    label : hashable
        The label whose log-odds the effects change; of a regressor "y", the number itself.
    n_rows : ndarray of int
        Rows of the stream learnt at each sample.
    nodes : ndarray of int
        The leaf that held these rows: the leaf itself, or earlier the node above it that was a
        leaf; -1 if that node had another split, so that no single leaf held them.
    effects : dict of str to ndarray of float
        Effect of each input at each sample, in log-odds or the unit of the number, as in `outline`;
        NaN where unknown. The strongest at any time come first.
    flips : dict of str to list of int
        Samples at which an input's effect had changed its sign: from more than a tenth of the
        strongest effect of all to less than minus that, or the other way.
    signs : dict of str to ndarray of int
        1 or -1 from where an input's effect exceeds that tenth to where its sign ends, otherwise 0.
    """

    leaf: int
    path: tuple[Condition, ...]
    label: Hashable
    n_rows: NDArray[np.int64]
    nodes: NDArray[np.int64]
    effects: dict[str, NDArray[np.float64]]
    flips: dict[str, list[int]]
    signs: dict[str, NDArray[np.int8]]


def weights_over_time(
    model: Readable, leaf: int | None = None, *, label: Hashable = None
) -> WeightsOverTime:
    """Return the effects of a leaf's inputs over time, also from before it was a leaf.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    leaf : int, optional
        A leaf of the present tree, as `apply` gives it; by default the one that most rows reach.
    label : hashable, optional
        With more than two labels, the one whose effects to return; by default the most frequent
        one of the leaf. With two labels it is the second.

    Returns
    -------
    WeightsOverTime

    Examples
    --------
    The effect of x0 on the label reverses after 4,000 rows:

    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(8000, 2))
    >>> y = (X[:, 0] > 0) ^ (np.arange(8000) > 4000)
    >>> course = weights_over_time(DynamicModelTreeClassifier().partial_fit(X, y))
    >>> [int(course.n_rows[place]) for place in course.flips["x0"]]
    [4600]
    """
    tree, encoder = inside(model)
    history = history_of(tree)
    if leaf is None:
        shares = row_shares(tree, unknown=0.5)
        leaf = max(history.now.leaves(), key=lambda node: shares[node])
    _check_node(history.now, leaf)
    if not history.now.nodes[leaf].is_leaf:
        known = ", ".join(map(str, sorted(history.now.leaves())))
        raise ValueError(f"node {leaf} is not a leaf; the leaves are {known}")
    label = _choose_label(tree, leaf, label)
    moments, births = replay(history)
    above = _way_to(history.now, leaf)
    nodes: list[int] = []
    found: list[dict[str, float]] = []
    for moment in moments:
        there = [node for node in above if moment.births.get(node) == births[node]]
        node = there[-1] if there else 0
        seen = moment.sample.nodes[node]
        nodes.append(node if seen.is_leaf and there else -1)
        found.append({})
        if nodes[-1] >= 0 and seen.weights is not None:
            path = moment.structure.path(node)
            found[-1] = effects_of(tree, encoder, seen.weights, path).get(label, {})
    names = encoder.column_names()[1:]
    effects = {name: np.array([own.get(name, math.nan) for own in found]) for name in names}
    largest = {name: _largest(values) for name, values in effects.items()}
    ranked = sorted(names, key=lambda name: -largest[name])
    least = FLIP * max(largest.values(), default=0.0)
    turns = {name: _follow_sign(effects[name], least) for name in ranked}
    return WeightsOverTime(
        leaf=leaf,
        path=history.now.path(leaf),
        label=label,
        n_rows=np.array([moment.sample.n_rows for moment in moments], dtype=np.int64),
        nodes=np.array(nodes, dtype=np.int64),
        effects={name: effects[name] for name in ranked},
        flips={name: flips for name, (flips, _) in turns.items()},
        signs={name: signs for name, (_, signs) in turns.items()},
    )


def _choose_label(tree: Tree, leaf: int, label: Hashable) -> Hashable:
    if not tree.engine.has_labels:
        if label is not None:
            raise ValueError(f"a number has no labels, so label must be None, got {label!r}")
        return outputs(tree, tree.engine.n_outputs)[tree.engine.n_outputs // 2]
    labels = list(tree.target.labels)
    if len(labels) < 2:
        raise ValueError(f"effects need at least two labels, the model has met {len(labels)}")
    known = labels if len(labels) > 2 else labels[1:]
    if label is None:
        return known[int(tree.engine.class_rows(leaf).argmax())] if len(known) > 1 else known[0]
    if label not in known:
        raise ValueError(f"label must be one of {', '.join(map(repr, known))}, got {label!r}")
    return label


def _way_to(structure: Structure, node: int) -> list[int]:
    """Return the nodes from the root to a node."""
    way = [node]
    while (parent := structure.nodes[way[-1]].parent) >= 0:
        way.append(parent)
    return way[::-1]


def _largest(values: NDArray[np.float64]) -> float:
    known = np.abs(values[~np.isnan(values)])
    return float(known.max()) if len(known) else 0.0


def _follow_sign(values: NDArray[np.float64], least: float) -> tuple[list[int], NDArray[np.int8]]:
    """Return where a value changes its sign, with at least a given size on both sides.

    Also return its sign, from where it has that size to where it is zero, unknown or changes.
    """
    flips, last, held = [], 0.0, 0
    signs = np.zeros(len(values), dtype=np.int8)
    for place, value in enumerate(values):
        if abs(value) > least:  # NaN is not
            if last * value < 0:
                flips.append(place)
            last, held = value, 1 if value > 0 else -1
        held = held if held * value > 0 else 0
        signs[place] = held
    return flips, signs


def _check_node(structure: Structure, node: int) -> None:
    if node not in structure.nodes:
        known = ", ".join(map(str, sorted(structure.nodes)))
        raise ValueError(f"there is no node {node} in the tree; there are {known}")
