"""Validation: checks that the readers of rows, targets and weights share, and words for errors.

Every error says where, what was given, and what to do.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from decimal import InvalidOperation
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn._kernels import MAX_LEVELS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import _TreeEngine

    Rows = NDArray[np.intp] | None  # the rows of the input that count; None is all of them

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 60
MAX_QUOTED = 100  # characters
# Python randomises the hashes of text and bytes, but not of numbers and tuples: an attacker can
# make them all collide, and n of them then need n * n / 2 comparisons, here about a second. Small
# whole numbers cannot collide for long: their hash is the number, and a dict uses five more bits of
# it with each probe.
MAX_SMALL = 2**31
MAX_NUMBERS = 10_000  # labels, or names, that are neither text nor bytes nor small whole numbers
MAX_PARTS = 50_000  # of all of them together: parts of long numbers and tuples


class InputWarning(UserWarning):
    r"""Input is read in an unexpected way; the warning says how.

    Examples
    --------
    >>> import io, warnings
    >>> from driftree.streams import open_stream
    >>> file = io.StringIO('price,sold\n"$1,200",yes\n$80,no\n')
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print([X["price"].tolist() for X, _ in open_stream(file)])
    [[1200.0, 80.0]]
    >>> print(caught[0].message)
    file object, by its first 2 rows:
    predicting 'sold' (last column; target= for another), 2 labels: yes 50 %, no 50 %
    numbers: price (as in $1,200)
    """


# ---------------------------------------------------------------------- words for errors and plots
def shown(value: object) -> str:
    """Return a short repr of a value, which may be a million rows.

    Examples
    --------
    >>> shown("v"), shown(list(range(10**6)))
    ("'v'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return " ".join(SHORT.repr(value).split())


def quoted(value: object) -> str:
    r"""Return a short ASCII repr of a value from a file, which may be anything.

    Examples
    --------
    >>> print(quoted("caf\N{LATIN SMALL LETTER E WITH ACUTE}"), len(quoted("v" * 10**6)))
    'caf\xe9' 103
    """
    text = ascii(value)
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "..."


def list_names(names: Iterable[Any], most: int = 8) -> str:
    """List names; the end of a long list is omitted."""
    shown = list(names)
    rest = f", ... ({len(shown)} in all)" if len(shown) > most else ""
    return ", ".join(map(repr, shown[:most])) + rest


def nearest_name(name: object, known: Iterable[Hashable]) -> Hashable:
    """Return the known name that was probably meant, None if none is near.

    Examples
    --------
    >>> nearest_name("Bank-Marketing", ["sea", "bank_marketing"]), nearest_name("x", ["sea"])
    ('bank_marketing', None)
    """
    names = {str(one).lower(): one for one in known}
    word = str(name).lower()
    tidy = word.replace("-", "_").replace(" ", "_")
    near = get_close_matches(word, names, n=1) or get_close_matches(tidy, names, n=1)
    near = near or [one for one in names if tidy and tidy in one]
    return names[near[0]] if near else None


def printable(text: str) -> str:
    r"""Return a text with non-printing and direction characters escaped as in Python.

    Examples
    --------
    >>> print(printable("two\nlines"))
    two\nlines
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def distinct_texts(texts: Iterable[str], precise: Iterable[str]) -> list[str]:
    """Return distinct texts: equal ones get more precise forms, numbered if necessary.

    Examples
    --------
    >>> names = [1, "1", "age"]
    >>> distinct_texts(map(str, names), map(repr, names))
    ['1', "'1'", 'age']
    """
    texts = list(texts)
    if len(set(texts)) == len(texts):
        return texts
    counts = Counter(texts)
    result = [
        better if counts[text] > 1 else text for text, better in zip(texts, precise, strict=True)
    ]
    distinct: dict[str, None] = {}
    for text in result:
        name, number = text, 1
        while name in distinct:
            number += 1
            name = f"{text} ({number})"
        distinct[name] = None
    return list(distinct)


# ---------------------------------------------------------------------- values
def is_missing(cell: Any) -> bool:
    """Return whether a value is None, NaN, NaT, pandas' NA or NumPy's masked.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, float("nan"), 0.0, "")]
    [True, True, False, False]
    """
    if cell is None or cell is np.ma.masked or type(cell).__name__ == "NAType":
        return True
    try:
        differs = cell != cell  # noqa: PLR0124 (NaN is the value that is not itself)
    except InvalidOperation:  # Decimal's signaling NaN, which cannot be compared
        return True
    return isinstance(differs, (bool, np.bool_)) and bool(differs)


def plain(value: Any) -> Any:
    """Return scalars of NumPy and pyarrow as Python objects; results do not depend on the source.

    Examples
    --------
    >>> plain(np.float32(0.5)), plain(np.ma.masked), plain(np.timedelta64(1, "ns"))
    (0.5, None, np.timedelta64(1,'ns'))
    """
    if isinstance(value, (np.bool_, np.number, np.character)):
        item = value.item()
        is_duration = isinstance(value, np.timedelta64)  # if in nanoseconds, the item is a number
        return value if is_duration and isinstance(item, int) else item
    if value is np.ma.masked:
        return None
    return value.as_py() if hasattr(type(value), "as_py") else value


def has_scalars(kinds: Iterable[type]) -> bool:
    """Return whether `plain` may change values of some of these types.

    Examples
    --------
    >>> has_scalars({str, float}), has_scalars({str, np.str_})
    (False, True)
    """
    return any(
        issubclass(kind, (np.generic, np.ma.MaskedArray)) or hasattr(kind, "as_py")
        for kind in kinds
    )


def unhashable(what: str, cells: Iterable[Any], rows: Rows) -> TypeError:
    """Return the error for the first unhashable cell."""
    for i, cell in enumerate(cells):
        try:
            hash(cell)
        except TypeError:
            return TypeError(
                f"{what}, row {row_of(i, rows)} holds {shown(cell)} of type "
                f"{type(cell).__name__!r}, which is not hashable: use text, numbers or tuples"
            )
    raise AssertionError("all are hashable")


def row_of(i: int, rows: Rows) -> int:
    """Return the number in the input of the i-th row that counts."""
    return i if rows is None else int(rows[i])


def unmasked(values: Any) -> Any:
    """Return a masked array with NaN or None for masked cells; others unchanged.

    Examples
    --------
    >>> unmasked(np.ma.masked_array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    is_number = values.dtype.kind in "fiu"
    with np.errstate(over="ignore"):  # infinity for a long double beyond float64
        cells = np.array(values.data, dtype=np.float64 if is_number else object)
    cells[np.ma.getmaskarray(values)] = math.nan if is_number else None
    return cells


def as_objects(values: list[Any]) -> NDArray[Any]:
    """Return values as an array of objects, even if they are sequences."""
    return np.fromiter(values, dtype=object, count=len(values))


# ---------------------------------------------------------------------- keys and codes
def _is_safe(key: Hashable) -> bool:
    """Return whether keys of this kind cannot be made to collide."""
    if isinstance(key, tuple):
        return bool(key) and all(isinstance(part, (str, bytes)) for part in key)
    return isinstance(key, (str, bytes)) or (isinstance(key, int) and -MAX_SMALL < key < MAX_SMALL)


def check_keys(keys: Iterable[Hashable], what: str, kind: type[ValueError] = ValueError) -> None:
    """Raise if there are too many keys that could be made to collide.

    Examples
    --------
    >>> check_keys(range(100_000), "labels")
    >>> check_keys([i / 10 for i in range(100_000)], "labels")
    Traceback (most recent call last):
    ValueError: 100,000 labels are neither text nor small whole numbers, but at most 10,000 may
    be: convert them to text
    """
    rest: list[Any] = [key for key in keys if not _is_safe(key)]
    n_keys = n_parts = len(rest)
    if n_keys > MAX_NUMBERS:
        raise kind(
            f"{n_keys:,} {what} are neither text nor small whole numbers, but at most "
            f"{MAX_NUMBERS:,} may be: convert them to text"
        )
    while rest and n_parts <= MAX_PARTS:
        key = rest.pop()
        if isinstance(key, tuple):
            n_parts += len(key)
            rest += key[:MAX_PARTS]
        elif isinstance(key, int):
            n_parts += key.bit_length() // 256
        elif isinstance(key, (str, bytes)):
            n_parts += len(key) // 256
    if n_parts > MAX_PARTS:
        raise kind(
            f"{n_keys:,} {what} are long numbers or tuples with more than {MAX_PARTS:,} parts in "
            "total: convert them to text"
        )


def check_codes(
    engine: _TreeEngine,
    names: Mapping[Hashable, int],
    levels: Sequence[Mapping[Hashable, int] | None],
    labels: Mapping[Hashable, int],
    *,
    indicators: bool,
) -> None:
    """Raise unless an engine has these features, levels and labels, as it trusts their codes."""
    if list(names.values()) != list(range(engine.n_features)) or len(levels) != len(names):
        raise ValueError(f"the names and levels are not those of {engine.n_features} features")
    if list(labels.values()) != list(range(engine.n_classes)):
        raise ValueError(f"the labels are not those of {engine.n_classes} classes")
    has_levels = levels.count(None) < len(levels)
    if not has_levels and engine.n_categorical == 0:
        return  # numbers only, as in most models
    columns = engine.level_column.reshape(-1, MAX_LEVELS + 1) if has_levels else np.empty((0, 0))
    value_column, is_categorical = engine.value_column.tolist(), engine.is_categorical.tolist()
    for j, (name, codes) in enumerate(zip(names, levels, strict=True)):
        has_value, is_category = value_column[j] >= 0, bool(is_categorical[j])
        if codes is None:
            fits = not is_category or (has_value and not indicators)
        else:
            is_numbered = list(codes.values()) == list(range(min(len(codes), MAX_LEVELS)))
            has_columns = not indicators or bool((columns[j, : len(codes)] >= 0).all())
            fits = is_category and has_value != indicators and is_numbered and has_columns
        if not fits:
            raise ValueError(f"the levels of feature {name!r} are not those of its columns")
