"""Given: what a user sent, in few words for an error, and without masks."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 60


def shown(value: object) -> str:
    """Return what a value looks like, cut short: it may be a million rows.

    Examples
    --------
    >>> shown("v"), shown(list(range(10**6)))
    ("'v'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return " ".join(SHORT.repr(value).split())


def unmasked(values: Any) -> Any:
    """Return an array whose masked cells are NaN, or None where there is no NaN; others as given.

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
