"""Importance: what each feature contributes, by the splits of the tree and inside its leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.explain.describe import (
    centred_effects,
    inside,
    level_groups,
    outputs,
    possible_inputs,
    row_shares,
)
from driftree.explain.sparse import sparse_engine, sparse_spread, sparse_texts, strongest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

MAX_SPARSE = 100  # sparse features that are told of


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
    it is the mean over the labels; of a regressor it is the change of the number, in its unit. Two
    leaves that no row has reached yet count as equal. Of a sparse feature it is what two standard
    deviations over all rows do, of which most have a 0: the rarer it is, the less. Of very many
    such features, the 100 with the most weight are given.

    Attributes
    ----------
    earned : float
        Nats per 1,000 rows of the stream that the present splits on the feature save.
    weight : float
        How far the feature typically moves the log-odds, or the number, inside the leaves.
    """

    earned: float
    weight: float


def feature_importance(model: Readable) -> dict[str, Importance]:
    """Return what each feature contributes: see `Readable.feature_importance`."""
    return importance_of(*inside(model))


def importance_of(tree: Tree, encoder: Encoder) -> dict[str, Importance]:
    """Return what each feature contributes to one tree, strongest first."""
    earned, weight = earned_by_feature(tree), _weight_by_feature(tree, encoder)
    names = encoder.display_names
    if encoder.sparse is not None:
        by_place, ids, sparse = _weight_of_sparse(tree, encoder)
        weight = np.append(weight + by_place, sparse)
        earned = np.append(earned, np.zeros(len(ids)))
        names = [*names, *sparse_texts(encoder, ids)]
    found = map(Importance, earned.tolist(), weight.tolist())
    return sort_importance(dict(zip(names, found, strict=True)))


def sort_importance(found: dict[str, Importance]) -> dict[str, Importance]:
    """Put the strongest first: by the sum of the shares of all that is earned and all weight."""
    earned, weight = np.array([*found.values()]).reshape(-1, 2).T
    strength = _share_of_all(np.maximum(earned, 0.0)) + _share_of_all(weight)
    names = list(found)
    return {names[j]: found[names[j]] for j in np.argsort(-strength, kind="stable").tolist()}


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


def _weight_of_sparse(
    tree: Tree, encoder: Encoder
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Return what sparse inputs add per feature; ids and weights of the strongest others."""
    engine = sparse_engine(encoder)
    features = engine.sparse_feature
    total = np.zeros(len(features))
    if outputs(tree, engine.n_outputs):
        for leaf, share in row_shares(tree, unknown=0.5).items():
            if engine.left[leaf] < 0:
                ids, weights = engine.sparse_weights(leaf)
                total[ids] += share * np.abs(weights).mean(axis=1)
    total *= tree.target.unit.factor * sparse_spread(engine, np.arange(len(total), dtype=np.int32))
    by_place = np.zeros(engine.n_features)
    by_place[features[features >= 0]] = total[features >= 0]
    others = np.flatnonzero((features < 0) & (total > 0)).astype(np.int32)
    others = others[strongest(total[others], MAX_SPARSE)]
    return by_place, others, total[others]


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
