"""Columns of tables with types: what they hold, and what has to be made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn.times import TIME_TYPES, split_times
from driftree.learn.validation import is_missing
from driftree.streams.csv_columns import CsvColumn, decide_column
from driftree.streams.findings import PLURAL, ColumnFinding, find_column

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from driftree.streams.csv_columns import ColumnHints

FIRST_ROWS = 1000  # which decide what a column holds


def is_time(series: Any) -> bool:
    """Tell whether a narwhals series holds dates or times."""
    return isinstance(series.dtype, (nw.Date, nw.Datetime, nw.Time))


def decide_series(name: Any, series: Any, hints: ColumnHints) -> CsvColumn:
    """Decide what a column of a frame is, by its type and, of text, by its first cells."""
    hint = hints.kind_of(name)
    if not hints.wants(name):
        return CsvColumn(name, remark="not wanted", is_used=False)
    if is_time(series) and hint is None:
        return CsvColumn(name, kind="time", dtype="datetime64[s]")
    if series.dtype.is_numeric():
        if hint is None and series.dtype.is_integer():
            return decide_column(name, to_cells(series.to_list()))._replace(parse=float)
        return CsvColumn(name, kind="category" if hint == "category" else "number", parse=float)
    if series.dtype != nw.String:
        return CsvColumn(name)
    column = decide_column(name, to_cells(series.to_list()), hint, is_plain=hints.is_plain)
    is_number = column.kind == "number" and not column.remark and hint != "number"
    # Digits that are stored as text are text.
    return CsvColumn(name) if is_number else hints.without_prose(column)


def to_cells(values: Sequence[Any]) -> list[str]:
    """Return values as cells of CSV."""
    return ["" if is_missing(value) else str(value) for value in values]


def convert(frame: Any, columns: Mapping[Hashable, CsvColumn]) -> Any:
    """Return a narwhals frame whose columns are as they were decided to be."""
    result: list[Any] = []
    for name in frame.columns:
        series, column = frame.get_column(name), columns[name]
        if not column.is_used:
            continue
        if is_time(series):
            parts = split_times(name, series.to_list())
        elif column.form is not None or (column.kind == "number" and column.remark):
            parts = dict(column.features(to_cells(series.to_list())))
        else:
            result.append(series)
            continue
        result += [
            nw.new_series(part, _nulled(values), backend=frame.implementation)
            for part, values in parts.items()
        ]
    if [series.name for series in result] == frame.columns:
        return frame
    return frame.select(*result)


def _nulled(values: Any) -> list[Any]:
    return [None if is_missing(value) else value for value in np.asarray(values).tolist()]


# ---------------------------------------------------------------------- findings
def find_columns(frame: Any, columns: Mapping[Hashable, CsvColumn]) -> list[ColumnFinding]:
    """Say what the first rows of a narwhals frame show of its columns."""
    return [_finding(columns[name], frame.get_column(name).to_list()) for name in frame.columns]


def find_cells(names: Sequence[Hashable], X: Any) -> list[ColumnFinding]:
    """Say what the first rows of a table in memory show, which stays as it is."""
    if isinstance(X, np.ndarray):
        columns: Iterable[Any] = X.T
    elif isinstance(X, Mapping):
        columns = X.values()
    else:
        columns = nw.from_native(X, eager_only=True).iter_columns()
    return [_find_one(name, cells) for name, cells in zip(names, columns, strict=True)]


def _find_one(name: Any, cells: Any) -> ColumnFinding:
    values = cells.to_list() if hasattr(cells, "to_list") else np.asarray(cells).tolist()
    first = next((value for value in values if not is_missing(value)), None)
    if getattr(getattr(cells, "dtype", None), "kind", "") == "M" or isinstance(first, TIME_TYPES):
        return _finding(CsvColumn(name, kind="time"), values)
    if isinstance(first, str):
        return _finding(_told_only(name, to_cells(values)), values)
    is_number = isinstance(first, (int, float, np.number)) and not isinstance(first, bool)
    return _finding(CsvColumn(name, kind="number" if is_number else "category"), values)


def _told_only(name: Any, cells: list[str]) -> CsvColumn:
    """Return what a column of text might be, which nobody makes of it here."""
    try:
        column = decide_column(str(name), cells)
    except ValueError:
        return CsvColumn(name, remark="times or numbers as text")
    remark = column.remark
    if column.kind in ("number", "time") and remark:
        remark = f"{PLURAL[column.kind]} as text, {remark}"
    elif column.kind == "text":
        remark = "prose"
    return CsvColumn(name, remark=remark)


def _finding(column: CsvColumn, cells: Sequence[Any]) -> ColumnFinding:
    given = [cell for cell in cells if not is_missing(cell) and cell != ""]
    return find_column(column, list(map(str, given)), len(cells))
