"""Describe: the tree as plain data, and what its features contribute.

`leaf_models` is the data that everything else is made of: per leaf its conditions, its rows and its
model in the user's names and units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from driftree.explain.curves import leaf_curves
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.curves import node_effects

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    from driftree.explain.curves import LeafCurve
    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Condition
    from driftree.learn.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafModel:
    """A leaf and its model, linear or of curves, in the user's names and units.

    The log-odds of a label (two labels: of the second; more: one logit per label) are the intercept
    plus the sum of weight times input, plus what each curve adds at its feature's value. A number
    has either a weight or, where its line is bent, a curve. Inputs are the numeric features, and
    0/1 inputs such as ``car == 'van'`` or ``age is missing``. This holds for rows whose numbers lie
    within three standard deviations of their mean: what lies further out counts as if it lay there.
    A missing number counts as its mean, or as 0 if it was only 0 and 1 so far. Curves say both for
    themselves. (The paper's setting has no curves and clips nothing, and a missing number counts as
    the low end of the range seen, which starts as 0 to 1.)

    Exactly one of a category's inputs is 1 in every row, so only differences between its weights
    mean something: they are given as differences to their mean, and the intercept contains that
    mean. Levels that the path rules out have the weight 0 and no part in the mean. A level that was
    never learnt has no input; its row keeps the intercept without the mean.

    Attributes
    ----------
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to the leaf.
    rows : float
        Rows that the leaf has learnt.
    share : float
        Share of the stream's rows that reach the leaf, each condition counted since it was made;
        NaN while a condition on the path has seen no rows.
    intercept : dict
        Intercept of each label.
    weights : dict of dict
        Per label the weight of each input, the strongest first: those that move the log-odds most
        when a number grows by two standard deviations (in the paper's setting: from its least to
        its largest value), or a 0/1 input from 0 to 1.
    effects : dict of dict
        The same weights and the curves in one unit, so that they can be compared across inputs and
        leaves: how far each of these moves takes the log-odds. Of a curve it is the most that they
        rise or fall (below 0) when the number grows by up to two standard deviations, where its
        line is bent and the leaf has rows. The strongest first.
    curves : dict of dict
        Per label the curve of each number whose line is bent, the strongest first.
    floor : tuple of float
        Noise floor: the share of each of two labels that is given at random. A label's probability
        is its floor plus what remains times the logistic function of the log-odds.
    """

    leaf: int
    path: tuple[Condition, ...]
    rows: float
    share: float
    intercept: dict[Hashable, float]
    weights: dict[Hashable, dict[str, float]]
    effects: dict[Hashable, dict[str, float]]
    curves: dict[Hashable, dict[str, LeafCurve]]
    floor: tuple[float, float] = (0.0, 0.0)


def leaf_models(model: Readable) -> list[LeafModel]:
    """Return the leaves with their models: see `Readable.leaf_models`."""
    tree, encoder = inside(model)
    shares = row_shares(tree)
    return [leaf_model(tree, encoder, leaf, shares[leaf]) for leaf in tree.leaves()]


# ---------------------------------------------------------------------- data
def inside(model: Readable) -> tuple[Tree, Encoder]:
    """Return the tree and the encoder of a fitted model, which are not public."""
    from driftree.explain.readable import Readable  # which needs this module

    if not isinstance(model, Readable):
        raise TypeError(
            "only the tree of a DynamicModelTreeClassifier can be read like this, got "
            f"{type(model).__name__}"
        )
    check_is_fitted(model)
    tree = model._tree
    assert tree is not None
    return tree, tree.encoder


def row_shares(tree: Tree, *, unknown: float = math.nan) -> dict[int, float]:
    """Return each node's share of the stream's rows: the product of the shares along its path.

    Two children are born together and count their rows since, so age does not bias their shares.
    As long as no rows have come to them, each has the `unknown` share of its parent's rows.
    """
    return divide_rows(children_of(tree), tree.engine.rows, unknown=unknown)


def children_of(tree: Tree) -> dict[int, tuple[int, int]]:
    """Return the two children of each inner node, from the root down."""
    engine = tree.engine
    return {
        node: (int(engine.left[node]), int(engine.right[node]))
        for node in tree.walk()
        if engine.left[node] >= 0
    }


def divide_rows(
    children: Mapping[int, tuple[int, int]],
    rows: Mapping[int, float] | NDArray[np.float64],
    *,
    unknown: float = math.nan,
) -> dict[int, float]:
    """Return the shares of `row_shares` for the inner nodes from the root down."""
    shares = {0: 1.0}
    for node, pair in children.items():
        both = sum(float(rows[child]) for child in pair)
        for child in pair:
            own = float(rows[child]) / both if both > 0 else unknown
            shares[child] = shares[node] * own
    return shares


def leaf_model(tree: Tree, encoder: Encoder, leaf: int, share: float) -> LeafModel:
    """Return a leaf as data; all leaves' shares are computed at once, by `row_shares`."""
    engine = tree.engine
    shift, factor = column_scales(tree)
    names = encoder.column_names()
    intercept: dict[Hashable, float] = {}
    weights: dict[Hashable, dict[str, float]] = {}
    effects: dict[Hashable, dict[str, float]] = {}
    curves: dict[Hashable, dict[str, LeafCurve]] = {}
    possible = possible_inputs(tree, encoder, tree.path(leaf))
    by_feature, at_means = leaf_curves(tree, leaf, possible)
    bent = {int(engine.value_column[j]): own for j, own in by_feature.items()}
    scaled = centred_weights(tree, encoder, leaf)
    moves = centred_effects(tree, encoder, leaf)
    for i, label in enumerate(outputs(tree, engine.n_outputs)):
        own = scaled[i] * factor
        own[list(bent)] = 0.0
        intercept[label] = float(scaled[i, 0] - own @ shift + at_means[i])
        strongest = strongest_inputs(moves[i])
        weights[label] = {names[c]: float(own[c]) for c in strongest if c not in bent}
        effects[label] = {names[c]: float(moves[i, c]) for c in strongest}
        curves[label] = {names[c]: bent[c][i] for c in strongest if c in bent}
    return LeafModel(
        leaf=leaf,
        path=tree.path(leaf),
        rows=float(engine.rows[leaf]),
        share=share,
        intercept=intercept,
        weights=weights,
        effects=effects,
        curves=curves,
        floor=engine.floor(int(engine.model[leaf])),
    )


def outputs(tree: Tree, n_outputs: int) -> list[Hashable]:
    """Return the labels that have a linear model: the second of two, each of more, none of one.

    Models of the past may have fewer outputs than there are labels by now.
    """
    labels = list(tree.target.labels)
    return labels[:n_outputs] if n_outputs > 1 else labels[1:2]


def strongest_inputs(weights: NDArray[np.float64]) -> list[int]:
    """Return the inputs of a label's weights, the intercept first, by their strength."""
    return sorted(range(1, len(weights)), key=lambda column: (-abs(weights[column]), column))


def centred_weights(tree: Tree, encoder: Encoder, node: int) -> NDArray[np.float64]:
    """Return a node's weights per output, those of each category as differences to their mean.

    Inputs that are 0 in every row that the node's path lets through have no weight. Bends are left
    out.
    """
    return _centre_at(tree, encoder, node, tree.engine.weights(node)[:, : tree.engine.n_columns])


def centred_effects(tree: Tree, encoder: Encoder, node: int) -> NDArray[np.float64]:
    """Return the same, but of features that are bent how far their curves move the log-odds."""
    return _centre_at(tree, encoder, node, node_effects(tree.engine, node))


def _centre_at(
    tree: Tree, encoder: Encoder, node: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    engine = tree.engine
    own = weights[: engine.n_outputs if engine.n_classes > 1 else 0]
    return centre(own, possible_inputs(tree, encoder, tree.path(node)), level_groups(tree))


def centre(
    weights: NDArray[np.float64], possible: NDArray[np.bool_], groups: list[NDArray[np.int32]]
) -> NDArray[np.float64]:
    """Return weights without those of inputs that are always 0, each category's about their mean.

    The mean goes into the intercept. A model of the past may have known fewer inputs than there are
    by now.
    """
    n_columns = weights.shape[1]
    centred = np.where(possible[:n_columns], weights, 0.0)
    for group in groups:
        own = group[(group < n_columns) & possible[group]]
        if len(own):
            mean = centred[:, own].mean(axis=1)
            centred[:, own] -= mean[:, None]
            centred[:, 0] += mean
    return centred


def possible_inputs(tree: Tree, encoder: Encoder, path: tuple[Condition, ...]) -> NDArray[np.bool_]:
    """Return which inputs of the simple models can be other than 0 under some conditions."""
    engine = tree.engine
    possible = np.ones(engine.n_columns, dtype=bool)
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    places = {name: j for j, name in enumerate(encoder.display_names)}
    for condition in path:
        j = places.get(condition.feature)
        if j is None:  # another feature of the same name has come since, and both got longer names
            continue
        known = np.flatnonzero(levels[j] >= 0)
        columns: list[int] = []
        if condition.operator in ("==", "!="):
            is_equal = condition.operator == "=="
            codes = [
                code
                for code in known
                if (encoder.level(j, int(code)) != condition.value) == is_equal
            ]
            columns += levels[j, codes].tolist()
        elif condition.operator == "is missing":
            columns += [engine.value_column[j], *levels[j, known].tolist()]
        if condition.missing_passes is False:
            columns.append(engine.missing_column[j])
        possible[[column for column in columns if column >= 0]] = False
    return possible


def class_shares(tree: Tree, node: int) -> dict[Hashable, float]:
    """Return the share of each label among the rows that reached a node, faded like its losses.

    A node that no row has reached yet has the shares of the nearest node above that was reached;
    if there is none (the tree has just started again from one leaf), all labels are as frequent.
    """
    engine = tree.engine
    counts = engine.class_rows(node)
    while counts.sum() <= 0 and (node := int(engine.parent[node])) >= 0:
        counts = engine.class_rows(node)
    total = counts.sum()
    shares = counts / total if total > 0 else np.full(len(counts), 1 / len(counts))
    return dict(zip(tree.target.labels, shares.tolist(), strict=True))


def column_scales(tree: Tree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shift and factor of the simple models' inputs: input = (value - shift) * factor."""
    engine = tree.engine
    shift, factor = np.zeros(engine.n_columns), np.ones(engine.n_columns)
    numeric = engine.value_column >= 0
    columns = engine.value_column[numeric]
    shift[columns] = engine.scale_shift[numeric]
    factor[columns] = engine.scale_factor[numeric]
    return shift, factor


def level_groups(tree: Tree) -> list[NDArray[np.int32]]:
    """Return the inputs of each category: one per level, and the one for missing values."""
    engine = tree.engine
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    columns = np.column_stack([levels, engine.missing_column])
    return [
        own[own >= 0]
        for own, has_value in zip(columns, engine.value_column >= 0, strict=True)
        if not has_value
    ]


def column_features(tree: Tree) -> NDArray[np.intp]:
    """Return the feature that each input of the simple models belongs to; the intercept's is -1."""
    engine = tree.engine
    owners = np.full(engine.n_columns, -1)
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    for columns in (engine.value_column, engine.missing_column, *levels.T):
        features = np.flatnonzero(columns >= 0)
        owners[columns[features]] = features
    return owners


def bent_features(tree: Tree, node: int) -> NDArray[np.intp]:
    """Return the feature that each bend of a node's model belongs to."""
    bends = tree.engine.bends(int(tree.engine.model[node]))
    return np.array([feature for feature, _, _ in bends], dtype=np.intp)


# ---------------------------------------------------------------------- importance
class Importance(NamedTuple):
    """What a feature contributes, by the loss its splits save and by its weights.

    A feature can matter in two ways, which are not commensurable: by where the tree is split, and
    by its weights in the leaves. Both are given. The order is by the sum of a feature's two shares:
    of all that is earned, and of all weight.

    *Earned* is measured, not estimated: an inner node keeps the losses of its own model and of the
    leaves below it on the same rows, each before it learnt the row. Their difference per row, times
    the share of rows that reach the node, is what everything below it saves; less what the two
    children's branches save, it is what this one split saves. The sum over all features is what the
    tree saves against the model of its root. Rows count as they fade in the evidence (in the
    paper's setting all rows since the node was made do, and a split starts with the gain that was
    approximated for it), so a split that no longer pays can be a little below zero: it is about to
    be pruned.

    *Weight* is the mean over the leaves, by their share of rows, of the absolute effect: of a
    number, the change of the log-odds when it grows by two standard deviations (in the paper's
    setting: from its least to its largest value; where its line is bent: the most that it changes
    them when it grows by up to that), or when it is missing, whichever is more; of a category, two
    standard deviations of its levels' weights, each level counted once. With more than two labels
    it is the mean over the labels. Two leaves that no row has reached yet count as equal.

    Attributes
    ----------
    earned : float
        Nats per 1,000 rows of the stream that the present splits on the feature save.
    weight : float
        How far the feature typically moves the log-odds inside the leaves.
    """

    earned: float
    weight: float


def feature_importance(model: Readable) -> dict[str, Importance]:
    """Return what each feature contributes: see `Readable.feature_importance`."""
    tree, encoder = inside(model)
    earned, weight = earned_by_feature(tree), _weight_by_feature(tree, encoder)
    strength = _share_of_all(np.maximum(earned, 0.0)) + _share_of_all(weight)
    order = np.argsort(-strength, kind="stable").tolist()
    names = encoder.display_names
    return {names[j]: Importance(float(earned[j]), float(weight[j])) for j in order}


def earned_by_feature(tree: Tree) -> NDArray[np.float64]:
    """Return the nats per 1,000 rows that the splits on each feature save."""
    engine = tree.engine
    shares = row_shares(tree)
    inner = [node for node in tree.walk() if engine.left[node] >= 0]
    saved = {node: _saved_per_row(tree, node) * shares[node] for node in inner}
    earned = np.zeros(engine.n_features)
    for node in inner:
        below = sum(saved.get(int(child[node]), 0.0) for child in (engine.left, engine.right))
        earned[engine.feature[node]] += 1000 * (saved[node] - below)
    return earned


def _saved_per_row(tree: Tree, node: int) -> float:
    engine = tree.engine
    rows = float(engine.evidence[node])
    return float(engine.own_loss[node] - engine.subtree_loss[node]) / rows if rows > 0 else 0.0


def _weight_by_feature(tree: Tree, encoder: Encoder) -> NDArray[np.float64]:
    engine = tree.engine
    shares = row_shares(tree, unknown=0.5)
    total = np.zeros(engine.n_features)
    for leaf in tree.leaves():
        total += shares[leaf] * _effects(tree, encoder, leaf)
    return total


def _effects(tree: Tree, encoder: Encoder, leaf: int) -> NDArray[np.float64]:
    """Return the mean over the labels of each feature's absolute effect in a leaf."""
    engine = tree.engine
    weights = centred_effects(tree, encoder, leaf)
    possible = possible_inputs(tree, encoder, tree.path(leaf))
    effects = np.zeros(engine.n_features)
    if not len(weights):
        return effects
    is_number = engine.value_column >= 0
    groups = iter([group[possible[group]] for group in level_groups(tree)])
    for j in range(engine.n_features):
        if is_number[j]:
            columns = np.array([engine.value_column[j], engine.missing_column[j]])
            effects[j] = np.abs(weights[:, columns[columns >= 0]]).max(axis=1).mean()
        elif len(group := next(groups)):
            effects[j] = 2 * weights[:, group].std(axis=1).mean()
    return effects


def _share_of_all(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = values.sum()
    return values / total if total > 0 else values
