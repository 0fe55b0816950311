"""Sparse: explanations of sparse features, by name and in their units.

Such a feature is 0 where it is absent, and adds nothing there. So the cost of explaining rows
depends on the features that they hold, and that of explaining a model on its number of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array

from driftree.learn.validation import distinct_texts

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine
    from driftree.learn.columns import Batch
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree

Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Ids = np.ndarray[tuple[int, ...], np.dtype[np.int32]]


# ---------------------------------------------------------------------- names
def sparse_texts(encoder: Encoder, ids: Ids) -> list[str]:
    """Return the names of sparse features as texts, each different from those of all features."""
    names, features = encoder.row_face.sparse_names(), sparse_engine(encoder).sparse_feature
    own = [names[i] for i in ids.tolist()]
    known = [(text, text) for text in encoder.display_names]
    fresh = [(str(name), repr(name)) for name, i in zip(own, ids, strict=True) if features[i] < 0]
    texts, precise = zip(*(known + fresh), strict=True) if known or fresh else ((), ())
    distinct = iter(distinct_texts(texts, precise)[len(known) :])
    shown = encoder.display_names
    return [next(distinct) if features[i] < 0 else shown[features[i]] for i in ids]


def sparse_engine(encoder: Encoder) -> MeasuredEngine:
    """Return the engine of a model that has sparse features: those of the measured setting have."""
    return cast("MeasuredEngine", encoder.engine)


def unknown_names(encoder: Encoder, x: Mapping[Any, object]) -> list[Hashable]:
    """Return the names in a row that have no weight; a text is a feature for each of its levels."""
    if encoder.sparse is None:
        return [name for name in x if name not in encoder.names]
    names = [f"{name} == {value}" if isinstance(value, str) else name for name, value in x.items()]
    ids = encoder.row_face.sparse_ids(names, learning=False, centred=False)
    return [name for name, place in zip(names, ids or (), strict=True) if place < 0]


def n_forgotten(encoder: Encoder) -> int:
    """Return how many names were evicted."""
    return 0 if encoder.sparse is None else sparse_engine(encoder).n_given_up


def say_forgotten(encoder: Encoder) -> str:
    """Describe how many names were evicted; empty if none."""
    count = n_forgotten(encoder)
    names = "1 rare name was" if count == 1 else f"{count:,} rare names were"
    return f"{names} forgotten (max_features)" if count else ""


# ---------------------------------------------------------------------- rows
def known_matrix(encoder: Encoder, batch: Batch) -> NDArray[np.float64]:
    """Return the values of the encoder's features, [rows, features]; it may be the user's array."""
    if batch.sparse is None:
        return batch.matrix
    features = sparse_engine(encoder).sparse_feature[batch.sparse.ids]
    has_place = np.flatnonzero(features >= 0)
    own = np.nan_to_num(encoder.engine.absent)  # inputs that the model computes itself are not 0
    matrix = np.tile(own, (len(batch.sparse), 1))
    matrix[_rows_of(batch.sparse.begin)[has_place], features[has_place]] = batch.sparse.values[
        has_place
    ]
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The features that rows hold besides the encoder's.

    Attributes
    ----------
    names : list of str
        The features: those that occur in the rows.
    data : csr_array of shape (rows, names)
        Their values.
    values : list of csr_array
        Per output the contributions to the log-odds, at the same positions.
    """

    names: list[str]
    data: csr_array
    values: list[csr_array]

    def some(self, rows: slice | NDArray[Any]) -> Held:
        """Return some of the rows."""
        return Held(self.names, self.data[rows], [own[rows] for own in self.values])

    def row(self, i: int) -> tuple[list[str], Doubles, Doubles]:
        """Return the names that a row holds, their values and contributions, [names, outputs]."""
        begin, end = self.data.indptr[i], self.data.indptr[i + 1]
        names = [self.names[j] for j in self.data.indices[begin:end].tolist()]
        return names, self.data.data[begin:end], self._added(begin, end)

    def _added(self, begin: int, end: int) -> Doubles:
        return np.stack([own.data[begin:end] for own in self.values], axis=1)

    def dense(self) -> tuple[Doubles, Doubles]:
        """Return values [rows, names] and contributions [rows, names, outputs] as dense arrays."""
        return self.data.toarray(), np.stack([own.toarray() for own in self.values], axis=2)


def contribute(
    tree: Tree,
    encoder: Encoder,
    batch: Batch,
    leaves: NDArray[np.int32],
    values: Doubles,
    *,
    outputs: slice,
) -> Held | None:
    """Add the contributions of sparse inputs to `values`, [rows, features, outputs].

    Return those of features that `values` does not have. `outputs` are those that `values` has. The
    cost depends on the features that the rows hold, and on one pass over each leaf's weights.
    """
    if batch.sparse is None:
        return None
    engine = sparse_engine(encoder)
    begin, ids, z = engine.sparse_inputs(batch.sparse)
    rows, added = _rows_of(begin), np.zeros((len(ids), values.shape[2]))
    for leaf in np.unique(leaves).tolist():
        here = np.flatnonzero(leaves[rows] == leaf)
        own = weights_of(engine, leaf, ids[here])[:, outputs] * tree.target.unit.factor
        added[here] = own * z[here, None]
    features = engine.sparse_feature[ids]
    is_known = features >= 0
    np.add.at(values, (rows[is_known], features[is_known]), added[is_known])
    return _gather(encoder, batch, rows[~is_known], ids[~is_known], added[~is_known])


def weights_of(engine: MeasuredEngine, node: int, ids: Ids) -> Doubles:
    """Return the weights that a node's model has for some sparse inputs, [ids, outputs]."""
    own, weights = engine.sparse_weights(node)
    places = np.full(len(engine.sparse_feature), -1)
    places[own] = np.arange(len(own))
    found = places[ids]
    result = np.zeros((len(ids), engine.n_outputs))
    result[found >= 0] = weights[found[found >= 0]]
    return result


def _gather(
    encoder: Encoder, batch: Batch, rows: NDArray[np.intp], ids: Ids, added: Doubles
) -> Held:
    assert batch.sparse is not None
    columns, places = np.unique(ids, return_inverse=True)
    is_sparse = sparse_engine(encoder).sparse_feature[batch.sparse.ids] < 0
    shape = len(batch.sparse), len(columns)

    def matrix(numbers: Doubles) -> csr_array:
        return csr_array((numbers, (rows, places.reshape(-1))), shape)

    data = matrix(batch.sparse.values[is_sparse])
    return Held(sparse_texts(encoder, columns), data, [matrix(own) for own in added.T])


def _rows_of(begin: NDArray[np.int64]) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(begin) - 1), np.diff(begin))


# ---------------------------------------------------------------------- models
class SparseInput(NamedTuple):
    """A sparse input of a node's model in the user's units: see `LeafModel`."""

    name: str
    weight: float
    effect: float
    is_number: bool


class NodeWords(NamedTuple):
    """The sparse inputs of a node's model, per output the strongest first.

    Attributes
    ----------
    inputs : list of list of SparseInput
        Per output.
    n_inputs : int
        How many there are, including those left out.
    intercept : array of shape (outputs,)
        Their sum for a row that holds none of them.
    """

    inputs: list[list[SparseInput]]
    n_inputs: int
    intercept: Doubles

    @property
    def numbers(self) -> frozenset[str]:
        """Names of those with values other than 0 and 1."""
        return frozenset(one.name for own in self.inputs for one in own if one.is_number)


def node_words(tree: Tree, encoder: Encoder, node: int, most: int | None = None) -> NodeWords:
    """Return the sparse inputs of a node's model; at most so many per output, the strongest."""
    n_outputs = tree.engine.n_outputs
    if encoder.sparse is None:
        return NodeWords([[] for _ in range(n_outputs)], 0, np.zeros(n_outputs))
    engine = sparse_engine(encoder)
    ids, weights = engine.sparse_weights(node)
    weights = weights * tree.target.unit.factor
    shift, factor = sparse_scales(engine, ids)
    told = [strongest(own, most) for own in weights.T]
    used = np.unique(np.concatenate(told))
    texts = dict(zip(used.tolist(), sparse_texts(encoder, ids[used]), strict=True))
    is_number = (engine.sparse_mean[ids] != 1.0) | (engine.sparse_squares[ids] != 0.0)
    inputs = [
        [
            SparseInput(
                texts[i], float(own[i] * factor[i]), float(own[i]), is_number=bool(is_number[i])
            )
            for i in places.tolist()
        ]
        for own, places in zip(weights.T, told, strict=True)
    ]
    return NodeWords(inputs, len(ids), -(weights * (factor * shift)[:, None]).sum(axis=0))


def sparse_scales(engine: MeasuredEngine, ids: Ids) -> tuple[Doubles, Doubles]:
    """Return shift and factor of sparse inputs: input = (value - shift) * factor, within 1.5.

    The kernels say it in `sparse.hpp`: by the root of the mean square, so that 0 stays 0; centred,
    by mean and two standard deviations, and what is not held counts as the mean.
    """
    weight, mean, spread = _moments(engine, ids)
    with np.errstate(divide="ignore"):
        centred = 0.5 / np.sqrt(spread)
        plain = 1.0 / np.sqrt(spread + mean**2)
    is_centred = engine.sparse_is_centred[ids] != 0
    factor = np.where(is_centred, centred, plain)
    factor[~np.isfinite(factor) | (weight <= 0)] = 0.0
    return np.where(is_centred, mean, 0.0), factor


def sparse_spread(engine: MeasuredEngine, ids: Ids) -> Doubles:
    """Return two standard deviations of sparse inputs over all rows, including zeros."""
    shift, factor = sparse_scales(engine, ids)
    weight, mean, spread = _moments(engine, ids)
    held = np.minimum(weight / max(engine.clock, 1e-300), 1.0)
    mean = (mean - shift) * factor
    square = held * (spread * factor**2 + mean**2)
    return 2 * np.sqrt(np.maximum(square - (held * mean) ** 2, 0.0))


def _moments(engine: MeasuredEngine, ids: Ids) -> tuple[Doubles, Doubles, Doubles]:
    """Return the number of rows that held features, and mean and variance of their values there."""
    weight, mean, squares = (
        own[ids].astype(np.float64)
        for own in (engine.sparse_weight, engine.sparse_mean, engine.sparse_squares)
    )
    return weight, mean, np.divide(squares, weight, out=np.zeros(len(ids)), where=weight > 0)


def strongest(weights: Doubles, most: int | None) -> NDArray[np.intp]:
    """Return the indices of the largest sizes, the largest first; at most so many.

    Examples
    --------
    >>> strongest(np.array([1.0, -3.0, 2.0]), 2).tolist()
    [1, 2]
    """
    size = np.abs(weights)
    if most is None or most >= len(size):
        return np.argsort(-size, kind="stable")
    if most == 0:
        return np.empty(0, dtype=np.intp)
    least = np.partition(size, len(size) - most)[len(size) - most]
    places = np.flatnonzero(size >= least)  # a few more where some are equal
    return places[np.argsort(-size[places], kind="stable")][:most]


def merge(columns: Sequence[tuple[str, float]], words: Sequence[SparseInput]) -> dict[str, float]:
    """Return the effects of all inputs by name, the strongest first."""
    both = [*columns, *((own.name, own.effect) for own in words)]
    return dict(sorted(both, key=lambda item: -abs(item[1])))
