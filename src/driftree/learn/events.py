"""Events: what the tree changed, when, and the figures that made it change.

Every record is written at the moment of the decision from the very numbers that were compared.
Losses and gains are in nats (natural-log likelihood) over the rows that the evidence rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True, slots=True)
class Condition:
    """A test on one feature, in the user's names and units; rows that pass it go left.

    Examples
    --------
    >>> print(Condition("age", "<=", 40.0))
    age <= 40
    >>> print(Condition("age", "<=", 40.0).negated())
    age > 40
    >>> print(Condition("car", "==", "van"), "/", Condition("car", "is missing", None).negated())
    car == 'van' / car is present
    """

    feature: str
    operator: str
    value: object
    missing_passes: bool | None = None  # None: nothing was ever missing

    def negated(self) -> Condition:
        """Return the test that the rows on the other side pass."""
        opposite = {
            "<=": ">",
            ">": "<=",
            "==": "!=",
            "!=": "==",
            "is missing": "is present",
            "is present": "is missing",
        }
        passes = None if self.missing_passes is None else not self.missing_passes
        return Condition(self.feature, opposite[self.operator], self.value, passes)

    def __str__(self) -> str:
        if self.operator in ("is missing", "is present"):
            return f"{self.feature} {self.operator}"
        value = format_number(self.value) if isinstance(self.value, float) else repr(self.value)
        suffix = " or missing" if self.missing_passes and self.operator in ("<=", ">") else ""
        return f"{self.feature} {self.operator} {value}{suffix}"


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The candidate that came second, with the gain it had."""

    condition: Condition
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all changes of the tree have in common.

    Attributes
    ----------
    step : int
        Time step (number of steps learnt so far, the present one included).
    n_rows : int
        Rows learnt so far.
    node : int
        Id of the node that changed, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to that node.
    gain : float
        What the change saves, in nats: the gain that was compared.
    threshold : float
        What the gain had to reach.
    loss_before, loss_after : float
        The two losses whose difference is the gain.
    rows : float
        Rows that the evidence rests on.
    runner_up : RunnerUp or None
        The next best candidate.
    """

    step: int
    n_rows: int
    node: int
    path: tuple[Condition, ...]
    gain: float
    threshold: float
    loss_before: float
    loss_after: float
    rows: float
    runner_up: RunnerUp | None = None

    def _where(self) -> str:
        return f"the rows with {join_path(self.path)}" if self.path else "all rows"

    def _figures(self, before: str, after: str) -> str:
        text = (
            f"over {self.rows:,.0f} rows {after} lost {self.loss_after:,.1f} nats where "
            f"{before} lost {self.loss_before:,.1f}, a gain of {self.gain:,.1f} "
            f"({self.threshold:,.1f} needed)"
        )
        if self.runner_up is not None:
            text += f"; next best: {self.runner_up.condition} with {self.runner_up.gain:,.1f}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Event):
    """A leaf became an inner node: gain (3)."""

    condition: Condition

    def __str__(self) -> str:
        figures = self._figures("one model", "two models")
        return f"Row {self.n_rows:,}: split {self._where()} on {self.condition}: {figures}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(Event):
    """An inner node got another split, and its old branch went: gain (4)."""

    condition: Condition
    old_condition: Condition
    n_removed: int

    def __str__(self) -> str:
        figures = self._figures("the old branch", "two models")
        return (
            f"Row {self.n_rows:,}: replaced the split of {self._where()} on {self.old_condition} "
            f"by {self.condition}: {figures}; {self.n_removed} nodes were removed."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune(Event):
    """An inner node became a leaf: gain (5)."""

    old_condition: Condition
    n_removed: int

    def __str__(self) -> str:
        saved = self.loss_after - self.loss_before
        why = (
            self._figures("the branch", "one model")
            if self.threshold > 0
            else f"over {self.rows:,.0f} rows it saved {saved:,.1f} nats, not more than "
            f"the {-self.threshold:,.1f} it must"
        )
        what = f"pruned the split of {self._where()} on {self.old_condition}"
        return f"Row {self.n_rows:,}: {what}: {why}; {self.n_removed} nodes were removed."


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange(Event):
    """The noise floor came or went, and the tree started again from one leaf."""

    floor: tuple[float, float]
    n_removed: int
    third_label: Hashable = None

    def __str__(self) -> str:
        share = sum(self.floor)
        if self.third_label is not None:
            return (
                f"Row {self.n_rows:,}: a third label, {self.third_label!r}, has come, and allowing "
                f"for random labels is for two: the tree starts again from one leaf "
                f"({self.n_removed} nodes were removed)."
            )
        what = f"{share:.0%} of labels look random" if share else "labels no longer look random"
        figures = self._figures(
            "the tree", "one model that allows for it" if share else "one model"
        )
        return (
            f"Row {self.n_rows:,}: {what}: {figures}; "
            f"the tree starts again from one leaf ({self.n_removed} nodes were removed)."
        )


def join_path(path: tuple[Condition, ...]) -> str:
    """Join conditions to one readable phrase, without what a later condition implies.

    Examples
    --------
    >>> age = Condition("age", "<=", 60.0)
    >>> print(join_path((age, Condition("car", "==", "van"), Condition("age", "<=", 40.0))))
    car == 'van' and age <= 40
    """
    latest: dict[tuple[object, ...], Condition] = {}
    for condition in path:  # further down, a bound of the same kind is tighter
        is_level = condition.operator == "!="
        key = (condition.feature, condition.operator, condition.value if is_level else None)
        latest.pop(key, None)
        latest[key] = condition
    return " and ".join(str(condition) for condition in latest.values())


def format_number(value: float) -> str:
    """Format a number for people: whole numbers in full, others to four digits."""
    if abs(value) >= 1000 or value == round(value):
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"
