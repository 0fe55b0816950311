"""Recipe: how a fitted tree predicts, step by step, in plain numbers; all that is exported is this.

A row becomes values: a number is itself, a level its place in `Feature.levels`, or `OTHER_LEVEL`.
The values choose a leaf (`Split`) and give the inputs (`Number`, `Missing`, `Level`, and of the
leaf itself `Bend`). The leaf adds up weight times input, and the link makes a prediction of that.

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
from driftree.learn.estimator import StreamEstimator
from driftree.learn.forest import Forest
from driftree.learn.state import undisturbed
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Hashable

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
    """

    intercepts: list[float]
    weights: list[list[float]]
    bends: list[tuple[Bend, list[float]]]
    floor: tuple[float, float]


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

    @property
    def leaves(self) -> dict[int, Leaf]:
        """The leaves by id, from left to right."""
        return {node: own for node, own in self.nodes.items() if isinstance(own, Leaf)}

    @property
    def splits(self) -> dict[int, Split]:
        """The splits by id, from the root down."""
        return {node: own for node, own in self.nodes.items() if isinstance(own, Split)}

    @property
    def shifts(self) -> dict[int, float]:
        """What a number counts as if it is missing, where the leaves weigh it."""
        numbers = {own.feature: own.shift for own in self.inputs if isinstance(own, Number)}
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


def recipe_of(model: StreamEstimator) -> Recipe:
    """Return how a model predicts; raise an error that says why if it cannot be written down."""
    if not isinstance(model, StreamEstimator):
        raise TypeError(
            "only the trees of this library can be exported, got "
            f"{type(model).__name__}: give the model itself, without a pipeline around it"
        )
    return _read(model)


@undisturbed
def _read(model: StreamEstimator) -> Recipe:
    check_is_fitted(model)
    tree: Any = model._tree
    if isinstance(tree, Forest):
        raise ValueError(
            "a forest cannot be exported, as its trees share the reading of rows: learn a "
            "DynamicModelTree, or save the forest with model.save"
        )
    encoder, engine = tree.encoder, tree.engine
    if encoder.sparse is not None:
        raise ValueError(
            "a model of sparse rows (absent='zero', a sparse matrix, or more than 512 columns) "
            "knows its features by name, and new ones all the time, so there is no fixed row to "
            "export it for: save it with model.save, or learn the columns that matter with "
            "absent='missing'"
        )
    if not encoder.given_names:
        raise ValueError("the model has learnt rows without features: there is nothing to export")
    if engine.depth.max() > MAX_DEPTH:
        raise ValueError(
            f"the tree is {engine.depth.max()} conditions deep, and at most {MAX_DEPTH} can be "
            "nested: learn with a smaller max_depth"
        )
    inputs, columns = _inputs(engine)
    names = encoder.column_names()
    nodes = {
        node: _leaf(engine, node, columns) if engine.left[node] < 0 else _split(tree, node)
        for node in tree.walk()
    }
    return Recipe(
        title=f"{type(model).__name__} of {engine.n_rows:,} rows, by driftree {__version__}",
        features=_features(encoder),
        inputs=inputs,
        words=[names[column] for column in columns],
        nodes=nodes,
        **_target(tree),
    )


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


def _split(tree: TreeNodes, node: int) -> Split:
    engine = tree.engine
    left = int(engine.left[node])
    return Split(
        int(engine.feature[node]),
        float(engine.threshold[node]),
        bool(engine.equality[node]),
        bool(engine.missing_left[node]),
        left,
        int(engine.right[node]),
        str(tree.path(left)[-1]),
    )


def _leaf(engine: Any, node: int, columns: list[int]) -> Leaf:
    weights, place = engine.weights(node), int(engine.model[node])
    bends = [
        Bend(j, low, high, float(engine.scale_shift[j])) for j, low, high in engine.bends(place)
    ]
    return Leaf(
        weights[:, 0].tolist(),
        weights[:, columns].tolist(),
        list(zip(bends, weights[:, engine.n_columns :].T.tolist(), strict=True)),
        engine.floor(place) if hasattr(engine, "floor") else (0.0, 0.0),  # FIMT-DD has none
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
