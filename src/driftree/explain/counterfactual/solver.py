"""Solver: the cheapest way to meet linear demands, by numbers that move and choices that change.

A `LeafTask` is one leaf's question, without any names: numbers `shift` within a box cost their
squares, a changed choice costs 1, and every row of ``slopes @ shift + gains >= need`` has to hold.
`search` answers it by branch and bound. A single demand is met exactly by water-filling
(`Filling`), which for several is the bound; these are met by projecting onto all of them
(`project`).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

MAX_SURROGATES = 16  # demands added to sharpen the bounds
EQUAL = 1 - 1e-10  # costs closer than this are not worth another search
INFEASIBLE = 1e-9  # what the projection leaves over when there is no point, up to rounding
MARGINS = (0.0, *(10.0**exponent for exponent in range(-15, -1)))
FINE_MARGIN = 1e-8  # a wider one moves the point by more than rounding


@dataclass(slots=True)
class Choice:
    """A category that may become one of several levels, at the cost of 1."""

    gains: Doubles  # [options, demands]: what each adds to the left sides
    may_stay: bool = True


@dataclass(slots=True)
class LeafTask:
    """Demands, and what may be done to meet them; shifts and costs as in the module's text."""

    low: Doubles  # [numbers]
    high: Doubles
    slopes: Doubles  # [demands, numbers]
    need: Doubles  # [demands]
    choices: list[Choice] = field(default_factory=list)
    base_cost: float = 0.0  # of what must change anyway


class Filling:
    """The least sum of squares of shifts in a box for which slopes @ shift reaches a need.

    The best shifts are clip(level * slopes, low, high), so all answers lie on one curve, which is
    followed from breakpoint to breakpoint.

    Examples
    --------
    >>> filling = Filling(np.array([2.0, 1.0]), np.array([-1.0, -9.0]), np.array([1.0, 9.0]))
    >>> filling.shifts(5.0), filling.costs(np.array([5.0, 12.0]))
    (array([1., 3.]), array([10., inf]))
    """

    def __init__(self, slopes: Doubles, low: Doubles, high: Doubles) -> None:
        self.slopes, self.low, self.high = slopes, low, high
        near = np.clip(0.0, low, high)
        far = np.where(slopes > 0, high, low)
        moves = (slopes != 0) & (near != far)
        own, begin, end = slopes[moves], near[moves] / slopes[moves], far[moves] / slopes[moves]
        breaks = np.concatenate([[0.0], begin, end])
        self._levels = np.unique(breaks[np.isfinite(breaks)])
        is_active = (begin <= self._levels[:, None]) & (self._levels[:, None] < end)
        shifts = np.clip(self._levels[:, None] * slopes, low, high)
        self._steepness = is_active @ own**2
        self._reached = np.maximum.accumulate(shifts @ slopes)
        self._costs = (shifts**2).sum(axis=1)

    def _levels_of(self, need: Doubles) -> tuple[Doubles, NDArray[np.intp]]:
        place = np.maximum(np.searchsorted(self._reached, need) - 1, 0)
        missing = np.maximum(need - self._reached[place], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            extra = np.where(missing > 0, missing / self._steepness[place], 0.0)
        return self._levels[place] + extra, place

    def costs(self, need: Doubles) -> Doubles:
        """Return the least cost for each need; infinite where it cannot be met."""
        level, place = self._levels_of(need)
        with np.errstate(invalid="ignore", over="ignore"):
            added = self._steepness[place] * (level**2 - self._levels[place] ** 2)
        return np.where(np.isfinite(level), self._costs[place] + added, math.inf)

    def shifts(self, need: float) -> Doubles | None:
        """Return the best shifts, or None if the need cannot be met."""
        level = self._levels_of(np.array([need]))[0][0]
        if not np.isfinite(level):
            return None
        return np.asarray(np.clip(level * self.slopes, self.low, self.high))


def project(task: LeafTask, need: Doubles, size: float) -> tuple[Doubles | None, Doubles]:
    """Return the shortest shifts that meet several demands, and the weights of these demands.

    Least distance programming (Lawson and Hanson 1974, chapter 23): finite, by active sets. The
    weights of the demands make the one demand (their sum) that asks for as much; without any such
    shifts (None), for more than the box has.

    Parameters
    ----------
    task : LeafTask
        Box and slopes.
    need : array of shape (demands,)
        What is to be reached.
    size : float
        About the length of the answer, for the sake of rounding.

    Examples
    --------
    >>> box = np.full(2, 5.0)
    >>> task = LeafTask(
    ...     -box, box, slopes=np.array([[1.0, 1.0], [1.0, -1.0]]), need=np.array([2.0, 1.0])
    ... )
    >>> project(task, task.need, size=1.0)[0].round(9)
    array([1.5, 0.5])
    >>> project(task, np.array([9.0, 9.0]), size=1.0)[0] is None
    True
    """
    lengths = np.linalg.norm(task.slopes, axis=1)
    lengths[lengths == 0] = 1.0
    one = np.eye(len(task.low))
    has_low, has_high = np.isfinite(task.low), np.isfinite(task.high)
    sides = np.vstack([task.slopes / lengths[:, None], one[has_low], -one[has_high]])
    bounds = np.concatenate([need / lengths, task.low[has_low], -task.high[has_high]]) / size
    system = np.vstack([sides.T, bounds])
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    solution, rest = nnls(system, goal)
    weights = solution[: len(need)] / lengths
    if rest < INFEASIBLE:
        return None, weights
    left = system @ solution - goal
    shifts = -left[:-1] / left[-1]
    active = solution > 0
    if active.any():  # the same point, without the rounding of the division
        exact = np.linalg.lstsq(sides[active], bounds[active], rcond=None)[0]
        if (sides @ exact >= bounds - 1e-9).all():
            shifts = exact
    return np.clip(shifts * size, task.low, task.high), weights


class Bounds:
    """What a task costs at least, once its first choices are made; `least` is for none made."""

    def __init__(self, task: LeafTask) -> None:
        self.task = task
        self.need = task.need
        self.gains = [choice.gains for choice in task.choices]
        self.fillings = [Filling(slopes, task.low, task.high) for slopes in task.slopes]
        self._sum_gains()
        self.least = float(self.of([()])[0])

    def add_surrogate(self, weights: Doubles) -> None:
        """Add the weighted sum of the demands: all must hold, hence their sum too."""
        if not weights.any():
            return
        weights = weights / weights.sum()
        n_demands, task = len(weights), self.task
        if len(self.need) == n_demands + MAX_SURROGATES:  # the oldest goes
            self.need = np.delete(self.need, n_demands)
            self.gains = [np.delete(own, n_demands, axis=1) for own in self.gains]
            del self.fillings[n_demands]
        slopes = weights @ task.slopes
        slopes[np.abs(slopes) < 1e-13 * (weights @ np.abs(task.slopes))] = 0.0  # only rounding
        self.need = np.append(self.need, weights @ task.need)
        self.gains = [np.column_stack([own, own[:, :n_demands] @ weights]) for own in self.gains]
        self.fillings.append(Filling(slopes, task.low, task.high))
        self._sum_gains()

    def _sum_gains(self) -> None:
        """Sum, per demand, the largest gains of the choices from each one on, by their number."""
        n_demands = len(self.need)
        self._forced = [(0, np.zeros(n_demands))]
        self._best = [np.zeros((1, n_demands))]
        optional = np.zeros((0, n_demands))
        for choice, gains in zip(reversed(self.task.choices), reversed(self.gains), strict=True):
            n_forced, forced = self._forced[-1]
            own = gains.max(axis=0)
            if choice.may_stay:
                optional = -np.sort(-np.vstack([optional, np.maximum(own, 0.0)]), axis=0)
            else:
                n_forced, forced = n_forced + 1, forced + own
            self._forced.append((n_forced, forced))
            self._best.append(np.vstack([np.zeros(n_demands), np.cumsum(optional, axis=0)]))
        self._forced.reverse()
        self._best.reverse()

    def left(self, picks: tuple[int, ...]) -> Doubles:
        """Return what the numbers and the other choices still have to bring."""
        need = self.need
        for gains, pick in zip(self.gains, picks, strict=False):
            if pick >= 0:
                need = need - gains[pick]
        return need

    def children(self, picks: tuple[int, ...]) -> list[tuple[float, int, tuple[int, ...]]]:
        """Return what may be picked next with its bound, the lowest first."""
        choice = self.task.choices[len(picks)]
        options = range(-1 if choice.may_stay else 0, len(choice.gains))
        found = [(*picks, option) for option in options]
        return sorted(
            (bound, -len(child), child)
            for bound, child in zip(self.of(found).tolist(), found, strict=True)
        )

    def of(self, picks: list[tuple[int, ...]]) -> Doubles:
        """Return a lower bound of the cost for each beginning of the choices (all of a length)."""
        n_forced, forced = self._forced[len(picks[0])]
        best = self._best[len(picks[0])]
        need = np.array([self.left(one) for one in picks])[:, None, :] - forced - best
        costs = np.max(
            [filling.costs(need[..., k]) for k, filling in enumerate(self.fillings)], axis=0
        )
        changed = np.array([sum(pick >= 0 for pick in one) for one in picks])[:, None]
        total = costs + changed + n_forced + np.arange(len(best))
        return np.asarray(total.min(axis=1) + self.task.base_cost)


def search(
    bounds: Bounds,
    limit: float,
    confirm: Callable[[Doubles, tuple[int, ...]], float],
    *,
    max_nodes: int,
) -> tuple[float, float, int]:
    """Find the cheapest confirmed way to do a task.

    Parameters
    ----------
    bounds : Bounds
        Those of the task.
    limit : float
        A cost that has to be beaten.
    confirm : function of shifts and picks (per choice the option, -1: as it is)
        Returns the true cost, infinite if the model does not agree.
    max_nodes : int
        Give up after so many nodes.

    Returns
    -------
    cost : float
        The least cost that was confirmed, or the limit.
    unsearched : float
        What anything cheaper than `cost` that was not looked at costs at least.
    n_nodes : int
        Nodes that were looked at.

    Examples
    --------
    One number of slope 1, a category that brings 3; 4 are needed:

    >>> task = LeafTask(np.array([-9.0]), np.array([9.0]), np.array([[1.0]]), np.array([4.0]))
    >>> task.choices.append(Choice(gains=np.array([[3.0]])))
    >>> def confirm(shifts, picks):
    ...     print(shifts, picks)
    ...     return 1.0 + float(shifts @ shifts)
    >>> search(Bounds(task), math.inf, confirm, max_nodes=9)
    [1.] (0,)
    (2.0, inf, 2)
    """
    task, unsearched = bounds.task, math.inf
    rest: list[tuple[float, int, tuple[int, ...]]] = [(bounds.least, 0, ())]
    n_nodes = 0
    while rest and rest[0][0] < limit * EQUAL:
        if n_nodes >= max_nodes:
            return limit, min(unsearched, rest[0][0]), n_nodes
        bound, _, picks = heapq.heappop(rest)
        while len(picks) < len(task.choices) and bound < limit * EQUAL:
            n_nodes += 1
            (bound, _, picks), *others = bounds.children(picks)  # down the best one, others wait
            for other in others:
                heapq.heappush(rest, other)
        fresh = max(bound, float(bounds.of([picks])[0]))
        if fresh > bound / EQUAL or fresh >= limit * EQUAL:  # a surrogate has come, or no use
            heapq.heappush(rest, (fresh, -len(picks), picks))
            continue
        n_nodes += 1
        cost, is_fine = _settle(bounds, picks, fresh, confirm)
        if not is_fine:
            unsearched = min(unsearched, bound)
        limit = min(limit, cost)
    return limit, unsearched, n_nodes


def _settle(
    bounds: Bounds,
    picks: tuple[int, ...],
    bound: float,
    confirm: Callable[[Doubles, tuple[int, ...]], float],
) -> tuple[float, bool]:
    """Move the numbers for given choices; return the confirmed cost, and whether it is the least.

    On the border between two labels rounding decides, so it is crossed by a margin that grows until
    the model agrees.
    """
    task, n_demands = bounds.task, len(bounds.task.need)
    need = bounds.left(picks)[:n_demands]
    size = math.sqrt(max(bound - task.base_cost, 1e-12))
    scale = 1.0 + float(np.abs(need).max())
    for margin in MARGINS:
        wider = need + margin * scale
        start = np.clip(0.0, task.low, task.high)
        if (task.slopes @ start >= wider).all():
            shifts: Doubles | None = start
        elif n_demands == 1:
            shifts = bounds.fillings[0].shifts(float(wider[0]))
        else:
            try:
                shifts, weights = project(task, wider, size)
            except RuntimeError:  # scipy: too many iterations
                return math.inf, False
            if margin == 0:
                bounds.add_surrogate(weights)
        if shifts is None:
            return math.inf, margin <= FINE_MARGIN
        cost = confirm(shifts, picks)
        if math.isfinite(cost):
            return cost, margin <= FINE_MARGIN
    return math.inf, False
