"""Words: changes of a row in a sentence that can be taken at its word, and numbers fit for it."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from driftree.explain.text import join_words, one_line
from driftree.learn.events import ALL_DIGITS, DIGITS, format_number
from driftree.learn.validation import plain

MAX_SAID = 6  # changes in a sentence


def say_changes(changes: dict[str, tuple[Any, Any]]) -> str:
    """Say what became of what, by name; of many changes, the first.

    Examples
    --------
    >>> say_changes({"age": (35, 40.5), "way": ("car", "bus"), "income": (0.30004, 0.3)})
    "age were 40.5 instead of 35, way were 'bus' instead of 'car' and income were 0.3 instead of
    0.30004"
    """
    parts = [
        f"{one_line(name)} were {_say_change(old, new)}" for name, (old, new) in changes.items()
    ]
    if len(parts) > MAX_SAID:
        n_left = len(parts) - MAX_SAID + 1
        parts = [*parts[: MAX_SAID - 1], f"{n_left} other features changed less"]
    return join_words(parts)


def _say_change(old: Any, new: Any) -> str:
    """Say both values: a new number in full, an old one with as many digits, more if need be."""
    old = plain(old)
    are_numbers = all(isinstance(one, (int, float)) for one in (old, new))
    if not are_numbers or isinstance(new, bool):
        return f"{one_line(repr(new))} instead of {one_line(repr(old))}"
    digits = DIGITS
    while float((after := format_number(new, digits)).replace(",", "")) != new:
        digits += 1
    while (before := format_number(old, digits)) == after and digits < ALL_DIGITS:
        digits += 1
    return f"{after} instead of {before}"


def round_away(new: float, old: float, digits: int) -> float:
    """Return a number rounded to so many digits, but no nearer to an old one; whole ones in full.

    Examples
    --------
    >>> round_away(51664.35, old=25000.0, digits=4), round_away(-0.12341, old=0.0, digits=4)
    (51665.0, -0.1235)
    """
    return _round(new, digits, ROUND_CEILING if new > old else ROUND_FLOOR)


def round_back(new: float, old: float, digits: int) -> float:
    """Return a number rounded to so many digits, but between an old one and itself.

    Examples
    --------
    >>> round_back(51664.35, old=25000.0, digits=4), round_back(0.12341, old=0.1234, digits=3)
    (51664.0, 0.1234)
    """
    if new > old:
        return max(old, _round(new, digits, ROUND_FLOOR))
    return min(old, _round(new, digits, ROUND_CEILING))


def _round(value: float, digits: int, direction: str) -> float:
    exact = Decimal(value)
    places = digits - 1 - exact.adjusted()
    if abs(value) < 1e15:
        places = max(0, places)
    return float(exact.quantize(Decimal(1).scaleb(-places), rounding=direction))
