"""Units: what simple models predict and hold, as the user reads it: sums, weights and curves.

Simple models predict log-odds, or a number t: the target without its unit. What they add up can be
read as `shift + factor * t`: log-odds, the target itself, or, with a log link, its logarithm.
Whatever is said of models goes through here, and nothing else knows how the target is scaled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.learn.model_trials import curves_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, PaperEngine, _ModelTreeEngine

LIMIT = 1.5  # of a scaled number, and of sparse ones: three standard deviations


class Unit(NamedTuple):
    """The unit in which sums of a model are read.

    Attributes
    ----------
    shift, factor : float
        A model's sum t is read as `shift + factor * t`; a weight or an effect w as `factor * w`.
    has_log_link : bool
        Whether what is read is the logarithm of the prediction.

    Examples
    --------
    >>> celsius = Unit(shift=20.0, factor=5.0)
    >>> celsius.read(1.5), celsius.model_sum(27.5)
    (27.5, 1.5)
    >>> count = Unit(math.log(20.0), 1.0, has_log_link=True)
    >>> print(f"{count.number(count.read(0.0)):.1f}")
    20.0
    """

    shift: float = 0.0
    factor: float = 1.0
    has_log_link: bool = False

    def read(self, model_sum: float) -> float:
        """Return what a model's sum is read as."""
        return self.shift + self.factor * model_sum

    def number(self, read: float) -> float:
        """Return the prediction for what was read."""
        if not self.has_log_link:
            return read
        return math.exp(min(read, 700.0))

    def model_sum(self, number: float) -> float:
        """Return the sum of a model that predicts a number; minus infinity if none does."""
        if not self.has_log_link:
            return (number - self.shift) / self.factor
        return (math.log(number) - self.shift) / self.factor if number > 0 else -math.inf


LOG_ODDS = Unit()


def unit_of(engine: _ModelTreeEngine) -> Unit:
    """Return the unit of an engine's models."""
    if engine.has_labels:
        return LOG_ODDS
    if engine.has_log_link:
        return Unit(math.log(engine.target_scale), 1.0, has_log_link=True)
    return Unit(engine.target_shift, engine.target_scale)


# ---------------------------------------------------------------------- curves
class NodeCurve(NamedTuple):
    """A feature's curve in the model of a node: between two knots it is straight, outside flat.

    Attributes
    ----------
    knots : ndarray of shape (n_knots,)
        Ascending: those of the bends, and the limits from which on a number counts as if it lay
        there.
    values : ndarray of shape (n_outputs, n_knots)
        What the feature adds there to the log-odds or the number: its line and its bends. A missing
        value counts as the mean.
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
        between = [knot for knot in self.knots.tolist() if self.first < knot < self.last]
        return np.array([self.first, *between, self.last])


def node_curves(engine: MeasuredEngine | PaperEngine, node: int) -> dict[int, NodeCurve]:
    """Return the curve of each feature that is bent in the model of a node."""
    bends = engine.bends(int(engine.model[node]))
    if not bends:
        return {}
    bent = curves_of(bends)
    limits = _limits(engine, bent)
    knots = {j: sorted({*own, *limits[j]}) for j, own in bent.items()}
    rows = np.full((sum(map(len, knots.values())), engine.n_features), np.nan)
    rows[range(len(rows)), [j for j in knots for _ in knots[j]]] = np.concatenate([*knots.values()])
    inputs = engine.inputs_at(node, rows)
    weights = engine.weights(node) * unit_of(engine).factor
    columns = {j: [int(column)] for j, column in enumerate(engine.value_column) if j in bent}
    for i, (feature, _, _) in enumerate(bends):
        columns[feature].append(engine.n_columns + i)
    ways = ways_through(engine, node)
    found, begin = {}, 0
    for j, own in knots.items():
        part, begin = slice(begin, begin + len(own)), begin + len(own)
        values = weights[:, columns[j]] @ inputs[part, columns[j]].T
        way = ways.get(j, (-np.inf, np.inf))
        found[j] = NodeCurve(np.array(own), values, *_part(bent[j], limits[j], way))
    return found


def _limits(
    engine: MeasuredEngine | PaperEngine, features: Iterable[int]
) -> dict[int, tuple[float, float]]:
    """Return the values from which on a number counts as if it lay there."""
    shifts, factors = engine.scale_shift.tolist(), engine.scale_factor.tolist()
    limit = engine.input_limit
    reach = {j: limit / factors[j] if factors[j] > 0 else 0.0 for j in features}
    return {j: (shifts[j] - own, shifts[j] + own) for j, own in reach.items()}


def ways_through(engine: MeasuredEngine | PaperEngine, node: int) -> dict[int, tuple[float, float]]:
    """Return between which values of a numeric feature the rows of a node are, where splits say."""
    found: dict[int, tuple[float, float]] = {}
    lefts = engine.left
    while (parent := engine.node(node).parent) >= 0:
        feature, threshold, equality, _ = engine.node(parent).condition
        if not equality:
            low, high = found.get(feature, (-np.inf, np.inf))
            is_left = lefts[parent] == node
            found[feature] = (low, min(high, threshold)) if is_left else (max(low, threshold), high)
        node = parent
    return found


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

    A weight is what the log-odds, or the target, gain when a number grows by two standard
    deviations. Of a curve it is the most that they gain or lose when it grows by up to that, in the
    part that counts.
    """
    return engine.effects(node) * unit_of(engine).factor
