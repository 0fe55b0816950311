"""Numbers and times that are written as text: thousands, currencies, percent, dates, clocks."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.streams.cells import is_missing, is_number, show

if TYPE_CHECKING:
    from collections.abc import Iterable

CURRENCIES = r"[$€£¥₹]|USD|EUR|GBP|CHF|JPY"
THOUSANDS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"
WRITTEN = re.compile(
    rf"(?P<open>\()?(?P<sign>[-+])?\s?(?P<before>{CURRENCIES})?\s?(?P<inner>[-+])?"
    rf"(?P<number>{THOUSANDS}|\d+(?:\.\d*)?|\.\d+)\s?(?P<after>%|{CURRENCIES})?(?P<close>\))?"
)
UNCLEAR_COMMA = re.compile(r"\d{1,3},\d{3}")  # 1,234 may be 1234, or 1.234 with a decimal comma
CODE = re.compile(r"0\d+")  # 01067 is not a number, but a code


# ---------------------------------------------------------------------- numbers
class Written(NamedTuple):
    """A number as it is written: its value, its unit, and whether it has thousands apart."""

    value: float
    unit: str
    has_thousands: bool


def read_written(cell: str) -> Written | None:
    """Return the number in a cell, with its unit; None if there is none.

    Examples
    --------
    >>> read_written("$47,709.04"), read_written("4.3 %").value, read_written("(12.50)").value
    (Written(value=47709.04, unit='$', has_thousands=True), 4.3, -12.5)
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
    if found["number"].startswith("0") and "," in found["number"]:
        return None  # 0,123 is a decimal comma
    value = float(found["number"].replace(",", ""))
    is_negative = bool(signs) and signs[0] != "+"
    return Written(-value if is_negative else value, units[0] if units else "", "," in cell)


def find_unit(values: Sequence[str], *, may_be_decimal: bool) -> str | None:
    """Return the unit of numbers in disguise, "" if they only have thousands; None if they are not.

    Most of the values are such numbers then, all with the same unit. With `may_be_decimal`, a comma
    alone is not enough: one of the numbers must show that it does not stand before decimals.

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
    if len(units) > 1 or not (units or grouped):
        return None
    if grouped and may_be_decimal and all(map(UNCLEAR_COMMA.fullmatch, grouped)):
        return None
    return units.pop() if units else ""


def parse_written(cell: str, unit: str) -> float:
    """Return a number that may have thousands apart and a unit, NaN where missing.

    In a column of percent, a number without the sign might be a share, and is malformed, but for 0.

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
CLOCK_PARTS = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?:\s?([AaPp])[Mm])?")
PIVOT = 69  # of years with two digits: from 1969 to 2068, as in Python
EPOCH = dt.date(1970, 1, 1)


class TimeFormat(NamedTuple):
    """How the times of a column are written.

    Attributes
    ----------
    order : {"ymd", "dmy", "mdy", ""}
        Year, month and day; "" if there is only a time of day.
    has_hour : bool
        Whether there are times of day.
    example : str
        One of them.
    """

    order: str
    has_hour: bool
    example: str

    @property
    def has_day(self) -> bool:
        """Whether there are dates."""
        return bool(self.order)

    def parse(self, cell: str) -> np.datetime64:
        """Return a time, NaT where missing; raise an error that says why not.

        Examples
        --------
        >>> print(TimeFormat("dmy", False, "").parse("29.2.2024"))
        2024-02-29T00:00:00
        """
        if is_missing(cell):
            return np.datetime64("NaT", "s")
        text = cell.strip()
        pattern = {"ymd": YEAR_FIRST, "": CLOCK_ONLY}.get(self.order, YEAR_LAST)
        found = pattern.fullmatch(text)
        if found is not None:
            try:
                return np.datetime64(self._moment(found), "s")
            except ValueError:
                pass  # such as 31 April
        raise ValueError(f"expected a time such as {self.example}, got {show(cell)}")

    def _moment(self, found: re.Match[str]) -> dt.datetime:
        if not self.order:
            return dt.datetime.combine(EPOCH, _read_clock(found[1]))
        parts = dict(zip(self.order, (found[1], found[3], found[4]), strict=True))
        year = int(parts["y"])
        if len(parts["y"]) == 2:
            year += 2000 if year < PIVOT else 1900
        day = dt.date(year, int(parts["m"]), int(parts["d"]))
        return dt.datetime.combine(day, _read_clock(found[5]))


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
    """Dates may be read with the day or with the month first."""


def find_time_format(values: Sequence[str]) -> TimeFormat | None:
    """Return how the times are written that most values are; None if they are not times.

    Examples
    --------
    >>> find_time_format(["2024-02-29T13:30:00Z", "2024-03-01 08:00"]).order
    'ymd'
    >>> find_time_format(["02/29/2024", "03/01/2024"]).order
    'mdy'
    >>> find_time_format(["13:30", "08:00"])
    TimeFormat(order='', has_hour=True, example='13:30')
    """
    matches: dict[str, list[re.Match[str]]] = {
        kind: [found for value in values if (found := pattern.fullmatch(value.strip()))]
        for kind, pattern in (("ymd", YEAR_FIRST), ("", CLOCK_ONLY), ("last", YEAR_LAST))
    }
    kind = max(matches, key=lambda kind: len(matches[kind]))
    most = matches[kind]
    if not most or 2 * len(most) <= len(values):
        return None
    order = _find_order(most) if kind == "last" else kind
    has_hour = not order or any(found[5] for found in most)
    form = TimeFormat(order, has_hour, most[0][0])
    n_good = sum(_parses(form.parse, found[0]) for found in most)
    return form if 2 * n_good > len(values) else None


def _find_order(dates: Iterable[re.Match[str]]) -> str:
    """Tell day and month apart: with dots the day comes first, else numbers beyond 12 tell."""
    counts: Counter[str] = Counter()
    example = ""
    for found in dates:
        example = example or found[0]
        first, second = int(found[1]), int(found[3])
        counts["dmy"] += first > 12 or found[2] == "."
        counts["mdy"] += second > 12 and found[2] != "."
    if bool(counts["dmy"]) == bool(counts["mdy"]):
        raise UnclearDatesError(
            f"holds dates such as {example!r}, of which it is unclear whether the day or the month "
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
    """Return how cells of a column of numbers with this unit are read."""
    return partial(parse_written, unit=unit)
