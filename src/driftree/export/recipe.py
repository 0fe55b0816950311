"""Recipe: how a model predicts, step by step, in plain numbers; the input of all exporters.

A row becomes values: a number is itself, a level its index in `Feature.levels`, or `OTHER_LEVEL`.
The values select a leaf (`Split`) and give the inputs (`Number`, `Missing`, `Level`, and `Bend` for
each leaf). The leaf adds up weight times input, and the link converts the sum to a prediction.

A forest has a recipe per tree. They share the values, including those of hinges; the trees'
predictions are added up (`ForestRecipe`).

`to_dict` has the same for readers: weights in the users' units, those of a category around their
mean. For a feature far from 0 such a sum loses digits. Here everything is scaled as in the kernels,
so that exports predict the same, except for the order of additions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.columns import level_names
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
"""The value of all levels that are not in `Feature.levels`."""
MAX_DEPTH = 90
"""Nested conditions; Python's compiler allows 100 levels of indentation."""

Link = Literal["certain", "logistic", "softmax", "identity", "log", "quantiles"]


class Feature(NamedTuple):
    """A feature: for a category its levels, for a recent target its value at the time of export.

    Attributes
    ----------
    name : hashable
        Its name in rows.
    text : str
        The name as unique text.
    levels : tuple or None
        For a category, in the order of their values; None for a number.
    frozen : float or None
        Of a recent target, which no row has: its value, NaN if it is missing. None of others.
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
    """A ramp from 0 to 1 between two values; a missing value counts as `shift`."""

    feature: int
    low: float
    high: float
    shift: float


Input = Number | Missing | Level


class Split(NamedTuple):
    """A split: values up to `threshold`, or equal to it, go left; missing ones as specified.

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
        For two labels: the share of random labels of each.
    half : float
        For a regressor with intervals: half of their width, before the link.
    """

    intercepts: list[float]
    weights: list[list[float]]
    bends: list[tuple[Bend, list[float]]]
    floor: tuple[float, float]
    half: float = 0.0


class Hinge(NamedTuple):
    """An input of a forest's trees: max(0, a z_p + b z_q + c).

    z is (value - shift) * factor, by the scale of the feature, 0 if it is missing.
    """

    ends: tuple[int, int]
    slopes: tuple[float, float, float]


class Scale(NamedTuple):
    """The scale of a number for hinges: standardised and clipped."""

    shift: float
    factor: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a fitted tree predicts.

    Attributes
    ----------
    title : str
        A description of the model.
    features, inputs : list
        In order; inputs whose value is always 0 are left out.
    words : list of str
        Descriptions of the inputs.
    nodes : dict
        By id; the root is 0.
    link : str
        From sums to predictions: "certain" (one label, whose probability is 1), "logistic",
        "softmax", "identity", "log" or "quantiles" (`offsets` added, then sorted).
    labels : list
        Of a classifier, in the order of the probabilities.
    cut : Cut or None
        For a classifier: the decision threshold of two labels, if any.
    shift, scale : float
        For a regressor: its predictions are shift + scale times the output of the link.
    quantiles, offsets : list of float
        For a regressor of quantiles: the quantiles, and their offsets.
    power : float or None
        If an interval is wanted: its half-width is `half` of the leaf times the root of this power
        of the prediction.
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
        """The tree itself, in a list, as for a forest."""
        return [self]

    @property
    def hinges(self) -> dict[int, Hinge]:
        """Empty: only forests have hinges."""
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
        """The inputs with a weight in any leaf, by index."""
        rows = [row for leaf in self.leaves.values() for row in leaf.weights]
        return {i: own for i, own in enumerate(self.inputs) if any(row[i] != 0 for row in rows)}

    @property
    def shifts(self) -> dict[int, float]:
        """Imputed values of the numbers with a weight."""
        numbers = {
            own.feature: own.shift for own in self.used_inputs.values() if isinstance(own, Number)
        }
        bends = [bend for leaf in self.leaves.values() for bend, _ in leaf.bends]
        return numbers | {bend.feature: bend.shift for bend in bends}

    @property
    def n_outputs(self) -> int:
        """Number of sums of a leaf."""
        return len(next(iter(self.leaves.values())).intercepts)

    @property
    def has_floor(self) -> bool:
        """Whether a leaf has a noise floor."""
        return any(any(leaf.floor) for leaf in self.leaves.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRecipe:
    """How a fitted forest predicts.

    Attributes
    ----------
    title, features
        As for a tree.
    hinges : dict
        By their feature numbers in the trees; they come after `features`.
    scales : dict
        By feature, for those that hinges use.
    members : list of Recipe
        How each tree predicts, with the forest's features.
    weights : list of float
        Weights of the trees.
    mixed : float
        For a classifier: the share of the uniform distribution in a tree's probabilities.
    cut : Cut or None
        For a classifier: the decision threshold of the forest, if any.
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
        """The first tree, whose link, labels and quantiles all trees share."""
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
    """Return the recipe of a model; raise if it cannot be exported.

    Parameters
    ----------
    model : StreamEstimator
        The model.
    interval : float, optional
        For a regressor: level of the intervals.
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
            f"a {type(model).__name__} has no intervals: omit interval, or export a "
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
            "may get new features at any time, so there is no fixed set of columns to export it "
            "for: save it with model.save, or learn the columns that matter with "
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
    """Return the recipe of a tree; in a forest, `places` maps its features to the forest's."""
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
        own = None if member is core.leader else places  # the first tree has the forest's features
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
    """Return the reach: half of an interval's width, in roots of the spread."""
    if tree.engine.n_outputs > 1:
        raise ValueError(
            "intervals are for one number: with loss='quantile' the quantiles are exported; omit "
            "interval"
        )
    return reach_at(tree.engine.reaches, interval)


def _features(encoder: Encoder) -> list[Feature]:
    own = encoder.engine.absent[: len(level_names(encoder.engine))].tolist()
    return [
        Feature(name, text, None if levels is None else tuple(levels), frozen)
        for name, text, levels, frozen in zip(
            encoder.feature_names,
            encoder.display_names,
            encoder.levels,
            [*own, *[None] * (len(encoder.levels) - len(own))],
            strict=True,
        )
    ]


def _inputs(engine: _TreeEngine) -> tuple[list[Input], list[int]]:
    """Return the inputs that can differ from 0, and their columns in the kernels."""
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
    if not np.isfinite(weights).all():
        raise ValueError(
            "the model has diverged: a leaf has weights that are no numbers, so there is nothing "
            "to export; learn with a smaller learning_rate"
        )
    bends = [
        Bend(places[j], low, high, float(engine.scale_shift[j]))
        for j, low, high in engine.bends(place)
    ]
    return Leaf(
        weights[:, 0].tolist(),
        weights[:, columns].tolist(),
        list(zip(bends, weights[:, engine.n_columns :].T.tolist(), strict=True)),
        engine.floor(place) if hasattr(engine, "floor") else (0.0, 0.0),  # FIMT-DD has none
        _half_interval(engine, place, reach),
    )


def _half_interval(engine: Any, model: int, reach: float | None) -> float:
    """Return half of an interval's width in the models' unit; 0 while the target has not varied."""
    if reach is None or not engine.target_scale:
        return 0.0
    return reach * math.sqrt(engine.spread(model)) / float(engine.target_scale)


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
