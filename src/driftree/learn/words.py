"""Words: names and values as text for errors and plots."""

from __future__ import annotations

import reprlib
from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 60
MAX_QUOTED = 100  # characters


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
