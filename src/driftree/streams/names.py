"""Names that users type: found, or answered with the nearest one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_name(name: str, known: Iterable[str], what: str) -> str:
    """Return a name that is known; raise otherwise.

    Examples
    --------
    >>> check_name("dmt", ["dmt", "efdt"], "learner")
    'dmt'
    >>> check_name("edft", ["dmt", "efdt"], "learner")
    Traceback (most recent call last):
    ...
    ValueError: there is no learner 'edft' (did you mean efdt?): choose from dmt, efdt
    """
    names = list(known)
    if name in names:
        return name
    raise ValueError(
        f"there is no {what} {name!r}{hint(name, names)}: choose from {', '.join(names)}"
    )


def hint(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest name was meant; nothing if none is near.

    Examples
    --------
    >>> hint("electricty", ["electricity", "sea"])
    ' (did you mean electricity?)'
    """
    names = list(known)
    word = name.lower().replace("-", "_").replace(" ", "_")
    near = get_close_matches(name, names, n=1) or get_close_matches(word, names, n=1)
    near = near or [one for one in names if word and word in one]
    return f" (did you mean {near[0]}?)" if near else ""
