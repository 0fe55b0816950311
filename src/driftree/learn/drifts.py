"""Drifts: alarms that the rule behind the rows has changed; where, since when, with what inputs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from driftree.learn.events import Condition, format_number, join_path


@dataclass(frozen=True, slots=True)
class InputChange:
    """An input whose values were others after a drift than before; `str` says it.

    Attributes
    ----------
    feature : str
        Its name.
    kind : str
        "values" (the distribution of its numbers), "missing" (how often it is missing) or "level"
        (how often it is one of its levels).
    before, after : float
        The median, or the share of rows.
    level : object
        The level.

    Examples
    --------
    >>> print(InputChange("age", "missing", 0.0, 0.25))
    age is missing in 25% of rows instead of 0%
    >>> print(InputChange("car", "level", 0.0, 0.1, level="van"))
    car == 'van' in 10% of rows instead of 0%
    """

    feature: str
    kind: str
    before: float
    after: float
    level: object = None

    def __str__(self) -> str:
        if self.kind == "values":
            before, after = (format_number(value) for value in (self.before, self.after))
            return f"{self.feature} has another distribution, with a median of {after} ({before})"
        what = "is missing" if self.kind == "missing" else f"== {self.level!r}"
        return f"{self.feature} {what} in {self.after:.0%} of rows instead of {self.before:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An alarm: the rule behind the rows has changed. `str` is a sentence.

    Attributes
    ----------
    n_rows : int
        Rows learnt when the alarm was raised.
    since : int
        Row of the last check without evidence for it: the drift began about then, or soon after.
    excess : float
        Nats per row that the present tree would lose on the rows before, beyond what was lost when
        they came. Each row counts for at most 4, either way.
    loss_before, loss_since : float
        Mean loss of the rows kept, when they came: until `since`, and after it. A tree that adapts
        fast hardly loses more. NaN if no rows were kept.
    path : tuple of Condition
        The smallest branch of the present tree that has 90 % of the excess; empty: all rows.
    share : float
        Share of the rows before that reach this branch.
    inputs : tuple of InputChange
        Inputs whose values changed, too; none: only what they mean.
    """

    n_rows: int
    since: int
    excess: float
    loss_before: float
    loss_since: float
    path: tuple[Condition, ...] = ()
    share: float = 1.0
    inputs: tuple[InputChange, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, and the sentence as `why`, for JSON; what is not known is None."""
        figures = {
            name: value if math.isfinite(value := getattr(self, name)) else None
            for name in ("n_rows", "since", "excess", "loss_before", "loss_since", "share")
        }
        inputs = [asdict(change) for change in self.inputs]
        return figures | {"path": [*map(str, self.path)], "inputs": inputs, "why": str(self)}

    def __str__(self) -> str:
        where = f"rows with {join_path(self.path)} ({self.share:.0%})" if self.path else "all rows"
        inputs = "; ".join(map(str, self.inputs)) if self.inputs else "no input changed by itself"
        return (
            f"Row {self.n_rows:,}: drift since about row {self.since:,}, in {where}. On the rows "
            f"before, the tree would now lose {self.excess:.2f} nats more per row. Loss when they "
            f"came: {self.loss_since:.2f} since, {self.loss_before:.2f} before. Inputs: {inputs}."
        )
