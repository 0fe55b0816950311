"""Merging: copies of one model that learnt different rows, combined by the information gained.

The simple models of all nodes are merged as described in `blends`. The rest of their state consists
of sums that are discounted with each row, and is merged as such; sureness is the mean, weighted by
rows.

One model may have many workers (`fit`): the rows of a round are divided into a fixed number of
slices. Each slice is learnt by a copy of the model, which makes no decisions, in steps of its share
of the rows of a usual step; the rows of a step are judged before they are learnt. The evidence
about the tree consists of sums over rows, which are added up in the order of the slices; the simple
models are merged as by `merge`; then the driver decides once. The result of a slice depends only on
the model and its rows, so results do not depend on the number of workers, nor on how often one
dies.
"""

from __future__ import annotations

import math
import pickle
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.estimators import DynamicModelTreeClassifier
from driftree.forests import DynamicModelForest, DynamicModelForestRegressor
from driftree.learn._kernels import KEPT_PREFERENCE, KEPT_WRONG, MOST_LEAD, MeasuredSums
from driftree.learn.estimator import commit, judge
from driftree.learn.storage import models as files
from driftree.learn.validation import shown
from driftree.scale.blends import (
    Blend,
    CopyBlend,
    Learning,
    merge_blends,
    merge_faded,
    piece,
    row_shares,
)
from driftree.scale.spread import fit_forest
from driftree.streams.rows import cut
from driftree.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn.constants import MeasuredConstants

    Arrays = Mapping[str, NDArray[Any]]

Model = TypeVar("Model", DynamicModelTreeClassifier, DynamicModelForest)

# State of a simple model besides its weights.
FLOORS = ("floor_0", "floor_1")
STATE = ("preference", "sureness", "sureness_rows", "wrong", "floor_rows", *FLOORS)
SCALES = ("scale_shift", "scale_factor")
INPUTS = ("value_column", "missing_column", "level_column")
STRUCTURE = ("left", "right", "feature", "threshold", "equality", "missing_left")

SLICES = 2
ROUND_ROWS = 500
# What the driver needs from a copy that has learnt.
NEEDED = ("model.", "node.model", "node.rows", "trial.", "bend_trial.model", "scale_", "clock")


def merge(
    models: Sequence[DynamicModelTreeClassifier],
    base: DynamicModelTreeClassifier | None = None,
) -> DynamicModelTreeClassifier:
    """Return one model of several copies that learnt different rows of one stream.

    The simple models of all nodes are combined by the information that each of them has gained, so
    that the result has learnt the rows of all. Everything else is taken from the copy that has
    learnt most: evidence about future changes, and history.

    Parameters
    ----------
    models : sequence of DynamicModelTreeClassifier
        The copies, in any order: the result is the same up to rounding.
    base : DynamicModelTreeClassifier, optional
        The model that all of them started from, as it was then. None: they started empty.

    Returns
    -------
    DynamicModelTreeClassifier
        A new model.

    Raises
    ------
    ValueError
        If models and base differ in parameters, features, labels, splits or bends: weights of
        different inputs, or for different rows, cannot be added. In that case, average the
        predictions of the models.

    Examples
    --------
    >>> import copy
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale import merge
    >>> X = np.random.default_rng(1).normal(size=(1200, 3))
    >>> y = X @ [1, 2, -1] > 0
    >>> base = DynamicModelTreeClassifier().partial_fit(X[:400], y[:400])
    >>> copies = [copy.deepcopy(base).partial_fit(X[i:800:2], y[i:800:2]) for i in (400, 401)]
    >>> merged = merge(copies, base)
    >>> together = copy.deepcopy(base).partial_fit(X[400:800], y[400:800])
    >>> for model in (base, copies[0], merged, together):
    ...     print(f"{model.score(X[800:], y[800:]):.2f}")
    0.98
    0.98
    0.98
    0.99
    """
    copies = [*models]
    if not copies:
        raise ValueError("there is nothing to merge: give at least one model")
    for model in (*copies, *(() if base is None else (base,))):
        check_mergeable(model)
    packed = [files.pack(model) for model in copies]
    told = [contents for contents, _ in packed]
    arrays = [numbers for _, numbers in packed]
    start = [] if base is None else [files.pack(base)]
    _check_alike([*start, *packed])
    rank = [(one.n_rows_seen_, files.to_bytes(one)) for one in copies]
    most = rank.index(max(rank))
    own = arrays[most]
    learning = learning_of(copies[most])
    before = start[0][1] if start else None
    nodes = [int(place) for place in own["node.model"] if place >= 0]
    merged = merge_arrays(own, arrays, before, learning, nodes)
    if "model.renewed_lead" in own:  # a renewed model is that of one copy: it gets no weight
        has_renewed = own["model.renewed_model"] >= 0
        merged["model.renewed_lead"] = np.where(has_renewed, -MOST_LEAD, own["model.renewed_lead"])
        merged["model.renewed_harm"] = np.zeros(len(has_renewed))
    classes = {DynamicModelTreeClassifier.__name__: DynamicModelTreeClassifier}
    return files.unpack(told[most], {**own, **merged}, classes)


def check_kind(model: Any) -> None:
    """Raise unless models of this kind can be merged."""
    if type(model) is not DynamicModelTreeClassifier or model.setting == "paper":
        raise TypeError(
            f"only a DynamicModelTreeClassifier in the measured setting can be merged, got "
            f"{shown(model)}: others have no information about their weights, or rescale their "
            "target"
        )


def check_mergeable(model: Any) -> None:
    """Raise unless a model can be merged with others."""
    check_kind(model)
    if model._tree is None:
        raise ValueError("one of the models has learnt nothing: omit it")
    if model._tree.encoder.sparse is not None:
        raise ValueError("models of sparse rows cannot be merged: each has its own names")


def _check_alike(packed: Sequence[tuple[Mapping[str, Any], Arrays]]) -> None:
    told, arrays = zip(*packed, strict=True)
    for name in ("parameters", "names", "levels", "labels"):
        if any(one["learnt"][name] != told[0]["learnt"][name] for one in told):
            hint = "in the same order: partial_fit(..., classes=...) sets labels in advance"
            raise ValueError(f"the models differ in their {name}, which must be the same, {hint}")
    first = arrays[0]
    for other in arrays[1:]:
        if not all(np.array_equal(first[name], other[name]) for name in INPUTS):
            raise ValueError(
                "the models differ in their inputs, as other features were missing in their rows, "
                "or first in another order: let the base learn a row in which these are missing"
            )
        for name in STRUCTURE:
            if not np.array_equal(first[f"node.{name}"], other[f"node.{name}"]):
                raise ValueError(
                    "the models have different splits, so that their leaves hold different rows: "
                    "merge more often, or average their predictions"
                )
        for node, (one, two) in enumerate(
            zip(first["node.model"], other["node.model"], strict=True)
        ):
            if one >= 0 and bends_of(first, one) != bends_of(other, two):
                raise ValueError(
                    f"the models of node {node} have different bends: merge more often, or train "
                    "them with max_bends=0"
                )


def bends_of(arrays: Arrays, place: int) -> list[tuple[Any, ...]]:
    """Return the bends of the model at an index."""
    rows = piece(arrays, "model.bend_feature", place)
    names = ("feature", "low", "high")
    return list(zip(*(arrays[f"model.bend_{name}"][rows].tolist() for name in names), strict=True))


# ---------------------------------------------------------------------- arrays of an engine
def learning_of(model: DynamicModelTreeClassifier) -> Learning:
    """Return the parameters of the kernels."""
    tree: Any = model._tree
    window = tree.parameters.model_window
    return Learning(window, tree.engine.n_columns, tree.evidence.constants)


def merge_arrays(
    own: Arrays,
    copies: Sequence[Arrays],
    base: Arrays | None,
    learning: Learning,
    places: Sequence[int],
) -> dict[str, NDArray[Any]]:
    """Return the merged simple models and scales for an engine.

    Parameters
    ----------
    own : mapping of arrays
        The engine whose models are to be replaced; its nodes are those of all copies.
    copies : sequence of mappings of arrays
        The arrays of the copies.
    base : mapping of arrays or None
        The arrays of the base.
    learning : Learning
        Of all of them.
    places : sequence of int
        Indices of the models to merge; `_same_model` maps them to those of a copy.
    """
    met = [_rows_of_models(one) for one in copies]
    before = None if base is None else _rows_of_models(base)
    gained = [_n_rows(one) - (0 if base is None else _n_rows(base)) for one in copies]
    merged: dict[str, NDArray[Any]] = {
        name: np.average([one[name] for one in copies], axis=0, weights=row_shares(gained))
        for name in SCALES
    }
    numbers = own["model.numbers"].copy()
    state = {name: own[f"model.{name}"].copy() for name in (*STATE, "scale", "trace")}
    for place in places:
        then = place if base is None else _same_model(own, base, place)
        there = [_same_model(own, other, place) for other in copies]
        rows = [
            max(0.0, one[at] - (0.0 if before is None else before[then]))
            for one, at in zip(met, there, strict=True)
        ]
        told = [
            CopyBlend(Blend.read(other, at, learning), n_rows)
            for other, at, n_rows in zip(copies, there, rows, strict=True)
        ]
        start = None if base is None else Blend.read(base, then, learning)
        blend = merge_blends(told, start, learning, float(own["model.memory"][place]))
        numbers[piece(own, "model.numbers", place)] = blend.to_numbers()
        found = {
            name: np.array(
                [other[f"model.{name}"][at] for other, at in zip(copies, there, strict=True)]
            )
            for name in STATE
        }
        first = None if base is None else {name: base[f"model.{name}"][then] for name in STATE}
        for name, value in _merge_state(found, first, rows, learning.constants).items():
            state[name][place] = value
        state["scale"][place] = 1.0
        state["trace"][place] = np.trace(blend.covariance)
    merged["model.numbers"] = numbers
    return merged | {f"model.{name}": values for name, values in state.items()}


def _merge_state(
    found: Mapping[str, NDArray[np.float64]],
    base: Mapping[str, float] | None,
    rows: Sequence[float],
    constants: MeasuredConstants,
) -> dict[str, float]:
    """Return the merged state of a simple model, except for its weights."""
    shares = row_shares(rows)
    if base is None:  # the initial floors are unknown: take the mean
        base = {name: float(shares @ found[name]) if name in FLOORS else 0.0 for name in STATE}
    floor_window = min(constants.floor_first_rows + base["floor_rows"], constants.floor_rows)
    keeps = {
        "preference": KEPT_PREFERENCE,
        "wrong": KEPT_WRONG,
        "sureness_rows": math.exp(-1.0 / (constants.sureness_window or math.inf)),
        "floor_rows": 1.0,
        **dict.fromkeys(FLOORS, 1.0 - 1.0 / floor_window),
    }
    merged = {
        name: merge_faded(base[name], found[name].tolist(), rows, keep)
        for name, keep in keeps.items()
    }
    merged["preference"] = min(max(merged["preference"], -MOST_LEAD), MOST_LEAD)
    merged["wrong"] = min(max(merged["wrong"], 0.0), 1.0)
    merged["sureness_rows"] = max(merged["sureness_rows"], 0.0)
    floors = [max(merged[name], min(constants.floor_least, *found[name])) for name in FLOORS]
    scale = min(1.0, constants.floor_most / max(sum(floors), constants.floor_least))
    merged |= {name: scale * floor for name, floor in zip(FLOORS, floors, strict=True)}
    return merged | {"sureness": min(1.0, float(shares @ found["sureness"]))}


def _n_rows(arrays: Arrays) -> float:
    return float(arrays["clock"][0])


def _rows_of_models(arrays: Arrays) -> NDArray[np.float64]:
    """Return how many rows the model at each index has learnt."""
    met = np.full(len(arrays["model.numbers.lengths"]), _n_rows(arrays))  # the challenger: all
    of_node = arrays["node.model"] >= 0
    met[arrays["node.model"][of_node]] = arrays["node.rows"][of_node]
    for side in ("left", "right"):
        of_trial = arrays[f"trial.{side}_model"] >= 0
        met[arrays[f"trial.{side}_model"][of_trial]] = arrays[f"trial.n_{side}"][of_trial]
    bent = arrays["bend_trial.model"] >= 0
    met[arrays["bend_trial.model"][bent]] = arrays["node.rows"][: len(bent)][bent]
    for place, renewed in enumerate(arrays.get("model.renewed_model", ())):
        if renewed >= 0:
            met[renewed] = met[place]
    return met


def _same_model(own: Arrays, other: Arrays, place: int) -> int:
    """Return the index of the same node's model in another engine."""
    nodes = np.flatnonzero(own["node.model"] == place)
    return int(other["node.model"][nodes[0]]) if len(nodes) else place


# ---------------------------------------------------------------------- one model, many workers
class RowSlice(NamedTuple):
    """Encoded rows of one slice of a round."""

    X: NDArray[np.float64]
    codes: NDArray[np.float64]
    weights: NDArray[np.float64]


def fit(
    model: Model,
    stream: Any,
    *,
    workers: int | None = None,
    slices: int = SLICES,
    round_rows: int = ROUND_ROWS,
) -> Model:
    """Let one model learn a stream on several Ray workers.

    For a forest the trees are distributed. That is exact, and pays if rows are expensive. For a
    tree the rows of each round are distributed, and the results are merged. That seldom pays:
    sending a round and merging take longer than learning it. docs/scale.md has the figures.

    Parameters
    ----------
    model : DynamicModelForestClassifier, ...ForestRegressor or DynamicModelTreeClassifier
        It learns in place; a tree must have the measured setting. A forest is updated every 50,000
        rows, and at the end.
    stream : stream, path or data set
        Anything that `driftree.streams.open_stream` takes. All batches must have the same features.
    workers : int, optional
        Number of workers for a forest, at most its trees minus one; or the number of slices of a
        round that Ray may process in parallel. None: this process does it.
    slices : int, default=2
        For a tree: number of slices of a round, with rows assigned in turn. Results depend on it:
        with more slices, each copy sees fewer rows.
    round_rows : int, default=500
        For a tree: rows of a round, after which the tree may change once.

    Returns
    -------
    model
        The same, bit for bit, for any number of workers. A new forest without `class_weight` equals
        that of `partial_fit` with batches of 1,000 rows.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale import fit
    >>> from driftree.streams import sea
    >>> model = fit(DynamicModelTreeClassifier(), sea(5000))
    >>> model.n_rows_seen_
    5000
    """
    for name, value in (("slices", slices), ("round_rows", round_rows)):
        if not value >= 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    if isinstance(model, DynamicModelForest):
        task: Any = "regression" if type(model) is DynamicModelForestRegressor else None
        fit_forest(model, open_stream(stream, task=task).batches(), workers)
        return model
    check_kind(model)
    spread = _here if workers is None else _on_ray(workers)
    for X, y in cut(open_stream(stream).batches(), round_rows):
        if model._tree is None:
            model.partial_fit(X, y)
        else:
            _learn_round(model, X, y, slices, spread)
    return model


def _learn_round(
    model: DynamicModelTreeClassifier,
    X: Any,
    y: Any,
    n_slices: int,
    spread: Callable[[bytes, list[RowSlice]], list[Any]],
) -> None:
    """Learn one round, the rows of a batch."""
    check_mergeable(model)
    with model._learning():
        intake = model._read(X, y, None)
        tree: Any = model._tree
        if intake is None:
            return
        with tree.engine.writing():
            commit(tree, intake)
            if intake.judged is not None:
                judge(tree, intake.X, None, intake.answers.codes, intake.judged)
            codes = intake.answers.codes.astype(np.float64)
            places = [slice(i, None, n_slices) for i in range(min(n_slices, len(codes)))]
            cuts = [RowSlice(intake.X[rows], codes[rows], intake.w[rows]) for rows in places]
            learning = learning_of(model)
            base = tree.engine.arrays()
            base = {**base, **_limit(base, learning, len(cuts[0].X))}
            tree.restore({"arrays": base, "history": tree.history})
            found = spread(pickle.dumps(model), cuts)
            copies = [arrays for _, arrays in found]
            used = np.flatnonzero(base["model.numbers.lengths"]).tolist()
            merged = merge_arrays(base, copies, base, learning, used)
            whole = {**base, **merged, **_merge_scales(base, copies)}
            tree.restore({"arrays": whole, "history": tree.history})
            tree.engine.absorb(reduce(add, [_restored(sums) for sums, _ in found]))
            if tree.engine.has_due:
                tree.decide()


def _limit(arrays: Arrays, learning: Learning, n_rows: int) -> dict[str, NDArray[Any]]:
    """Return the simple models, limited so that none of them is while it learns so many rows."""
    names = ("model.numbers", "model.scale", "model.trace")
    numbers, scale, trace = (arrays[name].copy() for name in names)
    for place in np.flatnonzero(arrays["model.numbers.lengths"]).tolist():
        blend = Blend.read(arrays, place, learning)
        limited = blend.limited(learning, float(arrays["model.memory"][place]), n_rows)
        if limited is not None:
            numbers[piece(arrays, "model.numbers", place)] = limited.to_numbers()
            scale[place], trace[place] = 1.0, np.trace(limited.covariance)
    return dict(zip(names, (numbers, scale, trace), strict=True))


def learn_slice(
    data: bytes, rows: RowSlice, n_slices: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what rows say about the tree, and what its models become by them."""
    model = pickle.loads(data)
    engine, size = model._tree.engine, max(1, model._tree.step_rows // n_slices)
    sums = MeasuredSums()
    for start in range(0, len(rows.X), size):
        step = [column[start : start + size] for column in rows]
        sums += engine.accumulate(*step)
        engine.learn(*step)
    arrays = engine.arrays()
    kept = {name: array for name, array in arrays.items() if name.startswith(NEEDED)}
    return sums.arrays(), {**kept, "n_classes": arrays["n_classes"]}


def _restored(arrays: dict[str, Any]) -> MeasuredSums:
    sums = MeasuredSums()
    sums.restore(arrays)
    return sums


def _merge_scales(base: Any, copies: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return counts, means and squares of the features over the rows of all copies."""

    def moments(arrays: Any) -> NDArray[np.float64]:
        weight, mean = arrays["scale_weight"], arrays["scale_mean"] - centre
        return np.array([weight, weight * mean, arrays["scale_squares"] + weight * mean * mean])

    centre = base["scale_mean"]
    start = moments(base)
    weight, first, second = start + sum(moments(one) - start for one in copies)
    mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
    return {
        "scale_weight": weight,
        "scale_mean": centre + mean,
        "scale_squares": np.maximum(second - weight * mean * mean, 0.0),
        "scale_low": np.min([one["scale_low"] for one in copies], axis=0),
        "scale_high": np.max([one["scale_high"] for one in copies], axis=0),
        "scale_is_indicator": np.min([one["scale_is_indicator"] for one in copies], axis=0),
    }


# ---------------------------------------------------------------------- where
def _here(data: bytes, slices: list[RowSlice]) -> list[Any]:
    return [learn_slice(data, rows, len(slices)) for rows in slices]


def _on_ray(workers: int) -> Callable[[bytes, list[RowSlice]], list[Any]]:
    """Return a function that distributes slices over Ray as pure tasks, which Ray may repeat."""
    from driftree.scale.ray import import_ray

    if not workers >= 1:
        raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
    ray = import_ray()
    learn = ray.remote(learn_slice).options(max_retries=-1)

    def spread(data: bytes, slices: list[RowSlice]) -> list[Any]:
        sent = ray.put(data)  # once per round
        asked: list[Any] = []
        for rows in slices:
            if len(asked) >= workers:
                ray.wait(asked, num_returns=len(asked) - workers + 1)
            asked.append(learn.remote(sent, rows, len(slices)))
        return list(ray.get(asked))

    return spread
