"""Cells of text: missing values, numbers, times.

Numbers may have thousands separators, currencies or percent signs; times may be dates or clocks.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_NUMBERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT")
MISSING = frozenset({"", "?", "null", "NULL", "None", "\\N", *NO_NUMBERS})
SHOWN_CHARACTERS = 60  # of a cell in errors: an unclosed quote may have swallowed many lines

CURRENCIES = r"[$€£¥₹]|USD|EUR|GBP|CHF|JPY"
MARKS = ",'\u2019\u00a0\u202f\u2009 "  # thousands separators, such as narrow spaces
THOUSANDS = rf"\d{{1,3}}(?P<mark>[{MARKS}])\d{{3}}(?:(?P=mark)\d{{3}})*(?:\.\d+)?"
DECIMAL_COMMA = re.compile(
    rf"\s*[-+]?\s?(?:{CURRENCIES})?\s?[-+]?\d[\d.{MARKS[1:]}]*,\d+\s?(?:%|{CURRENCIES})?\s*"
)
SIGNS = "-+\u2212"  # the last one is the typographic minus
WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<sign>[{SIGNS}])?\s?(?P<before>{CURRENCIES})?\s?(?P<inner>[{SIGNS}])?"
    rf"(?P<number>{THOUSANDS}|\d+(?:\.\d*)?|\.\d+)\s?(?P<after>%|{CURRENCIES})?(?P<close>\))?"
)
UNCLEAR_COMMA = re.compile(r"\d{1,3},\d{3}")  # 1,234 may be 1234, or 1.234 with a decimal comma
WITH_UNIT = re.compile(rf"[{SIGNS}]?[\d.{MARKS}]*\d\s?(?P<unit>[^\W\d_][^\d]{{0,15}})")
CODE = re.compile(r"0\d+")  # 01067 is a code, not a number


def is_missing(cell: str) -> bool:
    """Return whether a cell is a missing value.

    Examples
    --------
    >>> [is_missing(cell) for cell in ("NA", " ", "0", "none")]
    [True, True, False, False]
    """
    return cell.strip() in MISSING


def is_number(cell: str) -> bool:
    """Return whether a cell holds a number; 1_000 is one only in Python."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_text(cell: str) -> bool:
    """Return whether a cell was UTF-8: other bytes were read as lone surrogates."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_decimal_commas(cells: Sequence[str]) -> bool:
    """Return whether a column would be numeric with decimal points for its commas.

    Examples
    --------
    >>> has_decimal_commas(["1,5", "?", "-20,25", "7"]), has_decimal_commas(["1,5", "a", "b"])
    (True, False)
    """
    values = [cell for cell in cells if not is_missing(cell)]
    n_commas = sum(DECIMAL_COMMA.fullmatch(cell) is not None for cell in values)
    return n_commas > 0 and 2 * n_commas >= len(values)


def show(cell: str) -> str:
    """Quote a cell, shortened if it is long."""
    is_long = len(cell) > SHOWN_CHARACTERS
    return f"{cell[:SHOWN_CHARACTERS]!r}..." if is_long else repr(cell)


# ---------------------------------------------------------------------- one cell
def parse_number(cell: str) -> float:
    """Return the number in a cell, NaN if missing; raise if it is not one."""
    if is_missing(cell):
        return math.nan
    if not is_number(cell):
        raise ValueError(f"expected a number, got {show(cell)}")
    number = float(cell)
    if math.isinf(number):
        raise ValueError(f"expected a finite number, got {show(cell)}")
    return number


def parse_text(cell: str) -> str | None:
    """Return the text in a cell, stripped; None if missing."""
    if is_missing(cell):
        return None
    if not is_text(cell):
        raw = show(cell).replace("\\udc", "\\x")  # the original byte
        raise ValueError(f"{raw} is not UTF-8: save the file as UTF-8")
    return cell.strip()


def parse_whole_label(cell: str) -> int:
    """Return a label that is a whole number, including 1.0."""
    number = parse_number_label(cell)
    if not number.is_integer() or abs(number) >= 2**63:
        raise ValueError(f"expected a whole number, as in the first rows, got {show(cell)}")
    return int(cell) if is_whole(cell) else int(number)


def parse_number_label(cell: str) -> float:
    """Return a label that is a number."""
    number = parse_number(cell)
    if math.isnan(number):
        raise ValueError(f"the label is missing, got {show(cell)}")
    return number


def parse_number_target(cell: str) -> float:
    """Return the target of a regression."""
    number = parse_number(cell)
    if math.isnan(number):
        raise ValueError(f"the target is missing, got {show(cell)}")
    return number


def parse_text_label(cell: str) -> str:
    """Return a label that is text."""
    text = parse_text(cell)
    if text is None:
        raise ValueError(f"the label is missing, got {show(cell)}")
    return text


def is_whole(cell: str) -> bool:
    """Return whether a cell holds a number written without decimals."""
    with contextlib.suppress(ValueError):
        return is_number(cell) and abs(int(cell)) < 2**63
    return False


# ---------------------------------------------------------------------- numbers, written as text
class Written(NamedTuple):
    """A formatted number: its value, its unit, and whether it has thousands separators."""

    value: float
    unit: str
    has_thousands: bool


def read_written(cell: str) -> Written | None:
    """Return the number in a cell, with its unit; None if there is none.

    Examples
    --------
    >>> read_written("$47,709.04"), read_written("4.3 %").value, read_written("(12.50)").value
    (Written(value=47709.04, unit='$', has_thousands=True), 4.3, -12.5)
    >>> read_written("1 200"), read_written("1'200").value, read_written("\u221212").value
    (Written(value=1200.0, unit='', has_thousands=True), 1200.0, -12.0)
    >>> read_written("1,5"), read_written("12 km")
    (None, None)
    """
    if is_number(cell):
        return Written(float(cell), "", has_thousands=False)
    found = WRITTEN.fullmatch(cell.strip())
    if found is None:
        return None
    units = [unit for unit in (found["before"], found["after"]) if unit]
    signs = [sign for sign in (found["sign"], found["inner"], found["open"]) if sign]
    if len(units) > 1 or len(signs) > 1 or bool(found["open"]) != bool(found["close"]):
        return None
    if found["number"].startswith("0") and found["mark"]:
        return None  # 0,123 is a decimal comma
    value = float(found["number"].replace(found["mark"] or ",", ""))
    is_negative = bool(signs) and signs[0] != "+"
    unit = units[0] if units else ""
    return Written(-value if is_negative else value, unit, found["mark"] is not None)


def find_unit(values: Sequence[str], *, may_be_decimal: bool) -> str | None:
    """Return the unit of formatted numbers, "" if they have none; None if most are not numbers.

    All must have the same unit. With `may_be_decimal`, a comma alone is not enough: one of the
    numbers must show that it is not a decimal comma.

    Examples
    --------
    >>> find_unit(["$1,200.50", "$80"], may_be_decimal=False)
    '$'
    >>> find_unit(["$5", "5 %"], may_be_decimal=False), find_unit(["1,200"], may_be_decimal=True)
    (None, None)
    """
    written = [(value, found) for value in values if (found := read_written(value)) is not None]
    if 2 * len(written) <= len(values):
        return None
    units = {found.unit for _, found in written} - {""}
    grouped = [value for value, found in written if found.has_thousands]
    if len(units) > 1 or all(is_number(value) for value, _ in written):
        return None
    if grouped and may_be_decimal and all(map(UNCLEAR_COMMA.fullmatch, grouped)):
        return None
    return units.pop() if units else ""


def find_own_unit(values: Sequence[str]) -> str | None:
    """Return the unit after most values, which must be numbers; None if there is none.

    Examples
    --------
    >>> find_own_unit(["72.5 kg", "80 kg"]), find_own_unit(["1 day", "2 days"])
    ('kg', None)
    """
    found = [match["unit"] for value in values if (match := WITH_UNIT.fullmatch(value.strip()))]
    units = set(found)
    if 2 * len(found) <= len(values) or len(units) != 1:
        return None
    unit = units.pop()
    return unit if all(_has_unit(value, unit) for value in values if unit in value) else None


def _has_unit(cell: str, unit: str) -> bool:
    text = cell.strip()
    return text.endswith(unit) and read_written(text.removesuffix(unit)) is not None


def parse_written(cell: str, unit: str) -> float:
    """Return a number with thousands separators or a unit, NaN if missing.

    In a column of percentages, a number without the sign might be a fraction, and is malformed,
    except 0.

    Examples
    --------
    >>> parse_written("1,200.50 EUR", "EUR"), parse_written("80", "EUR")
    (1200.5, 80.0)
    >>> parse_written("0.05", "%")
    Traceback (most recent call last):
    ValueError: expected a number with %, as in the first rows, got '0.05'
    """
    if is_missing(cell):
        return math.nan
    found = read_written(cell)
    if found is None and unit and _has_unit(cell, unit):
        bare = read_written(cell.strip().removesuffix(unit))
        found = bare and bare._replace(unit=unit)
    if found is None or math.isinf(found.value):
        raise ValueError(f"expected a number, got {show(cell)}")
    is_bare = not found.unit and (unit != "%" or found.value == 0)
    if found.unit != unit and not is_bare:
        words = f"with {unit}" if unit else "without a unit"
        raise ValueError(f"expected a number {words}, as in the first rows, got {show(cell)}")
    return found.value


# ---------------------------------------------------------------------- times
CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp][Mm])?"
ZONE = r"(?:\s?(?:Z|UTC|[-+]\d{2}:?\d{2}))?"
YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}})(?:[T ]+({CLOCK}){ZONE})?")
YEAR_LAST = re.compile(
    rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}})(?:[T ]+({CLOCK}){ZONE})?"
)
CLOCK_ONLY = re.compile(rf"({CLOCK})")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
MONTH = "|".join([f"{name[:3]}(?:{name[3:]})?" for name in MONTHS] + ["sept"])
MONTH_AS_WORD = re.compile(  # perhaps after a weekday
    rf"(?:[a-z]{{3,9}},? )?(?:(?P<day>\d{{1,2}})[-/. ]{{1,2}}(?P<month>{MONTH})|"
    rf"(?P<first>{MONTH})\.? (?P<second>\d{{1,2}}))\.?,?[-/ ](?P<year>\d{{4}}|\d{{2}})"
    r"(?:(?:,? |:)(?P<clock>.+))?",
    re.IGNORECASE,
)
COMPACT = re.compile(r"(\d{4})()(\d{2})(\d{2})()")  # 20241231
SECONDS = {"seconds": 1, "milliseconds": 1000}  # since 1970, of which a second has so many
MOST_SECONDS = 253_402_300_799  # to the end of the year 9999, as of the other formats
CLOCK_PARTS = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?:\s?([AaPp])[Mm])?")
PIVOT = 69  # of years with two digits: from 1969 to 2068, as in Python
EPOCH = dt.date(1970, 1, 1)


class TimeFormat(NamedTuple):
    """The format of a column of times.

    Attributes
    ----------
    order : {"ymd", "dmy", "mdy", "compact", "seconds", "milliseconds", ""}
        Order of year, month and day, without separators if compact; seconds or milliseconds since
        1970; "" if there is only a time of day.
    has_hour : bool
        Whether there are times of day.
    example : str
        An example.
    """

    order: str
    has_hour: bool
    example: str

    @property
    def has_day(self) -> bool:
        """Whether there are dates."""
        return bool(self.order)

    def parse(self, cell: str) -> np.datetime64:
        """Return the time in a cell, NaT if missing; raise if it is not one.

        Examples
        --------
        >>> print(TimeFormat("dmy", False, "").parse("29.2.2024"))
        2024-02-29T00:00:00
        """
        if is_missing(cell):
            return np.datetime64("NaT", "s")
        text = cell.strip()
        if self.order in SECONDS and is_number(text) and math.isfinite(float(text)):
            seconds = float(text) // SECONDS[self.order]
            if abs(seconds) <= MOST_SECONDS:
                return np.datetime64(int(seconds), "s")
        found = _match(self.order, text)
        if found is not None:
            try:
                return np.datetime64(self._moment(found), "s")
            except ValueError:
                pass  # such as 31 April
        raise ValueError(f"expected a time such as {self.example}, got {show(cell)}")

    def _moment(self, found: re.Match[str]) -> dt.datetime:
        if not self.order:
            return dt.datetime.combine(EPOCH, _read_clock(found[1]))
        order = "ymd" if self.order == "compact" else self.order
        parts = dict(zip(order, (found[1], found[3], found[4]), strict=True))
        day = dt.date(_read_year(parts["y"]), int(parts["m"]), int(parts["d"]))
        return dt.datetime.combine(day, _read_clock(found[5]))


def _match(order: str, text: str) -> re.Match[str] | None:
    """Match a time; with the year first, also with the month as a word."""
    if order in SECONDS:
        return None
    if order == "compact":
        return COMPACT.fullmatch(text)
    if order == "ymd":
        return YEAR_FIRST.fullmatch(text) or YEAR_FIRST.fullmatch(_with_digits(text))
    return (YEAR_LAST if order else CLOCK_ONLY).fullmatch(text)


def _with_digits(text: str) -> str:
    """Rewrite a date whose month is an English word, such as 31 Dec 2024 or December 31, 2024."""
    found = MONTH_AS_WORD.fullmatch(text)
    if found is None:
        return text
    word = (found["month"] or found["first"]).lower()
    month = 1 + next(i for i, name in enumerate(MONTHS) if name.startswith(word[:3]))
    date = f"{_read_year(found['year']):04d}-{month}-{found['day'] or found['second']}"
    return f"{date} {found['clock']}" if found["clock"] else date


def _read_year(text: str) -> int:
    year = int(text)
    if len(text) == 2:
        year += 2000 if year < PIVOT else 1900
    return year


def _read_clock(text: str | None) -> dt.time:
    found = CLOCK_PARTS.fullmatch(text or "0:00")
    assert found is not None
    hour, half = int(found[1]), (found[4] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + (12 if half == "p" else 0)
    return dt.time(hour, int(found[2]), int(found[3] or 0))


class UnclearDatesError(ValueError):
    """It is ambiguous whether the day or the month comes first."""


def find_time_format(values: Sequence[str]) -> TimeFormat | None:
    """Return the format of times; None if most values are not times.

    Examples
    --------
    >>> find_time_format(["2024-02-29T13:30:00Z", "2024-03-01 08:00"]).order
    'ymd'
    >>> find_time_format(["02/29/2024", "03/01/2024"]).order
    'mdy'
    >>> find_time_format(["13:30", "08:00"])
    TimeFormat(order='', has_hour=True, example='13:30')
    """
    texts = [value.strip() for value in values]
    matches = {
        order: {text: found for text in texts if (found := _match(order, text))}
        for order in ("ymd", "", "year last")
    }
    counts = {order: sum(text in found for text in texts) for order, found in matches.items()}
    order = max(counts, key=counts.__getitem__)
    most = matches[order]
    if 2 * counts[order] <= len(values):
        return None
    if order == "year last":
        order = _find_order(most.values())
    has_hour = not order or any(found[5] for found in most.values())
    form = TimeFormat(order, has_hour, next(iter(most)))
    n_good = sum(_parses(form.parse, text) for text in texts if text in most)
    return form if 2 * n_good > len(values) else None


def find_numbered_times(values: Sequence[str]) -> TimeFormat | None:
    """Return the format of times written as numbers; None if they are not times.

    Examples
    --------
    >>> find_numbered_times(["20240229", "20240301"]).order
    'compact'
    >>> form = find_numbered_times(["1709213400", "1709280000"])
    >>> form.order, str(form.parse("1709213400"))
    ('seconds', '2024-02-29T13:30:00')
    """
    texts = [value.strip() for value in values]
    if not texts or not all(map(is_number, texts)):
        return None
    compact = TimeFormat("compact", has_hour=False, example=texts[0])
    if 2 * sum(_parses(compact.parse, text) for text in texts) > len(texts):
        return compact
    middle = sorted(map(float, texts))[len(texts) // 2]
    for order, n in SECONDS.items():
        if 1e8 <= middle / n < 1e10:  # from 1973 to 2286
            return TimeFormat(order, has_hour=True, example=texts[0])
    return None


def _find_order(dates: Iterable[re.Match[str]]) -> str:
    """Return the order of day and month: the day is first with dots, or if it exceeds 12."""
    counts: Counter[str] = Counter()
    example = ""
    for found in dates:
        example = example or found[0]
        first, second = int(found[1]), int(found[3])
        counts["dmy"] += first > 12 or found[2] == "."
        counts["mdy"] += second > 12 and found[2] != "."
    if bool(counts["dmy"]) == bool(counts["mdy"]):
        raise UnclearDatesError(
            f"holds dates such as {example!r}, where it is unclear whether the day or the month "
            "comes first"
        )
    return max(counts, key=counts.__getitem__)


def _parses(parse: Callable[[str], object], cell: str) -> bool:
    try:
        parse(cell)
    except ValueError:
        return False
    return True


def unit_parser(unit: str) -> Callable[[str], float]:
    """Return the parser of numbers with this unit."""
    return partial(parse_written, unit=unit)
