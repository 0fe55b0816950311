"""Names that users type: found, or answered with the nearest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.learn.tables import nearest_name

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
    near = nearest_name(name, known)
    return "" if near is None else f" (did you mean {near}?)"
