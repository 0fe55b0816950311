"""Counterfactuals of a forest: a near row that the forest itself predicts as wanted.

Several trees together have too many regions to search them all. So the first tree proposes a
direction for each wanted label, and every feature is tried alone; the nearest row with the wanted
prediction is then moved as near as possible. The result is verified by the forest's own prediction,
but may not be the nearest row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.contributions import read_one, with_parts
from driftree.explain.counterfactual import (
    Counterfactual,
    Hunt,
    own_features,
    round_away,
    round_back,
)
from driftree.explain.counterfactual.goals import LabelGoal, Wish, read_constraints
from driftree.explain.counterfactual.leaf_tasks import Start
from driftree.explain.counterfactual.solver import check_time
from driftree.explain.sparse import unknown_names
from driftree.explain.text import say_unknown
from driftree.learn.columns import Batch, News
from driftree.learn.events import ALL_DIGITS
from driftree.learn.imbalance import decide

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from driftree.explain.counterfactual.goals import Constraints, NumberGoal
    from driftree.learn.forest import Forest

    Doubles = NDArray[np.float64]

STEPS = np.linspace(0.0, 3.0, 61)[1:]  # fractions of the way that a tree proposes
REACH = np.linspace(0.0, 5.0, 51)[1:]  # standard deviations by which a number is moved
HALVINGS = 30
MOST_LABELS = 5  # that are tried if any other will do


def forest_counterfactual(
    forest: Forest,
    x: Mapping[Hashable, Any],
    *,
    target: Hashable = None,
    fixed: Iterable[Hashable] = (),
    ranges: Mapping[Hashable, Any] | None = None,
    **numbers: Any,
) -> Counterfactual:
    """Return a near row with the wanted prediction: see `ReadableForest.counterfactual`."""
    encoder, tree = forest.encoder, forest.trees[0]
    x = with_parts(encoder, x)
    batch = read_one(encoder, x)
    if batch.sparse is not None:
        raise ValueError(
            "a forest has no counterfactuals for sparse features: use one of its trees_"
        )
    goal = Wish(target, **numbers).read(forest, batch)  # type: ignore[arg-type]
    values = batch.matrix[0]
    limits = read_constraints(encoder, x, values, fixed, ranges)
    for name in own_features(tree):
        limits.hold(encoder.names[name], values)
    search = _Search(forest, dict(x), values, goal, limits)
    given = {*x, *own_features(tree)}
    missing = [name for name in encoder.names if name not in given]
    note = f"{goal.note}{say_unknown(unknown_names(encoder, dict(x)), missing)}".rstrip()
    best = search.run(x, fixed, ranges, numbers)
    if best is None:
        reason = goal.impossible or "the search of a forest does not try every row"
        return Counterfactual(
            exists=False, **goal.wanted(), exact=bool(goal.impossible), reason=reason, note=note
        )
    return Counterfactual(
        exists=True,
        **goal.reached(search.batch(best[None])),
        x=search.hunt.row(best),
        changes=search.hunt.changes(best),
        distance=math.sqrt(search.cost(best)),
        exact=bool((best == values)[~np.isnan(values)].all()),
        note=note,
    )


class _Search:
    """The search for near rows with the wanted prediction."""

    def __init__(
        self,
        forest: Forest,
        x: dict[Hashable, Any],
        values: Doubles,
        goal: LabelGoal | NumberGoal,
        limits: Constraints,
    ) -> None:
        self.forest, self.values, self.goal, self.limits = forest, values, goal, limits
        tree = forest.trees[0]
        self.start = Start(tree, tree.encoder, values, limits)
        self.hunt = Hunt(tree, tree.encoder, x, values, goal)  # writes rows in the user's terms
        self.hunt.start, self.hunt.limits = self.start, limits

    def batch(self, rows: Doubles) -> Batch:
        """Return rows as the kernels take them."""
        return Batch(np.ascontiguousarray(rows), News())

    def agrees(self, rows: Doubles) -> NDArray[np.bool_]:
        """Return which rows have the wanted prediction and are within the limits."""
        check_time()
        if not len(rows):
            return np.zeros(0, dtype=bool)
        goal = self.goal
        if isinstance(goal, LabelGoal):
            codes = decide(self.forest.core.probabilities(rows), self.forest.target.cut)
            agrees = codes != goal.present if goal.target is None else codes == goal.target
        else:
            found = self.forest.target.predict(rows)
            agrees = (goal.low < found) & (found < goal.high)
        return np.array(
            [ok and self.limits.allow(row) for ok, row in zip(agrees, rows, strict=True)]
        )

    def cost(self, row: Doubles) -> float:
        """Return the squared distance from the original row."""
        return float(self.start.costs(row).sum())

    # ------------------------------------------------------------------ far, then near
    def run(
        self,
        x: Mapping[Hashable, Any],
        fixed: Iterable[Hashable],
        ranges: Mapping[Hashable, Any] | None,
        numbers: dict[str, Any],
    ) -> Doubles | None:
        """Return the nearest row that was found."""
        if self.agrees(self.values[None])[0]:
            return self.values
        if self.goal.impossible:
            return None
        fixed = list(fixed)
        found = [*self._alone(), *self._proposed(x, fixed, ranges, numbers)]
        if not found:
            return None
        nearest = sorted(found, key=self.cost)[:3]
        return min((self._rounded(self._nearer(row)) for row in nearest), key=self.cost)

    def _first(self, rows: Doubles) -> Iterator[Doubles]:
        agreed = np.flatnonzero(self.agrees(rows))
        if len(agreed):
            yield rows[agreed[0]]

    def _alone(self) -> Iterator[Doubles]:
        """Try each feature alone."""
        for j in np.flatnonzero(~np.isnan(self.values)).tolist():
            if j in self.start.options:
                choices = self.start.options[j][0]
                rows = np.tile(self.values, (len(choices), 1))
                rows[:, j] = choices
                yield from self._first(rows)
            elif not math.isnan(self.start.units[j]):
                for sign in (-1.0, 1.0):
                    rows = np.tile(self.values, (len(REACH), 1))
                    rows[:, j] += sign * REACH * self.start.units[j]
                    yield from self._first(rows)

    def _proposed(
        self,
        x: Mapping[Hashable, Any],
        fixed: list[Hashable],
        ranges: Mapping[Hashable, Any] | None,
        numbers: dict[str, Any],
    ) -> Iterator[Doubles]:
        """Move in the direction that the first tree proposes, and beyond."""
        tree = self.forest.trees[0]
        for wish in self._wishes(numbers):
            batch = self.batch(self.values[None])
            goal = wish.read(tree, batch)
            hunt = Hunt(tree, tree.encoder, dict(x), self.values, goal)
            hunt.run(read_constraints(tree.encoder, x, self.values, fixed, ranges))
            if hunt.best is None:
                continue
            way = np.where(np.isnan(self.values), 0.0, hunt.best - self.values)
            is_number = np.array([j not in self.start.options for j in range(len(way))])
            share = np.where(is_number, STEPS[:, None], 1.0)
            yield from self._first(self.values + share * way)

    def _wishes(self, numbers: dict[str, Any]) -> list[Wish]:
        goal = self.goal
        if not isinstance(goal, LabelGoal):
            return [Wish(**numbers)]
        labels = self.forest.target.label_list
        if goal.target is not None:
            return [Wish(labels[goal.target])]
        odds = self.forest.core.probabilities(self.values[None])[0]
        order = [code for code in np.argsort(-odds).tolist() if code != goal.present]
        return [Wish(labels[code]) for code in order[:MOST_LABELS]]

    def _nearer(self, row: Doubles) -> Doubles:
        """Undo unnecessary changes, and shrink those of numbers."""
        best = row.copy()
        for _ in range(2):
            for j in self.hunt.changed(best):
                trial = best.copy()
                trial[j] = self.values[j]
                if self.agrees(trial[None])[0]:
                    best = trial
                elif j not in self.start.options:
                    best = self._halved(best, j)
        return best

    def _halved(self, row: Doubles, j: int) -> Doubles:
        """Move one number as near as the prediction allows."""
        near, far = float(self.values[j]), float(row[j])
        best = row.copy()
        for _ in range(HALVINGS):
            best[j] = (near + far) / 2
            if self.agrees(best[None])[0]:
                far = best[j]
            else:
                near = best[j]
        best[j] = far
        return best

    def _rounded(self, row: Doubles) -> Doubles:
        """Round the new numbers to as few digits as the prediction allows."""
        numbers = [j for j in self.hunt.changed(row) if j not in self.start.options]
        encoder = self.forest.encoder
        for more in range(ALL_DIGITS):
            for rounding in (round_away, round_back):
                trial = row.copy()
                for j in numbers:
                    old, new = float(self.values[j]), float(row[j])
                    trial[j] = rounding(new, old, encoder.digits(j, new) + more)
                if self.agrees(trial[None])[0]:
                    return trial
        return row
