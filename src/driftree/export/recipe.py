"""Recipe: how a model predicts, step by step, in plain numbers; all that is exported is this.

A row becomes values: a number is itself, a level its place in `Feature.levels`, or `OTHER_LEVEL`.
The values choose a leaf (`Split`) and give the inputs (`Number`, `Missing`, `Level`, and of the
leaf itself `Bend`). The leaf adds up weight times input, and the link makes a prediction of that.

A forest has a recipe per tree. They share the values, and those of hinges besides; what the trees
say is added up (`ForestRecipe`).

`to_dict` has the same for readers: weights in the users' units, a category's around their mean. Of
a feature far from 0 such a sum loses digits. Here all is scaled as the kernels do it, so that what
is exported predicts the same but for the order of additions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sklearn.utils.validation import check_is_fitted

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.constants import FOREST
from driftree.learn.estimator import StreamEstimator
from driftree.learn.forest import Forest
from driftree.learn.state import undisturbed
from driftree.learn.target import reach_at
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from driftree.learn._kernels import _TreeEngine
    from driftree.learn.encoding import Encoder
    from driftree.learn.imbalance import Cut
    from driftree.learn.nodes import TreeNodes

OTHER_LEVEL = MAX_LEVELS
"""The value of all levels that are not among a feature's own."""
MOST_LOG = 8.0
"""What the models' logarithm of a count is at most, above or below 0: kernels/poisson.hpp."""
MAX_DEPTH = 90
"""Conditions one inside the other; Python's compiler takes 100 levels of indentation."""

Link = Literal["certain", "logistic", "softmax", "identity", "log", "quantiles"]


class Feature(NamedTuple):
    """A feature; of a category its levels, of the target's level its value at the time of export.

    Attributes
    ----------
    name : hashable
        As rows have it.
    text : str
        The name as text, different from that of all others.
    levels : tuple or None
        Of a category, each at the place that is its value; None: a number.
    frozen : float or None
        What the feature is where nothing is said of it; None: missing.
    """

    name: Hashable
    text: str
    levels: tuple[Hashable, ...] | None
    frozen: float | None

    @property
    def has_text(self) -> bool:
        """Whether its levels are text."""
        return bool(self.levels) and all(isinstance(level, str) for level in self.levels or ())


class Number(NamedTuple):
    """The input of a number: (value - shift) * factor, at most `limit` from 0; 0 if missing."""

    feature: int
    shift: float
    factor: float
    limit: float


class Missing(NamedTuple):
    """1 if the value is missing, else 0."""

    feature: int


class Level(NamedTuple):
    """1 if the value is this one, else 0."""

    feature: int
    value: int


class Bend(NamedTuple):
    """What rises from 0 to 1 between two values; a missing one counts as `shift`."""

    feature: int
    low: float
    high: float
    shift: float


Input = Number | Missing | Level


class Split(NamedTuple):
    """Where rows go left: at most `threshold`, or equal to it; missing values if it says so.

    A threshold of minus infinity is for missing values only.
    """

    feature: int
    threshold: float
    is_equality: bool
    missing_left: bool
    left: int
    right: int
    words: str


class Leaf(NamedTuple):
    """The sums of a leaf, one per output: intercept, and weights of inputs and bends.

    Attributes
    ----------
    intercepts : list of float
        Per output.
    weights : list of list of float
        Per output and input.
    bends : list of (Bend, list of float)
        Each with its weights per output.
    floor : tuple of float
        Of two labels: the share of each that is given at random.
    half : float
        For numbers, if intervals are wanted: half of their width, before the link.
    """

    intercepts: list[float]
    weights: list[list[float]]
    bends: list[tuple[Bend, list[float]]]
    floor: tuple[float, float]
    half: float = 0.0


class Hinge(NamedTuple):
    """A further number that trees of a forest see, 0 or more: a z_p + b z_q + c, where that is.

    z is (value - shift) * factor by the scale of each of the two, 0 if it is missing.
    """

    ends: tuple[int, int]
    slopes: tuple[float, float, float]


class Scale(NamedTuple):
    """How a number is read by hinges: in deviations from its mean, of which so many count."""

    shift: float
    factor: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a fitted tree predicts.

    Attributes
    ----------
    title : str
        What was exported.
    features, inputs : list
        In order; inputs whose value is always 0 are left out.
    words : list of str
        What each input is.
    nodes : dict
        By id; the root is 0.
    link : str
        From sums to predictions: "certain" (one label, whose probability is 1), "logistic",
        "softmax", "identity", "log" or "quantiles" (`offsets` added, then sorted).
    labels : list
        Of a classifier, in the order of the probabilities.
    cut : Cut or None
        Of a classifier: the threshold from which on one of two labels is predicted, if any.
    shift, scale : float
        Of a regressor: its predictions are shift + scale times what the link gives.
    quantiles, offsets : list of float
        Of a regressor that predicts quantiles: which, and what is added to each.
    power : float or None
        If an interval is wanted: what power of the number its width grows with, in the leaf's
        `half` times the root of that.
    """

    title: str
    features: list[Feature]
    inputs: list[Input]
    words: list[str]
    nodes: dict[int, Split | Leaf]
    link: Link
    labels: list[Any]
    cut: Cut | None = None
    shift: float = 0.0
    scale: float = 1.0
    quantiles: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()
    power: float | None = None

    @property
    def members(self) -> list[Recipe]:
        """The one tree, as a forest has several."""
        return [self]

    @property
    def hinges(self) -> dict[int, Hinge]:
        """None: only a forest has some."""
        return {}

    @property
    def leaves(self) -> dict[int, Leaf]:
        """The leaves by id, from left to right."""
        return {node: own for node, own in self.nodes.items() if isinstance(own, Leaf)}

    @property
    def splits(self) -> dict[int, Split]:
        """The splits by id, from the root down."""
        return {node: own for node, own in self.nodes.items() if isinstance(own, Split)}

    @property
    def used_inputs(self) -> dict[int, Input]:
        """The inputs that a leaf weighs, by place."""
        rows = [row for leaf in self.leaves.values() for row in leaf.weights]
        return {i: own for i, own in enumerate(self.inputs) if any(row[i] != 0 for row in rows)}

    @property
    def shifts(self) -> dict[int, float]:
        """What a number counts as if it is missing, where the leaves weigh it."""
        numbers = {
            own.feature: own.shift for own in self.used_inputs.values() if isinstance(own, Number)
        }
        bends = [bend for leaf in self.leaves.values() for bend, _ in leaf.bends]
        return numbers | {bend.feature: bend.shift for bend in bends}

    @property
    def n_outputs(self) -> int:
        """Sums of a leaf."""
        return len(next(iter(self.leaves.values())).intercepts)

    @property
    def has_floor(self) -> bool:
        """Whether a leaf says that some labels are random."""
        return any(any(leaf.floor) for leaf in self.leaves.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRecipe:
    """How a fitted forest predicts.

    Attributes
    ----------
    title, features
        As of a tree.
    hinges : dict
        By the number of the feature that each is to the trees; they come after `features`.
    scales : dict
        By feature, of those that hinges look at.
    members : list of Recipe
        How each tree predicts, with the forest's features.
    weights : list of float
        What each counts: its log-odds, or its number.
    mixed : float
        Of labels: the share of equal probabilities in what a tree says.
    cut : Cut or None
        Of labels: the threshold of what the trees say together, if any.
    """

    title: str
    features: list[Feature]
    hinges: dict[int, Hinge]
    scales: dict[int, Scale]
    members: list[Recipe]
    weights: list[float]
    mixed: float
    cut: Cut | None = None

    @property
    def leader(self) -> Recipe:
        """The first tree, whose link, labels and quantiles are those of all."""
        return self.members[0]

    @property
    def labels(self) -> list[Any]:
        """The labels."""
        return self.leader.labels

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The quantiles, if there are any."""
        return self.leader.quantiles


AnyRecipe = Recipe | ForestRecipe


def recipe_of(model: StreamEstimator, interval: float | None = None) -> AnyRecipe:
    """Return how a model predicts; raise an error that says why if it cannot be written down.

    Parameters
    ----------
    model : StreamEstimator
        The model.
    interval : float, optional
        Of a regressor: share of rows that intervals shall hold.
    """
    if not isinstance(model, StreamEstimator):
        raise TypeError(
            "only the trees of this library can be exported, got "
            f"{type(model).__name__}: give the model itself, without a pipeline around it"
        )
    return _read(model, interval)


@undisturbed
def _read(model: StreamEstimator, interval: float | None) -> AnyRecipe:
    check_is_fitted(model)
    tree: Any = model._tree
    _check(tree.encoder)
    if interval is not None and not hasattr(model, "predict_interval"):
        raise ValueError(
            f"a {type(model).__name__} has no intervals: leave interval out, or export a "
            "DynamicModelTreeRegressor or DynamicModelForestRegressor"
        )
    features = _features(tree.encoder)
    title = f"{type(model).__name__} of {tree.engine.n_rows:,} rows, by driftree {__version__}"
    if isinstance(tree, Forest):
        return _read_forest(tree, title, features, interval)
    return _read_tree(tree, title, features, interval)


def _check(encoder: Encoder) -> None:
    """Raise if there is no fixed row."""
    if encoder.sparse is not None:
        raise ValueError(
            "a model of sparse rows (absent='zero', a sparse matrix, or more than 512 columns) "
            "knows its features by name, and new ones all the time, so there is no fixed row to "
            "export it for: save it with model.save, or learn the columns that matter with "
            "absent='missing'"
        )
    if not encoder.given_names:
        raise ValueError("the model has learnt rows without features: there is nothing to export")


def _read_tree(
    tree: Any,
    title: str,
    features: list[Feature],
    interval: float | None,
    places: Sequence[int] | None = None,
) -> Recipe:
    """Return how a tree predicts; of a forest, `places` has the forest's number of each feature."""
    engine = tree.engine
    places = range(engine.n_features) if places is None else places
    if engine.depth.max() > MAX_DEPTH:
        raise ValueError(
            f"the tree is {engine.depth.max()} conditions deep, and at most {MAX_DEPTH} can be "
            "nested: learn with a smaller max_depth"
        )
    inputs, columns = _inputs(engine)
    names = tree.encoder.column_names()
    reach = None if interval is None else _reach(tree, interval)
    nodes = {
        node: _leaf(engine, node, columns, places, reach)
        if engine.left[node] < 0
        else _split(tree, node, places)
        for node in tree.walk()
    }
    return Recipe(
        title=title,
        features=features,
        inputs=[own._replace(feature=places[own.feature]) for own in inputs],
        words=[names[column] for column in columns],
        nodes=nodes,
        power=None if reach is None else (engine.variance_power if engine.has_log_link else 0.0),
        **_target(tree),
    )


def _read_forest(
    forest: Forest, title: str, features: list[Feature], interval: float | None
) -> ForestRecipe:
    core = forest.core
    hinges: dict[int, Hinge] = {}
    members = []
    for i, member in enumerate(core.members):
        pairs, first = member.pairs, len(features) + len(hinges)
        places = [own if own >= 0 else first - 1 - own for own in pairs.sources.tolist()]
        for (p, q), (a, b, c) in zip(pairs.ends.tolist(), pairs.slopes.tolist(), strict=True):
            hinges[len(features) + len(hinges)] = Hinge((p, q), (a, b, c))
        own = None if member is core.leader else places  # the first has all as they are
        members.append(_read_tree(member.tree, f"tree {i}", features, interval, own))
    scales = core.scale.reshape(-1, 2).tolist()
    weights = core.stack.weights if members[0].labels else core.stack.shares
    return ForestRecipe(
        title=title,
        features=features,
        hinges=hinges,
        scales={
            j: Scale(scales[j][0], scales[j][1], FOREST.most_deviations)
            for j in sorted({end for own in hinges.values() for end in own.ends})
        },
        members=members,
        weights=weights.tolist(),
        mixed=FOREST.mixed,
        cut=forest.target.cut if members[0].labels else None,
    )


def _reach(tree: Any, interval: float) -> float:
    """Return how many roots of the spread half of an interval is."""
    if tree.engine.n_outputs > 1:
        raise ValueError(
            "intervals are for one number: with loss='quantile' the quantiles are exported, which "
            "have the ends; leave interval out"
        )
    return reach_at(tree.engine.reaches, interval)


def _features(encoder: Encoder) -> list[Feature]:
    absent = encoder.engine.absent.tolist()
    return [
        Feature(name, text, None if levels is None else tuple(levels), frozen)
        for name, text, levels, frozen in zip(
            encoder.feature_names,
            encoder.display_names,
            encoder.levels,
            (None if math.isnan(value) else value for value in absent),
            strict=True,
        )
    ]


def _inputs(engine: _TreeEngine) -> tuple[list[Input], list[int]]:
    """Return the inputs that can be other than 0, and their columns in the kernels."""
    found: dict[int, Input] = {}
    scales = zip(engine.scale_shift, engine.scale_factor, engine.scale_limit, strict=True)
    for j, (shift, factor, limit) in enumerate(scales):
        if engine.value_column[j] >= 0 and factor != 0:
            column = int(engine.value_column[j])
            found[column] = Number(j, float(shift), float(factor), float(limit))
        if engine.missing_column[j] >= 0:
            found[int(engine.missing_column[j])] = Missing(j)
        for value, column in enumerate(engine.level_column.reshape(-1, MAX_LEVELS + 1)[j]):
            if column >= 0:
                found[int(column)] = Level(j, value)
    columns = sorted(found)
    return [found[column] for column in columns], columns


def _split(tree: TreeNodes, node: int, places: Sequence[int]) -> Split:
    engine = tree.engine
    left = int(engine.left[node])
    return Split(
        places[int(engine.feature[node])],
        float(engine.threshold[node]),
        bool(engine.equality[node]),
        bool(engine.missing_left[node]),
        left,
        int(engine.right[node]),
        str(tree.path(left)[-1]),
    )


def _leaf(
    engine: Any, node: int, columns: list[int], places: Sequence[int], reach: float | None
) -> Leaf:
    weights, place = engine.weights(node), int(engine.model[node])
    bends = [
        Bend(places[j], low, high, float(engine.scale_shift[j]))
        for j, low, high in engine.bends(place)
    ]
    return Leaf(
        weights[:, 0].tolist(),
        weights[:, columns].tolist(),
        list(zip(bends, weights[:, engine.n_columns :].T.tolist(), strict=True)),
        engine.floor(place) if hasattr(engine, "floor") else (0.0, 0.0),  # FIMT-DD has none
        0.0 if reach is None else reach * math.sqrt(engine.spread(place)) / engine.target_scale,
    )


def _target(tree: Any) -> dict[str, Any]:
    """Return link, labels and unit."""
    labels = list(tree.target.label_list)
    if labels:
        links: list[Link] = ["certain", "logistic", "softmax"]
        return {"link": links[min(len(labels), 3) - 1], "labels": labels, "cut": tree.target.cut}
    engine, link = tree.engine, "log" if tree.engine.has_log_link else "identity"
    unit = {"shift": engine.target_shift, "scale": engine.target_scale}
    if getattr(tree.parameters, "loss", None) == "quantile":
        link, offsets = "quantiles", tuple(engine.offsets.tolist())
        unit |= {"quantiles": tree.parameters.quantiles, "offsets": offsets}
    return {"link": link, "labels": [], **unit}
