"""Histories: the history of a tree as contents and arrays of a file, and back.

The log of changes is JSON. The nodes removed by a change, and the present tree, are derived from
the changes and the first tree of the log. Samples and marks are arrays, with the nodes of samples,
their weights and their entrants concatenated.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn.drifts import Drift, InputChange
from driftree.learn.events import (
    ALL_DIGITS,
    KEEP_NODES,
    Bend,
    Condition,
    Curve,
    Event,
    LinkChange,
    MemoryChange,
    Prune,
    Replace,
    RunnerUp,
    Shift,
    Split,
    Spot,
    Unbend,
)
from driftree.learn.history import (
    MAX_DRIFTS,
    MAX_EVENTS,
    MAX_SAMPLES,
    Entrant,
    History,
    Mark,
    NodeSample,
    Sample,
    Structure,
)
from driftree.learn.storage import ModelFileError, manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

KINDS: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (Split, Replace, Shift, Prune, Bend, Unbend, MemoryChange, LinkChange)
}
MAX_DISTANCE = 2**40  # rows: it may double a dozen times before it exceeds the limit of files
OPERATORS = ("<=", ">", "==", "!=", "is missing", "is present")


class HistoryLimits(NamedTuple):
    """The limits of a history."""

    max_nodes: int
    n_features: int
    n_inputs: int
    n_classes: int
    n_steps: int
    n_rows: int


# ---------------------------------------------------------------------- conditions and nodes
def _encode_condition(condition: Condition | None) -> Any:
    if condition is None:
        return None
    return {
        "feature": condition.feature,
        "operator": condition.operator,
        "value": manifest.encode(condition.value, f"a level of feature {condition.feature!r}"),
        "missing_passes": condition.missing_passes,
        "digits": condition.digits,
    }


def _decode_condition(item: Any, what: str) -> Condition:
    item = manifest.members(item, (field.name for field in fields(Condition)), what)
    operator, value = item["operator"], manifest.decode(item["value"])
    if operator not in OPERATORS:
        raise ModelFileError(f"{what} must have one of the operators {', '.join(OPERATORS)}")
    if operator in ("<=", ">") and type(value) is not float:
        raise ModelFileError(f"{what} must compare with a float")
    if type(item["missing_passes"]) not in (bool, type(None)):
        raise ModelFileError(f"{what} must say whether missing values pass")
    return Condition(
        manifest.text(item["feature"], what),
        operator,
        value,
        item["missing_passes"],
        manifest.whole(item["digits"], what, 0, ALL_DIGITS),
    )


def _decode_conditions(item: Any, what: str) -> tuple[Condition, ...]:
    return tuple(_decode_condition(one, what) for one in manifest.items(item, what))


SPOT_KEYS = ("node", "condition", "left", "right", "since_step", "since_row")


def _encode_structure(structure: Structure) -> list[Any]:
    return [
        {key: getattr(spot, key) for key in SPOT_KEYS}
        | {"condition": _encode_condition(spot.condition)}
        for spot in structure.walk()
    ]


def _decode_structure(item: Any, limits: HistoryLimits) -> Structure:
    """Return a tree: every node except the root is the child of one node before it.

    None is a single leaf from the beginning.
    """
    if item is None:
        return Structure()
    nodes: dict[int, Spot] = {}
    above: dict[int, Spot | None] = {0: None}
    what = "the tree that the log begins with"
    for one in manifest.items(item, what):
        manifest.members(one, SPOT_KEYS, what)
        node = manifest.whole(one["node"], what, 0, limits.max_nodes - 1)
        if node not in above:
            raise ModelFileError(f"{what} has a misplaced node {node}")
        parent = above.pop(node)
        condition = manifest.maybe(_decode_condition, one["condition"], what)
        spot = Spot(
            node,
            -1 if parent is None else parent.node,
            0 if parent is None else parent.depth + 1,
            condition,
            manifest.whole(one["left"], what, -1, limits.max_nodes - 1),
            manifest.whole(one["right"], what, -1, limits.max_nodes - 1),
            manifest.whole(one["since_step"], what, 0, limits.n_steps),
            manifest.whole(one["since_row"], what, 0, limits.n_rows),
        )
        nodes[node] = spot
        children = {spot.left, spot.right}
        if condition is None:
            fits = children == {-1}
        else:
            fits = len(children) == 2 and not any(
                child < 0 or child in nodes or child in above for child in children
            )
            above |= dict.fromkeys(children, spot)
        if not fits:
            raise ModelFileError(f"{what} has wrong children at node {node}")
    if above or not nodes:
        raise ModelFileError(f"{what} lacks nodes")
    return Structure(nodes)


# ---------------------------------------------------------------------- events
def _encode_runner_up(second: RunnerUp | None) -> Any:
    if second is None:
        return None
    gain = manifest.encode(second.gain)
    return {"condition": _encode_condition(second.condition), "gain": gain}


def _decode_runner_up(item: Any, what: str) -> RunnerUp:
    item = manifest.members(item, ("condition", "gain"), what)
    condition = _decode_condition(item["condition"], what)
    return RunnerUp(condition, manifest.number(item["gain"], what))


def _decode_floor(item: Any, what: str) -> tuple[float, float]:
    both = manifest.items(item, what)
    if len(both) != 2:
        raise ModelFileError(f"{what} must have two floors")
    return manifest.number(both[0], what), manifest.number(both[1], what)


def _encode_curves(curves: tuple[Curve, ...]) -> list[Any]:
    return [
        {"feature": curve.feature, "knots": [manifest.encode(knot) for knot in curve.knots]}
        for curve in curves
    ]


def _decode_curves(item: Any, what: str) -> tuple[Curve, ...]:
    curves = []
    for one in manifest.items(item, what):
        manifest.members(one, ("feature", "knots"), what)
        items = manifest.items(one["knots"], what)
        knots = tuple(manifest.number(knot, what) for knot in items)
        if len(knots) < 2 or not all(low < high for low, high in pairwise(knots)):
            raise ModelFileError(f"{what} must have ascending knots")
        curves.append(Curve(manifest.text(one["feature"], what), knots))
    if not curves:
        raise ModelFileError(f"{what} must be those of some feature")
    return tuple(curves)


ENCODERS: dict[str, Callable[[Any], Any]] = {
    "path": lambda path: [_encode_condition(condition) for condition in path],
    "runner_up": _encode_runner_up,
    "condition": _encode_condition,
    "old_condition": _encode_condition,
    "floor": lambda floor: [manifest.encode(share) for share in floor],
    "curves": _encode_curves,
}
DECODERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("step", "n_rows", "node", "left", "right"), manifest.whole),
    **dict.fromkeys(
        (
            "gain",
            "threshold",
            "loss_before",
            "loss_after",
            "rows",
            "memory",
        ),
        manifest.number,
    ),
    "path": _decode_conditions,
    "runner_up": lambda item, what: manifest.maybe(_decode_runner_up, item, what),
    "condition": _decode_condition,
    "old_condition": _decode_condition,
    "floor": _decode_floor,
    "curves": _decode_curves,
    "third_label": lambda item, _: manifest.decode(item),
}


def _names_of(kind: type[Event]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "removed"]


def _encode_event(event: Event) -> dict[str, Any]:
    encoded = {
        name: ENCODERS.get(name, manifest.encode)(getattr(event, name))
        for name in _names_of(type(event))
    }
    return {"kind": event.kind, **encoded}


def _decode_event(item: Any, what: str, before: Structure, limits: HistoryLimits) -> Event:
    """Return a change that is possible in a tree, with the nodes that it removes."""
    kind = KINDS.get(str(item.get("kind"))) if type(item) is dict else None
    if kind is None:
        raise ModelFileError(f"{what} must be of one of the kinds {', '.join(KINDS)}")
    manifest.members(item, ("kind", *_names_of(kind)), what)
    event = kind(
        **{name: DECODERS[name](item[name], f"{what}, {name}") for name in _names_of(kind)}
    )
    spot = before.nodes.get(event.node)
    must_be_leaf = {Split: True, Replace: False, Shift: False, Prune: False}.get(kind)
    if spot is None or must_be_leaf not in (None, spot.is_leaf):
        raise ModelFileError(f"{what} changes a node that does not exist")
    if kind is LinkChange and event.node != 0:
        raise ModelFileError(f"{what} must change the root")
    if isinstance(event, Shift) and not _is_moved(event.condition, event.old_condition):
        raise ModelFileError(f"{what} must move a threshold")
    if not isinstance(event, KEEP_NODES):
        event = replace(event, removed=before.below(event.node))
    if isinstance(event, (Split, Replace)):
        gone = {spot.node for spot in event.removed}
        children = {event.left, event.right}
        is_free = all(child in gone or child not in before.nodes for child in children)
        if len(children) < 2 or not is_free or max(children) >= limits.max_nodes:
            raise ModelFileError(f"{what} creates nodes that are impossible or already exist")
    return event


def _is_moved(new: Condition, old: Condition) -> bool:
    """Return whether a condition is another with its threshold moved."""
    return new.feature == old.feature and new.operator == old.operator == "<="


# ---------------------------------------------------------------------- drifts
INPUT_KINDS = ("values", "missing", "level")


def _encode_drift(drift: Drift) -> dict[str, Any]:
    path, inputs = ENCODERS["path"](drift.path), [_encode_input(one) for one in drift.inputs]
    names = {field.name for field in fields(Drift)} - {"path", "inputs"}
    numbers = {name: manifest.encode(getattr(drift, name)) for name in sorted(names)}
    return {**numbers, "path": path, "inputs": inputs}


def _encode_input(change: InputChange) -> dict[str, Any]:
    return {field.name: manifest.encode(getattr(change, field.name)) for field in fields(change)}


def _decode_drifts(items: Any, limits: HistoryLimits) -> tuple[Drift, ...]:
    decoded = []
    for i, item in enumerate(manifest.items(items, "the drifts")):
        what = f"drift {i}"
        manifest.members(item, (field.name for field in fields(Drift)), what)
        n_rows = manifest.whole(item["n_rows"], what, 0, limits.n_rows)
        numbers = ("excess", "loss_before", "loss_since", "share")
        decoded.append(
            Drift(
                n_rows=n_rows,
                since=manifest.whole(item["since"], what, 0, n_rows),
                path=_decode_conditions(item["path"], what),
                inputs=tuple(
                    _decode_input(one, what) for one in manifest.items(item["inputs"], what)
                ),
                **{name: manifest.number(item[name], what) for name in numbers},
            )
        )
    if len(decoded) > MAX_DRIFTS:
        raise ModelFileError(f"there are {len(decoded):,} drifts, at most {MAX_DRIFTS:,} are kept")
    if any(one.n_rows > other.n_rows for one, other in pairwise(decoded)):
        raise ModelFileError("the drifts are out of order")
    return tuple(decoded)


def _decode_input(item: Any, what: str) -> InputChange:
    manifest.members(item, (field.name for field in fields(InputChange)), what)
    if item["kind"] not in INPUT_KINDS:
        raise ModelFileError(f"{what} must have inputs of the kinds {', '.join(INPUT_KINDS)}")
    return InputChange(
        manifest.text(item["feature"], what),
        item["kind"],
        manifest.number(item["before"], what),
        manifest.number(item["after"], what),
        manifest.decode(item["level"]),
    )


# ---------------------------------------------------------------------- samples
SAMPLE = {"step": "<i8", "n_rows": "<i8", "n_nodes": "<i8"}
NODE = {
    "node": "<i4",
    "since_step": "<i8",
    "is_leaf": "|u1",
    "depth": "<i4",
    "rows": "<f8",
    "loss": "<f8",
    "loss_rows": "<f8",
    "needed": "<f8",
    "outputs": "<i4",
    "columns": "<i4",
    "n_entrants": "<i4",
}
ENTRANT = {
    "feature": "<i4",
    "threshold": "<f8",
    "equality": "|u1",
    "missing_left": "|u1",
    "gain": "<f8",
}
MARK = {"node": "<i4", "since_step": "<i8", "loss": "<f8", "rows": "<f8", "clock": "<f8"}
WEIGHTS = {"weight": "<f4"}
TABLES = {"sample": SAMPLE, "node": NODE, "entrant": ENTRANT, "mark": MARK, "sampled": WEIGHTS}
PREFIX = "history."
COLUMNS = {
    table: [(name, f"{PREFIX}{table}.{name}", np.dtype(dtype)) for name, dtype in row.items()]
    for table, row in TABLES.items()
}


def _to_columns(table: str, rows: Iterable[tuple[Any, ...]]) -> dict[str, NDArray[Any]]:
    columns = list(zip(*rows, strict=True)) or [()] * len(TABLES[table])
    return {
        f"{PREFIX}{table}.{name}": np.array(column, dtype=dtype)
        for (name, dtype), column in zip(TABLES[table].items(), columns, strict=True)
    }


def _read_columns(table: str, arrays: Arrays) -> list[NDArray[Any]]:
    """Return a table's columns, all of the same length."""
    found = []
    for _, stored_name, dtype in COLUMNS[table]:
        array = arrays.get(stored_name)
        if array is None or array.dtype != dtype or array.ndim != 1:
            raise ModelFileError(
                f"array {stored_name!r} must exist, with one dimension and type {dtype.str}"
            )
        found.append(array)
    if len({*map(len, found)}) > 1:
        raise ModelFileError(f"the arrays 'history.{table}...' must have the same length")
    return found


def _pack_samples(history: History) -> dict[str, NDArray[Any]]:
    seen = [(node, one) for sample in history.samples for node, one in sample.nodes.items()]
    weights = [one.weights.ravel() for _, one in seen if one.weights is not None]
    samples = [(sample.step, sample.n_rows, len(sample.nodes)) for sample in history.samples]
    nodes = [
        (
            node,
            *(one.since_step, one.is_leaf, one.depth, one.rows, one.loss, one.loss_rows),
            one.needed,
            *((0, 0) if one.weights is None else one.weights.shape),
            len(one.entrants),
        )
        for node, one in seen
    ]
    return {
        **_to_columns("sample", samples),
        **_to_columns("node", nodes),
        **_to_columns("entrant", (entrant for _, one in seen for entrant in one.entrants)),
        **_to_columns("mark", ((node, *mark) for node, mark in history.marks.items())),
        "history.sampled.weight": np.concatenate([np.empty(0, np.float32), *weights]),
    }


def _need(is_so: object, what: str) -> None:
    if not is_so:
        raise ModelFileError(f"the samples of the history {what}")


def _is_in(column: list[int], low: int, high: int) -> bool:
    return not column or (low <= min(column) and max(column) <= high)


def _check_samples(
    tables: dict[str, dict[str, list[Any]]], n_weights: int, limits: HistoryLimits
) -> None:
    """Check whole columns, before their rows are used."""
    sample, node, entrant, mark = (tables[name] for name in ("sample", "node", "entrant", "mark"))
    _need(len(sample["step"]) <= MAX_SAMPLES, f"are more than {MAX_SAMPLES}")
    for times, now in ((sample["step"], limits.n_steps), (sample["n_rows"], limits.n_rows)):
        _need(_is_in(times, 0, now), "must have steps and rows from 0 until now")
        _need(times == sorted(times), "must be in order")
    _need(_is_in(sample["n_nodes"], 1, limits.max_nodes), "must have nodes")
    _need(sum(sample["n_nodes"]) == len(node["node"]), "must have all their nodes")
    for ids in (node["node"], mark["node"]):
        _need(_is_in(ids, 0, limits.max_nodes - 1), "name impossible nodes")
    for steps in (node["since_step"], mark["since_step"], node["depth"]):
        _need(_is_in(steps, 0, 2**53), "have nodes with a wrong time or position")
    _need(_is_in(node["outputs"], 0, max(limits.n_classes, 1)), "have weights of too many labels")
    n_told = 0
    for is_leaf, outputs, columns in zip(
        node["is_leaf"], node["outputs"], node["columns"], strict=True
    ):
        _need(is_leaf or not outputs, "have misplaced weights")
        _need(1 <= columns <= limits.n_inputs if outputs else not columns, "have wrong weights")
        n_told += outputs * columns
    _need(n_told == n_weights, "must have all weights")
    _need(_is_in(node["n_entrants"], 0, len(entrant["gain"])), "have wrong entrants")
    _need(sum(node["n_entrants"]) == len(entrant["gain"]), "have wrong entrants")
    _need(_is_in(entrant["feature"], 0, limits.n_features - 1), "name features that do not exist")
    for equality, threshold in zip(entrant["equality"], entrant["threshold"], strict=True):
        is_value = math.isfinite(threshold) if equality else not math.isnan(threshold)
        _need(is_value, "have splits without a value")


def _unpack_samples(arrays: Arrays, limits: HistoryLimits) -> tuple[list[Sample], dict[int, Mark]]:
    if not has_samples(arrays):
        return [], {}
    (weights,), place = _read_columns("sampled", arrays), 0
    tables = {
        name: {
            key: column.tolist()
            for key, column in zip(TABLES[name], _read_columns(name, arrays), strict=True)
        }
        for name in ("sample", "node", "entrant", "mark")
    }
    _check_samples(tables, len(weights), limits)
    rows = {name: zip(*table.values(), strict=True) for name, table in tables.items()}
    samples = []
    for step, n_rows, n_nodes in rows["sample"]:
        nodes: dict[int, NodeSample] = {}
        for _ in range(n_nodes):
            node, since, is_leaf, depth, seen, loss, loss_rows, needed, *shape, n = next(
                rows["node"]
            )
            size = shape[0] * shape[1]
            own = weights[place : place + size].reshape(shape).copy() if size else None
            place += size
            race = tuple(
                Entrant(feature, threshold, bool(equality), bool(left), gain)
                for feature, threshold, equality, left, gain in (
                    next(rows["entrant"]) for _ in range(n)
                )
            )
            nodes[node] = NodeSample(
                since, bool(is_leaf), depth, seen, loss, loss_rows, own, race, needed
            )
        _need(len(nodes) == n_nodes, "have a node twice")
        n_bytes = sum(0 if one.weights is None else one.weights.nbytes for one in nodes.values())
        samples.append(Sample(step, n_rows, nodes, n_bytes))
    return samples, {node: Mark(*mark) for node, *mark in rows["mark"]}


# ---------------------------------------------------------------------- the whole history
KEYS = ("distance", "next_row", "first_step", "first_row", "first", "events")
DRIFTS = "drifts"  # another key, if there are any


ARRAY_NAMES = frozenset(stored_name for row in COLUMNS.values() for _, stored_name, _ in row)


def has_samples(arrays: Arrays) -> bool:
    """Return whether a file has tables of samples, which young trees lack."""
    return "history.sample.step" in arrays


def pack(history: History) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a history as contents and arrays of a file."""
    contents = {
        "distance": history._distance,
        "next_row": history.next_row,
        "first_step": history.first_step,
        "first_row": history.first_row,
        "first": None if history._first == Structure() else _encode_structure(history._first),
        "events": [_encode_event(event) for event in history.events],
    }
    if history.drifts:
        contents[DRIFTS] = [_encode_drift(drift) for drift in history.drifts]
    return contents, _pack_samples(history) if history.samples or history.marks else {}


def unpack(contents: Any, arrays: Arrays, limits: HistoryLimits) -> History:
    """Return the history that was packed."""
    keys = [*KEYS, DRIFTS] if type(contents) is dict and DRIFTS in contents else KEYS
    contents = manifest.members(contents, keys, "the history")
    distance = manifest.whole(contents["distance"], "the distance of samples", 1)
    history = History(min(distance, MAX_DISTANCE))
    history.next_row = manifest.whole(contents["next_row"], "the row of the next sample")
    history.first_step = manifest.whole(contents["first_step"], "the first step", 0, limits.n_steps)
    history.first_row = manifest.whole(contents["first_row"], "the first row", 0, limits.n_rows)
    if DRIFTS in contents:
        history.drifts = _decode_drifts(contents[DRIFTS], limits)
    items = manifest.items(contents["events"], "the events")
    if not items and contents["first"] is None and not has_samples(arrays):
        return history  # a young tree: everything else is as in a new one
    if len(items) > MAX_EVENTS:
        raise ModelFileError(f"the log has {len(items):,} events, at most {MAX_EVENTS:,} are kept")
    history._first = _decode_structure(contents["first"], limits)
    history.samples, history.marks = _unpack_samples(arrays, limits)
    now = Structure(dict(history._first.nodes))
    waiting = deque(sample for sample in history.samples if sample.step >= history.first_step)
    last = (history.first_step, history.first_row)
    for i, item in enumerate(items):
        event = _decode_event(item, f"event {i}", now, limits)
        if event.step > limits.n_steps + 1 or event.n_rows > limits.n_rows + 1:  # links are early
            raise ModelFileError(f"event {i} is in the future")
        if event.step < last[0] or event.n_rows < last[1]:
            raise ModelFileError(f"event {i} is out of order")
        last = (event.step, event.n_rows)
        _check_fit(waiting, event.step, now)
        now.change(event)
        history.events.append(event)
    _check_fit(waiting, 2**53 + 1, now)
    history._now = now
    history._n_bytes = sum(sample.n_bytes for sample in history.samples)
    history._n_nodes = sum(len(sample.nodes) for sample in history.samples)
    return history


def _check_fit(waiting: deque[Sample], step: int, structure: Structure) -> None:
    """Check the samples before a step against the tree of their time."""
    leaves = None
    while waiting and waiting[0].step < step:
        leaves = leaves or {node: spot.is_leaf for node, spot in structure.nodes.items()}
        seen = {node: one.is_leaf for node, one in waiting.popleft().nodes.items()}
        _need(seen == leaves, "do not fit the tree of their time")
