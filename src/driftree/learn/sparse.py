"""Sparse features: rows that hold few of many features, as messages hold words.

Absent features are 0. A name is registered when it is learnt, and has weights only in the models
that have met it; the kernels do the rest (`sparse.hpp`). Here is decided which features get a
column of their own, and which are evicted when there are too many.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn import memory
from driftree.learn._kernels import SparseRows
from driftree.learn.columns import Batch, News, infinite, to_numbers, to_numpy
from driftree.learn.tables import (
    Columns,
    DictRows,
    SparseMatrix,
    array_names,
    holds_numbers,
    is_sparse,
)
from driftree.learn.times import TIME_TYPES, split_row, whole_name
from driftree.learn.validation import is_missing, plain, row_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, MeasuredRowFace
    from driftree.learn.constants import MeasuredConstants
    from driftree.learn.tables import Table
    from driftree.learn.validation import Rows
    from driftree.learn.vocabulary import Vocabulary


MAX_NAME = 1000  # characters of a feature's name, as in the kernels
CELL_COPIES = 6  # models of a leaf that know most names, with what their tables have in reserve


class SparseFeatures:
    """Reads rows, and keeps the number of names and columns within bounds.

    Parameters
    ----------
    row_face : MeasuredRowFace
        Holds the names.
    engine : MeasuredEngine
        Holds the weights.
    constants : MeasuredConstants
        Defines when a feature gets a column.
    max_features : int
        Largest number of names.
    categorical : frozenset of names or positions
        Features whose values are levels even if they are numbers.
    """

    def __init__(
        self,
        row_face: MeasuredRowFace,
        engine: MeasuredEngine,
        constants: MeasuredConstants,
        max_features: int,
        categorical: frozenset[Hashable] = frozenset(),
    ) -> None:
        self.row_face = row_face
        self.engine = engine
        self.constants = constants
        self.max_features = max_features
        self.declare(categorical)
        self.naming: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
        """Returns the lock under which names change, besides the engine's: that of a forest."""
        self.expect()
        self._plan_look()

    @property
    def is_wide(self) -> bool:
        """Whether tables are dense: zeros are numbers, and missing values count as the mean."""
        return self.row_face.leaves_names

    @is_wide.setter
    def is_wide(self, is_wide: bool) -> None:
        self.row_face.leaves_names = is_wide  # new ones are centred, unless they are levels

    def declare(self, categorical: frozenset[Hashable]) -> None:
        """Set which features are categorical, by name; positions are those of arrays."""
        self.categorical = categorical
        columns = (f"x{place}" for place in categorical if isinstance(place, int))
        self.with_levels = categorical.union(columns)
        if categorical:
            self.row_face.declare(self.with_levels)

    # ------------------------------------------------------------------ rows
    def expect(self, n_new: int = 0) -> None:
        """Allow as many names as there is memory for, with so many new labels.

        A name takes three numbers per label in each model that knows it.
        """
        n_classes = self.engine.n_classes + n_new
        n_outputs = n_classes if n_new and n_classes > 2 else self.engine.n_outputs
        n_bytes = CELL_COPIES * 4 * (1 + 3 * n_outputs)
        self.engine.most_sparse = max(1, min(self.max_features, memory.MOST_BYTES // n_bytes))

    def read(
        self, X: Table, names: Sequence[Hashable] | None, *, learning: bool, rows: Rows
    ) -> Batch:
        """Read a table of any kind."""
        learning = learning and (rows is None or len(rows) > 0)  # rows of no weight name nothing
        if isinstance(X, DictRows) and not self.is_wide:
            given = X.rows if rows is None else [X.rows[i] for i in rows]
            return self.read_dicts(given, learning=learning, rows=rows)
        if isinstance(X, nw.DataFrame) and is_sparse(X) and not self.is_wide:
            names = list(X.columns) if names is None else names
            X = SparseMatrix.of(X.to_native().sparse.to_coo())
        if isinstance(X, SparseMatrix) and self.is_wide:
            X = SparseMatrix.of_dense(X.matrix.toarray())  # what is not stored is 0, not missing
        if names is None and not isinstance(X, (np.ndarray, SparseMatrix)):
            names = list(X.columns)
        own = array_names(X.shape[1]) if names is None else names
        if self.with_levels.isdisjoint(own):  # else a 0 may be a level
            numbers = numbers_of(X)
            if numbers is not None:
                X = SparseMatrix.of_dense(numbers) if self.is_wide else SparseMatrix.of(numbers)
            if isinstance(X, SparseMatrix):
                return self._batch(self._read_matrix(X, names, learning=learning, rows=rows))
        dicts = to_dicts(X, own)
        chosen = dicts if rows is None else [dicts[i] for i in rows]
        return self.read_dicts(chosen, learning=learning, rows=rows)

    def read_dicts(
        self, dicts: Sequence[Mapping[Hashable, Any]], *, learning: bool, rows: Rows = None
    ) -> Batch:
        """Read rows as dicts; a text is a feature of its own for each level."""
        given = list(dicts)
        found = None
        if not (learning and self._is_over):
            with self._naming_if(learning=learning):
                found = self.row_face.read_dicts(given, learning=learning)
        if found is None:
            levels: set[Hashable] = set()
            plain = [
                check_row(row, i, rows, self.with_levels, levels=levels, zeros=self.is_wide)
                for i, row in enumerate(given)
            ]
            if learning:
                held = Counter(name for row in plain for name, number in row.items() if number)
                self.admit(held, centred=held.keys() - levels if self.is_wide else ())
            found = self.row_face.read_dicts(plain, learning=False)
            assert found is not None
        return self._batch(found)

    def step_rows(self, begin: NDArray[np.int64], start: int, size: int) -> int:
        """Return how many of `size` rows form a step; row i begins at begin[i] of all values."""
        end = begin[start] + self.constants.step_values
        n_fitting = int(np.searchsorted(begin, end, side="right")) - 1 - start
        return max(1, min(size, n_fitting))

    def _batch(self, found: SparseRows) -> Batch:
        return Batch(np.empty((len(found), 0)), News(), found)

    def _read_matrix(
        self, X: SparseMatrix, names: Sequence[Hashable] | None, *, learning: bool, rows: Rows
    ) -> SparseRows:
        matrix = X.matrix if rows is None else X.matrix[rows]
        if not X.is_dense and not matrix.data.all():
            matrix = matrix.copy()
            matrix.eliminate_zeros()  # a 0 that is stored is as absent as others
        is_infinite = np.isinf(matrix.data)
        if is_infinite.any():
            entry = int(is_infinite.argmax())
            row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
            column = int(matrix.indices[entry])
            name = f"x{column}" if names is None else names[column]
            raise infinite(name, row_of(row, rows))
        if X.is_dense:  # all columns in all rows
            n, m = matrix.shape
            columns, counts = np.arange(m), np.full(m, n)
            places = matrix.indices
        else:
            columns, places, counts = np.unique(
                matrix.indices, return_inverse=True, return_counts=True
            )
        given = [f"x{c}" if names is None else names[c] for c in columns.tolist()]
        if learning:
            check_names(given)
        ids = None
        if not (learning and self._is_over):
            with self._naming_if(learning=learning):
                ids = self.row_face.sparse_ids(given, learning=learning, centred=X.is_dense)
        if ids is None:
            held = dict(zip(given, counts.tolist(), strict=True))
            self.admit(held, centred=held.keys() if X.is_dense else ())
            ids = self.row_face.sparse_ids(given, learning=False, centred=False)
            assert ids is not None
        of_entry = np.array(ids, dtype=np.int32)[places.reshape(-1)]
        is_known = (of_entry >= 0) & ~np.isnan(matrix.data)
        if is_known.all():
            return SparseRows(matrix.indptr.astype(np.int64), of_entry, matrix.data)
        begin = np.concatenate([[0], np.cumsum(is_known)])[matrix.indptr].astype(np.int64)
        return SparseRows(begin, of_entry[is_known], matrix.data[is_known].astype(np.float64))

    def n_inputs(self, node: int) -> int:
        """Return how many inputs without a column a node's model has."""
        return len(self.engine.sparse_weights(node)[0])

    # ------------------------------------------------------------------ names
    def _naming_if(self, *, learning: bool) -> AbstractContextManager[object]:
        return self.naming() if learning else contextlib.nullcontext()

    @property
    def _is_over(self) -> bool:
        return self.row_face.n_sparse > self.engine.most_sparse

    def admit(self, names: Mapping[Hashable, int], *, centred: Collection[Hashable]) -> None:
        """Register names; if there are too many, evict the rarest.

        At least an eighth is evicted each time, so that it does not happen with every row. Counts
        are then halved, so that names that were frequent only long ago are evicted in the end. If
        there are more new names than allowed, the most frequent are registered.
        """
        with self.naming():
            self._admit(names, centred=centred)

    def _admit(self, names: Mapping[Hashable, int], *, centred: Collection[Hashable]) -> None:
        face, engine, most = self.row_face, self.engine, self.engine.most_sparse
        known = face.sparse_ids(list(names), learning=False, centred=False) or []
        places = dict(zip(names, known, strict=True))
        fresh = [name for name, _ in Counter(names).most_common() if places[name] < 0]
        n_over = face.n_sparse + len(fresh) - most
        if n_over > 0:
            is_free = np.asarray(engine.sparse_feature < 0)
            is_free &= np.array([name is not None for name in face.sparse_names()], dtype=bool)
            is_free[[place for place in places.values() if place >= 0]] = False
            free = np.flatnonzero(is_free)
            rarest = free[np.argsort(engine.sparse_weight[free], kind="stable")]
            wanted = max(n_over, most // 8)
            face.give_up(rarest[:wanted].astype(np.int32))
            engine.fade_sparse(0.5)
        room = most - face.n_sparse
        for is_centred in (False, True):
            new = [name for name in fresh[: max(0, room)] if (name in centred) == is_centred]
            face.sparse_ids(new, learning=True, centred=is_centred)

    # ------------------------------------------------------------------ columns
    def look(self, known: Vocabulary) -> None:
        """Make the features prominent about which the models still have most to learn.

        These may be split on. Features that most rows hold are not sparse: they get a column, and
        are learnt jointly with the others that have one. The caller holds the engine's lock.
        """
        engine, c = self.engine, self.constants
        is_column = engine.value_column >= 0
        room = c.most_prominent - int(np.count_nonzero(~is_column))
        most_columns = c.most_wide_columns if self.is_wide else c.most_columns
        room_of_columns = most_columns - int(np.count_nonzero(is_column))
        with np.errstate(all="ignore"):  # NaN, which is no share, where nothing is left to learn
            shares = engine.sparse_energy / max(engine.energy_of_all, 1e-300)
        weights = engine.sparse_weight
        is_open = (engine.sparse_feature < 0) & (weights >= c.prominent_rows)
        worthy = np.flatnonzero(is_open & (shares >= c.prominent_share))
        names = self.row_face.sparse_names()
        for place in worthy[np.argsort(-shares[worthy], kind="stable")]:
            is_dense = bool(2 * weights[place] > engine.clock)
            has_column = is_dense and room_of_columns > 0
            if not has_column and room <= 0:
                continue
            room, room_of_columns = room - (not has_column), room_of_columns - has_column
            known = known.with_features([names[place]], [*known.levels, None], 0)
            self.row_face.promote(known, int(place), has_column)
        engine.fade_energy(0.5)
        self._plan_look()

    @property
    def is_due(self) -> bool:
        """Whether a check is due."""
        return self.engine.n_rows >= self.engine.look_at

    def _plan_look(self) -> None:
        """Schedule the next check, by the number of rows alone."""
        c, next_look = self.constants, self.constants.first_look_rows
        while next_look <= self.engine.n_rows:
            n_more = -(-(self.engine.n_rows + 1 - next_look) // c.look_rows)
            next_look += next_look if next_look < c.look_rows else n_more * c.look_rows
        self.engine.look_at = next_look

    def restored(self) -> None:
        """Continue from a restored model; raise if its names do not fit."""
        self.expect()
        names = self.row_face.sparse_names()
        if self.row_face.n_sparse > self.max_features:
            raise ValueError(
                f"there are {self.row_face.n_sparse} names, but at most "
                f"{self.max_features} are allowed"
            )
        self.is_wide = bool(self.engine.sparse_is_centred.any())
        feature = self.engine.sparse_feature
        for place in np.flatnonzero(feature >= 0):
            if self.row_face.known.feature_names[feature[place]] != names[place]:
                raise ValueError(f"sparse feature {names[place]!r} has another name as a feature")
        self._plan_look()


def numbers_of(X: Table) -> NDArray[Any] | None:
    """Return a table as an array if it holds only numbers."""
    if isinstance(X, SparseMatrix) or not holds_numbers(X):
        return None
    if isinstance(X, np.ndarray):
        return X
    return np.column_stack([*X.arrays.values()]) if isinstance(X, Columns) else to_numpy(X)


def to_dicts(X: Table, names: Sequence[Hashable]) -> list[dict[Hashable, Any]]:
    """Return the rows of a table with these names of columns as dicts."""
    if isinstance(X, SparseMatrix):
        held = [names[c] for c in X.matrix.indices.tolist()]
        cells = list(zip(held, X.matrix.data.tolist(), strict=True))
        return [dict(cells[i:j]) for i, j in pairwise(X.matrix.indptr.tolist())]
    if isinstance(X, DictRows):
        return [{name: row.get(name) for name in names} for row in X.rows]
    rows: Iterable[Sequence[Any]]
    if isinstance(X, np.ndarray):
        rows = X.tolist()
    elif isinstance(X, Columns):
        rows = zip(*(array.tolist() for array in X.arrays.values()), strict=True)
    else:
        rows = X.iter_rows()
    return [dict(zip(names, row, strict=True)) for row in rows]


def check_row(
    row: Any,
    place: int,
    rows: Rows,
    categorical: frozenset[Hashable] = frozenset(),
    *,
    levels: set[Hashable] | None = None,
    zeros: bool = False,
) -> dict[Hashable, float]:
    """Return the features of a row, each level as one, and add these to `levels`.

    With `zeros` those that are 0 are among them: in wide tables they are numbers like any other.
    """
    if not hasattr(row, "items"):
        raise TypeError(f"a row must be a dict of feature names to values, got {shown(row)}")
    held: dict[Hashable, float] = {}
    where = np.array([place]) if rows is None else rows[place : place + 1]
    for name, value in row.items():
        is_level = isinstance(value, str) or (name in categorical and not is_missing(value))
        if is_level or isinstance(value, TIME_TYPES):
            check_names([name])
        if is_level:
            level = f"{name} == {_level(value)}"
            held[level] = 1.0
            if levels is not None:
                levels.add(level)
        elif not is_missing(value):
            if isinstance(value, TIME_TYPES):
                parts = split_row({name: value}, ())
                held |= check_row(parts, place, rows, levels=levels, zeros=zeros)
                continue
            number = float(to_numbers(name, [value], where)[0])
            if number != 0 or zeros:
                held[name] = number
    check_names(held)
    return held


def _level(value: Any) -> Any:
    """Return a level as it is named: 1, 1.0 and True are the same one."""
    level = plain(value)
    is_whole = isinstance(level, bool) or (isinstance(level, float) and level.is_integer())
    return int(level) if is_whole else level


def check_names(names: Iterable[Any]) -> None:
    """Raise if a feature cannot have such a name: it is missing, or a whole text.

    Examples
    --------
    >>> check_names(["free", ("free", "entry"), None])
    Traceback (most recent call last):
    ValueError: a feature is named None: give it a name, or remove it
    """
    for name in names:
        if name is None or (isinstance(name, float) and math.isnan(name)):
            raise ValueError(f"a feature is named {name!r}: give it a name, or remove it")
        if isinstance(name, str) and len(name) > MAX_NAME:
            raise ValueError(
                f"a feature's name has {len(name):,} characters, but at most {MAX_NAME:,} are "
                f"allowed ({shown(name)}): split a text into words first, for example with river's "
                "BagOfWords"
            )


def look_sparse(rows: Iterable[Iterable[Hashable]], known: Iterable[Hashable]) -> bool:
    """Return whether a row holds new features and lacks more than half of those known before it.

    A time is one feature, whether it is given or its parts are.

    Examples
    --------
    >>> look_sparse([["ok", "lar", "joking"], ["call", "now"]], [])
    True
    >>> look_sparse([["age", "income"], ["age", "car"]], [])
    False
    """
    names = set(map(whole_name, known))
    for row in rows:
        if not isinstance(row, Iterable):
            return False  # it will raise an error
        own = set(map(whole_name, row))
        held = len(own & names)
        if held < len(own) and 2 * held < len(names):
            return True
        names |= own
    return False
