"""Tables: X as arrays, data frames or dicts of columns, validated, with column names."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Set
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from driftree.learn.validation import as_objects, list_names, shown, unmasked

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

NUMBERS = (int, float, np.integer, np.floating)
SAME_COLUMNS = (
    "give the same columns as before, or use learn_many, learn_one, predict_many, predict_one when "
    "features come and go"
)


class Columns:
    """A dict of columns: a data frame that needs no library.

    Examples
    --------
    >>> columns = Columns({"age": [31, 47], "car": ["van", None]})
    >>> columns.shape, columns.columns
    ((2, 2), ['age', 'car'])
    """

    def __init__(self, columns: Mapping[Hashable, Any]) -> None:
        self.arrays = {name: self._to_array(name, cells) for name, cells in columns.items()}
        self.columns = list(self.arrays)
        """Names of the columns."""
        lengths = {name: len(array) for name, array in self.arrays.items()}
        first = next(iter(lengths), None)
        for name, length in lengths.items():
            if length != lengths[first]:
                two = {first: lengths[first], name: length}
                raise ValueError(
                    f"all columns must have the same number of rows, but have {two}: fill the gaps "
                    "with None"
                )
        self.shape = (next(iter(lengths.values()), 0), len(lengths))

    @staticmethod
    def _to_array(name: Hashable, cells: Any) -> NDArray[Any]:
        array: NDArray[Any] = cells
        if type(cells) is not np.ndarray:
            array = unmasked(cells) if isinstance(cells, np.ndarray) else from_sequence(cells)
        if array.ndim != 1:
            raise TypeError(
                f"column {name!r} of a dict of columns must hold one cell per row, got "
                f"{shown(cells)}: give a list or a 1d array; a single row goes to learn_one, "
                "predict_one and explain_one"
            )
        return array

    def __len__(self) -> int:
        return self.shape[0]


class DictRows(Columns):
    """A list of dicts, one per row; columns are made when they are asked for.

    Examples
    --------
    >>> rows = DictRows([{"age": 31}, {"age": 47, "car": "van"}])
    >>> rows.shape, rows.arrays["age"]
    ((2, 2), array([31., 47.]))
    """

    def __init__(self, rows: Sequence[Mapping[Hashable, Any]]) -> None:
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TypeError(
                    f"row 0 is a dict, but row {i} is {shown(row)}: give one dict per row"
                )
        self.rows = rows
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        self.shape = (len(rows), len(self.columns))

    @cached_property
    def arrays(self) -> dict[Hashable, NDArray[Any]]:  # type: ignore[override]
        """The columns: float64, or cells unchanged if not all are numbers.

        A name that a row lacks is a missing value: NaN among numbers, None elsewhere.
        """
        return {name: _to_column([row.get(name) for row in self.rows]) for name in self.columns}

    def to_columns(self) -> Columns:
        """Make a table of it."""
        return Columns(self.arrays)

    def with_columns(self, names: Iterable[Hashable]) -> DictRows:
        """Return the same rows with these columns, others left out."""
        found = copy.copy(self)
        found.columns = list(names)
        found.shape = (len(self.rows), len(found.columns))
        found.__dict__.pop("arrays", None)
        return found

    def in_order(self, names: Sequence[Hashable]) -> DictRows:
        """Return the same rows with their features in this order, others last."""
        columns = list(dict.fromkeys([*names, *self.columns]))
        place = {name: i for i, name in enumerate(columns)}
        rows = [dict(sorted(row.items(), key=lambda one: place[one[0]])) for row in self.rows]
        return DictRows(rows).with_columns(columns)


class SparseMatrix:
    """A SciPy matrix in CSR format: values that are not stored are 0.

    Examples
    --------
    >>> len(SparseMatrix.of(np.eye(3)))
    3
    """

    def __init__(self, matrix: Any, *, is_dense: bool = False) -> None:
        self.matrix = matrix
        self.shape = matrix.shape
        self.is_dense = is_dense
        """Whether all cells are stored, including zeros: others are missing."""

    @classmethod
    def of(cls, X: Any) -> SparseMatrix:
        """Convert any matrix or array, sparse or not; NaN is missing, which is 0."""
        matrix = scipy.sparse.csr_array(X, dtype=np.float64)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return cls(matrix)

    @classmethod
    def of_dense(cls, X: NDArray[Any]) -> SparseMatrix:
        """Convert an array whose zeros are numbers like any other."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        n, m = X.shape
        columns = np.tile(np.arange(m, dtype=np.int32), n)
        begin = np.arange(n + 1, dtype=np.int64) * m
        matrix = scipy.sparse.csr_array((X.reshape(-1), columns, begin), shape=X.shape)
        return cls(matrix, is_dense=True)

    def __len__(self) -> int:
        return int(self.shape[0])


Frame = nw.DataFrame[Any] | Columns
Table = NDArray[Any] | Frame | SparseMatrix


def is_sparse(table: Table) -> bool:
    """Return whether a table stores only what is not 0: a matrix, or pandas' sparse columns.

    Examples
    --------
    >>> is_sparse(SparseMatrix.of(np.eye(2))), is_sparse(np.eye(2))
    (True, False)
    """
    if not isinstance(table, nw.DataFrame):
        return isinstance(table, SparseMatrix)
    native = table.to_native()
    if not nw.dependencies.is_pandas_dataframe(native):
        return False
    dtypes = native.dtypes.tolist()
    return bool(dtypes) and all(getattr(dtype, "fill_value", None) == 0 for dtype in dtypes)


WIDE = 512  # columns up to which all are learnt jointly: benchmarks/wide.py


def holds_numbers(table: Table) -> bool:
    """Return whether all cells of a table have numeric types.

    Examples
    --------
    >>> holds_numbers(np.eye(2)), holds_numbers(Columns({"age": [31, 47], "car": ["van", None]}))
    (True, False)
    """
    if isinstance(table, SparseMatrix):
        return True
    if isinstance(table, np.ndarray):
        return table.dtype.kind in "fiu"
    if isinstance(table, Columns):
        return bool(table.arrays) and all(own.dtype.kind in "fiu" for own in table.arrays.values())
    return all(dtype.is_numeric() for dtype in table.schema.dtypes())


def numbers_of(X: Any, names: Sequence[Hashable] | None) -> NDArray[np.float64] | None:
    """Return an array as float64, or a frame with these column names; otherwise None.

    This takes a few microseconds. The checks of scikit-learn and narwhals take longer than it takes
    to learn ten rows.

    Examples
    --------
    >>> numbers_of(np.eye(2, dtype=int), None)
    array([[1., 0.],
           [0., 1.]])
    """
    if names is not None:
        X = _frame_numbers(X, names)
        if X is None:
            return None
    is_plain = X.dtype.kind in "fiu" and X.dtype.itemsize <= 8 and X.size > 0
    return np.require(X, np.float64, ["C", "A"]) if is_plain else None


def _frame_numbers(X: Any, names: Sequence[Hashable]) -> NDArray[Any] | None:
    """Return the array of a frame of pandas, polars or pyarrow with these columns, else None."""
    if nw.dependencies.is_pandas_dataframe(X):
        return X.to_numpy() if X.columns.tolist() == names else None
    if nw.dependencies.is_polars_dataframe(X):
        is_numeric = X.columns == names and all(dtype.is_numeric() for dtype in X.dtypes)
        return X.to_numpy() if is_numeric else None
    if not nw.dependencies.is_pyarrow_table(X) or X.column_names != names:
        return None
    columns = [column.to_numpy() for column in X.columns]
    is_numeric = all(column.dtype.kind in "fiu" for column in columns)
    return np.column_stack(columns) if is_numeric and columns else None


def array_names(n: int) -> list[Hashable]:
    """Name the columns of an array."""
    return [f"x{j}" for j in range(n)]


class Seen(BaseEstimator):
    """scikit-learn's attributes of features: `n_features_in_`, `feature_names_in_`.

    Reading does not change the estimator: it fills one of these, which the estimator adopts once
    all input is checked.
    """

    n_features_in_: int
    feature_names_in_: NDArray[Any]


class NamedTable(NamedTuple):
    """A table by scikit-learn's rules."""

    table: Table
    names: list[Hashable] | None = None
    """The columns' names, if not those of the table."""
    seen: Seen | None = None
    """Attributes from the first table."""
    is_sparse: bool = False
    """Whether it stores only what is not 0."""
    is_wide: bool = False
    """Whether it has more numeric columns than are learnt jointly; sparse ones never have."""

    @classmethod
    def of(
        cls, table: Table, names: list[Hashable] | None = None, seen: Seen | None = None
    ) -> NamedTable:
        """Find out what kind of table it is; of dicts, this can wait."""
        if isinstance(table, DictRows):
            return cls(table, names, seen)
        stores_some = is_sparse(table)
        is_wide = not stores_some and table.shape[1] > WIDE and holds_numbers(table)
        return cls(table, names, seen, stores_some, is_wide)


def read_rows(X: Any) -> NamedTable:
    """Return a frame, or a dict of columns, by River's rules: features are matched by name."""
    table = plain_columns(X)
    return NamedTable.of(read_frame(X) if table is None else table)


def check_rows(X: Any, estimator: Any, *, is_first: bool) -> NamedTable:
    """Return an array or a frame by scikit-learn's rules.

    The features are those of the first call of `fit` or `partial_fit`. If an estimator has only had
    River's calls, features are matched by name, and a table may lack some of them.
    """
    is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0
    X = X if is_plain else _whole_table(X)
    if not is_plain and _is_dicts(X):
        rows = DictRows(X)
        if not is_first and not hasattr(estimator, "n_features_in_"):
            return NamedTable(rows)
        X = _with_all(rows, estimator, is_first=is_first)
    is_rows = isinstance(X, DictRows)
    table: Table | None = X if is_plain or is_rows else plain_columns(X)
    is_pandas = isinstance(table, Columns) and not is_rows
    is_frame = isinstance(table, Columns) or (
        table is None and (_is_columns(X) or nw.dependencies.is_into_dataframe(X))
    )
    if table is None:
        table = read_frame(X) if is_frame else _to_rectangle(X, estimator)
    if isinstance(table, SparseMatrix):
        X = table.matrix
    if is_frame and 0 in table.shape:
        what = "sample" if table.shape[0] == 0 else "feature"
        raise ValueError(f"X has 0 {what}(s) (shape={table.shape}), but needs at least 1")
    if not is_first and not hasattr(estimator, "n_features_in_"):
        return NamedTable.of(table)
    width = table.shape[1]
    if not is_first and width != estimator.n_features_in_:
        raise ValueError(
            f"X has {width} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input: {SAME_COLUMNS}"
        )
    seen = Seen() if is_first else None
    known = estimator if seen is None else seen
    names = getattr(known, "feature_names_in_", None)
    is_by_name = is_frame and names is not None and not _are_texts(names)  # which only we can match
    if is_by_name or (isinstance(table, Columns) and not is_pandas):
        _check_names(table, known, is_first=is_first)
    elif (
        isinstance(table, (Columns, nw.DataFrame))
        and names is not None
        and table.columns == names.tolist()
    ):
        pass  # as scikit-learn's check would find
    elif is_first or is_frame or names is not None:
        is_own = is_frame or isinstance(table, SparseMatrix)
        validate_data(known, X if is_own else table, reset=is_first, skip_check_array=True)
    names = getattr(known, "feature_names_in_", None)
    if names is not None:  # the table may have none
        return NamedTable.of(table, names.tolist(), seen)
    return NamedTable.of(table, array_names(width) if is_frame else None, seen)


def _are_texts(names: Iterable[Hashable]) -> bool:
    return all(isinstance(name, str) for name in names)


def _names_for(table: Any, known: Any) -> list[Hashable]:
    """Return the names of the first call's columns, in their order.

    Columns without names are called x0, x1, ..., or by all their positions.
    """
    names = getattr(known, "feature_names_in_", None)
    if names is not None:
        return names.tolist()  # type: ignore[no-any-return]
    places: list[Hashable] = list(range(known.n_features_in_))
    return places if {*table.columns} == {*places} else array_names(len(places))


def _with_all(
    rows: DictRows, estimator: Any, *, is_first: bool
) -> DictRows | dict[Any, NDArray[Any]]:
    """Return columns in the order of the first call, absent ones as missing.

    Where absent features are 0, they are left out, and no columns are made.
    """
    names = [] if is_first else _names_for(rows, estimator)
    known = {*names}
    new = [name for name in rows.columns if name not in known]
    if new and not is_first:
        raise ValueError(
            f"the rows have features {list_names(new)}, but {type(estimator).__name__} is "
            f"expecting {list_names(names)}: {SAME_COLUMNS}"
        )
    is_named = is_first or hasattr(estimator, "feature_names_in_")
    if getattr(estimator, "absent", None) == "zero" and is_named:
        return rows.in_order(names)
    found = {name: rows.arrays.get(name, np.full(len(rows), None)) for name in names} | rows.arrays
    if not found:
        raise ValueError(f"X has 0 feature(s) (shape={rows.shape}), but needs at least 1")
    return found


def _check_names(table: Any, known: Any, *, is_first: bool) -> None:
    """Store the names of a dict's columns, or compare them with the known ones.

    Unlike those of a data frame in scikit-learn, they may be of any type.
    """
    if is_first:
        known.n_features_in_ = len(table.columns)
        known.feature_names_in_ = as_objects(table.columns)
        return
    before = _names_for(table, known)
    if before != table.columns:
        raise ValueError(
            "The feature names should match those that were passed during fit: the columns "
            f"were {before}, now they are {table.columns}"
        )


def read_frame(X: Any) -> Frame:
    """Return a data frame as a narwhals frame, a dict of columns or a list of rows as `Columns`."""
    if _is_dicts(X) or (isinstance(X, (list, tuple)) and not X):
        return DictRows(X)
    return Columns(X) if _is_columns(X) else to_frame(_whole_table(X))


def _whole_table(X: Any) -> Any:
    """Return a record batch of pyarrow as a table, which narwhals knows; others unchanged."""
    pyarrow = nw.dependencies.get_pyarrow()
    is_batch = pyarrow is not None and isinstance(X, pyarrow.RecordBatch)
    return pyarrow.Table.from_batches([X]) if is_batch else X


def plain_columns(X: Any) -> Columns | None:
    """Return a pandas frame of text and NumPy's numbers, booleans and objects as columns.

    None for any other: narwhals can read it, but takes many times as long for small ones.
    """
    is_frame = nw.dependencies.is_pandas_dataframe(X)
    if not is_frame or 0 in X.shape or not X.columns.is_unique:
        return None
    columns = {}
    for name, dtype in zip(X.columns.tolist(), X.dtypes.tolist(), strict=True):
        is_text = dtype.type is str  # in pandas only its StringDtype has this
        if not is_text and not _is_plain(dtype):
            return None
        columns[name] = cells = X[name].to_numpy()
        if is_text and not any(isinstance(cell, str) for cell in cells):
            columns[name] = np.full(len(cells), None)  # NaN would make it a column of numbers
    return Columns(columns)


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "fiubO" and dtype.itemsize <= 8


def _is_dicts(X: Any) -> bool:
    """Return whether rows are given as a list of dicts."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Mapping)


def _to_column(cells: list[Any]) -> NDArray[Any]:
    kinds = set(map(type, cells)) - {type(None)}
    if kinds and bool not in kinds and all(map(_is_number, kinds)):
        with suppress(OverflowError):  # an integer beyond float64
            return np.array(cells, dtype=np.float64)
    return as_objects(cells)


def _is_number(kind: type) -> bool:
    return issubclass(kind, NUMBERS) and not issubclass(kind, np.timedelta64)


def _is_columns(X: Any) -> bool:
    """Return whether it is a dict of columns; a sparse matrix may be a dict, too."""
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def to_frame(X: Any) -> nw.DataFrame[Any]:
    """Return a data frame of any library as a narwhals frame."""
    try:
        frame: nw.DataFrame[Any] = nw.from_native(X, eager_only=True)
    except DuplicateError:
        names = list(X.columns if hasattr(X, "dtypes") else X.column_names)
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"column {twice!r} appears twice: rename or drop one of them") from None
    except TypeError:
        raise TypeError(
            f"a data frame (pandas, polars, pyarrow, ...) is needed, got {type(X).__name__!r}: "
            "arrays go to partial_fit and predict, dicts to learn_one and predict_one"
        ) from None
    return frame


def _to_rectangle(X: Any, estimator: object) -> NDArray[Any] | SparseMatrix:
    """Return a two-dimensional array: float64, or objects if not all cells are numbers."""
    if scipy.sparse.issparse(X) and getattr(estimator, "_takes_sparse", False):
        checked = check_array(
            X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, estimator=estimator
        )
        return SparseMatrix.of(checked)
    if not hasattr(X, "dtype"):
        _check_sequence(X)
        X = from_sequence(X)
        if X.ndim == 1 and X.dtype.kind == "O":
            _check_listed_rows(X)
    if X.dtype.kind == "T":
        X = X.astype(object)  # which scikit-learn knows
    if X.dtype.kind == "O" and X.ndim == 2 and X.shape[1] > WIDE:  # wide, if all are numbers
        X = _to_column(X.ravel().tolist()).reshape(X.shape)
    if X.dtype.kind in "mMV":
        raise TypeError(
            f"X holds values of type {X.dtype}: convert them to numbers (dates to days since some "
            "day, for example)"
        )
    if X.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: X holds values of type {X.dtype}; give the real and the "
            "imaginary parts as two columns"
        )
    with np.errstate(over="ignore"):  # a long double beyond float64 is infinity: refused by name
        return check_array(  # type: ignore[no-any-return]
            unmasked(X),
            dtype=None if X.dtype.kind in "OUSb" else np.float64,
            ensure_all_finite=False,  # the encoder's error says where
            estimator=estimator,
        )


def _check_sequence(X: Any) -> None:
    """Raise unless X holds rows in order."""
    has_rows = hasattr(X, "__len__") or hasattr(X, "__array__")
    if not has_rows or isinstance(X, (str, bytes, Set)):
        raise TypeError(
            f"X must be an array, a data frame or a dict of columns, got {shown(X)} of type "
            f"{type(X).__name__!r}: collect a generator with list(), a lazy frame with collect(); "
            "driftree.streams.open_stream reads files"
        )


def _check_listed_rows(X: NDArray[Any]) -> None:
    """Raise if a list's items are not rows of the same length."""
    for i, row in enumerate(X):
        if isinstance(row, Mapping):
            raise TypeError(f"row {i} is a dict, but row 0 is not: give one dict per row")
        if hasattr(row, "__len__") and hasattr(X[0], "__len__") and len(row) != len(X[0]):
            raise ValueError(
                f"row {i} has {len(row)} cells, but row 0 has {len(X[0])}: give every row the same "
                "number of cells, None where a value is missing"
            )


def from_sequence(X: Any) -> NDArray[Any]:
    """Return an array of numbers, or of objects: NumPy would convert mixed cells to text."""
    try:
        array = np.asarray(X)
    except ValueError:  # rows of several lengths
        return np.asarray(X, dtype=object)
    return array if array.dtype.kind in "fiuc" else np.asarray(X, dtype=object)
