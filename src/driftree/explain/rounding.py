"""Rounding: numbers with few digits on a given side of those they stand for."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


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
