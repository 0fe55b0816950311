"""The parts of an ONNX model: a graph that grows, and one tree in it.

Conditions are compared for all rows at once, and a matrix of paths says which leaf's are all met.
The leaf's weights are gathered, and multiplied by the inputs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.export.recipe import MOST_LOG, Level, Missing, Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from onnx import ModelProto

    from driftree.export.recipe import AnyRecipe, Bend, Recipe

OPSET, ML_OPSET = 18, 3
IR_VERSION = 8  # the one that came with opset 18


class Graph:
    """Operators and constants, one after the other; each operator is named by its result.

    Parameters
    ----------
    dtype : str
        Of the numbers that go in and out.
    """

    def __init__(self, dtype: str) -> None:
        from onnx import TensorProto

        self.is_single = dtype == "float32"
        self.dtype = TensorProto.FLOAT if self.is_single else TensorProto.DOUBLE
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

    def clip(self, values: str, low: Any, high: Any) -> str:
        """Return values moved between limits, one pair for all or one per column."""
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


# ---------------------------------------------------------------------- from values to sums
def _sums(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> tuple[str, str]:
    """Return what the leaves add up, [rows, outputs], and the place of each row's leaf."""
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
    own_weights = graph.add("Gather", graph.constant(weights[:, :, order]), leaf, axis=0)
    axis = graph.constant([2], np.int64)
    product = graph.add("MatMul", own_weights, graph.add("Unsqueeze", inputs, axis))
    total = graph.add("Squeeze", product, axis)
    return graph.add("Add", total, graph.add("Gather", intercepts, leaf, axis=0)), leaf


def _leaf_place(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> str:
    """Return which leaf's conditions a row meets, all of them."""
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
    """Return a matrix [splits, leaves] and what is to be added: together 0 for the leaf reached.

    A condition that has to hold counts 1, one that must not counts -1; for all other leaves the sum
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
    """Return the inputs by their kind, as `_inputs` puts them together."""
    kinds = (Number, Missing, Level)
    return [i for kind in kinds for i, own in enumerate(recipe.inputs) if isinstance(own, kind)]


def _inputs(recipe: Recipe, graph: Graph, values: str, places: list[int], bends: list[Bend]) -> str:
    """Return numbers, gaps, levels and bends, as one matrix."""
    numbers = [own for own in recipe.inputs if isinstance(own, Number)]
    missing = [own for own in recipe.inputs if isinstance(own, Missing)]
    levels = [own for own in recipe.inputs if isinstance(own, Level)]

    def take(inputs: Sequence[Number | Missing | Level | Bend]) -> str:
        return graph.take(values, [places[own.feature] for own in inputs])

    def from_shift(inputs: Sequence[Number | Bend], to: list[float]) -> str:
        """Return how far values are from others; a missing one is at its shift."""
        own = take(inputs)
        shifts = graph.constant([[one.shift for one in inputs]])
        filled = graph.add("Where", graph.add("IsNaN", own), shifts, own)
        return graph.add("Sub", filled, graph.constant([to]))

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
    return graph.add("Concat", *parts, axis=1)


# ---------------------------------------------------------------------- from sums to predictions
def add_tree(recipe: Recipe, graph: Graph, values: str, places: list[int]) -> str:
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
    return graph.add("Add", scaled, graph.constant(recipe.shift))


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
    """Return the sums with their offsets, in order."""
    from onnx import helper

    n = graph.constant([recipe.n_outputs], np.int64)
    moved = graph.add("Add", sums, graph.constant([recipe.offsets]))
    names = [f":{name}{len(graph.nodes)}" for name in ("sorted", "places")]
    node = helper.make_node("TopK", [moved, n], names, axis=1, largest=0, sorted=1)
    graph.nodes.append(node)
    return names[0]
