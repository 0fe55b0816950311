"""Leaf tasks: how a row may change, and what each leaf lets it become, as tasks without names.

A number costs its way in standard deviations (paper's setting: in units of the range seen),
squared. What has levels costs 1 when it changes: categories, and numbers that were only 0 and 1 so
far; so do numbers without a spread, which have no effect and only move where they must. Missing
values stay missing, present ones present.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.explain.counterfactual.solver import Bounds, Choice, LeafTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driftree.explain.counterfactual.constraints import Constraints
    from driftree.explain.counterfactual.solver import Doubles
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

FURTHEST = 1e100  # times its unit that a number may have to move
MAX_OUTSIDE = 6  # numbers beyond the clipped range for which both sides of its edge are tried


class Start:
    """The row to start from, and what each of its features may become at what cost.

    Attributes
    ----------
    values : array of shape (features,)
        The row as the encoder reads it.
    inputs : array of shape (columns,)
        What the simple models see of it.
    units : array of shape (features,)
        What counts as 1; NaN where each change does.
    options : dict
        Where a feature has levels: their values, and by how much each moves the inputs.
    """

    def __init__(self, tree: Tree, encoder: Encoder, values: Doubles, limits: Constraints) -> None:
        engine = tree.engine
        self.engine, self.values = engine, values
        self.is_paper = tree.parameters.setting == "paper"
        self.inputs = engine.inputs(values[None])[0]
        factor = np.array(engine.scale_factor)
        self.factor, self.shift = factor, np.array(engine.scale_shift)
        has_levels = (engine.is_categorical != 0) | (engine.scale_is_indicator != 0)
        has_unit = ~has_levels & (factor > 0) & (engine.value_column >= 0)
        with np.errstate(divide="ignore"):
            self.units = np.where(has_unit, (1.0 if self.is_paper else 0.5) / factor, math.nan)
        self.limit = 1e6 if self.is_paper else 1.5  # kernels/table.hpp, Scaler
        self._check_reach(encoder, limits)
        self.options: dict[int, tuple[Doubles, Doubles]] = {}
        for j in np.flatnonzero(has_levels & ~np.isnan(values)).tolist():
            self.options[j] = self._options(encoder, j, limits)

    def _check_reach(self, encoder: Encoder, limits: Constraints) -> None:
        """Raise if a distance could not be squared."""
        place = np.clip(self.values, limits.low, limits.high)
        with np.errstate(over="ignore", invalid="ignore"):
            is_far = np.abs(self.values - self.shift) / self.units > FURTHEST
            is_far |= np.abs(place - self.values) / self.units > FURTHEST
        for j in np.flatnonzero(is_far).tolist():
            name, value = encoder.feature_names[j], float(self.values[j])
            unit = "times the range seen" if self.is_paper else "standard deviations"
            raise ValueError(
                f"{name!r} is {value:g}, and it or its range is more than {FURTHEST:g} {unit} "
                f"({self.units[j]:.3g}) away from what was learnt: check its unit"
            )

    def _options(self, encoder: Encoder, j: int, limits: Constraints) -> tuple[Doubles, Doubles]:
        engine, codes = self.engine, encoder.levels[j]
        if codes is not None:
            values = {*map(float, codes.values())}
        elif engine.is_categorical[j]:  # paper's setting: numbers, and nobody keeps a list of them
            values = set(engine.threshold[(engine.feature == j) & (engine.alive != 0)].tolist())
            values -= {-math.inf}
        else:
            values = {0.0, 1.0}
        if j in limits.values:
            values = set(limits.values[j])
        chosen = np.array(sorted(values | {float(self.values[j])}))
        rows = np.tile(self.values, (len(chosen), 1))
        rows[:, j] = chosen
        return chosen, engine.inputs(rows) - self.inputs

    def costs(self, values: Doubles) -> Doubles:
        """Return each feature's part of the squared distance of another row."""
        changed = (values != self.values) & ~np.isnan(self.values)
        with np.errstate(invalid="ignore"):
            shifts = np.where(np.isnan(self.units), 1.0, (values - self.values) / self.units)
        return np.where(changed, shifts**2, 0.0)

    def least_cost(self, region: Region) -> float:
        """Return the squared distance of a region."""
        cost = float(len(region.moved) + sum(not may_stay for *_, may_stay in region.options))
        for piece in [*region.pieces, *(still for still, _ in region.outside)]:
            value = float(self.values[piece.feature])
            way = min(max(value, piece.low), piece.high) - value
            cost += (way / float(self.units[piece.feature])) ** 2
        return cost


class Piece(NamedTuple):
    """Part of a number's way on which its input is linear in it: ``offset + slope * shift``."""

    feature: int
    low: float
    high: float
    offset: float
    slope: float


@dataclass(slots=True)
class Region:
    """What of a leaf's box can be reached."""

    leaf: int
    pieces: list[Piece] = field(default_factory=list)
    outside: list[tuple[Piece, Piece]] = field(default_factory=list)  # stay beyond, or come inside
    moved: dict[int, float] = field(default_factory=dict)  # without effect, but the box demands it
    options: list[tuple[int, Doubles, Doubles, bool]] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """A task, and how its answer becomes a row."""

    leaf: int
    bounds: Bounds
    pieces: list[Piece]
    moved: dict[int, float]
    options: list[tuple[int, Doubles]]

    def row(self, start: Start, shifts: Doubles, picks: tuple[int, ...]) -> Doubles:
        """Return the row that shifts and picks stand for."""
        values = start.values.copy()
        for piece, shift in zip(self.pieces, shifts.tolist(), strict=True):
            if shift:
                j = piece.feature
                value = values[j] + shift * start.units[j]
                values[j] = min(max(value, piece.low), piece.high)
        for j, value in self.moved.items():
            values[j] = value
        for (j, chosen), pick in zip(self.options, picks, strict=True):
            if pick >= 0:
                values[j] = chosen[pick]
        return values


def reach(tree: Tree, start: Start, limits: Constraints, leaf: int) -> Region | None:
    """Return what of a leaf's box can be reached, or None."""
    box = _box(tree, start, limits, leaf)
    if box is None:
        return None
    low, high, allowed = box
    region = Region(leaf)
    for j in np.flatnonzero(~np.isnan(start.values)).tolist():
        value = float(start.values[j])
        if j in start.options:
            values, deltas = start.options[j]
            may = (values >= low[j]) & (values <= high[j])
            may &= np.array([one in allowed[j] for one in values.tolist()])
            is_other = may & (values != value)
            if not may.any():
                return None
            if is_other.any():
                may_stay = bool(may[values == value].any())
                region.options.append((j, values[is_other], deltas[is_other], may_stay))
        elif low[j] > high[j]:
            return None
        elif math.isnan(start.units[j]):
            if not low[j] <= value <= high[j]:
                region.moved[j] = min(max(value, low[j]), high[j])
        else:
            _add_number(region, start, j, low[j], high[j])
    return region


def _box(
    tree: Tree, start: Start, limits: Constraints, leaf: int
) -> tuple[list[float], list[float], dict[int, set[float]]] | None:
    """Return the interval of each feature and the allowed values of those with levels, or None."""
    engine = tree.engine
    low, high = limits.low.tolist(), limits.high.tolist()
    allowed = {
        j: set(limits.values.get(j, options[0].tolist())) for j, options in start.options.items()
    }
    node = leaf
    while (parent := int(engine.parent[node])) >= 0:
        j, threshold = int(engine.feature[parent]), float(engine.threshold[parent])
        is_left = int(engine.left[parent]) == node
        node = parent
        if math.isnan(start.values[j]):
            if is_left != bool(engine.missing_left[parent]):
                return None
        elif threshold == -math.inf:
            if is_left:
                return None
        elif engine.equality[parent]:
            allowed[j] = allowed[j] & {threshold} if is_left else allowed[j] - {threshold}
        elif is_left:
            high[j] = min(high[j], threshold)
        else:
            low[j] = max(low[j], math.nextafter(threshold, math.inf))
    return low, high, allowed


def _add_number(region: Region, start: Start, j: int, low: float, high: float) -> None:
    """Add the parts of an interval that are nearest: beyond the clipped range, inside, or both."""
    value, factor, limit = float(start.values[j]), start.factor[j], start.limit
    edges = start.shift[j] - limit / factor, start.shift[j] + limit / factor
    seen = start.inputs[start.engine.value_column[j]]

    def still(low: float, high: float) -> Piece:
        place = min(max(value, low), high)
        scaled = min(max((place - start.shift[j]) * factor, -limit), limit)
        return Piece(j, place, place, scaled - seen, 0.0)

    inside = max(low, edges[0]), min(high, edges[1])
    linear = Piece(
        j, *inside, (value - start.shift[j]) * factor - seen, factor * float(start.units[j])
    )
    near = (low, min(high, edges[0])) if value < edges[0] else (max(low, edges[1]), high)
    if inside[0] > inside[1]:
        region.pieces.append(still(low, high))
    elif edges[0] <= value <= edges[1]:
        region.pieces.append(linear._replace(offset=0.0))
    elif near[0] <= near[1]:
        region.outside.append((still(*near), linear))
    else:
        region.pieces.append(linear)


def plans(
    region: Region, start: Start, demands: Doubles, constants: Doubles
) -> tuple[list[Plan], float]:
    """Return the tasks of a region, and what all that they leave out costs at least.

    Parameters
    ----------
    region : Region
        What can be reached.
    start : Start
        The row.
    demands, constants : array of shape (demands, columns), (demands,)
        What must not be negative: ``demands @ inputs + constants``.
    """
    columns = start.engine.value_column
    useful: list[tuple[float, tuple[Piece, Piece]]] = []
    fixed = list(region.pieces)
    for still, linear in region.outside:
        j = still.feature
        inward = math.copysign(1.0, linear.low - float(start.values[j]))
        if (demands[:, columns[j]] * inward > 0).any():
            edge = linear.low if inward > 0 else linear.high
            way = (edge - float(start.values[j])) / float(start.units[j])
            useful.append((way**2, (still, linear)))
        else:
            fixed.append(still)
    useful.sort(key=lambda pair: pair[0])
    left_out = min((cost for cost, _ in useful[MAX_OUTSIDE:]), default=math.inf)
    fixed += [still for _, (still, _) in useful[MAX_OUTSIDE:]]
    choices, options = _choices(region, demands)
    base = -(demands @ start.inputs + constants)
    found = []
    for picked in itertools.product(*(pair for _, pair in useful[:MAX_OUTSIDE])):
        pieces = [*fixed, *picked]
        task = _task(pieces, start, demands, base)
        task.choices, task.base_cost = choices, float(len(region.moved))
        found.append(Plan(region.leaf, Bounds(task), pieces, region.moved, options))
    return found, left_out


def _task(pieces: list[Piece], start: Start, demands: Doubles, need: Doubles) -> LeafTask:
    parts = np.array(pieces).reshape(-1, 5)
    features = parts[:, 0].astype(np.intp)
    own = demands[:, start.engine.value_column[features]]
    with np.errstate(over="ignore"):
        low = (parts[:, 1] - start.values[features]) / start.units[features]
        high = (parts[:, 2] - start.values[features]) / start.units[features]
    return LeafTask(low, high, slopes=own * parts[:, 4], need=need - own @ parts[:, 3])


def _choices(region: Region, demands: Doubles) -> tuple[list[Choice], list[tuple[int, Doubles]]]:
    """Return the choices with the options that no other one outdoes, the strongest first."""
    found = []
    for j, values, deltas, may_stay in region.options:
        gains = deltas @ demands.T
        keep = list(_best(gains, may_stay=may_stay))
        if keep:
            found.append((Choice(gains[keep], may_stay), (j, values[keep])))
    found.sort(key=lambda pair: -float(pair[0].gains.max()))
    return [choice for choice, _ in found], [option for _, option in found]


def _best(gains: Doubles, *, may_stay: bool) -> Iterator[int]:
    for i, own in enumerate(gains):
        if may_stay and (own <= 0).all():
            continue
        rivals = (gains >= own).all(axis=1)
        rivals &= (gains > own).any(axis=1) | (np.arange(len(gains)) < i)
        if not rivals.any():
            yield i
