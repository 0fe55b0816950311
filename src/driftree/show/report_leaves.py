"""The leaves in the report: their present models, and their weights over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.changes import replay
from driftree.explain.describe import (
    centre,
    class_shares,
    column_scales,
    divide_rows,
    inside,
    leaf_model,
    level_groups,
    outputs,
    possible_inputs,
    row_shares,
)
from driftree.explain.rules import make_rule, most_probable, rules
from driftree.explain.sparse import node_words
from driftree.explain.text import leaf_formulas, write_number
from driftree.learn.events import ALL_DIGITS, Spot
from driftree.learn.history import Structure
from driftree.learn.units import node_effects

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from driftree.explain.describe import LeafCurve
    from driftree.explain.rules import Rule, Weight
    from driftree.explain.sparse import SparseInput
    from driftree.learn.events import Condition
    from driftree.learn.tree import Tree
    from driftree.show.report_data import Words
    from driftree.show.style import AnyTree

MAX_LEAF_SAMPLES = 8000  # leaves in all samples, which bounds the size of the page
MAX_WEIGHTS = 6  # of a leaf
MAX_LABELS = 3  # of a leaf, if there are more than two

Pair = tuple[int, int]  # number of a label, number of an input
Moment = tuple[int, int, dict[int, "Sight"]]  # step, rows learnt, leaves


@dataclass(frozen=True, slots=True)
class Sight:
    """A leaf in a sample; `weights` [outputs, inputs], None if they were not sampled."""

    since_step: int
    path: tuple[Condition, ...]
    rows: float
    share: float
    weights: NDArray[np.float64] | None


@dataclass(slots=True)
class Life:
    """A leaf from sample to sample, for as long as it is the same leaf."""

    places: list[int] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)


def round_number(value: float | None, digits: int = 6) -> float | None:
    """Return a number with few digits; None if it is not finite, which JSON cannot express.

    The page rounds again: these are three digits more than it shows, or exactly those.

    Examples
    --------
    >>> round_number(0.12345678), round_number(math.nan)
    (0.123457, None)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


class Inputs:
    """The inputs that the page names: those with a column, and the sparse ones that it shows.

    Attributes
    ----------
    names : list of str
        By number; the intercept is 0.
    factors : list of float
        Factors that convert effects to weights per unit of the feature.
    """

    def __init__(self, model: AnyTree) -> None:
        tree, encoder = inside(model)
        self.names = encoder.column_names()
        self.factors: list[float] = column_scales(tree)[1].tolist()
        self._numbers = {name: i for i, name in reversed(list(enumerate(self.names)))}

    def number(self, weight: Weight | SparseInput) -> int:
        """Return the number of an input; a new one gets the next number."""
        if weight.name not in self._numbers:
            self._numbers[weight.name] = len(self.names)
            self.names.append(weight.name)
            self.factors.append(weight.weight / weight.effect if weight.effect else 1.0)
        return self._numbers[weight.name]


# ---------------------------------------------------------------------- at present
def present_leaves(model: AnyTree, words: Words, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the leaves from left to right as rules, with their strongest weights.

    With more than two labels, these are weights of the labels that are most frequent in the leaf.
    A leaf without rows has the probabilities of the node above, and is marked.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    words : Words
        Writes the rules.
    inputs : Inputs
        Numbers the inputs that are named.
    """
    formulas = leaf_formulas(model, MAX_WEIGHTS)
    return [
        _present(model, rule, words, inputs) | _number(rule, formulas.get(rule.leaf))
        for rule in rules(model, max_weights=MAX_WEIGHTS)
    ]


def present_splits(model: AnyTree, words: Words, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the inner nodes in the same way: each has a model that goes on learning.

    Parameters
    ----------
    model, words, inputs
        As in `present_leaves`.
    """
    tree, encoder = inside(model)
    shares = row_shares(tree)
    own_rules = (
        make_rule(
            leaf_model(tree, encoder, node, shares[node], MAX_WEIGHTS),
            class_shares(tree, node),
            (None, None),
            MAX_WEIGHTS,
        )
        for node in tree.walk()
        if tree.engine.left[node] >= 0
    )
    return [_present(model, rule, words, inputs) | _number(rule, None) for rule in own_rules]


def _present(model: AnyTree, rule: Rule, words: Words, inputs: Inputs) -> dict[str, Any]:
    """Return the present model of a node."""
    tree, _ = inside(model)
    is_reached = _has_rows(tree, 0)
    label_numbers = _output_numbers(tree)
    weights = [
        (label_numbers[label], inputs.number(weight), weight)
        for label in _telling(rule.probabilities, list(rule.weights))
        for weight in rule.weights[label]
    ]
    weights.sort(key=lambda item: -abs(item[2].effect))
    return {
        "node": rule.leaf,
        "rule": words.rule(rule.path),
        "rows": round_number(rule.rows, 9),
        "share": round_number(rule.share),
        "probabilities": [
            round_number(share) if is_reached else None for share in rule.probabilities.values()
        ],
        "is_new": not _has_rows(tree, rule.leaf),
        "floor": round_number(sum(rule.floor)) if any(rule.floor) else 0,
        "since_row": rule.since_row,
        "weights": [
            [label, column, round_number(weight.effect)]
            for label, column, weight in weights[:MAX_WEIGHTS]
        ],
        "curves": [
            [label, column, *_points(weight.curve)]
            for label, column, weight in weights[:MAX_WEIGHTS]
            if weight.curve is not None
        ],
    }


def _output_numbers(tree: Tree) -> dict[Hashable, int]:
    """Return the numbers of the labels; a regressor has that of the second of two labels."""
    names = outputs(tree, tree.engine.n_outputs)
    if tree.engine.has_labels:
        names = list(tree.target.labels)
    elif len(names) == 1:
        return {names[0]: 1}
    return {name: number for number, name in enumerate(names)}


def _has_rows(tree: Tree, node: int) -> bool:
    """Return whether a node has rows that have not faded."""
    engine = tree.engine
    rows = engine.class_rows(node).sum() if engine.has_labels else engine.rows[node]
    return bool(rows > 0)


def _number(rule: Rule, formula: str | None) -> dict[str, Any]:
    """Return mean, error and formula of a node of a regressor; nothing for a classifier."""
    if rule.unit is None or rule.mean is None or rule.error is None:
        return {}
    return {
        "mean": round_number(rule.mean, 9),
        "error": round_number(rule.error),
        "mean_text": write_number(rule.mean, rule.unit),
        "error_text": write_number(rule.error, rule.unit),
        "formula": formula,
    }


def _points(curve: LeafCurve) -> tuple[list[float | None], list[float | None]]:
    """Return the knots of a curve and its values, where it is bent and has rows."""
    between = [knot for knot in curve.knots if curve.first < knot < curve.last]
    knots = [curve.first, *between, curve.last]
    size = max(map(abs, knots)) / (knots[-1] - knots[0])  # relative to their range
    digits = min(6 + max(0, math.floor(math.log10(size))), ALL_DIGITS)
    return [round_number(knot, digits) for knot in knots], [round_number(curve(k)) for k in knots]


def present_shares(model: AnyTree) -> dict[int, float | None]:
    """Return each node's share of the rows at present, inner nodes too."""
    return {node: round_number(share) for node, share in row_shares(inside(model)[0]).items()}


def _telling(probabilities: dict[Hashable, float], among: list[Hashable]) -> list[Hashable]:
    """Return the labels whose weights to show for a leaf: of more than two, those that it has seen.

    For regressors, all outputs.
    """
    if not probabilities:
        return among[:MAX_LABELS]
    found = most_probable(probabilities, MAX_LABELS, among=among)
    return [label for label in found if len(among) < 2 or probabilities[label] > 0]


# ---------------------------------------------------------------------- over time
def leaves_over_time(model: AnyTree, inputs: Inputs) -> dict[str, Any]:
    """Return the times of the samples, and each leaf's share and strongest weights at them.

    The last sample is the present. A leaf has the `MAX_WEIGHTS` weights that were strongest over
    its life, and those that are strongest at its end; all of a life's values are in the order of
    its samples. The labels of a leaf's rows are known only at present, and so are the weights of
    sparse features.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    inputs : Inputs
        Numbers the inputs that are named.
    """
    tree, _ = inside(model)
    moments = [*_past(tree), _now(tree)]
    labels = _output_numbers(tree)
    frequent: dict[Pair, list[int]] = {}
    for leaf, sight in moments[-1][2].items():
        found = _telling(class_shares(tree, leaf), outputs(tree, tree.engine.n_outputs))
        frequent[leaf, sight.since_step] = [labels[label] for label in found]
    lives: dict[Pair, Life] = {}
    for place, (_, _, leaves) in enumerate(moments):
        for node, sight in leaves.items():
            life = lives.setdefault((node, sight.since_step), Life())
            life.places.append(place)
            life.sights.append(sight)
    return {
        "samples": [[step, row] for step, row, _ in moments],
        "lives": [
            _life(*key, life, model, frequent.get(key), inputs=inputs)
            for key, life in lives.items()
        ],
    }


def _past(tree: Tree) -> list[Moment]:
    history = tree.history
    if history is None:
        return []
    known, _ = replay(history)
    n_leaves = sum(len(moment.structure.nodes) // 2 + 1 for moment in known)
    most = max(2, MAX_LEAF_SAMPLES * len(known) // max(1, n_leaves))
    moments: list[Moment] = []
    for sample, structure, _ in (known[place] for place in thin(len(known), most)):
        if sample.step == tree.engine.n_steps:
            continue
        nodes = sample.nodes
        shares = _shares(structure, {node: own.rows for node, own in nodes.items()})
        leaves = {
            leaf: Sight(
                nodes[leaf].since_step,
                structure.path(leaf),
                nodes[leaf].rows,
                shares[leaf],
                _plain(nodes[leaf].weights),
            )
            for leaf in structure.leaves()
            if leaf in nodes and nodes[leaf].since_step == structure.nodes[leaf].since_step
        }
        moments.append((sample.step, sample.n_rows, leaves))
    return moments


def _now(tree: Tree) -> Moment:
    engine = tree.engine
    structure = structure_now(tree)
    rows = {node: float(engine.rows[node]) for node in structure.nodes}
    shares = _shares(structure, rows)
    leaves = {
        leaf: Sight(
            structure.nodes[leaf].since_step,
            tree.path(leaf),  # has inputs for missing values that came later
            rows[leaf],
            shares[leaf],
            node_effects(engine, leaf),
        )
        for leaf in structure.leaves()
    }
    return engine.n_steps, engine.n_rows, leaves


def structure_now(tree: Tree) -> Structure:
    """Return the present tree; without a history, its nodes exist since row 0."""
    if tree.history is not None:
        return tree.history.now
    engine = tree.engine
    spots = {}
    for node in tree.walk():
        left, right = int(engine.left[node]), int(engine.right[node])
        condition = tree.path(left)[-1] if left >= 0 else None
        parent, depth = int(engine.parent[node]), int(engine.depth[node])
        spots[node] = Spot(node, parent, depth, condition, left, right)
    return Structure(spots)


def _shares(structure: Structure, rows: dict[int, float]) -> dict[int, float]:
    """Return each node's share of the rows; a node that was not sampled has none."""
    return divide_rows(structure.children(), dict.fromkeys(structure.nodes, 0.0) | rows)


def _plain(weights: NDArray[np.float32] | None) -> NDArray[np.float64] | None:
    return None if weights is None else weights.astype(np.float64)


def _life(
    node: int,
    since: int,
    life: Life,
    model: AnyTree,
    labels: list[int] | None,
    *,
    inputs: Inputs,
) -> dict[str, Any]:
    """Return a life for JSON; `labels` are those whose weights are shown, all if None."""
    tree, encoder = inside(model)
    possible, groups = possible_inputs(tree, encoder, life.sights[-1].path), level_groups(tree)
    seen = [
        None if sight.weights is None else _per_label(centre(sight.weights, possible, groups))
        for sight in life.sights
    ]
    known = [effects for effects in seen if effects is not None]
    pairs = list(dict.fromkeys(_strongest(known, labels) + _strongest(known[-1:], labels)))
    last = len(seen) - 1
    n_weights = max(0 if own.weights is None else own.weights[:, 1:].size for own in life.sights)
    weights = [
        [_weight(effects, pair, 6 if k == last else 3) for k, effects in enumerate(seen)]
        for pair in pairs
    ]
    if labels is not None:  # it is a leaf at present
        sparse, n_sparse = _sparse_now(model, node, labels, inputs)
        n_weights += n_sparse
        pairs += sparse
        weights += [[*[None] * last, effect] for effect in sparse.values()]
    return {
        "node": node,
        "since": since,
        "at": life.places,
        "rows": [round_number(sight.rows, 9) for sight in life.sights],
        "share": [round_number(sight.share) for sight in life.sights],
        "pairs": pairs,
        "n_weights": n_weights,
        "weights": weights,
    }


def _sparse_now(
    model: AnyTree, leaf: int, labels: list[int], inputs: Inputs
) -> tuple[dict[Pair, float | None], int]:
    """Return the strongest effects of sparse features by label and input, and how many there are.

    With two labels all refer to the second; with more, those of some labels.
    """
    tree, encoder = inside(model)
    words = node_words(tree, encoder, leaf, MAX_WEIGHTS)
    is_pair = len(words.inputs) == 1
    found = [
        ((1 if is_pair else label, inputs.number(own)), own.effect)
        for label, each in enumerate(words.inputs)
        for own in each
        if is_pair or label in labels
    ]
    found.sort(key=lambda item: -abs(item[1]))
    effects = {pair: round_number(effect) for pair, effect in found[:MAX_WEIGHTS]}
    return effects, words.n_inputs * len(words.inputs)


def _per_label(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a row for every label: two labels have one row of weights, for the second."""
    return np.vstack([np.zeros_like(weights), weights]) if len(weights) == 1 else weights


def _strongest(seen: list[NDArray[np.float64]], labels: list[int] | None) -> list[Pair]:
    """Return the label and input of the weights with the largest mean size over a life."""
    if not seen:
        return []
    shape = np.max([effects.shape for effects in seen], axis=0)
    total = np.zeros(shape)
    for effects in seen:
        total[: effects.shape[0], : effects.shape[1]] += np.abs(effects)
    total[:, 0] = 0.0  # the intercept is not an input
    if labels is not None:
        total[[label for label in range(len(total)) if label not in labels]] = 0.0
    order = np.argsort(-total, axis=None, kind="stable")[:MAX_WEIGHTS]
    places = [np.unravel_index(place, total.shape) for place in order]
    return [(int(i), int(j)) for i, j in places if total[i, j] > 0]


def _weight(effects: NDArray[np.float64] | None, pair: Pair, digits: int) -> float | None:
    if effects is None or pair[0] >= effects.shape[0] or pair[1] >= effects.shape[1]:
        return None
    return round_number(float(effects[pair]), digits)


def thin(count: int, most: int) -> list[int]:
    """Return at most so many indices below `count`, evenly spaced, including the last.

    Examples
    --------
    >>> thin(10, 4)
    [0, 3, 6, 9]
    """
    if count <= most:
        return list(range(count))
    return sorted({round(place) for place in np.linspace(0, count - 1, most)})
