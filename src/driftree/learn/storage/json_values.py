"""JSON values: lossless encoding of names, levels, labels and figures as JSON.

Text, booleans, None, whole numbers and finite floats are JSON's own; 1 and 1.0 are distinguished,
and floats have all digits. Everything else is an object with one key: ``{"float": "nan"}``,
``{"bytes": "6162"}``, ``{"tuple": [...]}``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from driftree.learn.storage import ModelFileError
from driftree.learn.validation import check_keys, plain, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

MAX_DEPTH = 16  # of tuples
MAX_BITS = 4096  # of whole numbers
# A single NaN object compares equal to itself inside of tuples and records.
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any, what: str = "a value", depth: int = 0) -> Any:
    """Return a value for JSON; raise TypeError if a model file cannot hold it.

    Examples
    --------
    >>> encode((1, 1.0, "a", math.nan, b"ab"))
    {'tuple': [1, 1.0, 'a', {'float': 'nan'}, {'bytes': '6162'}]}
    """
    value = plain(value)
    kind = type(value)
    if value is None or kind in (bool, str) or (kind is int and value.bit_length() <= MAX_BITS):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple and depth < MAX_DEPTH:
        return {"tuple": [encode(item, what, depth + 1) for item in value]}
    raise TypeError(
        f"{what} is {quoted(value)} of type {kind.__name__!r}, which a model file cannot hold: "
        "only text, numbers, booleans, None, bytes and tuples of these; pickle can"
    )


def decode(item: Any, depth: int = 0) -> Any:
    """Return the value that was encoded.

    Examples
    --------
    >>> decode({"tuple": [1, 1.0, "a", {"float": "-inf"}, {"bytes": "6162"}]})
    (1, 1.0, 'a', -inf, b'ab')
    """
    if item is None or type(item) in (bool, str):
        return item
    if type(item) is int and item.bit_length() <= MAX_BITS:
        return item
    if type(item) is float and math.isfinite(item):
        return item
    if type(item) is dict and len(item) == 1:
        ((kind, inner),) = item.items()
        if kind == "float" and type(inner) is str and inner in FLOATS:
            return FLOATS[inner]
        if kind == "bytes" and type(inner) is str and inner.isascii() and inner == inner.lower():
            try:
                return bytes.fromhex(inner)
            except ValueError:
                pass
        if kind == "tuple" and type(inner) is list and depth < MAX_DEPTH:
            return tuple(decode(part, depth + 1) for part in inner)
    raise ModelFileError(f"unsupported value: {quoted(item)}")


# ---------------------------------------------------------------------- values as keys
def codes(item: Any, what: str) -> dict[Hashable, int]:
    """Return the indices of values, which must all differ."""
    found = [decode(one) for one in items(item, what)]
    check_keys(found, what, ModelFileError)
    by_value = {value: code for code, value in enumerate(found)}
    if len(by_value) < len(found):
        raise ModelFileError(f"the {what} must all be different")
    return by_value


# ---------------------------------------------------------------------- parts of an object
def members(item: Any, keys: Iterable[str], what: str) -> dict[str, Any]:
    """Return an object with exactly these keys."""
    keys = set(keys)
    if not isinstance(item, dict) or item.keys() != keys:
        raise ModelFileError(f"{what} must be an object with the keys {', '.join(sorted(keys))}")
    return item


def items(item: Any, what: str) -> list[Any]:
    """Return a list."""
    if type(item) is not list:
        raise ModelFileError(f"{what} must be a list, got {quoted(item)}")
    return item


def whole(item: Any, what: str, low: int = 0, high: int = 2**53) -> int:
    """Return a whole number in a range."""
    if type(item) is not int or not low <= item <= high:
        raise ModelFileError(
            f"{what} must be a whole number from {low} to {high}, got {quoted(item)}"
        )
    return item


def number(item: Any, what: str) -> float:
    """Return a float of any kind."""
    value = decode(item)
    if type(value) is not float:
        raise ModelFileError(f"{what} must be a float, got {quoted(item)}")
    return value


def text(item: Any, what: str) -> str:
    """Return a text."""
    if type(item) is not str:
        raise ModelFileError(f"{what} must be text, got {quoted(item)}")
    return item


def maybe(read: Callable[..., Any], item: Any, what: str) -> Any:
    """Return None, or an item read by `read`."""
    return None if item is None else read(item, what)
