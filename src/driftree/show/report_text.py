"""The report's text: names that are long or hostile are sent once, and then named by number.

A rule or a sentence names the same few features over and over. On its way to the page each of them,
unless it is short and plain, is written as a number between two `MARK`s, which the page looks up in
the list of names.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from driftree.learn.events import Condition, RunnerUp, join_path
from driftree.learn.words import printable

if TYPE_CHECKING:
    from driftree.learn.events import Event

MARK = "\x7f"  # in no name: `printable` writes it in another way
MAX_NAME = 1000  # characters
MAX_PLAIN = 12  # characters of a name that may as well stand in the text
# What turns or breaks the line that it stands in: controls, and those of the direction of writing.
CONTROLS = re.compile("[\x00-\x1f\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Return a text with its control characters written as in Python.

    Examples
    --------
    >>> print(visible("evil\u202ename"))
    evil\u202ename
    """
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


class _Name:
    """A value in a condition that is written as its number."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __repr__(self) -> str:
        return self._token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(self._token)


class Words:
    """The conditions and names of a page, and texts that are made of them.

    Attributes
    ----------
    names : list of str
        What the numbers in the texts stand for.
    conditions : list
        Per condition the text, and how much of it is the feature's name: in little room the name is
        shortened, not the question.

    Examples
    --------
    >>> words = Words()
    >>> income = "yearly household income"
    >>> path = Condition("age", "<=", 60.0), Condition(income, ">", 40.0)
    >>> print(words.rule(path).replace(MARK, "|"), words.names)
    age <= 60 and |0| > 40 ['yearly household income']
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.conditions: list[tuple[str, int]] = []
        self._name_numbers: dict[str, int] = {}
        self._condition_numbers: dict[tuple[str, int], int] = {}

    def number(self, condition: Condition | None) -> int:
        """Return the number of a condition, -1 for none."""
        if condition is None:
            return -1
        folded = self._fold_condition(condition)
        key = (str(folded), len(folded.feature))
        if key not in self._condition_numbers:
            self._condition_numbers[key] = len(self.conditions)
            self.conditions.append(key)
        return self._condition_numbers[key]

    def rule(self, path: tuple[Condition, ...]) -> str:
        """Say which rows a path leads to."""
        return join_path(self._fold(path)) or "all rows"

    def sentence(self, event: Event) -> str:
        """Say what an event says."""
        parts = {field.name: self._fold(getattr(event, field.name)) for field in fields(event)}
        if parts.get("third_label") is not None:
            parts["third_label"] = _Name(self._token(repr(parts["third_label"])))
        return str(replace(event, **parts))

    def _fold(self, part: Any) -> Any:
        """Return a condition, or what contains some, with numbers for names."""
        if isinstance(part, Condition):
            return self._fold_condition(part)
        if isinstance(part, RunnerUp):
            return replace(part, condition=self._fold(part.condition))
        return tuple(map(self._fold, part)) if isinstance(part, tuple) else part

    def _fold_condition(self, condition: Condition) -> Condition:
        value = condition.value
        if value is not None and not isinstance(value, float):
            value = _Name(self._token(repr(value)))
        return replace(condition, feature=self._token(condition.feature), value=value)

    def _token(self, name: str) -> str:
        if len(name) <= MAX_PLAIN and name.isascii() and name.isprintable():
            return name
        if name not in self._name_numbers:
            self._name_numbers[name] = len(self.names)
            text = printable(name)
            self.names.append(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…")
        return f"{MARK}{self._name_numbers[name]}{MARK}"
