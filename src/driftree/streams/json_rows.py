"""JSON rows: strict reading of JSON that somebody else has sent.

UTF-8, no NaN, no duplicate keys, no numbers beyond float64. Errors say where and what.
"""

from __future__ import annotations

import json
import math
from typing import Any

from driftree.learn.words import quoted

MAX_TEXT = 1000  # characters of a name, a level or a label
LARGEST = 2**1023  # of integers: float64 can still hold it
KINDS = {dict: "an object", list: "a list", type(None): "null"}


def parse(body: bytes) -> Any:
    r"""Parse JSON strictly.

    Examples
    --------
    >>> parse(b'{"rows": [{"age": 31}]}')
    {'rows': [{'age': 31}]}
    >>> parse(b'{"age": 31, "age": 32}')
    Traceback (most recent call last):
    ValueError: duplicate key 'age'
    """
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        words = "it is nested too deeply"
    except (UnicodeDecodeError, json.JSONDecodeError, DuplicateKeyError) as error:
        words = str(error)
    except ValueError:  # Python converts no more than 4,300 digits
        words = "an integer has too many digits"
    raise ValueError(words) from None


class DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DuplicateKeyError(f"duplicate key {quoted(twice)}")
    return found


def check_value(value: Any, where: str) -> None:
    """Raise unless a value is text, a boolean or a finite number, of reasonable size.

    Examples
    --------
    >>> check_value(3, "column 'age', row 0")
    >>> check_value(float("nan"), "column 'age', row 1")
    Traceback (most recent call last):
    ValueError: column 'age', row 1: JSON has no nan: use null if missing
    """
    kind = type(value)
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{where}: JSON has no {value}: use null if missing")
    elif kind is str:
        if len(value) > MAX_TEXT:
            raise ValueError(f"{where}: the text exceeds {MAX_TEXT:,} characters: shorten it")
    elif kind is int:
        if not -LARGEST < value < LARGEST:
            raise ValueError(f"{where}: the number is too large for float64: send it as text")
    elif kind is not bool:
        raise ValueError(
            f"{where} must be a number, text, true or false, got {KINDS.get(kind, kind)}"
        )
