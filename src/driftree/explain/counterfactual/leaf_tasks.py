"""Leaf tasks: how a row may change within each leaf, as optimisation problems without names.

The cost of a number is its squared change in standard deviations (paper's setting: in units of the
range seen). Features with levels cost 1 when they change: categories, and numbers with only the
values 0 and 1 so far; so do constant numbers, which have no effect and only change where they must.
Missing values stay missing, present ones present. Rows of sparse features have a space of their own
(`SparseSpace`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.explain.counterfactual.solver import LeafTask, Search
from driftree.explain.sparse import sparse_engine, sparse_scales, sparse_texts, weights_of
from driftree.learn.sparse import check_row
from driftree.learn.units import LIMIT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from driftree.explain.counterfactual.goals import Constraints
    from driftree.explain.counterfactual.solver import Doubles, Places
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

FURTHEST = 1e100  # largest change of a number, in its units


class Start:
    """The original row, and the options and costs of its features.

    Attributes
    ----------
    values : array of shape (features,)
        The row as the encoder reads it.
    inputs : array of shape (columns,)
        The inputs of the simple models.
    units : array of shape (features,)
        Change that costs 1; NaN if every change costs 1.
    options : dict
        For a feature with levels: their values, and the change of the inputs for each; inputs
        without a column come last.
    sparse : SparseSpace or None
        The space of the row, if features are sparse.
    """

    def __init__(
        self,
        tree: Tree,
        encoder: Encoder | SparseSpace,
        values: Doubles,
        limits: Constraints,
    ) -> None:
        engine = tree.engine
        self.engine, self.values = engine, values
        self.sparse = encoder if isinstance(encoder, SparseSpace) else None
        self.is_paper = tree.parameters.setting == "paper"
        self.inputs = self._inputs(values[None])[0]
        n_more = len(values) - engine.n_features
        factor = np.append(engine.scale_factor, np.zeros(n_more))
        self.factor, self.shift = factor, np.append(engine.scale_shift, np.zeros(n_more))
        has_column = np.append(engine.value_column >= 0, np.zeros(n_more, dtype=bool))
        is_option = (engine.is_categorical != 0) | (engine.scale_is_indicator != 0)
        has_levels = np.append(is_option, np.ones(n_more, dtype=bool))
        if self.sparse is not None:
            has_levels |= ~has_column
        has_unit = ~has_levels & (factor > 0) & has_column
        with np.errstate(divide="ignore"):
            self.units = np.where(has_unit, (1.0 if self.is_paper else 0.5) / factor, math.nan)
        self.limit = engine.input_limit
        self._check_reach(encoder, limits)
        self.options: dict[int, tuple[Doubles, Doubles]] = {}
        for j in np.flatnonzero(has_levels & ~np.isnan(values)).tolist():
            self.options[j] = self._options(encoder, j, limits)

    def _inputs(self, rows: Doubles) -> Doubles:
        """Return the inputs of rows, followed by those without a column."""
        if self.sparse is None:
            return self.engine.inputs(rows)
        own = self.engine.inputs(self.sparse.known(rows))
        return np.hstack([own, self.sparse.inputs(rows)])

    def inputs_at(self, leaf: int, values: Doubles) -> Doubles:
        """Return the inputs of a row for a leaf: columns, bends, those without a column."""
        if self.sparse is None:
            return np.asarray(self.engine.inputs_at(leaf, values[None])[0])
        own = self.engine.inputs_at(leaf, self.sparse.known(values[None]))
        return np.append(own[0], self.sparse.inputs(values[None])[0])

    def _check_reach(self, encoder: Encoder | SparseSpace, limits: Constraints) -> None:
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
                f"({self.units[j]:.3g}) away from the values learnt: check its unit"
            )

    def _options(
        self, encoder: Encoder | SparseSpace, j: int, limits: Constraints
    ) -> tuple[Doubles, Doubles]:
        engine, codes = self.engine, encoder.levels[j]
        if self.sparse is not None:
            values = self.sparse.choices(j)
        elif codes is not None:
            values = {*map(float, codes.values())}
        elif engine.is_categorical[j]:  # paper's setting: numbers, of which no list is kept
            values = set(engine.threshold[(engine.feature == j) & (engine.alive != 0)].tolist())
            values -= {-math.inf}
        else:
            values = {0.0, 1.0}
        if j in limits.values:
            values = set(limits.values[j])
        chosen = np.array(sorted(values | {float(self.values[j])}))
        rows = np.tile(self.values, (len(chosen), 1))
        rows[:, j] = chosen
        return chosen, self._inputs(rows) - self.inputs

    def costs(self, values: Doubles) -> Doubles:
        """Return each feature's contribution to the squared distance of another row."""
        changed = (values != self.values) & ~np.isnan(self.values)
        with np.errstate(invalid="ignore"):
            shifts = np.where(np.isnan(self.units), 1.0, (values - self.values) / self.units)
        return np.where(changed, shifts**2, 0.0)

    def least_cost(self, region: Region) -> float:
        """Return the squared distance of a region."""
        cost = float(len(region.moved) + sum(not may_stay for *_, may_stay in region.options))
        for j, low, high in region.numbers:
            value = float(self.values[j])
            cost += ((min(max(value, low), high) - value) / float(self.units[j])) ** 2
        return cost


class Piece(NamedTuple):
    """An interval of a number on which all of its inputs are linear, or one level.

    A shift of the number adds ``gains + slopes * shift`` to the demands.
    """

    feature: int
    low: float
    high: float
    slopes: Doubles  # [demands]
    gains: Doubles  # [demands]
    cost: float = 0.0


@dataclass(slots=True)
class Region:
    """The reachable part of a leaf's box."""

    leaf: int
    numbers: list[tuple[int, float, float]] = field(default_factory=list)  # and their intervals
    moved: dict[int, float] = field(default_factory=dict)  # without effect, but required by the box
    options: list[tuple[int, Doubles, Doubles, bool]] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """A task, and how to convert its solution to a row."""

    leaf: int
    search: Search
    pieces: list[Piece]
    moved: dict[int, float]

    def row(self, start: Start, shifts: Doubles, places: Places) -> Doubles:
        """Return the row for shifts of some pieces."""
        values = start.values.copy()
        for place, shift in zip(places.tolist(), shifts.tolist(), strict=True):
            piece = self.pieces[place]
            j = piece.feature
            value = values[j] + shift * start.units[j] if shift else values[j]
            values[j] = min(max(value, piece.low), piece.high)
        for j, value in self.moved.items():
            values[j] = value
        return values


def reach(tree: Tree, start: Start, limits: Constraints, leaf: int) -> Region | None:
    """Return the reachable part of a leaf's box, or None."""
    box = _box(tree, start, limits, leaf)
    if box is None:
        return None
    low, high, allowed = box
    region = Region(leaf)
    derived = start.sparse.derived if start.sparse is not None else ()
    for j in np.flatnonzero(~np.isnan(start.values)).tolist():
        if j in derived:
            continue
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
            region.numbers.append((j, low[j], high[j]))
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
    if start.sparse is not None:
        for j, codes in start.sparse.allowed_levels(low, high).items():
            allowed[j] &= codes
    return low, high, allowed


class Ramp(NamedTuple):
    """An input as a function of a number: flat, linear between two values, flat."""

    column: int
    left: float
    right: float
    bottom: float
    top: float


class Curves:
    """The inputs of numbers in a leaf; `ramps` are those of the bends, by feature."""

    def __init__(self, start: Start, leaf: int) -> None:
        engine = start.engine
        self.start = start
        self.ramps: dict[int, list[Ramp]] = {}
        for i, (j, low, high) in enumerate(engine.bends(int(engine.model[leaf]))):
            self.ramps.setdefault(j, []).append(Ramp(engine.n_columns + i, low, high, 0.0, 1.0))

    def of(self, j: int) -> list[Ramp]:
        """Return the ramps of a number: its own input, clipped, and its bends."""
        start = self.start
        width = start.limit / start.factor[j]
        own = int(start.engine.value_column[j])
        edges = start.shift[j] - width, start.shift[j] + width
        return [Ramp(own, *edges, -start.limit, start.limit), *self.ramps.get(j, [])]

    def change(self, j: int, values: Doubles, demands: Doubles) -> Doubles:
        """Return what a feature's bends add to the demands at other values, [values, demands]."""
        total = np.zeros((len(values), len(demands)))
        for ramp in self.ramps.get(j, []):
            now, *then = (_height(ramp, value) for value in (self.start.values[j], *values))
            total += np.outer(np.array(then) - now, demands[:, ramp.column])
        return total

    def pieces(self, j: int, low: float, high: float, demands: Doubles) -> list[Piece]:
        """Return the useful pieces of a number in an interval, from low to high."""
        ramps, value, unit = self.of(j), float(self.start.values[j]), float(self.start.units[j])
        now = [_height(ramp, value) for ramp in ramps]
        knots = {edge for ramp in ramps for edge in (ramp.left, ramp.right) if low < edge < high}
        found = []
        for begin, end in itertools.pairwise([low, *sorted(knots), high]):
            is_nearest = begin <= max(value, low) and end >= min(value, high)
            if not is_nearest and not any(
                ramp.left <= begin and end <= ramp.right for ramp in ramps
            ):
                continue  # flat
            slopes, gains = np.zeros(len(demands)), np.zeros(len(demands))
            for ramp, seen in zip(ramps, now, strict=True):
                column, left, right, bottom, top = ramp
                if left <= begin and end <= right:
                    steepness = (top - bottom) / (right - left)
                    slopes += demands[:, column] * (steepness * unit)
                    if not left <= value <= right:
                        gains += demands[:, column] * (bottom + steepness * (value - left) - seen)
                else:
                    gains += demands[:, column] * ((bottom if end <= left else top) - seen)
            piece = _shrink(Piece(j, begin, end, slopes, gains), value)
            if is_nearest or piece.low < piece.high:  # otherwise it is the end of the one before
                found.append(piece)
        return _useful(found, value, unit)


def _height(ramp: Ramp, value: float) -> float:
    _, left, right, bottom, top = ramp
    return bottom + (top - bottom) * min(max((value - left) / (right - left), 0.0), 1.0)


def _shrink(piece: Piece, value: float) -> Piece:
    """Return a piece reduced to its nearest point if moving on gains nothing."""
    near = min(max(value, piece.low), piece.high)
    up, down = piece.high > near, piece.low < near
    if (up and (piece.slopes > 0).any()) or (down and (piece.slopes < 0).any()):
        if not up or not down or near != value:
            return piece
        low = near if (piece.slopes >= 0).all() else piece.low
        return piece._replace(low=low, high=near if (piece.slopes <= 0).all() else piece.high)
    return piece._replace(low=near, high=near)


def _useful(pieces: list[Piece], value: float, unit: float) -> list[Piece]:
    """Return the pieces without those that are dominated by a point of another."""
    if len(pieces) == 1:
        return pieces
    n_pieces = len(pieces)
    ends = np.array([(piece.low, piece.high) for piece in pieces])
    ways = (ends - value) / unit
    slopes = np.array([piece.slopes for piece in pieces])
    gains = np.array([piece.gains for piece in pieces])
    brought = slopes[:, None] * ways[..., None] + gains[:, None]
    most, cheapest = brought.max(axis=1), np.clip(0.0, *ways.T) ** 2
    costs, owner = ways.ravel() ** 2, np.repeat(np.arange(n_pieces), 2)
    points = brought.reshape(2 * n_pieces, -1)
    outdoes = (costs[:, None] <= cheapest) & (points[:, None] >= most).all(axis=2)
    is_same = (costs[:, None] == cheapest) & (points[:, None] == most).all(axis=2)
    outdoes &= (owner[:, None] < np.arange(n_pieces)) | (
        (owner[:, None] != np.arange(n_pieces)) & ~is_same
    )
    return [piece for piece, bad in zip(pieces, outdoes.any(axis=0), strict=True) if not bad]


def plan_for(region: Region, start: Start, demands: Doubles, constants: Doubles) -> Plan:
    """Return the task of a region.

    Parameters
    ----------
    region : Region
        The reachable part of a leaf.
    start : Start
        The row.
    demands, constants : array of shape (demands, columns and bends), (demands,)
        What must not be negative: ``demands @ inputs + constants``. Inputs without a column follow
        after the bends.
    """
    curves = Curves(start, region.leaf)
    items = [
        *(curves.pieces(j, low, high, demands) for j, low, high in region.numbers),
        *_choices(region, start, curves, demands),
    ]
    pieces = [piece for item in items for piece in item]
    values = start.values.copy()
    values[list(region.moved)] = list(region.moved.values())
    need = -(demands @ start.inputs_at(region.leaf, values) + constants)
    features = np.array([piece.feature for piece in pieces], np.intp)
    ends = np.array([(piece.low, piece.high) for piece in pieces]).reshape(-1, 2)
    ways = (ends - start.values[features, None]) / start.units[features, None]
    ways[np.isnan(start.units[features])] = 0.0
    task = LeafTask(
        item=np.repeat(np.arange(len(items)), [len(item) for item in items]),
        low=ways[:, 0],
        high=ways[:, 1],
        slopes=np.array([piece.slopes for piece in pieces]).reshape(-1, len(demands)),
        gains=np.array([piece.gains for piece in pieces]).reshape(-1, len(demands)),
        costs=np.array([piece.cost for piece in pieces]),
        need=need,
        base_cost=float(len(region.moved)),
    )
    return Plan(region.leaf, Search(task), pieces, region.moved)


def _choices(
    region: Region, start: Start, curves: Curves, demands: Doubles
) -> Iterator[list[Piece]]:
    """Yield the pieces of each choice: unchanged, and the options that are not dominated."""
    none, n_columns = np.zeros(len(demands)), start.engine.n_columns
    n_sparse = len(start.inputs) - n_columns
    own = np.arange(demands.shape[1])
    moved = demands[:, (own < n_columns) | (own >= len(own) - n_sparse)]  # options have no bends
    for j, values, deltas, may_stay in region.options:
        gains = deltas @ moved.T + curves.change(j, values, demands)
        keep = list(_best(gains, may_stay=may_stay))
        value = float(start.values[j])
        pieces = [Piece(j, value, value, none, none)] if may_stay else []
        pieces += [Piece(j, values[i], values[i], none, gains[i], 1.0) for i in keep]
        yield pieces


def _best(gains: Doubles, *, may_stay: bool) -> Iterator[int]:
    for i, own in enumerate(gains):
        if may_stay and (own <= 0).all():
            continue
        rivals = (gains >= own).all(axis=1)
        rivals &= (gains > own).any(axis=1) | (np.arange(len(gains)) < i)
        if not rivals.any():
            yield i


# ---------------------------------------------------------------------- sparse features
class SparseSpace:
    """The features of a row that holds a few of very many, used instead of the encoder.

    They are the encoder's features, then the other features that the row holds, then its texts: a
    text is a feature for each of its levels, which can only change together. Numbers with a column
    change as usual. Any other present feature may be removed (0), and a feature that the tree may
    split on may be added with the mean of the values in rows, which is 1 for words.

    Parameters
    ----------
    encoder : Encoder
        Of a model that has sparse features.
    x : dict
        The row.

    Attributes
    ----------
    values : array of shape (places,)
        The row: 0 for an absent feature, the number of its level for a text.
    levels : list of dict or None
        Per index the levels of a text and their numbers.
    derived : set of int
        Indices of levels, which are derived from their text.
    """

    def __init__(self, encoder: Encoder, x: dict[Hashable, Any]) -> None:
        self.encoder, self.engine, self.x = encoder, sparse_engine(encoder), x
        held = check_row(x, 0, None)
        self.n_known = len(encoder.feature_names)
        ids = encoder.row_face.sparse_ids(list(held), learning=False, centred=False) or []
        places = dict(zip(held, ids, strict=True))
        words = [name for name, i in places.items() if i >= 0 and name not in encoder.names]
        self.feature_names: list[Hashable] = [*encoder.feature_names, *words]
        own = np.array([places[name] for name in words], dtype=np.int32)
        self.display_names = [*encoder.display_names, *sparse_texts(encoder, own)]
        self._find_slots(own)
        absent = [*np.nan_to_num(self.engine.absent).tolist(), *[0.0] * len(words)]
        self._values = [
            float(held.get(name, other))
            for name, other in zip(self.feature_names, absent, strict=True)
        ]
        self.levels: list[dict[Hashable, int] | None] = [None] * len(self.feature_names)
        self._levels_at: dict[int, list[int]] = {}  # index of a text to those of its levels
        self._add_texts()
        self.names = {name: j for j, name in enumerate(self.feature_names)}
        self.derived = {j for each in self._levels_at.values() for j in each if j >= 0}
        self.values = np.array(self._values)

    def _find_slots(self, own: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Map indices to ids; features without a column are sparse inputs."""
        features = self.engine.sparse_feature
        known = np.zeros(self.n_known, dtype=np.int32)
        known[features[features >= 0]] = np.flatnonzero(features >= 0)
        has_column = np.append(self.engine.value_column >= 0, np.zeros(len(own), dtype=bool))
        self._ids = np.append(known, own)
        self._slots = np.flatnonzero(~has_column)
        self._shift, self._factor = sparse_scales(self.engine, self._ids[self._slots])

    def _add_texts(self) -> None:
        """Add each text of the row, with its own level and those in the encoder."""
        known = {name: j for j, name in enumerate(self.feature_names)}
        for name, text in self.x.items():
            if not isinstance(text, str):
                continue
            start = f"{name} == "
            texts = [one for one in known if isinstance(one, str) and one.startswith(start)]
            levels = list(dict.fromkeys([text, *(one[len(start) :] for one in texts)]))
            self._levels_at[len(self._values)] = [known.get(start + level, -1) for level in levels]
            self._values.append(0.0)
            self.feature_names.append(name)
            self.display_names.append(str(name))
            self.levels.append({level: code for code, level in enumerate(levels)})

    def is_elsewhere(self, name: Any) -> bool:
        """Return whether a name can neither be removed nor added: only the model or row has it."""
        if name in self.names:
            return False
        if name in self.x:
            return True
        return self.encoder.row_face.sparse_ids([name], learning=False, centred=False) != [-1]

    # ------------------------------------------------------------------ what may be
    def choices(self, j: int) -> set[float]:
        """Return the values that a feature may have, unless it is a number with a column."""
        levels = self.levels[j]
        if levels is not None:
            return set(map(float, levels.values()))
        if j in self.derived:
            return {float(self.values[j])}
        name = self.feature_names[j]
        if name not in self.x and " == " in str(name):  # a level of an absent text
            return {0.0}
        if self.values[j] != 0.0:
            return {0.0, float(self.values[j])}
        usual = float(f"{self.engine.sparse_mean[self._ids[j]]:.3g}")
        return {0.0, 1.0 if self.engine.scale_is_indicator[j] else usual}

    def allowed_levels(self, low: list[float], high: list[float]) -> dict[int, set[float]]:
        """Return per text the numbers of the levels within some limits of all features."""
        found = {}
        for place, each in self._levels_at.items():
            fits = [
                all(low[j] <= (i == code) <= high[j] for i, j in enumerate(each) if j >= 0)
                for code in range(len(each))
            ]
            found[place] = {float(code) for code, may in enumerate(fits) if may}
        return found

    # ------------------------------------------------------------------ what the models see
    def known(self, values: Doubles) -> Doubles:
        """Return the values of the encoder's features in rows, [rows, features]."""
        return self._settled(values)[:, : self.n_known]

    def inputs(self, values: Doubles) -> Doubles:
        """Return the sparse inputs of rows, [rows, slots]."""
        own = self._settled(values)[:, self._slots]
        scaled = np.clip((own - self._shift) * self._factor, -LIMIT, LIMIT)
        return np.where(own == 0.0, 0.0, scaled)

    def weights(self, leaf: int) -> Doubles:
        """Return a leaf's weights of the sparse inputs, [outputs, slots]."""
        return weights_of(self.engine, leaf, self._ids[self._slots]).T

    def _settled(self, values: Doubles) -> Doubles:
        """Return rows with levels derived from their texts."""
        rows = values.copy()
        for place, each in self._levels_at.items():
            for code, j in enumerate(each):
                if j >= 0:
                    rows[:, j] = rows[:, place] == code
        return rows

    # ------------------------------------------------------------------ in the user's words
    def level(self, j: int, code: float) -> Hashable:
        """Return the level with a number."""
        levels = self.levels[j]
        return code if levels is None else list(levels)[int(code)]

    def digits(self, j: int, value: float) -> int:
        """Return the number of significant digits of a feature."""
        return self.encoder.digits(j, value)

    def row(self, values: Doubles, changed: Iterable[int]) -> dict[Hashable, Any]:
        """Return the original row with the changes."""
        row = dict(self.x)
        for j in changed:
            name, value = self.feature_names[j], float(values[j])
            is_whole = isinstance(row.get(name, 0), int) and value == int(value)
            number = int(value) if is_whole else value
            row[name] = number if self.levels[j] is None else self.level(j, value)
        return row
