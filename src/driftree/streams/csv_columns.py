"""Columns of CSV: their type, and cells to arrays."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.times import parts_of
from driftree.learn.validation import list_names
from driftree.streams.cells import (
    CODE,
    TimeFormat,
    UnclearDatesError,
    find_numbered_times,
    find_own_unit,
    find_time_format,
    find_unit,
    has_decimal_commas,
    is_missing,
    is_number,
    is_whole,
    parse_number,
    parse_number_label,
    parse_number_target,
    parse_text,
    parse_text_label,
    parse_whole_label,
    unit_parser,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["number", "category", "time", "text", "id"]
NO_NAME, INDEX = "no name, no values", "the index of a pandas frame"  # why they are left out
ENOUGH_ROWS = 50  # values needed to tell ids and prose from categories
ID_SHARE = 0.95  # of values that differ
TEXT_SHARE, TEXT_WORDS = 0.5, 3  # of values that differ, and their mean number of words
ID_NAME = re.compile(
    r"(.*[^a-z])?(id|uuid|guid|key|index|idx|row|nr|number)|.*[a-z](Id|ID|Key|Nr)", re.DOTALL
)


# ---------------------------------------------------------------------- what the user says
@dataclass(frozen=True)
class ColumnHints:
    """What the user says about columns, by name.

    Attributes
    ----------
    categorical, numeric, time, text, drop : tuple of str
        Columns of categories, numbers, times, text to keep, and those to leave out.
    only : frozenset of str or None
        Columns to read at all; None is all of them.
    is_checked : bool
        Whether unknown names are errors; those to leave out always are.
    is_plain : bool
        Whether columns are only numbers or text, without further recognition.
    leaves_prose : bool
        Whether prose is left out unless it is named in `text`.
    """

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    is_checked: bool = True
    is_plain: bool = False
    leaves_prose: bool = False

    @property
    def given(self) -> dict[str, tuple[str, ...]]:
        """The named columns by type."""
        names = ("categorical", "numeric", "time", "text", "drop")
        return {name: columns for name in names if (columns := getattr(self, name))}

    def check(self, names: Collection[Any], source: str, target: str | None = None) -> None:
        """Raise if a named column does not exist, is the target, or is named twice.

        Examples
        --------
        >>> ColumnHints(drop=("nmae",)).check(["name", "age"], "people.csv")
        Traceback (most recent call last):
        ValueError: drop names 'nmae', but the columns of people.csv are 'name', 'age'
        >>> ColumnHints(text=("age",)).check(["name", "age"], "people.csv", target="age")
        Traceback (most recent call last):
        ValueError: text names 'age', which is the target
        """
        seen: dict[str, str] = {}
        for what, columns in self.given.items():
            for column in columns:
                is_checked = self.is_checked or what == "drop"
                if is_checked and column not in names:
                    raise ValueError(
                        f"{what} names {column!r}, but the columns of {source} are "
                        f"{list_names(names)}"
                    )
                if column == target and what not in ("categorical", "numeric"):
                    raise ValueError(f"{what} names {column!r}, which is the target")
                if seen.setdefault(column, what) != what:
                    raise ValueError(
                        f"{column!r} is named in {seen[column]} and in {what}: name it in only "
                        "one of them"
                    )

    def kind_of(self, name: str) -> Kind | None:
        """Return the type that the user gave to a column."""
        kinds: dict[str, Kind] = {
            "categorical": "category",
            "numeric": "number",
            "time": "time",
            "text": "text",
        }
        for what, columns in self.given.items():
            if name in columns and what in kinds:
                return kinds[what]
        return None

    def without_prose(self, column: CsvColumn) -> CsvColumn:
        """Return a column, marked as left out if it is prose that was not asked for."""
        is_out = self.leaves_prose and column.kind == "text" and column.name not in self.text
        return column._replace(is_used=False) if is_out else column

    def wants(self, name: str) -> bool:
        """Return whether a column is to be read."""
        return name not in self.drop and (self.only is None or name in self.only)


# ---------------------------------------------------------------------- whole columns
class CsvColumn(NamedTuple):
    """A column: how its cells are parsed, and its type.

    Attributes
    ----------
    name : str
        Its name.
    parse : callable
        From a cell to a value; raises ValueError if it is malformed.
    dtype : type
        Of the array of values.
    is_repetitive : bool
        Whether it has few different values.
    kind : str
        Its type.
    remark : str
        A short remark about it.
    is_used : bool
        Whether it is a feature, rather than left out.
    form : TimeFormat or None
        The format of times.
    """

    name: str
    parse: Callable[[str], Any] = parse_text
    dtype: Any = object
    is_repetitive: bool = False
    kind: Kind = "category"
    remark: str = ""
    is_used: bool = True
    form: TimeFormat | None = None

    def read(self, cells: Sequence[str]) -> NDArray[Any]:
        """Return the cells as an array; raise ValueError if one of them is malformed."""
        parse = self.parse
        if self.is_repetitive:
            parse = {cell: self.parse(cell) for cell in set(cells)}.__getitem__
        elif parse is parse_number and "_" not in "".join(cells):
            with contextlib.suppress(ValueError):  # something is missing or malformed
                numbers = np.fromiter(map(float, cells), np.float64, len(cells))
                if not np.isinf(numbers).any():
                    return numbers
        return np.fromiter(map(parse, cells), self.dtype, len(cells))

    def features(self, cells: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Return the cells as features: none if it is left out, several for a time."""
        if not self.is_used:
            return {}
        values = self.read(cells)
        if self.form is None:
            return {self.name: values}
        form = self.form
        return parts_of(self.name, values, has_day=form.has_day, has_hour=form.has_hour)


def decide_target(
    name: str, cells: Sequence[str], *, is_category: bool, is_regression: bool
) -> CsvColumn:
    """Decide the type of the target by its first cells: text or numbers as labels, or a number."""
    values = [cell for cell in cells if not is_missing(cell)]
    numbers = [cell for cell in values if is_number(cell)]
    is_repetitive = 2 * len(set(cells)) < len(cells)
    if is_regression:
        unit = find_unit(values, may_be_decimal=False) if len(numbers) < len(values) else None
        parse = parse_number_target if unit is None else _required(unit_parser(unit))
        return CsvColumn(name, parse, np.float64, is_repetitive, "number")
    is_text = _holds_codes(values) or (values and 2 * len(numbers) <= len(values))
    if is_category or is_text:
        return CsvColumn(name, parse_text_label, object, is_repetitive, "category")
    if all(map(is_whole, numbers)):
        return CsvColumn(name, parse_whole_label, np.int64, is_repetitive, "category")
    return CsvColumn(name, parse_number_label, np.float64, is_repetitive, "category")


def _required(parse: Callable[[str], float]) -> Callable[[str], float]:
    def parse_required(cell: str) -> float:
        return parse_number_target(cell) if is_missing(cell) else parse(cell)

    return parse_required


def decide_column(
    name: str,
    cells: Sequence[str],
    hint: Kind | None = None,
    *,
    may_be_decimal: bool = False,
    is_plain: bool = False,
) -> CsvColumn:
    """Decide the type of a feature by most of its first cells.

    In a column of numbers, text is malformed, even among the first rows.

    Parameters
    ----------
    name : str
        The column.
    cells : sequence of str
        Its first cells.
    hint : str, optional
        Its type as given by the user.
    may_be_decimal : bool
        Whether commas in numbers may be decimal commas, since they do not separate cells.
    is_plain : bool
        Whether it can only be a number or a category.

    Examples
    --------
    >>> column = decide_column("age", ["31", "NA", "40.5"])
    >>> column.read(["7", "?"])
    array([ 7., nan])
    >>> decide_column("price", ["$1,200", "$80"]).features(["$3,000"])
    {'price': array([3000.])}
    >>> list(decide_column("day", ["2024-02-28", "2024-02-29"]).features(["2024-03-01"]))
    ['day: days', 'day: weekday']
    """
    values = [cell for cell in cells if not is_missing(cell)]
    plain = CsvColumn(name, is_repetitive=2 * len(set(cells)) < len(cells))
    number = plain._replace(kind="number", parse=parse_number, dtype=np.float64)
    if hint == "time":
        return _time(plain, find_format(values, is_asked=True))
    is_mostly_number = not values or 2 * sum(map(is_number, values)) > len(values)
    if hint == "text" and values and is_mostly_number:
        raise ValueError(
            f"is named in text, but holds numbers such as {values[0]}: numbers need not be named"
        )
    if hint in ("category", "text"):
        return plain._replace(kind=hint)
    if is_plain:
        return number if is_mostly_number else plain
    if hint == "number":
        return _with_unit(number, values, is_asked=True) or number
    return _by_cells(plain, number, values, may_be_decimal=may_be_decimal)


def _by_cells(
    plain: CsvColumn, number: CsvColumn, values: Sequence[str], *, may_be_decimal: bool
) -> CsvColumn:
    """Decide the type of a feature by its first values alone."""
    n_numbers = sum(map(is_number, values))
    if n_numbers == len(values):
        return _words(plain, values) if _holds_codes(values) else _unless_id(number, values)
    found = _with_unit(number, values, may_be_decimal=may_be_decimal)
    if found is not None or 2 * n_numbers > len(values):
        return found or number
    form = find_format(values)
    if form is not None:
        return _time(plain, form)
    check_decimal_points(values)
    return _words(plain, values)


def _with_unit(
    number: CsvColumn,
    values: Sequence[str],
    *,
    may_be_decimal: bool = False,
    is_asked: bool = False,
) -> CsvColumn | None:
    """Return a column of formatted numbers, None if they are not; with any unit if asked for."""
    unit = find_unit(values, may_be_decimal=may_be_decimal)
    if unit is None and is_asked:
        unit = find_own_unit(values)
    if unit is None:
        return None
    parse = unit_parser(unit)
    return number._replace(parse=parse, remark=_written_as(values, parse))


def _time(plain: CsvColumn, form: TimeFormat | None) -> CsvColumn:
    assert form is not None
    return plain._replace(
        kind="time",
        parse=form.parse,
        dtype="datetime64[s]",
        form=form,
        remark=f"as in {form.example}",
    )


def _unless_id(number: CsvColumn, values: Sequence[str]) -> CsvColumn:
    """Return a column of numbers; left out if it only counts the rows."""
    is_id = (
        len(values) >= ENOUGH_ROWS
        and ID_NAME.fullmatch(number.name) is not None
        and len(set(values)) == len(values)
        and all(map(is_whole, values))
    )
    return number._replace(kind="id", remark="all different", is_used=False) if is_id else number


def _words(plain: CsvColumn, values: Sequence[str]) -> CsvColumn:
    """Return a column of text: categories, or, left out, an id or prose."""
    n_different = len(set(values))
    if len(values) >= ENOUGH_ROWS:
        n_words = sum(len(value.split()) for value in values) / len(values)
        if n_words >= TEXT_WORDS and n_different >= TEXT_SHARE * len(values):
            return plain._replace(kind="text", remark="prose")
        if n_different >= ID_SHARE * len(values):
            remark = "all different" if n_different == len(values) else "nearly all different"
            return plain._replace(kind="id", remark=remark, is_used=False)
    remark = "codes with leading zeros" if _holds_codes(values) else ""
    if n_different > MAX_LEVELS and find_own_unit(values) is not None:
        remark = f"numbers with a unit, as in {values[0].strip()}"
    return plain._replace(remark=remark)


def find_format(values: Sequence[str], *, is_asked: bool = False) -> TimeFormat | None:
    """Return the format of times, None if values are not times; raise if it is ambiguous."""
    try:
        form = find_time_format(values)
    except UnclearDatesError as error:
        raise ValueError(
            f"{error}: write them as 2024-12-31, or name the column in drop or in categorical"
        ) from None
    if not values and is_asked:
        return TimeFormat("ymd", has_hour=True, example="2024-12-31")
    if form is None and is_asked:
        form = find_numbered_times(values)
    if form is None and is_asked:
        raise ValueError(
            "is named in time, but most of its first cells are not times such as 2024-12-31, "
            "2024-12-31T23:59:59, 31.12.2024, 23:59, 20241231 or seconds since 1970"
        )
    return form


def check_decimal_points(values: Sequence[str]) -> None:
    """Raise if numbers have decimal commas."""
    if has_decimal_commas(values):
        example = next(value for value in values if "," in value)
        raise ValueError(
            f"holds numbers with decimal commas, such as {example!r}: write them with decimal "
            "points, or name the column in categorical if it holds text"
        )


def _holds_codes(values: Sequence[str]) -> bool:
    """Return whether values are codes such as 01067, not numbers."""
    return any(CODE.fullmatch(value.strip()) for value in values)


def _written_as(values: Sequence[str], parse: Callable[[str], float]) -> str:
    """Return an example of formatted numbers."""
    for value in values:
        with contextlib.suppress(ValueError):  # a malformed one
            if not is_number(value) and parse(value) is not None:
                return f"as in {value.strip()}"
    return ""
