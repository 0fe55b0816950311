"""Bounds: how large the arrays of a model may be, looked at before they are read.

A file says itself how long its arrays are, and a file with holes can say much on little disk. So a
length must follow from what was read before: numbers of features and labels from their names in the
manifest, nodes and trials from the arrays of links, and the parts of models, grids and stores from
these. Here are upper bounds only; the exact lengths are looked at by `Engine.restore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn._kernels import MAX_KEYS, MAX_LEVELS
from driftree.learn.evidence import MAX_ENTRANTS, MeasuredTrials
from driftree.learn.history import MAX_BYTES, MAX_NODES, MAX_SAMPLES
from driftree.learn.memory import MOST_BYTES
from driftree.learn.parameters import RANGES
from driftree.learn.storage import json_values
from driftree.learn.storage.container import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from driftree.learn.storage.container import Entry

    Read = Callable[[str], NDArray[Any]]

HEAD = 8  # numbers before the weights of a model


class _Size(NamedTuple):
    """What lengths follow from."""

    n_features: int
    n_labels: int
    n_nodes: int
    n_trials: int


def check(contents: Any, entries: Mapping[str, Entry], read: Read) -> None:
    """Raise if an array is longer than it can be in such a model.

    Parameters
    ----------
    contents : object
        The model, as a file has it.
    entries : mapping of str to Entry
        What the file says of its arrays.
    read : callable
        Reads one of them.
    """
    learnt = contents.get("learnt") if type(contents) is dict else None
    if type(learnt) is not dict:  # nothing was learnt, or it is no model at all
        if entries:
            raise ModelFileError(f"array {min(entries)!r} is not part of such a model")
        return
    lengths = {}
    for name, entry in entries.items():
        if len(entry.shape) != 1:
            raise ModelFileError(f"{name!r} is of a wrong shape, it must have one dimension")
        lengths[name] = entry.shape[0]
    size = _Size(
        len(json_values.items(learnt.get("names"), "the names")),
        len(json_values.items(learnt.get("labels"), "the labels")),
        lengths.get("parent", 0),
        lengths.get("trial_feature", 0),
    )
    if lengths.get("is_categorical", size.n_features) != size.n_features:
        raise ModelFileError(f"the names are not those of {lengths['is_categorical']} features")
    need(lengths, "parent", int(RANGES["max_nodes"].high))
    need(lengths, "trial_feature", size.n_nodes * int(RANGES["trials"].high))
    parts = {name for name in lengths if f"{name}.lengths" in lengths}
    for name in lengths.keys() - parts:
        need(lengths, name, _longest(name, size))
    if parts:
        _check_parts(parts, size, entries, read)


def need(lengths: Mapping[str, int], name: str, longest: int) -> None:
    """Raise if an array is too long."""
    if lengths.get(name, 0) > longest:
        what = "number of" if name.endswith(".lengths") else "length:"
        raise ModelFileError(
            f"{name.removesuffix('.lengths')!r} has a wrong {what} {lengths[name]:,}, and at most "
            f"{longest:,} follow from the rest of the file"
        )


def _longest(name: str, size: _Size) -> int:
    """Return how long an array may be that is not packed."""
    n_sampled = max(MAX_NODES, size.n_nodes)
    for start, longest in (
        ("history.sample.", MAX_SAMPLES),
        ("history.sampled.", MAX_BYTES // 4),
        ("history.node.", n_sampled),
        ("history.entrant.", n_sampled * MAX_ENTRANTS),
        ("trial_", size.n_trials),
        ("scale_", size.n_features),
        ("is_categorical", size.n_features),
        ("value_column", size.n_features),
        ("missing_column", size.n_features),
        ("level_column", size.n_features * (MAX_LEVELS + 1)),
        ("place", size.n_labels),
        ("model.memory.lengths", size.n_nodes + 2 * size.n_trials + 1),
    ):
        if name.startswith(start):
            return longest
    return max(1, size.n_nodes)  # of a node, or a single number


# ---------------------------------------------------------------------- packed parts
def _check_parts(parts: set[str], size: _Size, entries: Mapping[str, Entry], read: Read) -> None:
    n_inputs = 1 + sum(
        int((read(name) >= 0).sum())
        for name in ("value_column", "missing_column", "level_column")
        if name in entries
    )
    stride = int(read("stride")[0]) if entries.get("stride", ((), (0,)))[1] == (1,) else 0
    if not 0 <= stride <= 2 * n_inputs + 16:  # it grows by a quarter when it has to
        raise ModelFileError(f"'stride' does not fit {n_inputs} inputs")
    longest = _longest_parts(size, stride)
    lengths: dict[str, NDArray[Any]] = {}
    for name in parts:
        if name not in longest:
            raise ModelFileError(f"{name!r} is among arrays that this engine does not know")
        lengths[name] = own = read(f"{name}.lengths")
        if ((own < 0) | (own > longest[name])).any():
            raise ModelFileError(f"{name!r} has wrong lengths: 0 to {longest[name]:,} may be")
        if sum(own.tolist()) != entries[name].shape[0]:
            raise ModelFileError(f"{name!r} has parts of no item")
    n_weights = (size.n_labels if size.n_labels > 2 else 1) * stride
    for name, of in (
        ("grid.gradients", "grid.edges"),
        ("candidates.gradient_left", "candidates.feature"),
        ("candidates.gradient_before", "candidates.feature"),
    ):
        none = np.zeros(0, dtype=np.int64)
        own, places = lengths.get(name, none), lengths.get(of, none)
        if len(own) != len(places) or (own > places * n_weights).any():
            raise ModelFileError(f"{name!r} has a wrong length")
    n_alive = int(read("alive").astype(bool).sum()) if "alive" in entries else 0
    n_bytes = sum(entries[name].n_bytes for name in parts)
    if n_bytes > 2 * MOST_BYTES * max(1, n_alive):  # twice: a stride may be a quarter too wide
        raise ModelFileError(f"{n_alive} nodes cannot take {n_bytes / 2**30:,.1f} GiB")


def _longest_parts(size: _Size, stride: int) -> dict[str, int]:
    """Return how many numbers one item of a list may have."""
    n_features, n_labels = size.n_features, max(2, size.n_labels)
    n_weights = (n_labels if n_labels > 2 else 1) * stride
    n_slots = n_features * (int(RANGES["bins"].high) + 2)
    n_stored = n_features * int(RANGES["candidates"].high)
    figures = ("feature", "value", "n_left", "loss_left", "n_before", "loss_before", "gain")
    return {
        "model.memory": HEAD + 3 * n_weights + stride**2,
        "class_rows.count": n_labels,
        "node_gradient.sum": n_weights,
        "grid.total": n_weights,
        "grid.first_slot": n_features + 1,
        "grid.implied": n_features,
        "grid.first_rows": n_features * MeasuredTrials.FIRST_ROWS,
        **dict.fromkeys(("grid.edges", "grid.counts", "grid.barred_until"), n_slots),
        "grid.gradients": n_slots * n_weights,
        **dict.fromkeys((f"candidates.{figure}" for figure in figures), n_stored),
        "candidates.gradient_left": n_stored * n_weights,
        "candidates.gradient_before": n_stored * n_weights,
        "split_points.counts": n_labels,
        "split_points.n_keys": n_features,
        "split_points.root": n_features,
        "split_points.present": n_features * n_labels,
        "split_points.keys": n_features * MAX_KEYS * (2 + n_labels),
    }
