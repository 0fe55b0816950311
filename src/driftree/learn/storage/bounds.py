"""Bounds: how large the arrays of a model may be, checked before they are read.

The lengths of arrays are given in the file, and a sparse file can claim much with little disk
space. So lengths must follow from what was read before: numbers of features and labels from their
names in the manifest, nodes and trials from the arrays of links, and the parts of models, grids and
stores from these. Here are only upper bounds; `Engine.restore` checks the exact lengths. Small
files cannot take much memory, and are checked only there.
"""

from __future__ import annotations

import functools
from operator import gt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.learn._kernels import BORDER_SUMS, LANES, MAX_KEYS, MAX_LEVELS, SKETCH
from driftree.learn.constants import MEASURED, STRAIGHT
from driftree.learn.history import MAX_BYTES, MAX_ENTRANTS, MAX_NODES, MAX_SAMPLES
from driftree.learn.memory import MOST_BYTES
from driftree.learn.parameters import RANGES
from driftree.learn.storage import ModelFileError, manifest
from driftree.learn.storage.container import FileArrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from driftree.learn.storage.container import Sized

    Read = Callable[[str], NDArray[Any]]

Item = TypeVar("Item")
TREES = "trees"  # of a forest, in what it has learnt
FOREST_PREFIX = "forest."
MOST_FOREST = 2**22  # bytes of the arrays of the forest itself
LITTLE = 2**16  # bytes of all arrays that are not checked here
LENGTHS = ".lengths"  # at the end of the name of a packed list's lengths


SPARSE_NAMES = "names.sparse"
SEEN_PREFIX = "seen."  # prefix of label statistics
MOST_SEEN = 2**16  # numbers of it
MOST_LEVELS = 100  # of intervals or quantiles of a number
MOST_NAME_BYTES = 1024  # of a sparse feature on average, as JSON
MOST_WATCHED = 2**16  # rows that are kept, and checks


class _Size(NamedTuple):
    """The sizes that determine lengths."""

    n_features: int
    n_labels: int
    n_nodes: int
    n_trials: int
    max_features: int
    n_name_bytes: int
    n_quantiles: int

    @property
    def n_outputs(self) -> int:
        """Linear predictors of a row: one per label if there are more than two, or quantile."""
        return max(self.n_quantiles, self.n_labels if self.n_labels > 2 else 1)

    @property
    def n_sparse(self) -> int:
        """Largest number of sparse features: each has a name, of at least two bytes and a comma."""
        return self.n_name_bytes // 3 + 1


def check(contents: Any, entries: Mapping[str, Sized], read: Read) -> None:
    """Raise if an array is longer than possible in such a model.

    Parameters
    ----------
    contents : object
        The model as in the file.
    entries : mapping of str to ArrayEntry or ndarray
        Shapes and bytes of the arrays.
    read : callable
        Reads one of them.
    """
    learnt = contents.get("learnt") if isinstance(contents, dict) else None
    if type(learnt) is dict and TREES in learnt:
        _check_forest(learnt, entries, read)
        return
    if type(learnt) is not dict:  # nothing was learnt, or it is not a model
        if entries:
            raise ModelFileError(f"array {min(entries)!r} is not part of such a model")
        return
    if _count_bytes(entries) <= LITTLE:
        return
    shapes = {name: entry.shape for name, entry in entries.items()}
    lengths = {name: shape[0] for name, shape in shapes.items() if len(shape) == 1}
    if len(lengths) < len(entries):
        wrong = min(entries.keys() - lengths.keys())
        raise ModelFileError(f"{wrong!r} has a wrong shape: it must have one dimension")
    size = _Size(
        len(manifest.items(learnt.get("names"), "the names")),
        len(manifest.items(learnt.get("labels"), "the labels")),
        lengths.get("node.parent", 0),
        lengths.get("trial.feature", 0),
        _max_features(learnt),
        lengths.get(SPARSE_NAMES, 0),
        lengths.get("target_offset", 0),
    )
    if lengths.get("is_categorical", size.n_features) != size.n_features:
        raise ModelFileError(f"the names are not those of {lengths['is_categorical']} features")
    _need("node.parent", size.n_nodes, int(RANGES["max_nodes"].high))
    _need("trial.feature", size.n_trials, size.n_nodes * int(RANGES["trials"].high))
    parts = {name[: -len(LENGTHS)] for name in lengths if name.endswith(LENGTHS)}
    parts &= lengths.keys()
    for name, length in lengths.items():
        if length > 1 and name not in parts:
            _need(name, length, _rule(name)(size))
    if parts:
        _check_parts(parts, size, entries, read)


def _check_forest(learnt: dict[str, Any], entries: Mapping[str, Sized], read: Read) -> None:
    """Check each tree's arrays, and those of the forest itself."""
    for i, tree in enumerate(manifest.items(learnt[TREES], "the trees")):
        own = arrays_of(tree_prefix(i), entries)
        check({"learnt": tree}, own, _reader_of(tree_prefix(i), read))
    n_bytes = _count_bytes(arrays_of(FOREST_PREFIX, entries))
    if n_bytes > MOST_FOREST:
        raise ModelFileError(
            f"the arrays of the forest itself take {n_bytes:,} bytes, which is too much"
        )


def _count_bytes(entries: Mapping[str, Sized]) -> int:
    if isinstance(entries, FileArrays):
        return entries.nbytes
    return sum(entry.nbytes for entry in entries.values())


def _reader_of(prefix: str, read: Read) -> Read:
    return lambda name: read(prefix + name)


def tree_prefix(i: int) -> str:
    """Return the prefix of the array names of a forest's tree."""
    return f"tree{i}."


def arrays_of(prefix: str, arrays: Mapping[str, Item]) -> Mapping[str, Item]:
    """Return the arrays with a prefix, by the rest of their names."""
    if isinstance(arrays, FileArrays):
        return FileArrays(arrays.stored.under(prefix))
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def _max_features(learnt: dict[str, Any]) -> int:
    parameters = learnt.get("parameters")
    most = parameters.get("max_features", 0) if type(parameters) is dict else 0
    return most if type(most) is int and 0 <= most <= RANGES["max_features"].high else 0


def _need(name: str, length: int, longest: int) -> None:
    """Raise if an array is too long."""
    if length > longest:
        what = "number of" if name.endswith(LENGTHS) else "length:"
        raise ModelFileError(
            f"{name.removesuffix(LENGTHS)!r} has a wrong {what} {length:,}: by the rest of the "
            f"file, at most {longest:,} are possible"
        )


# Largest length of an array that is not packed, by its prefix.
LONGEST: dict[str, Callable[[_Size], int]] = {
    "history.sample.": lambda size: MAX_SAMPLES,
    "history.sampled.": lambda size: MAX_BYTES // 4,
    "history.node.": lambda size: max(MAX_NODES, size.n_nodes),
    "history.entrant.": lambda size: max(MAX_NODES, size.n_nodes) * MAX_ENTRANTS,
    "trial.": lambda size: size.n_trials,
    "scale_": lambda size: size.n_features,
    "is_categorical": lambda size: size.n_features,
    "value_column": lambda size: size.n_features,
    "missing_column": lambda size: size.n_features,
    "level_column": lambda size: size.n_features * (MAX_LEVELS + 1),
    "place": lambda size: size.n_labels,
    "target_": lambda size: MOST_LEVELS,
    "label_reach": lambda size: MOST_LEVELS,
    SEEN_PREFIX: lambda size: MOST_SEEN,
    SPARSE_NAMES: lambda size: MOST_NAME_BYTES * size.max_features,
    "sparse_": lambda size: size.n_sparse,
    "watch_rows": lambda size: MOST_WATCHED * max(1, size.n_features),
    "watch_": lambda size: MOST_WATCHED,
    # A node may have one on trial, a leaf a second one; and there is the challenger.
    "model.": lambda size: 3 * size.n_nodes + 2 * size.n_trials + 1,
    "": lambda size: max(1, size.n_nodes),  # of a node, or a single number
}


@functools.lru_cache(1000)
def _rule(name: str) -> Callable[[_Size], int]:
    return next(rule for start, rule in LONGEST.items() if name.startswith(start))


# ---------------------------------------------------------------------- packed parts
def _check_parts(parts: set[str], size: _Size, entries: Mapping[str, Sized], read: Read) -> None:
    n_inputs = count_inputs(entries, read)
    has_stride = "stride" in entries and entries["stride"].shape == (1,)
    stride = int(read("stride")[0]) if has_stride else 0
    if not 0 <= stride <= 2 * n_inputs + 16:  # it grows by a quarter
        raise ModelFileError(f"'stride' does not fit {n_inputs} inputs")
    longest = _longest_parts(size, stride)
    lengths: dict[str, list[int]] = {}
    for name in parts:
        if name not in longest:
            raise ModelFileError(f"{name!r} is not an array of this engine")
        lengths[name] = own = read(name + LENGTHS).tolist()
        if own and not (min(own) >= 0 and max(own) <= longest[name]):
            raise ModelFileError(f"{name!r} has wrong lengths: 0 to {longest[name]:,} may be")
        if sum(own) != entries[name].shape[0]:
            raise ModelFileError(f"{name!r} has values that belong to no item")
    n_outputs = size.n_outputs
    n_weights = n_outputs * (stride + (SKETCH if size.n_name_bytes else 0))
    bends = lengths.get("model.bend_feature", [])
    for own, n_bends in zip(lengths.get("model.numbers", []), bends, strict=False):
        if own > _model_numbers(stride, n_outputs, n_bends):
            raise ModelFileError("'model.numbers' has a wrong length")
    for name, of in PER_WEIGHT.items():
        own, places = lengths.get(name, []), lengths.get(of, [])
        if len(own) != len(places) or any(map(gt, own, (n * n_weights for n in places))):
            raise ModelFileError(f"{name!r} has a wrong length")
    n_alive = int(np.count_nonzero(read("node.is_alive"))) if "node.is_alive" in entries else 0
    n_bytes = sum(entries[name].nbytes for name in parts)
    if n_bytes > 2 * MOST_BYTES * max(1, n_alive):  # twice: a stride may be a quarter too wide
        raise ModelFileError(f"{n_alive} nodes cannot take {n_bytes / 2**30:,.1f} GiB")


def count_inputs(entries: Mapping[str, object], read: Read) -> int:
    """Return the number of inputs of the simple models, including the intercept."""
    columns = ("value_column", "missing_column", "level_column")
    return 1 + sum(int(np.count_nonzero(read(name) >= 0)) for name in columns if name in entries)


# Arrays with as many numbers per weight as another array has.
PER_WEIGHT = {
    "grid.gradients": "grid.edges",
    "candidates.gradient_left": "candidates.feature",
    "candidates.gradient_before": "candidates.feature",
}


def _model_numbers(stride: int, n_outputs: int, n_bends: int) -> int:
    """Return how many numbers a model may have: three per weight, and one per pair of inputs."""
    stride += -(-n_bends // LANES) * LANES
    return 3 * n_outputs * stride + stride**2


def _longest_parts(size: _Size, stride: int) -> dict[str, int]:
    """Return the largest number of values of one item of a list."""
    n_features, n_labels = size.n_features, max(2, size.n_labels)
    n_sums = max(3, n_labels)  # a number has three
    n_outputs = size.n_outputs
    n_weights = n_outputs * (stride + (SKETCH if size.n_name_bytes else 0))
    n_slots = n_features * (int(RANGES["bins"].high) + 2)
    n_bends = int(RANGES["max_bends"].high)
    n_first_rows = max(MEASURED.first_rows, STRAIGHT.first_rows)
    n_stored = n_features * int(RANGES["candidates"].high)
    figures = ("feature", "value", "n_left", "loss_left", "n_before", "loss_before", "gain")
    return {
        "model.numbers": _model_numbers(stride, n_outputs, n_bends),
        "model.sparse_ids": size.n_sparse,
        "model.sparse_numbers": size.n_sparse * (1 + 3 * n_outputs),
        **dict.fromkeys((f"model.bend_{part}" for part in ("feature", "low", "high")), n_bends),
        "sums.class_rows": n_labels,
        "sums.border_sums": BORDER_SUMS,
        "node_gradient.sum": n_weights,
        "grid.total": n_weights,
        "grid.first_slot": n_features + 1,
        "grid.implied": n_features,
        "grid.first_rows": n_features * n_first_rows,
        **dict.fromkeys(("grid.edges", "grid.counts", "grid.barred_until"), n_slots),
        "grid.gradients": n_slots * n_weights,
        **dict.fromkeys((f"candidates.{figure}" for figure in figures), n_stored),
        "candidates.gradient_left": n_stored * n_weights,
        "candidates.gradient_before": n_stored * n_weights,
        "split_points.counts": n_sums,
        "split_points.n_keys": n_features,
        "split_points.root": n_features,
        "split_points.present": n_features * n_sums,
        "split_points.keys": n_features * MAX_KEYS * (2 + n_sums),
    }
