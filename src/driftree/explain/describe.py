"""Describe: the tree as plain data.

`leaf_models` is what everything else is based on: per leaf its conditions, its rows and its model
in the user's names and units. Where the line of a number is bent, its effect is a `LeafCurve`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from driftree.explain.sparse import merge, node_words
from driftree.learn._kernels import MAX_LEVELS, MeasuredEngine
from driftree.learn.events import Shift, format_numbers
from driftree.learn.units import node_curves, node_effects, ways_through

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Condition, Spot
    from driftree.learn.history import Sample
    from driftree.learn.tree import Tree
    from driftree.learn.units import Unit

ENOUGH_ROWS = 100  # for the shares of the sides of a split since its threshold moved


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafModel:
    """A leaf and its model, linear or of curves, in the user's names and units.

    The log-odds of a label (two labels: of the second; more: one logit per label) are the intercept
    plus the sum of weight times input, plus what each curve adds at its feature's value. A number
    has either a weight or, where its line is bent, a curve. Inputs are the numeric features, and
    0/1 inputs such as ``car == 'van'`` or ``age is missing``. This holds for rows whose numbers are
    within three standard deviations of their mean (for a regressor it may be more: `to_dict` has
    the limits): values beyond are clipped. A missing number counts as its mean, or as 0 if it had
    only the values 0 and 1. Curves include both. (The paper's setting has no curves and no
    clipping, and a missing number counts as the lower end of the range seen, which starts as 0 to
    1.)

    Exactly one of a category's inputs is 1 in every row, so only differences between its weights
    are meaningful: they are given as differences from their mean, and the intercept contains that
    mean. Levels that the path excludes have the weight 0 and are not part of the mean. An unknown
    level has no input; its row has the intercept without the mean.

    Sparse features are inputs by their names: 0 where they are absent, and clipped at one and a
    half times their usual size, which is the root mean square of their values where present (for
    words it is 1).

    For a regressor everything refers to the number itself, "y", in its own unit: it is the
    intercept plus the sum of weight times input, plus the curves.

    Attributes
    ----------
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to the leaf.
    rows : float
        Rows that the leaf has learnt.
    share : float
        Share of the stream's rows that reach the leaf, each condition counted since it was created,
        or since its threshold moved (with a history); NaN while one on the path has seen no rows.
    intercept : dict
        Intercept of each label.
    weights : dict of dict
        Per label the weight of each input, the strongest first: those that move the log-odds most
        when a number grows by two standard deviations (in the paper's setting: from its least to
        its largest value), a sparse one from 0 to its usual size, or a 0/1 input from 0 to 1.
    effects : dict of dict
        The same weights and the curves in one unit, so that they can be compared across inputs and
        leaves: the change of the log-odds for each of these changes. Of a curve it is the most that
        they rise or fall (below 0) when the number grows by up to two standard deviations, where
        its line is bent and the leaf has rows. The strongest first.
    curves : dict of dict
        Per label the curve of each number whose line is bent, the strongest first.
    floor : tuple of float
        Noise floor: the share of each of two labels that is random. A label's probability is its
        floor plus the rest times the logistic function of the log-odds.
    numbers : frozenset of str
        The inputs that are numbers with a unit; the others are 0 or 1.
    n_weaker : int
        Number of weaker weights of sparse features per label that are left out; 0 in `leaf_models`.
    mean : float or None
        Regressors: the mean prediction in the leaf, over the rows that its model remembers.
    error : float or None
        Regressors: the typical error of predictions in the leaf.
    unit : Unit or None
        Regressors: how the target is scaled in the models.
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
    numbers: frozenset[str] = frozenset()
    n_weaker: int = 0
    mean: float | None = None
    error: float | None = None
    unit: Unit | None = None


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
            "only the tree of a DynamicModelTreeClassifier or DynamicModelTreeRegressor can be "
            f"read like this, got {type(model).__name__}"
            + (": give one of its trees_, or its best_tree()" if hasattr(model, "trees_") else "")
        )
    check_is_fitted(model)
    tree = model._tree
    assert tree is not None
    return tree, tree.encoder


def row_shares(tree: Tree, *, unknown: float = math.nan) -> dict[int, float]:
    """Return each node's share of the stream's rows: the product of the shares along its path.

    Two children are created together and count their rows since, so age does not bias their shares.
    As long as they have no rows, each has the `unknown` share of its parent's rows. If a threshold
    has moved, only the rows since count, in its branch, as far as the history has samples.
    """
    children, rows = children_of(tree), dict(enumerate(tree.engine.rows.tolist()))
    return divide_rows(children, rows | _rows_since_moves(tree, children, rows), unknown=unknown)


def _rows_since_moves(
    tree: Tree, children: Mapping[int, tuple[int, int]], rows: Mapping[int, float]
) -> dict[int, float]:
    """Return the rows of both sides since a threshold moved, of the split or above it."""
    moved = _moves(tree)
    found: dict[int, float] = {}
    if tree.history is None or not moved:
        return {}
    spots, last = tree.history.now.nodes, dict.fromkeys(children, -1)
    for node, pair in children.items():  # from the root down
        spot = spots[node]
        step, _ = moved.get(node, (-1, -1))
        last[node] = max(last.get(spot.parent, -1), step if step >= spot.since_step else -1)
        if last[node] >= 0:
            found |= _rows_since(tree.history.samples, spot, pair, rows, last[node])
    return found


def _rows_since(
    samples: Sequence[Sample],
    spot: Spot,
    pair: tuple[int, int],
    rows: Mapping[int, float],
    step: int,
) -> dict[int, float]:
    """Return the rows of two children since the first sample after a step.

    If these are too few, since the last sample with enough, which is the nearest to it; {}: none.
    """
    found: dict[int, float] = {}
    for sample in reversed(samples):
        seen = sample.nodes.get(spot.node)
        is_other = seen is None or seen.is_leaf or seen.since_step != spot.since_step
        if is_other or (found and sample.step < step):
            break
        own = {child: rows[child] - sample.nodes[child].rows for child in pair}
        if sum(own.values()) >= ENOUGH_ROWS:
            found = own
    return found


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


def leaf_model(
    tree: Tree, encoder: Encoder, leaf: int, share: float, most_sparse: int | None = None
) -> LeafModel:
    """Return a leaf as data; all leaves' shares are computed at once, by `row_shares`.

    `most_sparse` limits the number of sparse features, the strongest first; None: all of them.
    """
    engine = tree.engine
    shift, factor = column_scales(tree)
    names = encoder.column_names()
    intercept: dict[Hashable, float] = {}
    weights: dict[Hashable, dict[str, float]] = {}
    effects: dict[Hashable, dict[str, float]] = {}
    curves: dict[Hashable, dict[str, LeafCurve]] = {}
    possible = possible_inputs(tree, encoder, tree.path(leaf))
    by_feature, if_missing = leaf_curves(tree, leaf, possible)
    bent = {int(engine.value_column[j]): own for j, own in by_feature.items()}
    scaled = centred_weights(tree, encoder, leaf)
    moves = centred_effects(tree, encoder, leaf)
    sparse = node_words(tree, encoder, leaf, most_sparse)
    offsets = read_offsets(tree)
    for i, label in enumerate(outputs(tree, engine.n_outputs)):
        own = scaled[i] * factor
        own[list(bent)] = 0.0
        at_zero = scaled[i, 0] - own @ shift + if_missing[i] + sparse.intercept[i]
        intercept[label] = float(at_zero + offsets[i])
        strongest = strongest_inputs(moves[i])
        known = {names[c]: float(own[c]) for c in strongest if c not in bent}
        known |= {one.name: one.weight for one in sparse.inputs[i]}
        effects[label] = merge(
            [(names[c], float(moves[i, c])) for c in strongest], sparse.inputs[i]
        )
        weights[label] = {name: known[name] for name in effects[label] if name in known}
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
        numbers=_number_names(tree, encoder) | sparse.numbers,
        n_weaker=sparse.n_inputs - len(sparse.inputs[0]),
        mean=mean_prediction(tree, encoder, leaf),
        error=typical_error(tree, leaf),
        unit=number_unit(tree),
    )


def _number_names(tree: Tree, encoder: Encoder) -> frozenset[str]:
    """Return the numbers with a column."""
    names, engine = encoder.column_names(), tree.engine
    is_number = engine.value_column >= 0
    if encoder.sparse is not None:
        is_number &= engine.scale_is_indicator == 0
    return frozenset(names[column] for column in engine.value_column[is_number])


def outputs(tree: Tree, n_outputs: int) -> list[Hashable]:
    """Return the outputs of the linear models: the second of two labels, each of more, or "y".

    Models of the past may have fewer outputs than there are labels now.
    """
    return tree.target.outputs(n_outputs, getattr(tree.parameters, "quantiles", ()))


def strongest_inputs(weights: NDArray[np.float64]) -> list[int]:
    """Return the inputs of a label's weights, the intercept first, by their strength."""
    return sorted(range(1, len(weights)), key=lambda column: (-abs(weights[column]), column))


def centred_weights(tree: Tree, encoder: Encoder, node: int) -> NDArray[np.float64]:
    """Return a node's weights per output, those of each category as differences from their mean.

    Inputs that are 0 in every row that the node's path lets through have no weight. Bends are left
    out. They are in the unit of the target.
    """
    return _centre_at(tree, encoder, node, read_weights(tree, node)[:, : tree.engine.n_columns])


def read_weights(tree: Tree, node: int) -> NDArray[np.float64]:
    """Return the weights of a node's model, [outputs, columns and bends], in the user's unit."""
    return tree.engine.weights(node) * tree.target.unit.factor


def centred_effects(tree: Tree, encoder: Encoder, node: int) -> NDArray[np.float64]:
    """Return the same, but for bent features the effects of their curves on the log-odds."""
    return _centre_at(tree, encoder, node, node_effects(tree.engine, node))


def _centre_at(
    tree: Tree, encoder: Encoder, node: int, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    engine = tree.engine
    own = weights[: len(outputs(tree, engine.n_outputs))]
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
    """Return which inputs of the simple models can differ from 0 under some conditions."""
    engine = tree.engine
    possible = np.ones(engine.n_columns, dtype=bool)
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    places = {name: j for j, name in enumerate(encoder.display_names)}
    for condition in path:
        j = places.get(condition.feature)
        if (
            j is None
        ):  # another feature with the same text was added since, and both got longer names
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
    """Return the share of each label among the rows of a node, discounted like its losses.

    A node without rows has the shares of the nearest node above with rows; if there is none (the
    tree has just restarted from one leaf), all labels have equal shares. Empty for regressors.
    """
    engine = tree.engine
    if not engine.has_labels:
        return {}
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


# ---------------------------------------------------------------------- numbers
def read_offsets(tree: Tree) -> NDArray[np.float64]:
    """Return the offsets of the outputs (of quantiles), in the user's unit."""
    unit, own = tree.target.unit, tree.engine.offsets
    return unit.shift + unit.factor * (own if len(own) else np.zeros(tree.engine.n_outputs))


def number_unit(tree: Tree) -> Unit | None:
    """Return the unit of the target if it is a number, else None."""
    return None if tree.engine.has_labels else tree.target.unit


def typical_error(tree: Tree, node: int) -> float | None:
    """Return the typical error of a node's predictions; None for labels."""
    engine = tree.engine
    if engine.has_labels:
        return None
    spread = engine.spread(int(engine.model[node]))
    if tree.target.unit.has_log_link:  # counts vary with their size
        size = (mean_prediction(tree, tree.encoder, node) or 0.0) / engine.target_scale
        spread *= size**engine.variance_power
    return math.sqrt(spread)


def mean_prediction(tree: Tree, encoder: Encoder, node: int) -> float | None:
    """Return the mean prediction of a node's model; None for labels.

    Sparse inputs are not included.
    """
    if tree.engine.has_labels:
        return None
    unit, weights = tree.target.unit, tree.engine.weights(node)
    middle = len(weights) // 2
    own = weights[middle] @ _mean_inputs(tree, encoder, node) * unit.factor
    return unit.number(float(own + read_offsets(tree)[middle]))


def _mean_inputs(tree: Tree, encoder: Encoder, node: int) -> NDArray[np.float64]:
    """Return the mean inputs of the rows that a node's model remembers.

    The Newton matrix is the inverse of the sum of products of inputs, whose first input is always
    1. The paper's setting has none: there it is the average row, moved to where the node's
    conditions hold.
    """
    engine = tree.engine
    if isinstance(engine, MeasuredEngine):
        matrix = engine.curvature_inverse(int(engine.model[node]))
        sums = np.linalg.lstsq(matrix, np.eye(len(matrix))[0], rcond=None)[0]
        if sums[0] > 0 and np.isfinite(sums).all():
            most = engine.input_limit
            means: NDArray[np.float64] = np.clip(sums / sums[0], -most, most)
            return means
    return average_inputs(tree, encoder, node, within=True)


def average_inputs(
    tree: Tree, encoder: Encoder, node: int, *, within: bool = False
) -> NDArray[np.float64]:
    """Return the inputs of an average row: numbers at their mean, categories between levels.

    A category has only the levels that the node's path admits. Sparse features without a column are
    0, as in most rows.
    `within` says whether numbers are moved to where the path's conditions hold.
    """
    engine = tree.engine
    possible = possible_inputs(tree, encoder, tree.path(node))
    means = np.where(engine.value_column >= 0, engine.scale_mean, np.nan)
    if within:
        ways = ways_through(engine, node)
        means = np.array(
            [np.clip(mean, *ways.get(j, (-np.inf, np.inf))) for j, mean in enumerate(means)]
        )
    average: NDArray[np.float64] = engine.inputs_at(node, means[None])[0]
    average[engine.missing_column[engine.missing_column >= 0]] = 0.0
    for group in level_groups(tree):
        own = group[possible[group]]
        average[group] = 0.0
        average[own] = 1.0 / max(1, len(own))
    return average


# ---------------------------------------------------------------------- curves
class CurveRun(NamedTuple):
    """A part of a curve that only rises (`change` above 0) or only falls."""

    low: float
    high: float
    change: float


@dataclass(frozen=True, slots=True)
class LeafCurve:
    """What a number adds to the log-odds in a leaf: a piecewise linear function.

    Attributes
    ----------
    knots : tuple of float
        Values of the feature, ascending: those at which the line is bent, and those three standard
        deviations from the mean. Further out the curve is flat.
    values : tuple of float
        Log-odds that it adds at the knots, relative to its mean, where the curve is 0 (for a
        regressor: near its mean). A missing value adds nothing (except the weight of "... is
        missing", if there is one).
    first, last : float
        Where the line is bent and the leaf has rows: from the first of the bends to the last, or to
        where the leaf's conditions end. Beyond the bends it continues as a line.

    Examples
    --------
    >>> curve = LeafCurve((10.0, 44.9, 90.0), (-1.2, 0.9, -2.1), 10.0, 90.0)
    >>> print(curve)
    +2.1 from 10 to 44.9, -3 to 90
    >>> print(f"{curve(20):.3f}")
    -0.598
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    first: float
    last: float

    def __call__(self, value: float | None) -> float:
        """Return the log-odds that a value adds; None and NaN are missing."""
        if value is None or math.isnan(value):
            return 0.0
        return float(np.interp(value, self.knots, self.values))

    def __str__(self) -> str:
        return ", ".join(f"{run.change:+.3g} {where}" for run, where in _runs_and_ends(self))

    @property
    def slopes(self) -> tuple[float, ...]:
        """Change of the log-odds per unit of the feature, between each two knots."""
        points = pairwise(zip(self.knots, self.values, strict=True))
        return tuple((v1 - v0) / (x1 - x0) for (x0, v0), (x1, v1) in points)

    @property
    def mean_slope(self) -> float:
        """Change of the log-odds per unit, from `first` to `last`."""
        return (self(self.last) - self(self.first)) / (self.last - self.first)

    @property
    def runs(self) -> list[CurveRun]:
        """The curve from `first` to `last`, in parts that only rise or only fall."""
        between = [knot for knot in self.knots if self.first < knot < self.last]
        runs: list[CurveRun] = []
        for low, high in pairwise([self.first, *between, self.last]):
            change = self(high) - self(low)
            if runs and change * runs[-1].change >= 0:
                runs[-1] = CurveRun(runs[-1].low, high, runs[-1].change + change)
            else:
                runs.append(CurveRun(low, high, change))
        return runs


def leaf_curves(
    tree: Tree, node: int, possible: NDArray[np.bool_]
) -> tuple[dict[int, list[LeafCurve]], NDArray[np.float64]]:
    """Return the curves of the bent features, one per output, and what missing values add.

    Features that the leaf's conditions say are missing have no curve, but their bends add as much
    as those of any missing value: `possible` tells which inputs can differ from 0.
    """
    engine = tree.engine
    found = {}
    if_missing = np.zeros(engine.n_outputs)
    for j, curve in node_curves(engine, node).items():
        zero = curve.at(float(engine.scale_shift[j]))
        if_missing += zero
        if possible[engine.value_column[j]]:
            found[j] = [
                LeafCurve(
                    tuple(curve.knots.tolist()),
                    tuple((own - base).tolist()),
                    curve.first,
                    curve.last,
                )
                for own, base in zip(curve.values, zero, strict=True)
            ]
    return found, if_missing


def say_runs(curve: LeafCurve, rise: str = "rise", fall: str = "fall") -> str:
    """Describe where a curve rises and falls, and by how much.

    Examples
    --------
    >>> say_runs(LeafCurve((10.0, 44.9, 90.0), (-1.2, 0.9, -2.1), 10.0, 90.0))
    'rise by 2.1 from 10 to 44.9, then fall by 3 to 90'
    """
    return ", then ".join(
        f"{rise if run.change >= 0 else fall} by {abs(run.change):.3g} {where}"
        for run, where in _runs_and_ends(curve)
    )


def _runs_and_ends(curve: LeafCurve) -> list[tuple[CurveRun, str]]:
    """Return the runs of a curve, each with its ends in words: each begins where the last ended."""
    runs = curve.runs
    first, *ends = format_numbers([runs[0].low, *(run.high for run in runs)])
    words = [f"from {first} to {ends[0]}", *(f"to {end}" for end in ends[1:])]
    return list(zip(runs, words, strict=True))


def leaves_since(tree: Tree) -> dict[int, tuple[int | None, int | None]]:
    """Return step and row since which each leaf has its path; None without a history.

    That is when it was made, or when a threshold above it moved last.
    """
    if tree.history is None:
        return dict.fromkeys(tree.leaves(), (None, None))
    spots, parent = tree.history.now.nodes, tree.engine.parent.tolist()
    moved = _moves(tree)
    found: dict[int, tuple[int | None, int | None]] = {}
    for leaf in tree.leaves():
        since, node = (spots[leaf].since_step, spots[leaf].since_row), parent[leaf]
        while node >= 0:
            since = max(since, moved.get(node, since))
            node = parent[node]
        found[leaf] = since
    return found


def _moves(tree: Tree) -> dict[int, tuple[int, int]]:
    """Return step and row of the last move of each threshold, as far as the history tells."""
    events = () if tree.history is None else tree.history.events
    return {e.node: (e.step, e.n_rows) for e in events if isinstance(e, Shift)}
