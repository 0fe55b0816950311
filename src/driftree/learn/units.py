"""Units: sums, weights and curves of simple models in the user's unit.

Simple models predict log-odds, or a number t, the scaled target. In the user's unit that is `shift
+ factor * t`: log-odds, the target itself, or, with a log link, its logarithm. All explanations use
this module, and nothing else depends on how the target is scaled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn.model_trials import curves_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, PaperEngine, _ModelTreeEngine

LIMIT = 1.5  # limit of scaled inputs, also of sparse ones: three standard deviations
MOST_LOG = 8.0
"""The limit of the predicted logarithm of a count, in the models' unit: kernels/poisson.hpp."""


class Unit(NamedTuple):
    """The conversion of a model's sums to the user's unit.

    Attributes
    ----------
    shift, factor : float
        A sum t becomes `shift + factor * t`; a weight or an effect w becomes `factor * w`. The
        factor is 0 until the target varies.
    has_log_link : bool
        Whether this is the logarithm of the prediction.

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
        """Convert a model's sum to the user's unit."""
        return self.shift + self.factor * model_sum

    def number(self, read: float) -> float:
        """Return the prediction for a converted sum."""
        return math.exp(min(self.limited(read), 700.0)) if self.has_log_link else read

    def limited(self, read: Any) -> Any:
        """Return converted sums, one or an array, as they are predicted: logarithms are limited."""
        if not self.has_log_link:
            return read
        return np.clip(read, self.shift - MOST_LOG, self.shift + MOST_LOG)

    def model_sum(self, number: float) -> float:
        """Return the sum of a model for a prediction; infinity, or minus it, if there is none."""
        if not self.has_log_link:
            away = number - self.shift
            if not self.factor:
                return math.copysign(math.inf, away) if away else 0.0
            return away / self.factor
        log = math.log(number) - self.shift if number > 0 else -math.inf
        return log if abs(log) <= MOST_LOG else math.copysign(math.inf, log)


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
    """A feature's curve in the model of a node: linear between knots, flat outside.

    Attributes
    ----------
    knots : ndarray of shape (n_knots,)
        Ascending: those of the bends, and the limits at which numbers are clipped.
    values : ndarray of shape (n_outputs, n_knots)
        What the feature adds there to the log-odds or the number, by its line and its bends. A
        missing value counts as the mean.
    first, last : float
        The relevant part: from the first knot of the bends to the last, within the range of the
        node's rows.
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
        """The ends of the relevant part, and the knots between them."""
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
    """Return the values at which a number is clipped."""
    shifts, factors = engine.scale_shift.tolist(), engine.scale_factor.tolist()
    limit = engine.input_limit
    reach = {j: limit / factors[j] if factors[j] > 0 else 0.0 for j in features}
    return {j: (shifts[j] - own, shifts[j] + own) for j, own in reach.items()}


def ways_through(engine: MeasuredEngine | PaperEngine, node: int) -> dict[int, tuple[float, float]]:
    """Return the range of a numeric feature in a node, by the splits above it."""
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
    """Return the range of a node's rows where the line is bent; if there is none, any range."""
    for low, high in ((bent[0], bent[-1]), limits):
        first, last = max(low, way[0]), min(high, way[1])
        if first < last:
            return first, last
    return bent[0], bent[-1]


def node_effects(engine: MeasuredEngine | PaperEngine, node: int) -> NDArray[np.float64]:
    """Return the effects in a node's model, [outputs, columns].

    An effect is the change of the log-odds, or the target, when a number grows by two standard
    deviations. For a curve it is the largest change when it grows by up to that, in the relevant
    part.
    """
    return engine.effects(node) * unit_of(engine).factor
