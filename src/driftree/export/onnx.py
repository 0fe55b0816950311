"""ONNX: a recipe as a graph of plain operators of opset 18.

Text becomes the index of its level by a LabelEncoder, the only operator of the domain `ai.onnx.ml`.
Conditions are evaluated for all rows at once, and a matrix of paths selects the leaf whose
conditions all hold. The leaf's weights are gathered, and multiplied by the inputs.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.export.dialect import check_levels
from driftree.export.recipe import (
    OTHER_LEVEL,
    ForestRecipe,
    Level,
    Missing,
    Number,
    recipe_of,
)
from driftree.learn.units import MOST_LOG
from driftree.learn.validation import distinct_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from onnx import ModelProto

    from driftree.export.recipe import AnyRecipe, Bend, Feature, Recipe
    from driftree.learn.estimator import StreamEstimator

OPSET, ML_OPSET = 18, 3
IR_VERSION = 8  # the one that came with opset 18
KINDS = ("float64", "float32")
RESERVED = ("X", "label", "probabilities", "prediction", "quantiles", "lower", "upper")
"""Reserved names of the graph."""


def to_onnx(
    model: StreamEstimator, *, dtype: str = "float64", interval: float | None = None
) -> ModelProto:
    """Return a fitted tree or forest as an ONNX model; it needs the extra `onnx`.

    The graph has an input "X" for the numbers and booleans, [rows, columns], NaN where missing; a
    feature of text is an input of its name, [rows, 1], empty where missing. Recent targets of a
    regressor ("last y" and so on) are optional inputs, [rows, 1] or [1, 1], whose default is their
    present value. The order of the columns is in the model's metadata.

    Its outputs are "label" and "probabilities", or for a regressor "prediction", and "quantiles"
    with `loss="quantile"`, or "lower" and "upper" if an interval is wanted. They are what the model
    predicts now, to about 15 digits.

    Parameters
    ----------
    model : estimator of this library
        A fitted model. Models of sparse rows cannot be exported.
    dtype : {"float64", "float32"}, default="float64"
        Type of "X" and the outputs. Internally it computes in float64, as numbers far from 0 would
        lose digits otherwise.
    interval : float, optional
        For a regressor: the level, from 0.5 to 0.99, of the interval from "lower" to "upper", as
        `predict_interval` computes it now.

    Returns
    -------
    onnx.ModelProto
        `onnx.save(to_onnx(model), path)` writes it.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier, to_onnx
    >>> model = DynamicModelTreeClassifier()
    >>> for age in range(20, 60):
    ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
    >>> graph = to_onnx(model).graph
    >>> [one.name for one in graph.input], [one.name for one in graph.output]
    (['X'], ['label', 'probabilities'])
    """
    if dtype not in KINDS:
        raise ValueError(f"dtype must be one of {', '.join(KINDS)}, got {dtype!r}")
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError:
        raise ImportError(
            "to_onnx needs the package onnx, which is not installed: pip install onnx"
        ) from None
    recipe = recipe_of(model, interval)
    check_levels(recipe.features)
    graph = Graph(dtype)
    values, places = _values(recipe, graph)
    if isinstance(recipe, ForestRecipe):
        answer = _forest(recipe, graph, values, places)
    else:
        answer = _tree(recipe, graph, values, places)
    _outputs(recipe, graph, answer)
    return graph.finish(recipe)


# ---------------------------------------------------------------------- from rows to values
def _values(recipe: AnyRecipe, graph: Graph) -> tuple[str, list[int]]:
    """Return the values of all features as one matrix, and the column of each."""
    from onnx import TensorProto

    features = recipe.features
    names = distinct_texts([*RESERVED, *map(_input_name, features)], _longer_names(recipe))
    in_table = [j for j, own in enumerate(features) if not own.has_text and own.frozen is None]
    graph.columns = [features[j].text for j in in_table]
    given = {
        j: graph.input(names[len(RESERVED) + j], TensorProto.STRING, ["rows", 1])
        for j, own in enumerate(features)
        if own.has_text
    }
    parts = []
    if in_table:
        parts.append(graph.to_double(graph.input("X", graph.dtype, ["rows", len(in_table)])))
    first = [*parts, *given.values()][0]
    places = []
    for j, own in enumerate(features):
        if own.levels is None and own.frozen is None:
            places.append(in_table.index(j))
            continue
        places.append(len(in_table) + len(parts) - bool(in_table))
        if own.frozen is not None:
            parts.append(_frozen(graph, names[len(RESERVED) + j], own.frozen, first))
        elif j in given:
            parts.append(_text_value(graph, own, given[j]))
        else:
            column = graph.take(parts[0], [in_table.index(j)])
            parts.append(_number_value(graph, own, column))
    return graph.add("Concat", *parts, axis=1), places


def _input_name(feature: Feature) -> str:
    """Return the name of an input: not empty, and not like that of an operator's result."""
    return f"feature {feature.text}" if feature.text[:1] in ("", ":") else feature.text


def _longer_names(recipe: AnyRecipe) -> list[str]:
    """Rename inputs that clash with other names of the graph."""
    return [*RESERVED, *(f"feature {own.text}" for own in recipe.features)]


def _frozen(graph: Graph, name: str, value: float, first: str) -> str:
    """Return a recent target: an input whose default is a constant, repeated for all rows."""
    n_rows = graph.add("Shape", first, start=0, end=1)
    rows = graph.add("Concat", n_rows, graph.constant([1], np.int64), axis=0)
    graph.constant([[value]], graph.kind, name=name)
    own = graph.input(name, graph.dtype, ["rows or 1", 1])
    return graph.add("Expand", graph.to_double(own), rows)


def _text_value(graph: Graph, feature: Feature, given: str) -> str:
    """Return the index of a text among the levels."""
    if "" in (feature.levels or ()):
        raise ValueError(
            f"the empty text is a level of feature {feature.text!r}, but in ONNX it means a "
            "missing value: learn None, or another text, instead"
        )
    code = graph.add(
        "LabelEncoder",
        given,
        domain="ai.onnx.ml",
        keys_strings=[*(str(level) for level in feature.levels or ()), ""],
        values_floats=[*map(float, range(len(feature.levels or ()))), math.nan],
        default_float=float(OTHER_LEVEL),
    )
    return graph.to_double(code)


def _number_value(graph: Graph, feature: Feature, column: str) -> str:
    """Return the index of a number among the levels."""
    levels: Any = feature.levels
    place = graph.constant(float(OTHER_LEVEL))
    if levels:
        with np.errstate(over="ignore"):
            given = np.array([levels], dtype=np.float64).astype(graph.kind)  # as the column is
        if len(np.unique(given)) < len(levels):
            raise ValueError(
                f"levels of feature {feature.text!r} are the same in {graph.kind.__name__}: make "
                "them text, or export with dtype='float64'"
            )
        is_level = graph.add("Equal", column, graph.constant(given))
        steps = graph.constant([[i - float(OTHER_LEVEL)] for i in range(len(levels))])
        place = graph.add("Add", graph.add("MatMul", graph.to_double(is_level), steps), place)
    return graph.add("Where", graph.add("IsNaN", column), graph.constant(math.nan), place)


# ---------------------------------------------------------------------- from values to sums
def _sums(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> tuple[str, str]:
    """Return the sums of the leaves, [rows, outputs], and the index of each row's leaf."""
    leaves = list(recipe.leaves.values())
    leaf = _leaf_place(recipe, graph, values, places)
    bends = list(dict.fromkeys(bend for own in leaves for bend, _ in own.bends))
    inputs = _inputs(recipe, graph, values, places, bends)
    weights = np.zeros((len(leaves), recipe.n_outputs, len(recipe.inputs) + len(bends)))
    for i, own in enumerate(leaves):
        weights[i, :, : len(recipe.inputs)] = own.weights
        for bend, more in own.bends:
            weights[i, :, len(recipe.inputs) + bends.index(bend)] += more
    order = _order(recipe) + list(range(len(recipe.inputs), weights.shape[2]))
    intercepts = graph.constant([own.intercepts for own in leaves])
    alone = graph.add("Gather", intercepts, leaf, axis=0)
    if inputs is None:
        return alone, leaf
    own_weights = graph.add("Gather", graph.constant(weights[:, :, order]), leaf, axis=0)
    axis = graph.constant([2], np.int64)
    product = graph.add("MatMul", own_weights, graph.add("Unsqueeze", inputs, axis))
    total = graph.add("Squeeze", product, axis)
    return graph.add("Add", total, alone), leaf


def _leaf_place(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> str:
    """Return the index of the leaf whose conditions a row fulfils."""
    splits, leaves = list(recipe.splits.values()), list(recipe.leaves)
    if not splits:
        none = graph.add("IsNaN", graph.take(values, [0]))
        return graph.add("ArgMax", graph.to_double(none), axis=1, keepdims=0)
    own = graph.take(values, [places[split.feature] for split in splits])
    limits = graph.constant([[split.threshold for split in splits]])
    equality = np.array([[split.is_equality for split in splits]])
    below = graph.add("LessOrEqual", own, limits)
    below = graph.add("And", below, graph.constant(~equality, np.bool_))
    equal = graph.add("Equal", own, limits)
    equal = graph.add("And", equal, graph.constant(equality, np.bool_))
    passes = graph.constant([[split.missing_left for split in splits]], np.bool_)
    missing = graph.add("And", graph.add("IsNaN", own), passes)
    holds = graph.to_double(graph.add("Or", graph.add("Or", below, equal), missing))
    paths, unmet = _paths(recipe, leaves)
    met = graph.add("MatMul", holds, graph.constant(paths))
    return graph.add("ArgMax", graph.add("Add", met, graph.constant([unmet])), axis=1, keepdims=0)


def _paths(recipe: Recipe, leaves: list[int]) -> tuple[NDArray[np.float64], list[float]]:
    """Return a matrix [splits, leaves] and an offset, which together give 0 for the leaf reached.

    A condition that must hold counts 1, one that must not counts -1; for all other leaves the sum
    is below 0.
    """
    places = {node: i for i, node in enumerate(recipe.splits)}
    paths = np.zeros((len(places), len(leaves)))
    rest: list[tuple[int, dict[int, float]]] = [(0, {})]
    while rest:
        node, above = rest.pop()
        if node in places:
            own = recipe.splits[node]
            rest += [(own.left, above | {node: 1.0}), (own.right, above | {node: -1.0})]
        for split, sign in above.items() if node not in places else ():
            paths[places[split], leaves.index(node)] = sign
    return paths, (-(paths > 0).sum(axis=0).astype(np.float64)).tolist()


def _order(recipe: Recipe) -> list[int]:
    """Return the inputs by kind, in the order of `_inputs`."""
    kinds = (Number, Missing, Level)
    return [i for kind in kinds for i, own in enumerate(recipe.inputs) if isinstance(own, kind)]


def _inputs(
    recipe: Recipe, graph: Graph, values: str, places: list[int], bends: list[Bend]
) -> str | None:
    """Return numbers, missing indicators, levels and bends as one matrix; None without any."""
    numbers = [own for own in recipe.inputs if isinstance(own, Number)]
    missing = [own for own in recipe.inputs if isinstance(own, Missing)]
    levels = [own for own in recipe.inputs if isinstance(own, Level)]

    def take(inputs: Sequence[Number | Missing | Level | Bend]) -> str:
        return graph.take(values, [places[own.feature] for own in inputs])

    def from_shift(inputs: Sequence[Number | Bend], to: list[float]) -> str:
        """Return differences from the shifts; 0 for missing values."""
        own = take(inputs)
        shifts = graph.constant([[one.shift for one in inputs]])
        filled = graph.add("Where", graph.add("IsNaN", own), shifts, own)
        return graph.plus(filled, [[-value for value in to]])

    parts = []
    if numbers:
        away = from_shift(numbers, [own.shift for own in numbers])
        scaled = graph.add("Mul", away, graph.constant([[own.factor for own in numbers]]))
        limits = np.array([[own.limit for own in numbers]])
        parts.append(graph.clip(scaled, -limits, limits))
    if missing:
        parts.append(graph.to_double(graph.add("IsNaN", take(missing))))
    if levels:
        codes = graph.constant([[float(own.value) for own in levels]])
        parts.append(graph.to_double(graph.add("Equal", take(levels), codes)))
    if bends:
        rise = from_shift(bends, [own.low for own in bends])
        widths = graph.constant([[own.high - own.low for own in bends]])
        parts.append(graph.clip(graph.add("Div", rise, widths), 0.0, 1.0))
    return graph.add("Concat", *parts, axis=1) if parts else None


# ---------------------------------------------------------------------- from sums to predictions
def _tree(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> str:
    """Return probabilities, or numbers with the ends of their intervals, [rows, answers]."""
    sums, leaf = _sums(recipe, graph, values, places)
    if recipe.labels:
        return _probabilities(recipe, graph, sums, leaf)
    found = sums
    if recipe.link == "log":
        sums = graph.clip(sums, -MOST_LOG, MOST_LOG)
        found = graph.add("Exp", sums)
    if recipe.link == "quantiles":
        found = _quantiles(recipe, graph, sums)
    if recipe.power is not None:
        halves = graph.constant([[own.half] for own in recipe.leaves.values()])
        half = graph.add("Gather", halves, leaf, axis=0)
        if recipe.link == "log":
            root = graph.add("Exp", graph.add("Mul", sums, graph.constant(recipe.power / 2)))
            half = graph.add("Mul", half, root)
        low, high = graph.add("Sub", found, half), graph.add("Add", found, half)
        if recipe.link == "log":
            low = graph.add("Max", low, graph.constant(0.0))
        found = graph.add("Concat", found, low, high, axis=1)
    scaled = graph.add("Mul", found, graph.constant(recipe.scale))
    return graph.plus(scaled, recipe.shift)


def _probabilities(recipe: Recipe, graph: Graph, sums: str, leaf: str) -> str:
    one = graph.constant(1.0)
    if recipe.link == "softmax":
        return graph.add("Softmax", sums, axis=1)
    if recipe.link == "certain":
        return graph.add("Add", graph.add("Mul", sums, graph.constant(0.0)), one)
    inverse = graph.add("Add", graph.add("Exp", graph.add("Neg", sums)), one)
    second = graph.add("Div", one, inverse)
    if recipe.has_floor:
        floors = [own.floor for own in recipe.leaves.values()]
        rest = graph.constant([[1.0 - low - high] for low, high in floors])
        least = graph.constant([[high] for _, high in floors])
        second = graph.add("Mul", second, graph.add("Gather", rest, leaf, axis=0))
        second = graph.add("Add", second, graph.add("Gather", least, leaf, axis=0))
    return graph.add("Concat", graph.add("Sub", one, second), second, axis=1)


def _quantiles(recipe: Recipe, graph: Graph, sums: str) -> str:
    """Return the sums plus their offsets, sorted."""
    from onnx import helper

    n = graph.constant([recipe.n_outputs], np.int64)
    moved = graph.add("Add", sums, graph.constant([recipe.offsets]))
    names = [f":{name}{len(graph.nodes)}" for name in ("sorted", "places")]
    node = helper.make_node("TopK", [moved, n], names, axis=1, largest=0, sorted=1)
    graph.nodes.append(node)
    return names[0]


# ---------------------------------------------------------------------- forests
def _forest(recipe: ForestRecipe, graph: Graph, values: str, places: list[int]) -> str:
    """Return the forest's prediction, in the form of `_tree`."""
    if recipe.hinges:
        n_values = max(places) + 1
        values = graph.add("Concat", values, _hinges(recipe, graph, values, places), axis=1)
        places = [*places, *range(n_values, n_values + len(recipe.hinges))]
    said = [_tree(member, graph, values, places) for member in recipe.members]
    if recipe.labels:
        log_odds = _weighed(recipe.weights, graph, _log_odds(recipe, graph, said))
        return graph.add("Softmax", log_odds, axis=1)
    firsts = said if recipe.leader.power is None else [graph.take(one, [0]) for one in said]
    is_log = recipe.leader.link == "log"
    if is_log:  # counts: the logarithms are added up
        least = graph.constant(1e-300)
        logs = [graph.add("Log", graph.add("Max", one, least)) for one in firsts]
        found = graph.add("Exp", _weighed(recipe.weights, graph, logs))
    else:
        found = _weighed(recipe.weights, graph, firsts)
    if recipe.leader.power is not None:
        pairs = zip(said, firsts, strict=True)
        away = [graph.add("Sub", graph.take(one, [1, 2]), first) for one, first in pairs]
        shares = [abs(weight) for weight in recipe.weights]
        both = graph.add("Add", found, _weighed(shares, graph, away))
        both = graph.add("Max", both, graph.constant(0.0)) if is_log else both
        found = graph.add("Concat", found, both, axis=1)
    if recipe.quantiles:  # each is at least the one before
        ordered = [graph.take(found, [0])]
        for k in range(1, len(recipe.quantiles)):
            ordered.append(graph.add("Max", ordered[-1], graph.take(found, [k])))
        found = graph.add("Concat", *ordered, axis=1)
    return found


def _hinges(recipe: ForestRecipe, graph: Graph, values: str, places: list[int]) -> str:
    """Return the hinges of all trees, [rows, hinges]."""
    ends, scales = list(recipe.scales), list(recipe.scales.values())
    own = graph.take(values, [places[j] for j in ends])
    away = graph.plus(own, [[-scale.shift for scale in scales]])
    scaled = graph.add("Mul", away, graph.constant([[scale.factor for scale in scales]]))
    most = np.array([[scale.most for scale in scales]])
    clipped = graph.clip(scaled, -most, most)
    inputs = graph.add("Where", graph.add("IsNaN", own), graph.constant(0.0), clipped)
    hinges = recipe.hinges.values()
    first, second = (
        graph.add(
            "Mul",
            graph.take(inputs, [ends.index(hinge.ends[i]) for hinge in hinges]),
            graph.constant([[hinge.slopes[i] for hinge in hinges]]),
        )
        for i in (0, 1)
    )
    constants = graph.constant([[hinge.slopes[2] for hinge in hinges]])
    total = graph.add("Add", graph.add("Add", first, second), constants)
    return graph.add("Max", total, graph.constant(0.0))


def _log_odds(recipe: ForestRecipe, graph: Graph, said: list[str]) -> list[str]:
    """Return the log-odds of each tree's probabilities, centred over the labels."""
    kept = graph.constant(1.0 - recipe.mixed)
    equal = graph.constant(recipe.mixed / len(recipe.labels))
    axis = graph.constant([1], np.int64)
    found = []
    for one in said:
        logs = graph.add("Log", graph.add("Add", graph.add("Mul", one, kept), equal))
        found.append(graph.add("Sub", logs, graph.add("ReduceMean", logs, axis)))
    return found


def _weighed(weights: list[float], graph: Graph, parts: list[str]) -> str:
    """Return the weighted sum of the trees' outputs."""
    first, *rest = (
        graph.add("Mul", part, graph.constant(weight))
        for part, weight in zip(parts, weights, strict=True)
    )
    for one in rest:
        first = graph.add("Add", first, one)
    return first


# ---------------------------------------------------------------------- what goes out
def _outputs(recipe: AnyRecipe, graph: Graph, answer: str) -> None:
    """Add the outputs."""
    if recipe.labels:
        leads = answer
        if recipe.cut is not None:  # excess of each label over its threshold
            least = [1.0 - recipe.cut.probability] * 2
            least[recipe.cut.code] = recipe.cut.probability
            leads = graph.add("Sub", answer, graph.constant([least]))
        best = graph.add("ArgMax", leads, axis=1, keepdims=0)
        labels, kind = _labels(recipe)
        graph.output(
            "label", kind, ["rows"], graph.add("Gather", graph.constant(labels, labels.dtype), best)
        )
        graph.numbers("probabilities", ["rows", len(recipe.labels)], answer)
        return
    has_ends = recipe.members[0].power is not None
    names = ["prediction", "lower", "upper"] if has_ends else ["prediction"]
    axis = graph.constant([1], np.int64)
    for k, name in enumerate(names, len(recipe.quantiles) // 2):
        graph.numbers(name, ["rows"], graph.add("Squeeze", graph.take(answer, [k]), axis))
    if recipe.quantiles:
        graph.numbers("quantiles", ["rows", len(recipe.quantiles)], answer)


def _labels(recipe: AnyRecipe) -> tuple[NDArray[Any], int]:
    """Return the labels as ONNX types: integers, booleans, or text."""
    from onnx import TensorProto

    labels = recipe.labels
    for kind, dtype, own in (
        (bool, np.bool_, TensorProto.BOOL),
        (int, np.int64, TensorProto.INT64),
    ):
        if all(type(label) is kind and abs(label) < 2**63 for label in labels):
            return np.array(labels, dtype=dtype), own
    texts = distinct_texts(map(str, labels), map(repr, labels))
    return np.array(texts, dtype=object), TensorProto.STRING


# ---------------------------------------------------------------------- the graph
class Graph:
    """Operators and constants, one after the other; each operator is named by its result.

    Parameters
    ----------
    dtype : str
        Type of numeric inputs and outputs.
    """

    def __init__(self, dtype: str) -> None:
        from onnx import TensorProto

        is_single = dtype == "float32"
        self.kind: type[np.floating[Any]] = np.float32 if is_single else np.float64
        self.dtype = TensorProto.FLOAT if is_single else TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.columns: list[str] = []

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; return the name of its result."""
        from onnx import helper

        name = f":{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float64, name: str | None = None) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        name = name or f":constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, dtype=dtype), name))
        return name

    def input(self, name: str, kind: int, shape: Sequence[Any]) -> str:
        """Add an input; return its name."""
        from onnx import helper

        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, shape: Sequence[Any], value: str) -> None:
        """Add an output, which is a result of an operator."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def to_double(self, value: str) -> str:
        """Convert to float64."""
        from onnx import TensorProto

        return self.add("Cast", value, to=TensorProto.DOUBLE)

    def numbers(self, name: str, shape: Sequence[Any], value: str) -> None:
        """Add an output of numbers."""
        self.output(name, self.dtype, shape, self.add("Cast", value, to=self.dtype))

    def take(self, values: str, columns: Sequence[int]) -> str:
        """Return some columns."""
        return self.add("Gather", values, self.constant(columns, np.int64), axis=1)

    def plus(self, values: str, constants: Any) -> str:
        """Return values plus constants, one for all or one per column.

        By Sum, as ONNX Runtime drops an Add or Sub of a single constant that float32 rounds to 0.
        """
        return self.add("Sum", values, self.constant(constants))

    def clip(self, values: str, low: Any, high: Any) -> str:
        """Return values clipped to limits, one pair for all or one per column."""
        most = self.add("Min", values, self.constant(high))
        return self.add("Max", most, self.constant(low))

    def finish(self, recipe: AnyRecipe) -> ModelProto:
        """Return the model."""
        from onnx import checker, helper

        graph = helper.make_graph(self.nodes, "driftree", self.inputs, self.outputs, self.constants)
        model = helper.make_model(
            graph,
            producer_name="driftree",
            doc_string=recipe.title,
            ir_version=IR_VERSION,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                helper.make_opsetid("ai.onnx.ml", ML_OPSET),
            ],
        )
        labels = [str(label) for label in recipe.labels]
        told = {"columns": self.columns, "labels": labels, "quantiles": list(recipe.quantiles)}
        helper.set_model_props(model, {name: json.dumps(own) for name, own in told.items() if own})
        checker.check_model(model, full_check=True)
        return model
