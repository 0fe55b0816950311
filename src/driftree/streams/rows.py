"""Rows of a stream in any form, and blocks of them, sliced and concatenated.

A block is a pair (X, y). X is a NumPy array, a data frame of any library, a dict of columns or, if
rows are sparse, a list of dicts; y is an array of int64, float64, or objects such as text. Text
columns may be read as word counts, as by River's `BagOfWords`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from driftree.learn.tables import DictRows, array_names, to_frame
from driftree.learn.validation import as_objects, is_missing, list_names, shown, unmasked

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence


class Rows:
    """Features and labels of some rows.

    Parameters
    ----------
    X : array, data frame, dict of columns, or list of dicts
        Features. A dict of columns maps names to arrays of equal length; NaN and None are missing.
    y : array or series
        Labels.
    text : collection of names, default=()
        Text columns, whose words are the features.

    Attributes
    ----------
    X, y, text : as given
        The rows; `y` as a one-dimensional array.

    Examples
    --------
    >>> rows = Rows({"age": np.array([31.0, np.nan]), "car": np.array(["van", "bus"])}, [1, 0])
    >>> rows.names, rows.dicts
    (['age', 'car'], [{'age': 31.0, 'car': 'van'}, {'car': 'bus'}])
    >>> rows[1:].labels
    [0]
    """

    def __init__(self, X: Any, y: Any, text: Collection[Hashable] = ()) -> None:
        self.X = unmasked(X)
        self.text = text
        self.y: NDArray[Any] = _as_array(y)
        n_rows = count_rows(X)
        if self.y.shape != (n_rows,):
            raise ValueError(
                f"X has {n_rows} rows, but y has the shape {self.y.shape}: give one label per row"
            )

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: slice) -> Rows:
        start, stop, _ = place.indices(len(self))
        rows = Rows(*take((self.X, self.y), start, stop), self.text)
        for name in ("names", "labels", "dicts"):  # cached
            if name in self.__dict__:
                known = self.__dict__[name]
                rows.__dict__[name] = known if name == "names" else known[place]
        return rows

    @cached_property
    def names(self) -> list[Hashable]:
        """Names of the features; x0, x1, ... for the columns of an array."""
        return name_features(self.X)

    @cached_property
    def labels(self) -> list[Any]:
        """The labels as Python objects."""
        return list(self.y.tolist())

    @cached_property
    def dicts(self) -> list[dict[Hashable, Any]]:
        """The rows as River's dicts, without missing values."""
        rows = self._held()
        if not self.text:
            return rows
        check_text(self.text, self.names, "the stream")
        return count_words(rows, self.text, self.names)

    def _held(self) -> list[dict[Hashable, Any]]:
        names = self.names
        if isinstance(self.X, list):
            rows, may_miss = self.X, True
        elif isinstance(self.X, np.ndarray):
            rows = [dict(zip(names, row, strict=True)) for row in self.X.tolist()]
            may_miss = self.X.dtype.kind == "O" or (
                self.X.dtype.kind in "fc" and bool(np.isnan(self.X).any())
            )
        else:
            columns = [_to_list(self._column(name)) for name in names]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            may_miss = True
        if not may_miss:
            return rows
        try:
            return [
                {name: cell for name, cell in row.items() if cell is not None and cell == cell}  # noqa: PLR0124
                for row in rows
            ]
        except TypeError:  # pandas' NA cannot be compared
            return [
                {name: cell for name, cell in row.items() if not is_missing(cell)} for row in rows
            ]

    def _column(self, name: Any) -> Any:
        if isinstance(self.X, Mapping):
            return self.X[name]
        return nw.from_native(self.X, eager_only=True).get_column(name)  # [1] would be a row


def _as_array(y: Any) -> NDArray[Any]:
    """Return labels as an array, in which a mixture such as [1, "1"] stays one."""
    labels = np.asarray(unmasked(y))
    if isinstance(y, (list, tuple)) and labels.dtype.kind == "U" and labels.ndim == 1:
        return labels if all(isinstance(label, str) for label in y) else as_objects(list(y))
    return labels


def _to_list(column: Any) -> list[Any]:
    return list(column.to_list() if hasattr(column, "to_list") else np.asarray(column).tolist())


Block = tuple[Any, NDArray[Any]]
Blocks = Iterator[Block]


# ---------------------------------------------------------------------- blocks
def cut(blocks: Blocks, batch_rows: int, *, start: int = 0, stop: int | None = None) -> Blocks:
    """Cut blocks into batches that end at multiples of `batch_rows`.

    If reading fails, the rows before are yielded first, in a shorter batch, and then the error is
    raised.

    Parameters
    ----------
    blocks : iterator of (X, y)
        Rows from number `start` on.
    batch_rows : int
        Rows per batch.
    start : int, default=0
        Number of the first row; the first batch is the rest of its batch.
    stop : int, optional
        Number of the row before which to end.

    Examples
    --------
    >>> block = np.arange(14.0).reshape(7, 2), np.arange(7)
    >>> [y.tolist() for _, y in cut(iter([block, block]), 4, start=2, stop=11)]
    [[0, 1], [2, 3, 4, 5], [6, 0, 1]]
    """
    parts: list[Block] = []
    row = start
    try:
        while row != stop and (block := next(blocks, None)) is not None:
            n_rows = len(block[1])
            first = row
            while row < first + n_rows and row != stop:
                end = row - row % batch_rows + batch_rows
                end = end if stop is None else min(end, stop)
                last = min(end, first + n_rows)
                parts.append(take(block, row - first, last - first))
                row = last
                if row == end:
                    yield join(parts)
                    parts = []
    except Exception:
        if parts:
            yield join(parts)
        raise
    if parts:
        yield join(parts)


def gather(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` items; if reading fails, the items before it come first.

    Examples
    --------
    >>> list(gather(iter("streams"), 3))
    [['s', 't', 'r'], ['e', 'a', 'm'], ['s']]
    """
    gathered: list[Any] = []
    try:
        for item in items:
            gathered.append(item)
            if len(gathered) == size:
                yield gathered
                gathered = []
    except Exception:
        if gathered:
            yield gathered
        raise
    if gathered:
        yield gathered


def count_rows(X: Any) -> int:
    """Return the number of rows."""
    if isinstance(X, Mapping):
        return len(next(iter(X.values()))) if X else 0
    return len(X)


def name_features(X: Any) -> list[Any]:
    """Return the names of the columns; x0, x1, ... for those of an array."""
    if isinstance(X, Mapping):
        return list(X)
    if isinstance(X, list):
        return DictRows(X).columns
    if isinstance(X, np.ndarray):
        return list(array_names(X.shape[1]))
    return list(to_frame(X).columns)


def take(block: Block, start: int, stop: int) -> Block:
    """Return rows of a block."""
    X, y = block
    if start == 0 and stop >= len(y):
        return block
    rows = slice(start, stop)
    if isinstance(X, Mapping):
        return {name: column[rows] for name, column in X.items()}, y[rows]
    if isinstance(X, (np.ndarray, list)):
        return X[rows], y[rows]
    return nw.from_native(X, eager_only=True)[rows].to_native(), y[rows]


def join(parts: list[Block]) -> Block:
    """Concatenate blocks.

    Examples
    --------
    >>> X, y = join([({"a": np.ones(1)}, np.ones(1)), ({"b": np.zeros(1)}, np.zeros(1))])
    >>> X["a"], X["b"]
    (array([ 1., nan]), array([nan, 0.]))
    """
    if len(parts) == 1:
        return parts[0]
    features = [X for X, _ in parts]
    y = np.concatenate([y for _, y in parts])
    if any(isinstance(X, Mapping) for X in features):  # lists among them hold no feature
        tables = [(X if isinstance(X, Mapping) else {}, len(y)) for X, y in parts]
        names = dict.fromkeys(name for X, _ in tables for name in X)
        return {
            name: _join_columns([X.get(name, np.full(n_rows, None)) for X, n_rows in tables])
            for name in names
        }, y
    if isinstance(features[0], np.ndarray):
        return np.concatenate(features), y
    if isinstance(features[0], list):
        return [row for X in features for row in X], y
    frames = [nw.from_native(X, eager_only=True) for X in features]
    return nw.concat(frames).to_native(), y


def _join_columns(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate columns; if one holds only None, the others determine the type."""
    is_empty = [
        column.dtype == object and all(cell is None for cell in column) for column in columns
    ]
    if any(column.dtype == np.float64 for column in columns):
        columns = [
            column.astype(np.float64) if empty else column
            for column, empty in zip(columns, is_empty, strict=True)
        ]
    if len({column.dtype.kind == "U" for column in columns}) > 1:  # NumPy would make all text
        columns = [column.astype(object) for column in columns]
    return np.concatenate(columns)


def to_label_array(y: Any) -> NDArray[Any]:
    """Return a sequence of labels as an array of int64, float64 or objects.

    Examples
    --------
    >>> to_label_array([True, False]), to_label_array(["no", "yes"])
    (array([1, 0]), array(['no', 'yes'], dtype=object))
    """
    if nw.dependencies.is_into_series(y):
        series = nw.from_native(y, series_only=True)
        is_number = series.dtype.is_numeric() or series.dtype == nw.Boolean
        labels = series.to_numpy() if is_number else as_objects(series.to_list())
    else:
        labels = _as_array(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, one label per row, got shape {labels.shape}")
    is_too_large = labels.dtype == np.uint64 and labels.max(initial=0) > np.iinfo(np.int64).max
    if labels.dtype.kind in "biu" and not is_too_large:
        return labels.astype(np.int64, copy=False)
    if labels.dtype.kind == "f":
        return labels.astype(np.float64, copy=False)
    return as_objects(y if isinstance(y, list) else labels.tolist())


# ---------------------------------------------------------------------- texts as words
def check_text(text: Collection[Hashable], names: Sequence[Hashable], source: str) -> None:
    """Raise if a column that is to be read as text does not exist.

    Examples
    --------
    >>> check_text(["body"], ["message", "sender"], "mail.csv")
    Traceback (most recent call last):
    ...
    ValueError: text names 'body', but the features of mail.csv are 'message', 'sender' (the
    target excluded): name those that hold text
    """
    for name in text:
        if name not in names:
            raise ValueError(
                f"text names {name!r}, but the features of {source} are {list_names(names)} (the "
                "target excluded): name those that hold text"
            )


def count_words(
    rows: list[dict[Hashable, Any]], text: Collection[Hashable], names: Collection[Hashable]
) -> list[dict[Hashable, Any]]:
    """Return rows with texts replaced by word counts.

    Words have at least two characters, in lower case and without accents.

    Parameters
    ----------
    rows : list of dict
        The rows, without missing values.
    text : collection of names
        Columns that hold text.
    names : collection of names
        All columns. A word with the name of one of them, and every word if several columns hold
        text, is prefixed by the name of its column.

    Examples
    --------
    >>> rows = [{"message": "Win a prize, WIN now", "length": 20.0}, {"length": 0.0}]
    >>> count_words(rows, ["message"], ["message", "length"])
    [{'length': 20.0, 'win': 2, 'prize': 1, 'now': 1}, {'length': 0.0}]
    >>> count_words([{"message": "what length"}], ["message"], ["message", "length"])
    [{'what': 1, 'message: length': 1}]
    """
    from river.feature_extraction import BagOfWords

    count: Any = BagOfWords(lowercase=True).transform_one
    found = []
    for row in rows:
        held = {name: value for name, value in row.items() if name not in text}
        for column in text:
            for word, times in count(_check_cell(column, row.get(column, ""))).items():
                is_plain = len(text) == 1 and word not in names
                held[word if is_plain else f"{column}: {word}"] = times
        found.append(held)
    return found


def _check_cell(column: Hashable, cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(
            f"column {column!r} is to be read as text, but holds {shown(cell)}: name only columns "
            "of text; numbers need not be named"
        )
    return cell
