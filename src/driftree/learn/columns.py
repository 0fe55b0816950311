"""Columns: arrays, data frames and rows to a float64 matrix, and what is new in them.

The first value of a feature decides its kind: text or a boolean makes it categorical, a number
numeric. Without a value, NaN counts as a number, and None leaves the type open. NaN in the matrix
means missing. Reading changes nothing: what is new is collected in `News`.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.memory import text_bytes
from driftree.learn.tables import Columns, SparseMatrix
from driftree.learn.times import check_parts, holds_times, split_times
from driftree.learn.validation import (
    check_keys,
    has_scalars,
    is_missing,
    plain,
    row_of,
    shown,
    unhashable,
)

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import SparseRows, _TreeEngine
    from driftree.learn.tables import Table
    from driftree.learn.validation import Rows
    from driftree.learn.vocabulary import Vocabulary

LEVEL_NAMES = ("last y", "last 3 y", "last 20 y")
"""Features of a regressor that follows its target: the last y, and recent means."""
LOG_LEVEL_NAMES = tuple(f"log(1 + {name})" for name in LEVEL_NAMES)
"""The same with a log link."""


def level_names(engine: _TreeEngine) -> tuple[str, ...]:
    """Return the names of the features for recent targets, which are the first ones."""
    if not engine.has_level:
        return ()
    return LOG_LEVEL_NAMES if engine.has_log_link else LEVEL_NAMES


MOST_LEVEL_ROWS = 20
"""Rows of a call that learns with the level from before it; it would be out of date for more."""
NUMBER_TYPES = frozenset({float, int, bool, np.float64, type(None)})


class Column(NamedTuple):
    """One feature of a batch: numbers, or cells as they were given."""

    name: Hashable
    values: NDArray[Any] | list[Any]
    is_category: bool = False  # the data frame says so

    def plain(self) -> Column:
        """Return the same with Python objects for scalars of NumPy and pyarrow."""
        values = self.values
        is_plain = not isinstance(values, list) or not has_scalars(set(map(type, values)))
        return self if is_plain else self._replace(values=list(map(plain, values)))

    def parts(self, known: Container[Hashable]) -> list[Column]:
        """Return its features: for a time, the parts."""
        if self.name in known or not holds_times(self.values):
            return [self]
        parts = split_times(self.name, self.values)
        return [
            Column(name, values if values.dtype.kind == "f" else values.tolist())
            for name, values in parts.items()
        ]


@dataclass(slots=True)
class News:
    """New names, levels and missing values, which must be registered before a batch is learnt."""

    features: list[tuple[Hashable, bool, bool]] = field(default_factory=list)
    """Name, whether its values are categories, whether they are inputs themselves."""
    categorical: list[int] = field(default_factory=list)
    """Features that turn out to be categorical, after being always missing."""
    levels: list[tuple[int, Hashable]] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    """Features with more levels than there are codes."""
    missing: list[int] = field(default_factory=list)

    @property
    def n_text(self) -> int:
        """Bytes of new names and levels in a file; names count twice (scikit-learn has a copy)."""
        names = text_bytes(name for name, *_ in self.features)
        return 2 * names + text_bytes(level for _, level in self.levels)

    @property
    def brings_columns(self) -> bool:
        """Whether it adds inputs to the models."""
        return bool(self.features or self.levels or self.shared or self.missing)

    @property
    def brings_words(self) -> bool:
        """Whether it adds names or levels."""
        return bool(self.features or self.levels or self.categorical)


class Batch(NamedTuple):
    """Rows as a matrix, and what is new in them."""

    matrix: NDArray[np.float64]
    news: News
    sparse: SparseRows | None = None
    """The sparse features of the rows."""

    @property
    def rows(self) -> tuple[NDArray[np.float64], SparseRows | None]:
        """The rows as input for the kernels."""
        return self.matrix, self.sparse


def start_matrix(engine: _TreeEngine, n_rows: int, *, learning: bool) -> NDArray[np.float64]:
    """Return an empty matrix, with the level of the target if it is recent enough."""
    matrix = np.tile(engine.absent, (n_rows, 1))
    if learning and (n_levels := len(level_names(engine))):
        matrix[:, :n_levels] = engine.level if n_rows <= MOST_LEVEL_ROWS else math.nan
    return matrix


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads columns with the vocabulary and for the engine of a model.

    Parameters
    ----------
    known : Vocabulary
        Names and levels seen so far.
    engine : Engine or FimtddEngine
        Has the indicators of missing values, and the features without any value so far.
    indicators : bool
        Whether every level gets its own 0/1 input.
    learning : bool
        Whether new features and levels are to be registered; otherwise they are ignored.
    declared : frozenset
        Names of features whose values are categories although they may be numbers.
    rows : array of int or None
        The rows that count; None is all of them.
    """

    known: Vocabulary
    engine: _TreeEngine
    indicators: bool
    learning: bool
    declared: frozenset[Hashable] = frozenset()
    rows: Rows = None

    def read(self, X: Table, names: Sequence[Hashable]) -> Batch:
        """Read an array, a frame or a dict of columns."""
        if isinstance(X, np.ndarray):
            return self._read_array(X, names)
        if isinstance(X, Columns):
            return self._read_lists(X, names)
        if isinstance(X, SparseMatrix):
            return self._read_array(X.matrix.toarray(), names)
        if all(dtype.is_numeric() for dtype in X.schema.dtypes()):
            return self._read_array(to_numpy(X), names)
        frame = X if self.rows is None else X[self.rows.tolist(), :]
        columns = [
            _to_column(name, series)
            for name, series in zip(names, frame.iter_columns(), strict=True)
        ]
        return self._read_columns(columns, len(frame))

    def read_row(self, x: Mapping[Hashable, Any]) -> Batch:
        """Read a dict."""
        return self._read_columns([Column(name, [value]) for name, value in x.items()], 1)

    def _read_lists(self, X: Columns, names: Sequence[Hashable]) -> Batch:
        arrays = list(X.arrays.values())
        if arrays and all(array.dtype.kind in "fiu" for array in arrays):
            with np.errstate(over="ignore"):  # a long double beyond float64 is infinity
                matrix = np.column_stack(arrays).astype(np.float64, copy=False)
            return self._read_array(matrix, names)
        chosen = arrays if self.rows is None else [array[self.rows] for array in arrays]
        with np.errstate(over="ignore"):
            columns = [
                Column(name, _plain_cells(array)) for name, array in zip(names, chosen, strict=True)
            ]
        return self._read_columns(columns, X.shape[0] if self.rows is None else len(self.rows))

    def _read_array(self, X: NDArray[Any], names: Sequence[Hashable]) -> Batch:
        if self.rows is not None:
            X = X[self.rows]
        known = self.known
        if X.dtype == np.float64 and known.is_numeric and names == known.feature_names:
            news = News()
            if not np.isfinite(X).all():
                for name, values in zip(known.feature_names, X.T, strict=True):
                    check_finite(name, values, self.rows)
                self._find_missing(X, news)
            return Batch(np.require(X, requirements=["C", "A"]), news)
        is_number = X.dtype.kind in "fiu"
        values = X.T.astype(np.float64, copy=False) if is_number else X.T.tolist()
        return self._read_columns(list(map(Column, names, values)), len(X))

    def _read_columns(self, columns: Sequence[Column], n_rows: int) -> Batch:
        names = self.known.names
        columns = [part for column in columns for part in column.plain().parts(names)]
        check_parts([column.name for column in columns])
        matrix, news = start_matrix(self.engine, n_rows, learning=self.learning), News()
        fresh: list[NDArray[np.float64]] = []
        for column in columns:
            j = names.get(column.name)
            if j is not None:
                matrix[:, j] = self._read_known(news, j, column)
                continue
            text = is_text(column.values)
            if text is None or not self.learning:
                continue  # its first value will decide its type
            if column.name is not None and is_missing(column.name):  # NaN is new in every row
                raise ValueError(f"a column is named {column.name!r}: give it a name, or remove it")
            is_category = text or column.is_category or column.name in self.declared
            has_levels = text or (is_category and self.indicators)
            has_value = not (has_levels and self.indicators)
            news.features.append((column.name, is_category, has_value))
            fresh.append(
                self._codes(news, len(names) + len(fresh), {}, column)
                if has_levels
                else self._numbers(column)
            )
        if fresh:
            check_keys([*names, *(name for name, *_ in news.features)], "names")
            matrix = np.column_stack([matrix, *fresh])
        self._find_missing(matrix, news)
        return Batch(matrix, news)

    def _read_known(self, news: News, j: int, column: Column) -> NDArray[np.float64]:
        codes = self.known.levels[j]
        if self.learning and codes is None and self._is_first_text(j, column):
            codes = {}
            news.categorical.append(j)
        if codes is None:
            return self._numbers(column)
        return self._codes(news, j, codes, column)

    def _numbers(self, column: Column) -> NDArray[np.float64]:
        return to_numbers(column.name, column.values, self.rows, indicators=self.indicators)

    def _is_first_text(self, j: int, column: Column) -> bool:
        """Return whether a numeric feature that was always missing turns out to be categorical."""
        is_category = column.is_category or is_text(column.values)
        return bool(is_category) and self.engine.scale_weight[j] == 0

    def _codes(
        self, news: News, j: int, codes: dict[Hashable, int], column: Column
    ) -> NDArray[np.float64]:
        """Return the codes of a categorical column; levels beyond the last share one code."""
        cells = column.values if isinstance(column.values, list) else column.values.tolist()
        try:
            distinct = dict.fromkeys(cells)
        except TypeError:
            raise unhashable(f"column {column.name!r}", cells, self.rows) from None
        lookup: dict[Hashable, float] = {}
        n_levels = len(codes)
        for cell in distinct:
            if is_missing(cell):
                lookup[cell] = math.nan
            elif cell in codes:
                lookup[cell] = codes[cell]
            elif self.learning and n_levels < MAX_LEVELS:
                lookup[cell] = n_levels
                n_levels += 1
                news.levels.append((j, cell))
            else:
                lookup[cell] = MAX_LEVELS
        if self.learning and self.indicators and MAX_LEVELS in lookup.values():
            news.shared.append(j)
        return np.fromiter(map(lookup.__getitem__, cells), np.float64, len(cells))

    def _find_missing(self, matrix: NDArray[np.float64], news: News) -> None:
        if not self.learning:
            return
        missing_column = self.engine.missing_column
        first = len(level_names(self.engine))
        for j in first + np.flatnonzero(np.isnan(matrix[:, first:]).any(axis=0)):
            if j >= len(missing_column) or missing_column[j] < 0:
                news.missing.append(int(j))


# ---------------------------------------------------------------------- cells
def is_text(cells: NDArray[np.float64] | list[Any]) -> bool | None:
    """Return whether the first value is text or a boolean, rather than a number.

    Without a value, NaN counts as a number, and None leaves it open.

    Examples
    --------
    >>> is_text([None, "red"]), is_text([2.5, "red"]), is_text([None]), is_text([math.nan])
    (True, False, None, False)
    """
    if isinstance(cells, np.ndarray):
        return False
    has_nan = False
    for cell in cells:
        if not is_missing(cell):
            return isinstance(cell, (str, bytes, bool, np.bool_))
        has_nan |= isinstance(cell, float)
    return False if has_nan else None


def to_numbers(
    name: Hashable,
    cells: NDArray[np.float64] | list[Any],
    rows: Rows,
    *,
    indicators: bool = True,
) -> NDArray[np.float64]:
    """Return a numeric column as float64, NaN where missing.

    Without `indicators`, numbers stay numbers even in a column that is named in `categorical`.
    """
    if isinstance(cells, list):
        way = "name the column in `categorical`" if indicators else "make all its values text"
        numbers = _to_floats(name, cells, rows, f"{way} from the start")
    else:
        numbers = cells
    check_finite(name, numbers, rows)
    return numbers


def _to_floats(
    name: Hashable, cells: list[Any], rows: Rows, way_for_text: str
) -> NDArray[np.float64]:
    if set(map(type, cells)) <= NUMBER_TYPES:
        with contextlib.suppress(OverflowError):  # an integer beyond float64
            return np.array(cells, dtype=np.float64)
    numbers = np.full(len(cells), math.nan)
    for i, cell in enumerate(cells):
        if isinstance(cell, (str, bytes)):
            raise ValueError(
                f"column {name!r} is numeric, but row {row_of(i, rows)} holds {shown(cell)}: "
                f"convert it to a number, use None if it is missing, or {way_for_text}"
            )
        try:
            numbers[i] = _to_float(cell)
        except OverflowError:
            numbers[i] = math.inf
        except (TypeError, ValueError):
            if not is_missing(cell):
                raise TypeError(
                    f"column {name!r}, row {row_of(i, rows)}: a value argument must be a string or "
                    f"a real number, got {shown(cell)} of type {type(cell).__name__!r}: convert "
                    "it (dates to days since some day, for example), or remove the column"
                ) from None
    return numbers


def _to_float(cell: Any) -> float:
    if isinstance(cell, (np.datetime64, np.timedelta64, np.complexfloating)):
        raise TypeError("NumPy converts some of these, but they are no numbers")
    return float(cell)


def check_finite(name: Hashable, numbers: NDArray[np.float64], rows: Rows) -> None:
    """Raise if a number is infinite."""
    is_infinite = np.isinf(numbers)
    if is_infinite.any():
        raise infinite(name, row_of(int(is_infinite.argmax()), rows))


def infinite(name: Hashable, row: int) -> ValueError:
    """Return the error of a value that is infinite."""
    return ValueError(
        f"Input contains infinity or a value too large: column {name!r}, row {row}; "
        "use NaN or None for a missing value, or clip it"
    )


def to_numpy(data: Any) -> NDArray[np.float64]:
    """Return a frame or series of numbers as float64, NaN where missing."""
    if data.implementation.is_pandas_like():  # whose missing value is not a float
        return np.asarray(data.to_native().to_numpy(dtype=np.float64, na_value=math.nan))
    return np.asarray(data.to_numpy(), dtype=np.float64)


def _plain_cells(array: NDArray[Any]) -> NDArray[Any] | list[Any]:
    """Return numbers as float64, times unchanged, and everything else as Python objects."""
    if array.dtype.kind in "fiu":
        return array.astype(np.float64)
    return array if array.dtype.kind == "M" else array.tolist()


def _to_column(name: Hashable, series: Any) -> Column:
    dtype = series.dtype
    if dtype.is_numeric():
        return Column(name, to_numpy(series))
    cells, is_category = series.to_list(), isinstance(dtype, (nw.Categorical, nw.Enum))
    is_typed = str(getattr(series.to_native(), "dtype", "")) != "object"
    if is_typed and series.null_count() == len(series):
        cells = [None] * len(cells)  # pandas has NaN here, but the column is not numeric
    return Column(name, cells, is_category)
