"""Merging: copies of one model that learnt different rows, combined by the information gained.

Newton's half of a simple model is weights w with a precision P, the information about them. Rows
add to it and time discounts it: a copy that starts from w0, P0 ends with P = f P0 + S, where S is
the information from its rows. So copies are merged by adding the information of each to what
remains of the base,

    P = F P0 + sum (P_k - f_k P0),    P w = F P0 w0 + sum (P_k w_k - f_k P0 w0),    F = product f_k,

which is the model that has learnt all rows, except for their order. f_k follows from the number of
rows that the model has learnt; it is never so large that P_k - f_k P0 is not positive. Nor may the
base fade to nothing where no copy gained information: the merged model is nowhere less certain than
the least certain copy. Adagrad's weights change by the mean of the copies' changes, weighted by
rows, and its sums of squares add up.

One model may have many workers (`fit`): the rows of a round are divided into a fixed number of
slices. Each slice is learnt by a copy of the model, which makes no decisions. The evidence about
the tree consists of sums over rows, which are added up in the order of the slices; the simple
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
from scipy import linalg

from driftree.estimators import DynamicModelTreeClassifier
from driftree.forests import DynamicModelForest, DynamicModelForestRegressor
from driftree.learn._kernels import MOST_LEAD, MeasuredSums
from driftree.learn.estimator import commit, judge
from driftree.learn.storage import models as files
from driftree.learn.words import shown
from driftree.scale.spread import fit_forest
from driftree.streams.rows import cut
from driftree.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

Model = TypeVar("Model", DynamicModelTreeClassifier, DynamicModelForest)

# State of a simple model besides its weights; merged as the mean, weighted by rows.
STATE = ("preference", "sureness", "sureness_rows", "wrong", "floor_0", "floor_1", "floor_rows")
SCALES = ("scale_shift", "scale_factor")
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
    memory = memory_of(copies[most])
    before = start[0][1] if start else None
    nodes = [int(place) for place in own["node.model"] if place >= 0]
    merged = merge_arrays(own, arrays, before, memory, nodes)
    if "model.renewed_lead" in own:  # a renewed model is that of one copy: it gets no weight
        has_renewed = own["model.renewed_model"] >= 0
        merged["model.renewed_lead"] = np.where(has_renewed, -MOST_LEAD, own["model.renewed_lead"])
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
    rows = _piece(arrays, "model.bend_feature", place)
    names = ("feature", "low", "high")
    return list(zip(*(arrays[f"model.bend_{name}"][rows].tolist() for name in names), strict=True))


# ---------------------------------------------------------------------- arrays of an engine
class Memory(NamedTuple):
    """The memory and the initial state of the simple models of a tree."""

    rows: float
    rows_per_input: float
    variance: float
    n_columns: int


def memory_of(model: DynamicModelTreeClassifier) -> Memory:
    """Return the parameters of the kernels."""
    tree: Any = model._tree
    constants = tree.evidence.constants
    window = tree.parameters.model_window
    return Memory(window, constants.rows_per_input, constants.variance, tree.engine.n_columns)


def merge_arrays(
    own: Arrays,
    copies: Sequence[Arrays],
    base: Arrays | None,
    memory: Memory,
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
    memory : Memory
        Of all of them.
    places : sequence of int
        Indices of the models to merge; `_same_model` maps them to those of a copy.
    """
    met = [_rows_of_models(one) for one in copies]
    gained = np.array([_n_rows(one) - (0 if base is None else _n_rows(base)) for one in copies])
    shares = gained / gained.sum() if gained.sum() > 0 else np.full(len(copies), 1 / len(copies))
    merged: dict[str, NDArray[Any]] = {
        name: np.average([one[name] for one in copies], axis=0, weights=shares) for name in SCALES
    }
    numbers = own["model.numbers"].copy()
    state = {
        name: own[f"model.{name}"].copy()
        for name in (*STATE, "scale", "trace")
        if f"model.{name}" in own
    }
    before = None if base is None else _rows_of_models(base)
    for place in places:
        told = []
        for other, rows in zip(copies, met, strict=True):
            there = _same_model(own, other, place)
            then = None if base is None else _same_model(own, base, place)
            n_rows = rows[there] - (0.0 if before is None or then is None else before[then])
            told.append(_CopyModel(Blend.read(other, there, memory), max(n_rows, 0.0), there))
        then = None if base is None else _same_model(own, base, place)
        start = None if base is None or then is None else Blend.read(base, then, memory)
        blend, weights = _merge_blends(told, start, memory, float(own["model.memory"][place]))
        numbers[_piece(own, "model.numbers", place)] = blend.to_numbers()
        for name in STATE:
            if name in state:
                found = [
                    other[f"model.{name}"][one.place]
                    for other, one in zip(copies, told, strict=True)
                ]
                state[name][place] = np.clip(np.dot(weights, found), min(found), max(found))
        state["scale"][place] = 1.0
        state["trace"][place] = np.trace(blend.covariance)
    merged["model.numbers"] = numbers
    return merged | {f"model.{name}": values for name, values in state.items()}


def _n_rows(arrays: Arrays) -> float:
    return float(arrays["clock"][0])


def _piece(arrays: Arrays, name: str, place: int) -> slice:
    lengths = arrays[f"{name}.lengths"]
    begin = int(lengths[:place].sum())
    return slice(begin, begin + int(lengths[place]))


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


# ---------------------------------------------------------------------- one simple model
class Blend(NamedTuple):
    """The numbers of a simple model; `kernels/blend_parts.hpp` has the same."""

    adagrad: NDArray[np.float64]  # [outputs, columns]
    squares: NDArray[np.float64]
    newton: NDArray[np.float64]
    covariance: NDArray[np.float64]  # [columns, columns]
    stride: int

    @classmethod
    def read(cls, arrays: Arrays, place: int, memory: Memory) -> Blend:
        """Return the model at an index."""
        columns = memory.n_columns + int(arrays["model.bend_feature.lengths"][place])
        n_outputs = 1 if int(arrays["n_classes"][0]) <= 2 else int(arrays["n_classes"][0])
        numbers = arrays["model.numbers"][_piece(arrays, "model.numbers", place)]
        stride = _stride(len(numbers), n_outputs)
        size = n_outputs * stride
        lines = numbers[: 3 * size].reshape(3, n_outputs, stride)[:, :, :columns]
        matrix = numbers[3 * size :].reshape(stride, stride)[:columns, :columns]
        covariance = matrix * float(arrays["model.scale"][place])
        return cls(lines[0], lines[1], lines[2], covariance, stride)

    def to_numbers(self) -> NDArray[np.float64]:
        """Return it in the layout of the kernels, padded to whole vectors."""
        columns = self.adagrad.shape[1]
        after = (0, self.stride - columns)
        lines = [np.pad(one, ((0, 0), after)) for one in self[:3]]
        return np.concatenate(
            [one.ravel() for one in (*lines, np.pad(self.covariance, (after, after)))]
        )


def _stride(n_numbers: int, n_outputs: int) -> int:
    """Return the stride of a model with so many numbers: 3 outputs stride + stride^2."""
    half = 1.5 * n_outputs
    return round(math.sqrt(half * half + n_numbers) - half)


class _CopyModel(NamedTuple):
    """A copy's version of a simple model, its number of rows, and its index."""

    blend: Blend
    n_rows: float
    place: int


def _merge_blends(
    told: Sequence[_CopyModel], base: Blend | None, memory: Memory, share: float
) -> tuple[Blend, NDArray[np.float64]]:
    """Return the merged model, and each copy's weight."""
    first = told[0].blend
    columns = first.adagrad.shape[1]
    rows = np.array([one.n_rows for one in told])
    weights = rows / rows.sum() if rows.sum() > 0 else np.full(len(told), 1 / len(told))
    if base is None:
        zeros = np.zeros_like(first.adagrad)
        base = Blend(zeros, zeros, zeros, memory.variance * np.eye(columns), first.stride)
    window = share * max(memory.rows, memory.rows_per_input * columns)
    start = _inverse(base.covariance)
    precision, pull = np.zeros_like(start), np.zeros_like(base.newton)
    left, least_known = 1.0, math.inf
    for one in sorted(told, key=lambda one: (one.n_rows, one.blend.newton.tobytes())):
        own = _inverse(one.blend.covariance)
        least = float(linalg.eigh(own, start, eigvals_only=True, subset_by_index=[0, 0])[0])
        faded = min((1.0 - 1.0 / window) ** one.n_rows, max(least, 0.0), 1.0)
        precision += own - faded * start
        pull += one.blend.newton @ own - faded * (base.newton @ start)
        left *= faded
        least_known = min(least_known, float(np.linalg.eigvalsh(own)[0]))
    precision += left * start
    pull += left * (base.newton @ start)
    # Where no copy gained information, all have discounted the base: be no less certain than each.
    known, directions = np.linalg.eigh(precision)
    lift = (directions * np.maximum(least_known - known, 0.0)) @ directions.T
    mean = sum(weight * one.blend.newton for weight, one in zip(weights, told, strict=True))
    covariance = _inverse(precision + lift)
    pull += mean @ lift
    squares = base.squares + sum(np.maximum(one.blend.squares - base.squares, 0.0) for one in told)
    adagrad = sum(weight * one.blend.adagrad for weight, one in zip(weights, told, strict=True))
    return Blend(adagrad, squares, pull @ covariance, covariance, first.stride), weights


def _inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of a positive matrix, which is exactly symmetric."""
    symmetric = (matrix + matrix.T) / 2
    found = np.linalg.inv(symmetric)
    return np.asarray((found + found.T) / 2)


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
        The same, bit for bit, for any number of workers. A new forest equals that of `partial_fit`
        with batches of 1,000 rows.

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
            base = tree.engine.arrays()
            found = spread(pickle.dumps(model), cuts)
            copies = [arrays for _, arrays in found]
            used = np.flatnonzero(base["model.numbers.lengths"]).tolist()
            merged = merge_arrays(base, copies, base, memory_of(model), used)
            whole = {**base, **merged, **_merge_scales(base, copies)}
            tree.restore({"arrays": whole, "history": tree.history})
            tree.engine.absorb(reduce(add, [_restored(sums) for sums, _ in found]))
            if tree.engine.has_due:
                tree.decide()


def learn_slice(data: bytes, rows: RowSlice) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sums of rows for the tree, and its models after learning them."""
    model = pickle.loads(data)
    engine, size = model._tree.engine, model._tree.step_rows
    sums = engine.accumulate(*rows)
    for start in range(0, len(rows.X), size):
        engine.learn(*(column[start : start + size] for column in rows))
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
    return [learn_slice(data, rows) for rows in slices]


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
            asked.append(learn.remote(sent, rows))
        return list(ray.get(asked))

    return spread
