"""Times: dates and times of day as features, by one rule for all readers.

A date becomes days since 1970-01-01 and the day of the week, a time of day its hour, with minutes
as a fraction; a date with a time becomes all three. Times are used as written: time zones are
ignored.
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn.validation import as_objects, is_missing

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

DAYS, HOUR, WEEKDAY = "days", "hour", "weekday"
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PART_ENDS = tuple(f": {part}" for part in (DAYS, HOUR, WEEKDAY))
THURSDAY = 3  # 1970-01-01 was one
TIME_TYPES = (dt.date, dt.time, np.datetime64)


def part_name(name: Hashable, part: str) -> str:
    """Return the name of a part of a time.

    Examples
    --------
    >>> part_name("ordered", HOUR)
    'ordered: hour'
    """
    return f"{name}: {part}"


def whole_names(names: Iterable[Hashable]) -> set[str]:
    """Return the names of the times whose parts are among some features.

    Examples
    --------
    >>> whole_names(["ordered: hour", "ordered: days", "age"])
    {'ordered'}
    """
    texts = [name for name in names if isinstance(name, str)]
    return {name.rpartition(": ")[0] for name in texts if name.endswith(PART_ENDS)}


def whole_name(name: Hashable) -> Hashable:
    """Return the name of the time of which a feature is a part, or else its own name.

    Examples
    --------
    >>> whole_name("ordered: hour"), whole_name("age")
    ('ordered', 'age')
    """
    is_part = isinstance(name, str) and name.endswith(PART_ENDS)
    return str(name).rpartition(": ")[0] if is_part else name


def holds_times(cells: NDArray[Any] | list[Any]) -> bool:
    """Return whether the first value of a column is a date or a time.

    Examples
    --------
    >>> holds_times([None, dt.date(2024, 2, 29)]), holds_times([2.5])
    (True, False)
    """
    if isinstance(cells, np.ndarray):
        return cells.dtype.kind == "M"
    for cell in cells:
        if isinstance(cell, TIME_TYPES):
            return not is_missing(cell) or all(
                isinstance(other, TIME_TYPES) or is_missing(other) for other in cells
            )
        if not is_missing(cell):
            return False
    return False


def split_row(x: Mapping[Hashable, Any], known: Container[Hashable]) -> Mapping[Hashable, Any]:
    """Return a row with dates and times split into parts, except for known features.

    Examples
    --------
    >>> split_row({"opens": dt.time(9, 30), "age": 31}, known=["age"])
    {'opens: hour': 9.5, 'age': 31}
    """
    if not any(isinstance(value, TIME_TYPES) for _, value in x.items()):  # a series is one, too
        return x
    row: dict[Hashable, Any] = {}
    for name, value in x.items():
        if isinstance(value, TIME_TYPES) and name not in known:
            parts = {} if is_missing(value) else split_times(name, [value])
            check_parts([*x, *parts])
            row |= {part: values.tolist()[0] for part, values in parts.items()}
        else:
            row[name] = value
    return row


def check_parts(names: Sequence[Hashable]) -> None:
    """Raise if a part of a time has the name of another feature.

    Examples
    --------
    >>> check_parts(["ordered: days", "ordered: weekday", "ordered: days"])
    Traceback (most recent call last):
    ValueError: 'ordered: days' is a feature, and a part of the time 'ordered': rename one of them
    """
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        whole = str(twice).rpartition(": ")[0]
        raise ValueError(
            f"{twice!r} is a feature, and a part of the time {whole!r}: rename one of them"
        )


def split_texts(x: Mapping[str, Any], times: Iterable[str]) -> Mapping[str, Any]:
    """Return a row with times given as text, as in JSON, split into their parts.

    Parameters
    ----------
    x : dict
        Names to values.
    times : iterable of str
        Names whose parts are features; other text is unchanged.

    Examples
    --------
    >>> split_texts({"ordered": "2024-02-29T13:30", "car": "van"}, ["ordered"])
    {'car': 'van', 'ordered: days': 19782.0, 'ordered: hour': 13.5, 'ordered: weekday': 'Thursday'}
    >>> split_texts({"ordered": "soon"}, ["ordered"])
    Traceback (most recent call last):
    ValueError: column 'ordered' holds times such as 2024-12-31T23:59, 2024-12-31 or 23:59, got
    'soon'
    """
    texts = {name: x[name] for name in times if isinstance(x.get(name), str)}
    if not texts:
        return x
    row = {name: value for name, value in x.items() if name not in texts}
    for name, text in texts.items():
        parts = split_times(name, [_read(name, text)])
        row |= {part: values.tolist()[0] for part, values in parts.items()}
    return row


def _read(name: str, text: str) -> dt.date | dt.time:
    for kind in (dt.date, dt.datetime, dt.time):
        with suppress(ValueError):
            return kind.fromisoformat(text.strip())
    raise ValueError(
        f"column {name!r} holds times such as 2024-12-31T23:59, 2024-12-31 or 23:59, got {text!r}"
    )


def split_times(name: Hashable, cells: NDArray[Any] | list[Any]) -> dict[str, Any]:
    """Return the parts of a column of times, missing ones as NaN and None.

    Examples
    --------
    >>> parts = split_times("ordered", [dt.datetime(2024, 2, 29, 13, 30), None])
    >>> for part, values in parts.items():
    ...     print(part, values)
    ordered: days [19782.    nan]
    ordered: hour [13.5  nan]
    ordered: weekday ['Thursday' None]
    >>> list(split_times("opens", [dt.time(9)]))
    ['opens: hour']
    """
    if isinstance(cells, np.ndarray):
        has_hour = np.datetime_data(cells.dtype)[0] not in ("D", "W", "M", "Y")
        return parts_of(name, cells, has_day=True, has_hour=has_hour)
    values = [None if is_missing(cell) else cell for cell in cells]
    has_hour = any(_has_hour(value) for value in values)
    has_day = any(isinstance(value, (dt.date, np.datetime64)) for value in values)
    moments = np.array([_moment(name, value) for value in values], dtype="datetime64[s]")
    return parts_of(name, moments, has_day=has_day, has_hour=has_hour)


def parts_of(
    name: Hashable, moments: NDArray[np.datetime64], *, has_day: bool, has_hour: bool
) -> dict[str, Any]:
    """Return the parts of an array of times."""
    seconds = moments.astype("datetime64[s]")
    is_missing_there = np.isnat(seconds)
    whole = np.where(is_missing_there, np.datetime64(0, "s"), seconds)
    days = whole.astype("datetime64[D]")
    parts: dict[str, Any] = {}
    if has_day:
        numbers = days.astype(np.int64)
        parts[part_name(name, DAYS)] = np.where(is_missing_there, np.nan, numbers)
    if has_hour:
        hours = (whole - days).astype(np.int64) / 3600
        parts[part_name(name, HOUR)] = np.where(is_missing_there, np.nan, hours)
    if has_day:
        texts = as_objects([*WEEKDAYS, None])
        place = np.where(is_missing_there, len(WEEKDAYS), (numbers + THURSDAY) % len(WEEKDAYS))
        parts[part_name(name, WEEKDAY)] = texts[place]
    return parts


def _has_hour(value: Any) -> bool:
    if isinstance(value, np.datetime64):
        return np.datetime_data(value.dtype)[0] not in ("D", "W", "M", "Y")
    return isinstance(value, (dt.datetime, dt.time))


def _moment(name: Hashable, value: Any) -> np.datetime64:
    """Return a date or a time without its zone; a time of day as one of 1970-01-01."""
    if value is None:
        return np.datetime64("NaT")
    if isinstance(value, np.datetime64):
        return value
    if isinstance(value, dt.time):
        value = dt.datetime.combine(dt.date(1970, 1, 1), value)
    if not isinstance(value, dt.date):
        raise TypeError(
            f"column {name!r} holds dates or times, but also {value!r} of type "
            f"{type(value).__name__!r}: convert it, or use None if it is missing"
        )
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None)
    return np.datetime64(value, "s")
