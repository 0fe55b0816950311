"""Findings: what the first rows of a source show about the target and each column, in words.

The types of columns in typed tables are decided here, too, and the columns are converted.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.times import TIME_TYPES, split_times
from driftree.learn.validation import InputWarning, is_missing, printable
from driftree.streams.csv_columns import (
    ENOUGH_ROWS,
    INDEX,
    NO_NAME,
    TEXT_SHARE,
    CsvColumn,
    decide_column,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.streams.csv_columns import ColumnHints, Kind

MANY_VALUES = 100  # different values of a number that is hardly a label
SOME_VALUES = 20  # if there are few rows, or decimals
SHOWN_LABELS = 5
MOST_NAMES = 12  # in a line
PLURAL = {
    "number": "numbers",
    "category": "categories",
    "time": "times",
    "text": "text",
    "id": "ids",
}

FIRST_ROWS = 1000  # which decide the type of a column
UNFIT = (nw.List, nw.Array, nw.Struct, nw.Duration, nw.Binary)


@dataclass(frozen=True)
class ColumnFinding:
    """What the first rows show about a column.

    Attributes
    ----------
    name : str
        The column.
    kind : {"number", "category", "time", "text", "id"}
        Its type.
    missing : float
        Share of the rows without a value.
    n_values : int
        Number of different values.
    remark : str
        A short remark.
    is_used : bool
        Whether it is a feature, rather than left out.
    is_constant : bool
        Whether all values are the same.
    """

    name: Hashable
    kind: Kind
    missing: float
    n_values: int
    remark: str = ""
    is_used: bool = True
    is_constant: bool = False

    @property
    def is_surprising(self) -> bool:
        """Whether it is read differently than one might expect."""
        return bool(self.remark) or not self.is_used or self.is_constant

    def __str__(self) -> str:
        remarks = [self.remark] * bool(self.remark)
        if self.kind == "category" and self.n_values > MAX_LEVELS:
            remarks.append(f"{self.n_values:,} levels, the first {MAX_LEVELS} have weights")
        if self.missing:
            remarks.append(f"{show_share(self.missing)} missing")
        return printable(str(self.name)) + (f" ({', '.join(remarks)})" if remarks else "")


class TargetFinding(NamedTuple):
    """What the first rows show about the target.

    Attributes
    ----------
    name : str or None
        Its column, None if it is given separately.
    how : {"named", "called target", "last column", ""}
        How it was chosen.
    shares : dict
        Labels to their shares, the most frequent first.
    is_continuous : bool
        Whether it takes so many numeric values that it is hardly a label.
    low, high : float or None
        The range of numbers.
    is_unlikely : bool
        Whether hardly any label occurs twice, so that nothing can be learnt.
    """

    name: Hashable | None
    how: Literal["named", "called target", "last column", ""]
    shares: dict[Any, float]
    is_continuous: bool = False
    low: float | None = None
    high: float | None = None
    is_unlikely: bool = False


@dataclass(frozen=True)
class Findings:
    """What the first rows of a source show.

    Attributes
    ----------
    source : str
        Its name.
    n_rows : int
        How many rows were examined.
    target : TargetFinding or None
        What is predicted.
    columns : list of ColumnFinding
        The other columns, in their order.

    Examples
    --------
    >>> from driftree.streams import open_stream
    >>> stream = open_stream(([[1.0, "van"], [None, "bus"]], ["yes", "no"]))
    >>> print(stream.findings)
    predicting 2 labels: yes 50 %, no 50 %
    numbers: x0 (50 % missing); categories: x1
    """

    source: str
    n_rows: int
    target: TargetFinding | None
    columns: list[ColumnFinding] = field(default_factory=list)
    task: str | None = None

    @property
    def is_surprising(self) -> bool:
        """Whether anything is read differently than one might expect."""
        target = self.target
        asks = target is not None and target.is_continuous and self.task is None
        asks |= target is not None and target.is_unlikely
        return asks or any(column.is_surprising for column in self.columns)

    def lines(self, option: Callable[[str], str] = "{}=".format) -> list[str]:
        """Return the findings in words; `option` formats the name of an option."""
        told = [] if self.target is None else [self._tell_target(option)]
        used: dict[str, list[ColumnFinding]] = {}
        for column in self.columns:
            if column.is_used:
                used.setdefault(column.kind, []).append(column)
        kinds = [f"{PLURAL[kind]}: {_list(group)}" for kind, group in used.items()]
        if kinds:
            told.append("; ".join(kinds))
        dropped = [column for column in self.columns if not column.is_used]
        told += [_tell_left_out(column, option) for column in dropped]
        constant = [column for column in self.columns if column.is_constant and column.is_used]
        if constant:
            told.append(f"the same in all of these rows: {_list(constant)}")
        return told

    def _tell_target(self, option: Callable[[str], str]) -> str:
        target = self.target
        assert target is not None
        how = f" ({target.how})" if target.how else ""
        if target.how in ("last column", "called target"):
            how = f" ({target.how}; {option('target').strip()} for another)"
        name = "" if target.name is None else f" {printable(repr(target.name))}{how},"
        if self.task == "regression" or (target.is_continuous and target.low is not None):
            span = ""
            if target.low is not None and target.high is not None:
                span = f" from {target.low:,.10g} to {target.high:,.10g}"
            words = f"predicting{name} a number{span}"
            if self.task is None:
                words += (
                    f", each a label: {len(target.shares)} different ones; is it "
                    f"{option('task')}regression?"
                )
            return words
        n = len(target.shares)
        shown = list(target.shares.items())[:SHOWN_LABELS]
        labels = ", ".join(f"{printable(str(label))} {show_share(s)}" for label, s in shown)
        more = ", ..." if n > SHOWN_LABELS else ""
        hint = "; hardly any comes twice: is it the target?" if target.is_unlikely else ""
        return f"predicting{name} {n:,} label{'s' if n != 1 else ''}: {labels}{more}{hint}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def warn(self, stacklevel: int) -> None:
        """Warn if anything is read differently than one might expect."""
        if self.is_surprising:
            words = f"{self.source}, by its first {self.n_rows:,} rows:\n{self}"
            warnings.warn(words, InputWarning, stacklevel=stacklevel + 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings for JSON."""
        target = self.target
        told: dict[str, Any] = {"rows_looked_at": self.n_rows, "target": None}
        if target is not None:
            told["target"] = {
                "column": None if target.name is None else str(target.name),
                "chosen_as": target.how,
                "n_values": len(target.shares),
            }
            if self.task == "regression":
                told["target"] |= {"lowest": target.low, "highest": target.high}
            else:
                shares = list(target.shares.items())[:MANY_VALUES]
                told["target"]["shares"] = {str(label): share for label, share in shares}
        told["columns"] = [
            {
                "name": str(column.name),
                "kind": column.kind,
                "used": column.is_used,
                "missing": column.missing,
                "n_values": column.n_values,
                "constant": column.is_constant,
                "remark": column.remark,
            }
            for column in self.columns
        ]
        return told


def _list(columns: Sequence[ColumnFinding]) -> str:
    """Enumerate columns; those with remarks always appear."""
    plain = [column for column in columns if not (column.remark or column.missing)]
    hidden = {id(column) for column in plain[MOST_NAMES:]}
    shown = ", ".join(str(column) for column in columns if id(column) not in hidden)
    return shown + (f" and {len(hidden):,} more" if hidden else "")


def _tell_left_out(column: ColumnFinding, option: Callable[[str], str]) -> str:
    name = printable(str(column.name))
    if column.kind == "text":
        return f"left out: {name} (prose; {option('text')}{name} learns its words)"
    if column.remark == NO_NAME:
        return f"left out: {name} ({column.remark})"
    if column.kind == "id":
        instead = f"{option('categorical')}{name} or {option('numeric')}{name} keeps it"
        why = column.remark if column.remark == INDEX else f"an id, its values are {column.remark}"
        return f"left out: {name} ({why}; {instead})"
    return f"left out: {name}"


def show_share(share: float) -> str:
    """Return a share in percent, never rounded to 0 or 100.

    Examples
    --------
    >>> [show_share(share) for share in (0.514, 0.0001, 0.9999, 1.0)]
    ['51 %', '< 1 %', '> 99 %', '100 %']
    """
    percent = round(100 * share)
    if percent == 0 and share > 0:
        return "< 1 %"
    return "> 99 %" if percent == 100 and share < 1 else f"{percent} %"


def find_column(column: CsvColumn, given: Sequence[str], n_rows: int) -> ColumnFinding:
    """Describe a column, by the values in its first rows."""
    n_values = len(set(given))
    is_same = n_values == 0 or (n_values == 1 and len(given) == n_rows)
    return ColumnFinding(
        column.name,
        column.kind,
        1 - len(given) / max(1, n_rows),
        n_values,
        column.remark,
        column.is_used,
        is_constant=is_same and n_rows >= ENOUGH_ROWS,
    )


def find_target(
    name: Hashable | None,
    how: Literal["named", "called target", "last column", ""],
    labels: Sequence[Any],
    numbers: Sequence[float] | None,
) -> TargetFinding:
    """Describe the target, by the first labels and their numeric values, if any."""
    counts = Counter(labels)
    n = max(1, len(labels))
    shares = {label: count / n for label, count in counts.most_common()}
    if not numbers:
        is_unlikely = n >= ENOUGH_ROWS and len(counts) >= TEXT_SHARE * n
        return TargetFinding(name, how, shares, is_unlikely=is_unlikely)
    n_different = len(set(numbers))
    is_whole = all(float(number).is_integer() for number in numbers)
    enough = min(MANY_VALUES, max(SOME_VALUES, n // 2)) if is_whole else SOME_VALUES
    return TargetFinding(
        name, how, shares, n_different >= enough, float(min(numbers)), float(max(numbers))
    )


# ---------------------------------------------------------------------- columns with types
def is_time(series: Any) -> bool:
    """Return whether a narwhals series holds dates or times."""
    return isinstance(series.dtype, (nw.Date, nw.Datetime, nw.Time))


def decide_series(name: Any, series: Any, hints: ColumnHints) -> CsvColumn:
    """Decide the type of a frame's column, by its dtype and, for text, by its first cells."""
    hint = hints.kind_of(name)
    if not hints.wants(name):
        return CsvColumn(name, remark="not wanted", is_used=False)
    if is_time(series) and hint is None:
        return CsvColumn(name, kind="time", dtype="datetime64[s]")
    if series.dtype.is_numeric():
        if hint is None and series.dtype.is_integer():
            return decide_column(name, to_cells(series.to_list()))._replace(parse=float)
        return CsvColumn(name, kind="category" if hint == "category" else "number", parse=float)
    if isinstance(series.dtype, UNFIT) and hint is None:
        raise ValueError(
            f"holds values of type {series.dtype}, which cannot be a feature: convert them to "
            "numbers or text, with a column for each part, or name the column in drop"
        )
    is_encoded = isinstance(series.dtype, (nw.Categorical, nw.Enum))  # text as codes
    if series.dtype != nw.String and not (is_encoded and hint in ("number", "time")):
        return CsvColumn(name)
    column = decide_column(name, to_cells(series.to_list()), hint, is_plain=hints.is_plain)
    is_number = column.kind == "number" and not column.remark and hint != "number"
    # Digits stored as text are text.
    return CsvColumn(name) if is_number else hints.without_prose(column)


def to_cells(values: Sequence[Any]) -> list[str]:
    """Return values as CSV cells."""
    return ["" if is_missing(value) else str(value) for value in values]


def convert(frame: Any, columns: Mapping[Hashable, CsvColumn]) -> Any:
    """Return a narwhals frame with its columns converted to the decided types."""
    result: list[Any] = []
    for name in frame.columns:
        series, column = frame.get_column(name), columns[name]
        if not column.is_used:
            continue
        if is_time(series):
            parts = split_times(name, series.to_list())
        elif _is_written(series, column):
            parts = dict(column.features(to_cells(series.to_list())))
        else:
            result.append(series)
            continue
        result += [
            nw.new_series(part, _nulled(values), backend=frame.implementation)
            for part, values in parts.items()
        ]
    return frame.select(*result)


def _is_written(series: Any, column: CsvColumn) -> bool:
    """Return whether a column holds numbers or times as text."""
    is_number = column.kind == "number"
    is_text = column.remark != "" or not series.dtype.is_numeric()
    return column.form is not None or (is_number and is_text)


def find_faults(frame: Any, columns: Mapping[Hashable, CsvColumn]) -> dict[int, tuple[Any, str]]:
    """Return the malformed cells of a narwhals frame, the first of each row: column and reason."""
    faults: dict[int, tuple[Any, str]] = {}
    for name in frame.columns:
        series, column = frame.get_column(name), columns[name]
        if not column.is_used or is_time(series):
            continue
        for row, reason in _faults_of(series, column):
            faults.setdefault(row, (name, reason))
    return faults


def _faults_of(series: Any, column: CsvColumn) -> Iterator[tuple[int, str]]:
    if _is_written(series, column):
        for row, cell in enumerate(to_cells(series.to_list())):
            try:
                column.parse(cell)
            except ValueError as error:
                yield row, str(error)
    elif column.kind == "number" and series.dtype.is_float():
        yield from find_infinite(series.to_numpy())


def find_infinite(numbers: NDArray[np.floating]) -> Iterator[tuple[int, str]]:
    """Yield the places of infinite numbers, and what is wrong with them."""
    for place in np.flatnonzero(np.isinf(numbers)).tolist():
        yield place, f"expected a finite number, got {numbers[place]}"


def _nulled(values: Any) -> list[Any]:
    return [None if is_missing(value) else value for value in np.asarray(values).tolist()]


# ---------------------------------------------------------------------- findings
def find_columns(frame: Any, columns: Mapping[Hashable, CsvColumn]) -> list[ColumnFinding]:
    """Describe the columns of a narwhals frame, by its first rows."""
    return [_finding(columns[name], frame.get_column(name).to_list()) for name in frame.columns]


def find_cells(names: Sequence[Hashable], X: Any) -> list[ColumnFinding]:
    """Describe a table in memory, which is not converted, by its first rows."""
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
    """Describe what a text column might be, although it is not converted here."""
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
