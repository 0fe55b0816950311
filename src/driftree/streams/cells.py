"""Cells of text: what is missing, what is a number, and what else may stand there."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = frozenset({"", "NA", "NaN", "nan", "null", "?"})
DECIMAL_COMMA = re.compile(r"\s*[-+]?[\d.]+,\d+\s*")
SHOWN_CHARACTERS = 60  # of a cell: an opened quote may have swallowed many lines


def is_missing(cell: str) -> bool:
    """Tell whether a cell stands for a missing value.

    Examples
    --------
    >>> [is_missing(cell) for cell in ("NA", " ", "0", "none")]
    [True, True, False, False]
    """
    return cell.strip() in MISSING


def is_number(cell: str) -> bool:
    """Tell whether a cell holds a number; 1_000 is one in Python only."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_text(cell: str) -> bool:
    """Tell whether a cell was UTF-8: bytes that were not came in as lone surrogates."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_decimal_commas(cells: Sequence[str]) -> bool:
    """Tell whether a column that is not numeric would be with decimal points.

    Examples
    --------
    >>> has_decimal_commas(["1,5", "?", "-20,25", "7"]), has_decimal_commas(["1,5", "a", "b"])
    (True, False)
    """
    values = [cell for cell in cells if not is_missing(cell)]
    n_commas = sum(DECIMAL_COMMA.fullmatch(cell) is not None for cell in values)
    return n_commas > 0 and 2 * n_commas >= len(values)


def show(cell: str) -> str:
    """Quote a cell; the end of a long one is left out."""
    is_long = len(cell) > SHOWN_CHARACTERS
    return f"{cell[:SHOWN_CHARACTERS]!r}..." if is_long else repr(cell)


# ---------------------------------------------------------------------- one cell
def parse_number(cell: str) -> float:
    """Return a feature that is a number, NaN where missing; raise an error that says why not."""
    if is_missing(cell):
        return math.nan
    if not is_number(cell):
        raise ValueError(f"expected a number, got {show(cell)}")
    number = float(cell)
    if math.isinf(number):
        raise ValueError(f"expected a finite number, got {show(cell)}")
    return number


def parse_text(cell: str) -> str | None:
    """Return a feature that is text, None where missing."""
    if is_missing(cell):
        return None
    if not is_text(cell):
        raise ValueError(f"{show(cell)} is not UTF-8: save the file as UTF-8")
    return cell


def parse_whole_label(cell: str) -> int:
    """Return a label that is a whole number, 1.0 included."""
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
    """Tell whether a cell holds a whole number in whole-number form."""
    with contextlib.suppress(ValueError):
        return is_number(cell) and abs(int(cell)) < 2**63
    return False
