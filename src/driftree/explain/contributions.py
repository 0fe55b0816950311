"""Contributions: what each feature adds, to one prediction and in the whole tree.

A row is predicted by the model of its leaf, which is additive in the features. So its log-odds, or
the number, are a sum, and the contribution of each feature is exact, not estimated. `explain`
returns them as arrays for many rows, `explain_one` as a record with the rule and its certainty,
which prints as text. `feature_importance` summarises all rows, by the splits of the tree and inside
its leaves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from scipy.sparse import csr_array

from driftree.explain.describe import (
    average_inputs,
    bent_features,
    centred_effects,
    column_features,
    inside,
    leaves_since,
    level_groups,
    number_unit,
    outputs,
    possible_inputs,
    read_weights,
    row_shares,
    typical_error,
)
from driftree.explain.explanation import Explanation, Explanations, LeafFacts, zero_of
from driftree.explain.sparse import (
    contribute,
    known_matrix,
    sparse_engine,
    sparse_spread,
    sparse_texts,
    strongest,
    unknown_names,
)
from driftree.learn._kernels import MAX_LEVELS, MeasuredEngine
from driftree.learn.tables import array_names
from driftree.learn.times import DAYS, HOUR, WEEKDAY, split_row
from driftree.learn.validation import plain

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    from driftree.explain.readable import Readable
    from driftree.explain.sparse import Held
    from driftree.learn.columns import Batch
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree
    from driftree.learn.units import Unit

BLOCK = 4096  # rows at a time, to limit memory

MAX_SPARSE = 100  # sparse features that are listed


def explain_one(model: Readable, x: Mapping[Hashable, Any]) -> Explanation:
    """Explain the prediction of one row: see `Readable.explain_one`."""
    tree, encoder = inside(model)
    x = with_parts(encoder, x)
    batch = read_one(encoder, x)
    why = explain_batch(tree, encoder, batch)[0]
    why.row.update(other_levels(encoder, x, batch))
    return replace(why, unknown=tuple(unknown_names(encoder, dict(x))))


def other_levels(encoder: Encoder, x: Mapping[Hashable, Any], batch: Batch) -> dict[str, Any]:
    """Return the levels of a row that have no code, by the names of their features."""
    return {
        encoder.display_names[j]: plain(x[name])
        for j, name in enumerate(encoder.feature_names)
        if encoder.levels[j] is not None and batch.matrix[0, j] == MAX_LEVELS
    }


def explain(model: Readable, X: Any) -> Explanations:
    """Explain the predictions of rows: see `Readable.explain`."""
    tree, encoder = inside(model)
    return explain_batch(tree, encoder, model._encoded(X))


def with_parts(encoder: Encoder, x: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
    """Return a row with dates and times split into the model's features."""
    is_row = hasattr(x, "items") and not nw.dependencies.is_into_dataframe(x)
    return split_row(x, encoder.names) if is_row else x


def read_row(encoder: Encoder, x: Mapping[Hashable, Any]) -> NDArray[np.float64]:
    """Return one row as numbers."""
    values: NDArray[np.float64] = known_matrix(encoder, read_one(encoder, x))[0]
    return values


def read_one(encoder: Encoder, x: Mapping[Hashable, Any]) -> Batch:
    """Return one row as the kernels take it."""
    if nw.dependencies.is_into_dataframe(x):
        raise TypeError(
            "a row must be a dict of feature names to values, got a data frame: pass "
            "all its rows to explain, or one of them as .iloc[0].to_dict(), in polars .row(0, "
            "named=True)"
        )
    return encoder.read_dict(x, learning=False)


# ---------------------------------------------------------------------- sums
def explain_batch(tree: Tree, encoder: Encoder, batch: Batch) -> Explanations:
    """Explain the predictions of a batch."""
    engine = tree.engine
    matrix = known_matrix(encoder, batch).copy()  # it may be the user's own array
    leaves = engine.leaves(*batch.rows)
    outputs = _told_outputs(tree)
    n_outputs = len(range(engine.n_outputs)[outputs])
    values = np.empty((*matrix.shape, n_outputs))
    base_values = np.empty((len(matrix), n_outputs))
    has_variance = batch.sparse is None
    second_order = engine if isinstance(engine, MeasuredEngine) and has_variance else None
    deviations = None if second_order is None else np.empty(len(matrix))
    facts, unit = _facts(tree, np.unique(leaves).tolist()), tree.target.unit
    for leaf, fact in facts.items():
        here = np.flatnonzero(leaves == leaf)
        average, weights = average_inputs(tree, encoder, leaf), read_weights(tree, leaf)[outputs]
        by_feature = _by_feature(tree, leaf, weights)
        if second_order is not None:
            model = int(engine.model[leaf])
            inverse = second_order.curvature_inverse(model)
            doubt = second_order.sureness_variance(model)
        base_values[here] = unit.shift + weights @ average - zero_of(fact.floor)
        for block in np.split(here, range(BLOCK, len(here), BLOCK)):
            own = engine.inputs_at(leaf, matrix[block])
            shifted = (own - average) @ by_feature
            values[block] = shifted.reshape(len(block), *values.shape[1:])
            if deviations is not None:
                said = own @ weights.T
                # Inputs without a weight do not count: for example, batches are learnt without the
                # last targets, whose weights then have only their prior.
                own = own * weights.any(axis=0)
                squares = unit.factor**2 * ((own @ inverse) * own).sum(axis=1)
                squares += doubt * (said**2).mean(axis=1)
                deviations[block] = np.sqrt(np.maximum(squares, 0.0))  # rounding may fall below 0
    held = contribute(tree, encoder, batch, leaves, values, outputs=outputs)
    predictions = None if engine.has_labels else tree.target.predict(*batch.rows)
    if predictions is not None and len(engine.offsets):
        # Quantiles are sorted and shifted by their offsets, whatever the row.
        total = base_values[:, 0] + values[:, :, 0].sum(axis=1)
        base_values[:, 0] += predictions - total - _held_sum(held)
    if unit.has_log_link:
        _limit(unit, base_values[:, 0], values[:, :, 0], held)
    return Explanations(
        known_values=values if n_outputs > 1 else values[:, :, 0],
        base_values=base_values if n_outputs > 1 else base_values[:, 0],
        known_data=_users_values(encoder, matrix),
        known_matrix=matrix,
        held=held,
        leaves=leaves,
        facts=facts,
        probabilities=_probabilities(tree, batch),
        deviations=deviations,
        feature_names=[*encoder.display_names, *(held.names if held is not None else ())],
        labels=list(tree.target.label_list),
        predictions=predictions,
        unit=number_unit(tree),
        cut=tree.target.cut,
        spreads=_spreads(tree, encoder),
        quantile=_told_quantile(tree),
    )


def _spreads(tree: Tree, encoder: Encoder) -> dict[str, float]:
    """Return the standard deviations of the numbers, as far as they vary."""
    scales = zip(encoder.display_names, tree.engine.scale_factor.tolist(), strict=True)
    return {name: 0.5 / factor for name, factor in scales if factor > 0}


def _limit(
    unit: Unit, base: NDArray[np.float64], values: NDArray[np.float64], held: Held | None
) -> None:
    """Shrink the contributions of a row by one factor if its prediction is limited, in place."""
    total = base + values.sum(axis=1) + _held_sum(held)
    told, average = unit.limited(total), unit.limited(base)
    rise = total - base
    factor = np.where(told == total, 1.0, (told - average) / np.where(rise == 0, 1.0, rise))
    base[:] = np.where(told == total, base, average)
    values *= factor[:, None]
    if held is not None:
        held.values[0].data *= np.repeat(factor, np.diff(held.values[0].indptr))


def _held_sum(held: Held | None) -> NDArray[np.float64] | float:
    return 0.0 if held is None else np.asarray(held.values[0].sum(axis=1)).ravel()


def _told_outputs(tree: Tree) -> slice:
    """Return which outputs are explained: for quantiles the middle one, which is the prediction."""
    middle = tree.engine.n_outputs // 2
    return slice(None) if tree.engine.has_labels else slice(middle, middle + 1)


def _told_quantile(tree: Tree) -> float | None:
    parameters = tree.parameters
    if getattr(parameters, "loss", None) != "quantile":
        return None
    return float(parameters.quantiles[_told_outputs(tree).start])  # type: ignore[union-attr]


def _probabilities(tree: Tree, batch: Batch) -> NDArray[np.float64]:
    """Return the probabilities of the labels, [rows, labels]; none for regression."""
    engine = tree.engine
    return (
        engine.probabilities(*batch.rows)
        if engine.has_labels
        else np.empty((len(engine.leaves(*batch.rows)), 0))
    )


def _by_feature(tree: Tree, leaf: int, weights: NDArray[np.float64]) -> csr_array:
    """Return the weights as a sparse matrix from inputs to features and outputs."""
    owners = np.append(column_features(tree), bent_features(tree, leaf))
    n_outputs = len(weights)
    own = np.flatnonzero(owners >= 0)
    column, output = np.repeat(own, n_outputs), np.tile(np.arange(n_outputs), len(own))
    shape = len(owners), len(tree.engine.value_column) * n_outputs
    places = column, owners[column] * n_outputs + output
    return csr_array((weights[output, column], places), shape)


def _facts(tree: Tree, leaves: list[int]) -> dict[int, LeafFacts]:
    engine, since = tree.engine, leaves_since(tree)
    return {
        leaf: LeafFacts(
            path=tree.path(leaf),
            rows=float(engine.rows[leaf]),
            floor=engine.floor(int(engine.model[leaf])),
            since_step=since[leaf][0],
            since_row=since[leaf][1],
            error=typical_error(tree, leaf),
        )
        for leaf in leaves
    }


# ---------------------------------------------------------------------- the user's values
def _users_values(encoder: Encoder, matrix: NDArray[np.float64]) -> NDArray[Any]:
    """Return the rows with categories by their names; floats if there are none."""
    if all(codes is None for codes in encoder.levels):
        return matrix
    data = matrix.astype(object)
    data[np.isnan(matrix)] = None
    for j, codes in enumerate(encoder.levels):
        if codes is None:
            continue
        present = np.flatnonzero(~np.isnan(matrix[:, j]))
        used, places = np.unique(matrix[present, j], return_inverse=True)
        names = (encoder.level(j, code) for code in used.tolist())
        data[present, j] = np.fromiter(names, dtype=object, count=len(used))[places]
    return data


# ---------------------------------------------------------------------- of all rows
class Importance(NamedTuple):
    """The importance of a feature, by the loss that its splits save and by its weights.

    A feature can matter in two ways, which are not commensurable: by the splits of the tree, and by
    its weights in the leaves. Both are given. Features are ordered by the sum of their shares of
    both.

    *Earned* is measured, not estimated: an inner node keeps the losses of its own model and of the
    leaves below it on the same rows, each before it learnt the row. Their difference per row, times
    the share of rows that reach the node, is what everything below it saves; less what the two
    children's branches save, it is what this one split saves. The sum over all features is what the
    tree saves against the model of its root. Rows are discounted as in the evidence (in the paper's
    setting all rows since the node was created count equally, and a split starts with its
    approximated gain), so a split that no longer pays can be slightly below zero: it is about to be
    pruned.

    *Weight* is the mean over the leaves, by their share of rows, of the absolute effect: of a
    number, the change of the log-odds when it grows by two standard deviations (in the paper's
    setting: from its least to its largest value; where its line is bent: the most that it changes
    them when it grows by up to that), or when it is missing, whichever is more; of a category, two
    standard deviations of its levels' weights, each level counted once. With more than two labels
    it is the mean over the labels; of a regressor it is the change of the number, in its unit. Two
    leaves without rows count equally. For a sparse feature it is the effect of two standard
    deviations over all rows, most of which have a 0: the rarer it is, the less. Of very many such
    features, the 100 with the largest weight are given.

    Attributes
    ----------
    earned : float
        Loss that the present splits on the feature save, in nats per 1,000 rows of the stream.
    weight : float
        Typical effect of the feature on the log-odds, or the number, inside the leaves.
    """

    earned: float
    weight: float


def feature_importance(model: Readable) -> dict[str, Importance]:
    """Return the importance of each feature: see `Readable.feature_importance`."""
    return importance_of(*inside(model))


def importance_of(tree: Tree, encoder: Encoder) -> dict[str, Importance]:
    """Return the importance of each feature in one tree, strongest first."""
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
    """Sort features by the sum of their shares of what is earned and of the weight."""
    earned, weight = np.array([*found.values()]).reshape(-1, 2).T
    strength = _strength(earned, weight)
    names = list(found)
    return {names[j]: found[names[j]] for j in np.argsort(-strength, kind="stable").tolist()}


def _strength(earned: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one number per feature: the sum of its shares of what is earned and of the weight."""
    return _share_of_all(np.maximum(earned, 0.0)) + _share_of_all(weight)


def column_importances(model: Readable) -> NDArray[np.float64]:
    """Return the importance of each column of X, which sum to 1: see `feature_importances_`."""
    tree, encoder = inside(model)
    names = list(getattr(model, "feature_names_in_", encoder.feature_names))
    if hasattr(model, "n_features_in_") and not hasattr(model, "feature_names_in_"):
        names = array_names(model.n_features_in_)
    if encoder.sparse is None:
        found = dict(
            zip(
                encoder.feature_names,
                _strength(earned_by_feature(tree), _weight_by_feature(tree, encoder)).tolist(),
                strict=True,
            )
        )
    else:
        told = feature_importance(model)
        strength = _strength(*np.array([*told.values()]).reshape(-1, 2).T)
        found = dict(zip(told, strength.tolist(), strict=True))
    ends = [f": {part}" for part in (DAYS, HOUR, WEEKDAY)]
    own = [found.get(name, sum(found.get(f"{name}{end}", 0.0) for end in ends)) for name in names]
    return _share_of_all(np.array(own, dtype=np.float64))


def earned_by_feature(tree: Tree) -> NDArray[np.float64]:
    """Return the loss that splits on each feature save, in nats per 1,000 rows."""
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
    """Return the effects of sparse inputs per feature; ids and effects of the strongest others."""
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
