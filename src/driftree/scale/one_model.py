"""One model, many workers: the rows of a step are cut into a fixed number of chunks.

Each chunk is learnt by a copy of the model, which takes no decision. What the rows say about the
tree are sums over rows, which are added up in the order of the chunks; the simple models are merged
as `merge` does it; then the driver decides, once. What a chunk brings depends on the model and on
its rows alone, so results do not depend on how many workers there are, nor on how often one dies.
"""

from __future__ import annotations

import pickle
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn import encoding
from driftree.learn._kernels import MeasuredSums
from driftree.scale.merging import check_kind, check_mergeable, memory_of, merge_arrays
from driftree.streams.rows import cut
from driftree.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from driftree.estimators import DynamicModelTreeClassifier

CHUNKS = 2
STEP_ROWS = 500
# What the driver has to know of a copy that has learnt.
NEEDED = ("model.", "node.model", "node.rows", "trial.", "bend_trial.model", "scale_", "clock")


class Chunk(NamedTuple):
    """Some rows of a step, encoded."""

    X: NDArray[np.float64]
    codes: NDArray[np.float64]
    weights: NDArray[np.float64]


def fit(
    model: DynamicModelTreeClassifier,
    stream: Any,
    *,
    workers: int | None = None,
    chunks: int = CHUNKS,
    step_rows: int = STEP_ROWS,
) -> DynamicModelTreeClassifier:
    """Let one model learn a stream, the rows of each step spread over Ray workers.

    It seldom pays: sending a step and merging take longer than learning it, unless a row is
    expensive. docs/scale.md has the figures. Many models scale (`KeyedModels`); one does not.

    Parameters
    ----------
    model : DynamicModelTreeClassifier
        In the measured setting. It learns in place.
    stream : stream, path or data set
        What `driftree.streams.open_stream` takes. Features are the same in all batches.
    workers : int, optional
        Steps of how many chunks Ray may work on at the same time; None: this process does it.
    chunks : int, default=2
        Into how many chunks a step is cut, row by row in turn. Results depend on it: with more,
        each copy knows fewer of the rows before.
    step_rows : int, default=500
        Rows of a step; the tree may change once after each.

    Returns
    -------
    DynamicModelTreeClassifier
        The model: the same, bit for bit, for any number of workers.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale import fit
    >>> from driftree.streams import sea
    >>> model = fit(DynamicModelTreeClassifier(), sea(5000))
    >>> model.n_rows_seen_
    5000
    """
    for name, value in (("chunks", chunks), ("step_rows", step_rows)):
        if not value >= 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    check_kind(model)
    spread = _here if workers is None else _on_ray(workers)
    for X, y in cut(open_stream(stream).batches(), step_rows):
        if model._tree is None:
            model.partial_fit(X, y)
        else:
            _step(model, X, y, chunks, spread)
    return model


def _step(
    model: DynamicModelTreeClassifier,
    X: Any,
    y: Any,
    n_chunks: int,
    spread: Callable[[bytes, list[Chunk]], list[Any]],
) -> None:
    """Take one step with the rows of a batch."""
    check_mergeable(model)
    with model._learning():
        lesson = model._read(X, y, None)
        tree: Any = model._tree
        if lesson is None:
            return
        with tree.engine.writing():
            encoding.commit(tree, lesson.news, lesson.answers.new)
            tree.finish()
            codes = lesson.answers.codes.astype(np.float64)
            places = [slice(i, None, n_chunks) for i in range(min(n_chunks, len(codes)))]
            cuts = [Chunk(lesson.X[rows], codes[rows], lesson.w[rows]) for rows in places]
            base = tree.engine.arrays()
            found = spread(pickle.dumps(model), cuts)
            parts = [part for _, part in found]
            used = np.flatnonzero(base["model.numbers.lengths"]).tolist()
            merged = merge_arrays(base, parts, base, memory_of(model), used)
            tree.engine.restore({**base, **merged, **_merge_scales(base, parts)})
            tree.engine.absorb(reduce(add, [_restored(sums) for sums, _ in found]))
            if tree.engine.has_due:
                tree.decide()


def learn_chunk(data: bytes, chunk: Chunk) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a chunk says about the tree, and what its models become by it."""
    model = pickle.loads(data)
    engine, size = model._tree.engine, model._tree.step_rows
    sums = engine.accumulate(*chunk)
    for start in range(0, len(chunk.X), size):
        engine.learn(*(part[start : start + size] for part in chunk))
    arrays = engine.arrays()
    kept = {name: array for name, array in arrays.items() if name.startswith(NEEDED)}
    return sums.arrays(), {**kept, "n_classes": arrays["n_classes"]}


def _restored(arrays: dict[str, Any]) -> MeasuredSums:
    sums = MeasuredSums()
    sums.restore(arrays)
    return sums


def _merge_scales(base: Any, parts: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return counts, means and squares of the features over the rows of all parts."""

    def moments(arrays: Any) -> NDArray[np.float64]:
        weight, mean = arrays["scale_weight"], arrays["scale_mean"] - centre
        return np.array([weight, weight * mean, arrays["scale_squares"] + weight * mean * mean])

    centre = base["scale_mean"]
    start = moments(base)
    weight, first, second = start + sum(moments(part) - start for part in parts)
    mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
    return {
        "scale_weight": weight,
        "scale_mean": centre + mean,
        "scale_squares": np.maximum(second - weight * mean * mean, 0.0),
        "scale_low": np.min([part["scale_low"] for part in parts], axis=0),
        "scale_high": np.max([part["scale_high"] for part in parts], axis=0),
        "scale_is_indicator": np.min([part["scale_is_indicator"] for part in parts], axis=0),
    }


# ---------------------------------------------------------------------- where
def _here(data: bytes, chunks: list[Chunk]) -> list[Any]:
    return [learn_chunk(data, chunk) for chunk in chunks]


def _on_ray(workers: int) -> Callable[[bytes, list[Chunk]], list[Any]]:
    """Return what spreads chunks over Ray: pure tasks, which Ray may repeat as it likes."""
    from driftree.scale.ray import import_ray

    if not workers >= 1:
        raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
    ray = import_ray()
    learn = ray.remote(learn_chunk).options(max_retries=-1)

    def spread(data: bytes, chunks: list[Chunk]) -> list[Any]:
        sent = ray.put(data)  # once per step
        asked: list[Any] = []
        for chunk in chunks:
            if len(asked) >= workers:
                ray.wait(asked, num_returns=len(asked) - workers + 1)
            asked.append(learn.remote(sent, chunk))
        return list(ray.get(asked))

    return spread
