"""Curves: what a bent feature adds to the log-odds of a node's model, read off the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.learn.model_trials import curves_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, PaperEngine

LIMIT = 1.5  # of a scaled number: three standard deviations, further out it counts as that


class NodeCurve(NamedTuple):
    """A feature's curve in the model of a node: between two knots it is straight, outside flat.

    Attributes
    ----------
    knots : ndarray of shape (n_knots,)
        Ascending: those of the bends, and the limits from which on a number counts as if it lay
        there.
    values : ndarray of shape (n_outputs, n_knots)
        What the feature adds to the log-odds there: its line and its bends. A missing value counts
        as the mean.
    first, last : float
        The part of it that counts: from the first knot of the bends to the last, as far as the
        node's rows go.
    """

    knots: NDArray[np.float64]
    values: NDArray[np.float64]
    first: float
    last: float

    def at(self, value: float) -> NDArray[np.float64]:
        """Return what a value adds, per output."""
        return np.array([np.interp(value, self.knots, own) for own in self.values])

    @property
    def inner_knots(self) -> NDArray[np.float64]:
        """The ends of the part that counts, and the knots between."""
        between = (self.knots > self.first) & (self.knots < self.last)
        return np.array([self.first, *self.knots[between], self.last])


def node_curves(engine: MeasuredEngine | PaperEngine, node: int) -> dict[int, NodeCurve]:
    """Return the curve of each feature that is bent in the model of a node."""
    bends = engine.bends(int(engine.model[node]))
    if not bends:
        return {}
    weights = engine.weights(node)
    owners = np.array([feature for feature, _, _ in bends])
    found = {}
    for j, own in curves_of(bends).items():
        reach = LIMIT / engine.scale_factor[j] if engine.scale_factor[j] > 0 else 0.0
        limits = engine.scale_shift[j] - reach, engine.scale_shift[j] + reach
        knots = np.unique([*own, *limits])
        rows = np.full((len(knots), engine.n_features), np.nan)
        rows[:, j] = knots
        columns = [engine.value_column[j], *(engine.n_columns + np.flatnonzero(owners == j))]
        values = weights[:, columns] @ engine.inputs_at(node, rows)[:, columns].T
        found[j] = NodeCurve(knots, values, *_part(own, limits, _way_through(engine, node, j)))
    return found


def _way_through(engine: MeasuredEngine | PaperEngine, node: int, j: int) -> tuple[float, float]:
    """Return between which values of a numeric feature the rows of a node are."""
    low, high = -np.inf, np.inf
    while (parent := int(engine.parent[node])) >= 0:
        if engine.feature[parent] == j and not engine.equality[parent]:
            threshold = float(engine.threshold[parent])
            if engine.left[parent] == node:
                high = min(high, threshold)
            else:
                low = max(low, threshold)
        node = parent
    return low, high


def _part(
    bent: list[float], limits: tuple[float, float], way: tuple[float, float]
) -> tuple[float, float]:
    """Return where a node's rows are and the line is bent; if nowhere both, where it is a line."""
    for low, high in ((bent[0], bent[-1]), limits):
        first, last = max(low, way[0]), min(high, way[1])
        if first < last:
            return first, last
    return bent[0], bent[-1]


def node_effects(engine: MeasuredEngine | PaperEngine, node: int) -> NDArray[np.float64]:
    """Return the weights of a node's model, [outputs, columns]; of bent features, largest moves.

    A weight is what the log-odds gain when a number grows by two standard deviations. Of a curve it
    is the most that they gain or lose when it grows by up to that, in the part that counts.
    """
    effects = engine.weights(node)[:, : engine.n_columns].copy()
    for j, curve in node_curves(engine, node).items():
        factor = float(engine.scale_factor[j])  # 0: its deviation has no room in a float
        knots, width = curve.inner_knots, 1 / factor if factor > 0 else np.inf
        effects[:, engine.value_column[j]] = [
            largest_move(knots, np.interp(knots, curve.knots, own), width) for own in curve.values
        ]
    return effects


def largest_move(knots: NDArray[np.float64], values: NDArray[np.float64], width: float) -> float:
    """Return the most that a curve rises or falls (below 0) within so much of its feature.

    Examples
    --------
    >>> print(largest_move(np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0, -3.0]), 1.5))
    -3.0
    """
    places = np.concatenate([knots, knots - width, knots + width])  # one end is at a knot
    places = np.unique(places[(places >= knots[0]) & (places <= knots[-1])])
    heights = np.interp(places, knots, values)
    steps = places[None] - places[:, None]
    is_within = (steps >= 0) & (steps <= width * (1 + 1e-9))
    moves = np.where(is_within, heights[None] - heights[:, None], 0.0)
    return float(moves.flat[np.abs(moves).argmax()])
