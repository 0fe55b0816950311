"""Contributions: why this prediction.

A row is predicted by the model of its leaf, in which every feature has its own part, a line or a
curve. So its log-odds, or the number, are a sum, and what each feature adds to it is read off, not
estimated.
`explain` gives it as arrays for many rows, `explain_one` as a record with the rule and its
certainty, whose `str` says it in words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy.sparse import csr_array

from driftree.explain.describe import (
    average_inputs,
    bent_features,
    column_features,
    inside,
    number_unit,
    read_weights,
    typical_error,
)
from driftree.explain.explanation import Explanation, Explanations, LeafFacts, zero_of
from driftree.explain.sparse import contribute, known_matrix, unknown_names
from driftree.learn._kernels import MAX_LEVELS, MeasuredEngine
from driftree.learn.times import split_row
from driftree.learn.validation import plain

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    from driftree.explain.readable import Readable
    from driftree.explain.sparse import Held
    from driftree.learn.columns import Batch
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

BLOCK = 4096  # rows at a time, so that what they need meanwhile is small beside the answer


def explain_one(model: Readable, x: Mapping[Hashable, Any]) -> Explanation:
    """Return why one row is predicted as it is: see `Readable.explain_one`."""
    tree, encoder = inside(model)
    x = with_parts(encoder, x)
    batch = read_one(encoder, x)
    why = explain_batch(tree, encoder, batch)[0]
    for j, name in enumerate(encoder.feature_names):
        is_level = encoder.levels[j] is not None
        if is_level and batch.matrix[0, j] == MAX_LEVELS:  # a level without a code
            why.row[encoder.display_names[j]] = plain(x[name])
    return replace(why, unknown=tuple(unknown_names(encoder, dict(x))))


def explain(model: Readable, X: Any) -> Explanations:
    """Return why each row is predicted as it is: see `Readable.explain`."""
    tree, encoder = inside(model)
    return explain_batch(tree, encoder, model._encoded(X))


def with_parts(encoder: Encoder, x: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
    """Return a row in which dates and times are the features that they are to the model."""
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
            "one row is needed, a dict of feature names to values, got a data frame: give all its "
            "rows to explain, or one of them as .iloc[0].to_dict(), in polars .row(0, named=True)"
        )
    return encoder.read_dict(x, learning=False)


# ---------------------------------------------------------------------- sums
def explain_batch(tree: Tree, encoder: Encoder, batch: Batch) -> Explanations:
    """Return why each row of a batch is predicted as it is."""
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
                squares = unit.factor**2 * ((own @ inverse) * own).sum(axis=1)
                squares += doubt * (said**2).mean(axis=1)
                deviations[block] = np.sqrt(np.maximum(squares, 0.0))  # rounding may fall below 0
    held = contribute(tree, encoder, batch, leaves, values, outputs=outputs)
    predictions = None if engine.has_labels else tree.target.predict(*batch.rows)
    if predictions is not None and engine.n_outputs > 1:
        # Quantiles are put in order, and moved to where they hold, whatever the row.
        total = base_values[:, 0] + values[:, :, 0].sum(axis=1)
        base_values[:, 0] += predictions - total - _held_sum(held)
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
    )


def _held_sum(held: Held | None) -> NDArray[np.float64] | float:
    return 0.0 if held is None else np.asarray(held.values[0].sum(axis=1)).ravel()


def _told_outputs(tree: Tree) -> slice:
    """Return which outputs are explained: of quantiles the middle one, which is the prediction."""
    middle = tree.engine.n_outputs // 2
    return slice(None) if tree.engine.has_labels else slice(middle, middle + 1)


def _probabilities(tree: Tree, batch: Batch) -> NDArray[np.float64]:
    """Return the probabilities of the labels, [rows, labels]; of numbers there are none."""
    engine = tree.engine
    return (
        engine.probabilities(*batch.rows)
        if engine.has_labels
        else np.empty((len(engine.leaves(*batch.rows)), 0))
    )


def _by_feature(tree: Tree, leaf: int, weights: NDArray[np.float64]) -> csr_array:
    """Return the weights as a matrix from inputs to features and outputs: nearly all are zero."""
    owners = np.append(column_features(tree), bent_features(tree, leaf))
    n_outputs = len(weights)
    own = np.flatnonzero(owners >= 0)
    column, output = np.repeat(own, n_outputs), np.tile(np.arange(n_outputs), len(own))
    shape = len(owners), len(tree.engine.value_column) * n_outputs
    places = column, owners[column] * n_outputs + output
    return csr_array((weights[output, column], places), shape)


def _facts(tree: Tree, leaves: list[int]) -> dict[int, LeafFacts]:
    engine = tree.engine
    spots = {} if tree.history is None else tree.history.now.nodes
    return {
        leaf: LeafFacts(
            path=tree.path(leaf),
            rows=float(engine.rows[leaf]),
            floor=engine.floor(int(engine.model[leaf])),
            since_step=spots[leaf].since_step if leaf in spots else None,
            since_row=spots[leaf].since_row if leaf in spots else None,
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
