"""Solver: the cheapest way to meet demands, by shifting numbers and changing choices.

A `LeafTask` is the problem of one leaf, without names. It has items, each with one or several
pieces, of which one has to be chosen. A number's pieces are the intervals on which all curves are
linear: the cost is the squared shift. An option of a choice is a piece that cannot be shifted, but
costs 1. Every row of ``sum of (gains + slopes * shift) >= need`` has to hold.

Once the pieces are chosen, the problem is convex. A single demand is met exactly by water-filling
(`Filling`), several by projection (`project`). The pieces are chosen by branch and bound
(`Search`): with the demands added to the cost by Lagrange multipliers, the items are independent,
so the best piece of each is known, and their sum is a lower bound for any multipliers (`Relaxation`
maximises it). If the pieces of this bound do not meet the demands at this cost, the search branches
on an item between two of its pieces.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import nnls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Places = NDArray[np.intp]

EQUAL = 1 - 1e-10  # tolerance of costs
INFEASIBLE = 1e-9  # residual of the projection if there is no point, up to rounding
MARGINS = (0.0, *(10.0**exponent for exponent in range(-15, -1)))
FINE_MARGIN = 1e-8  # a wider one moves the point by more than rounding
ERROR = 1e-15  # relative rounding error of sums: a bound must not be too high
MAX_STEPS = 12  # iterations for the multipliers
MAX_TRIES = 30  # along each step


# ---------------------------------------------------------------------- patience
_deadline: ContextVar[float] = ContextVar("deadline of a search", default=math.inf)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Let every search of this thread in the block raise `TimeoutError` after the given time.

    Examples
    --------
    >>> with patience(0):
    ...     check_time()
    Traceback (most recent call last):
    TimeoutError: the search took longer than allowed
    """
    before = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(before)


def check_time() -> None:
    """Raise if the time is over."""
    if time.monotonic() >= _deadline.get():
        raise TimeoutError("the search took longer than allowed")


# ---------------------------------------------------------------------- tasks
@dataclass(slots=True)
class LeafTask:
    """Demands, and the pieces that may meet them; see the module's docstring."""

    item: Places  # [pieces], from 0 on, ascending
    low: Doubles  # [pieces], finite
    high: Doubles
    slopes: Doubles  # [pieces, demands]
    gains: Doubles  # [pieces, demands], where the shift is 0
    costs: Doubles  # [pieces], besides the squared shift
    need: Doubles  # [demands]
    base_cost: float = 0.0  # of changes that are necessary anyway

    @property
    def dearest(self) -> float:
        """Upper bound of the cost, if the task is feasible."""
        most = np.maximum(self.low**2, self.high**2) + self.costs
        return float(np.maximum.reduceat(most, _starts(self.item)).sum()) + self.base_cost


def _starts(item: Places) -> Places:
    return np.flatnonzero(np.diff(item, prepend=-1))


class Filling:
    """The least sum of squares of shifts in a box for which slopes @ shift reaches a need.

    The best shifts are clip(level * slopes, low, high), so all solutions are on one curve, which is
    followed from breakpoint to breakpoint.

    Examples
    --------
    >>> filling = Filling(np.array([2.0, 1.0]), np.array([-1.0, -9.0]), np.array([1.0, 9.0]))
    >>> filling.shifts(5.0), filling.shifts(12.0)
    (array([1., 3.]), None)
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

    def shifts(self, need: float) -> Doubles | None:
        """Return the best shifts, or None if the need cannot be met."""
        place = max(int(np.searchsorted(self._reached, need)) - 1, 0)
        missing = need - self._reached[place]
        level = float(self._levels[place])
        if missing > 0:
            if self._steepness[place] == 0:
                return None
            level += missing / self._steepness[place]
        return np.asarray(np.clip(level * self.slopes, self.low, self.high))


def project(
    slopes: Doubles, low: Doubles, high: Doubles, need: Doubles, size: float
) -> Doubles | None:
    """Return the shortest shifts in a box that meet several demands, or None.

    Least distance programming (Lawson and Hanson 1974, chapter 23): finite, by active sets.

    Parameters
    ----------
    slopes : array of shape (demands, numbers)
        Change of the demands per shift.
    low, high : array of shape (numbers,)
        The box.
    need : array of shape (demands,)
        The demands.
    size : float
        Approximate length of the solution, for numerical scaling.

    Examples
    --------
    >>> box, slopes = np.full(2, 5.0), np.array([[1.0, 1.0], [1.0, -1.0]])
    >>> project(slopes, -box, box, np.array([2.0, 1.0]), size=1.0).round(9)
    array([1.5, 0.5])
    >>> project(slopes, -box, box, np.array([9.0, 9.0]), size=1.0) is None
    True
    """
    lengths = np.linalg.norm(slopes, axis=1)
    lengths[lengths == 0] = 1.0
    one = np.eye(len(low))
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    sides = np.vstack([slopes / lengths[:, None], one[has_low], -one[has_high]])
    bounds = np.concatenate([need / lengths, low[has_low], -high[has_high]]) / size
    system = np.vstack([sides.T, bounds])
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    solution, rest = nnls(system, goal)
    if rest < INFEASIBLE:
        return None
    left = system @ solution - goal
    shifts = -left[:-1] / left[-1]
    active = solution > 0
    if active.any():  # the same point, without the rounding of the division
        exact = np.linalg.lstsq(sides[active], bounds[active], rcond=None)[0]
        if (sides @ exact >= bounds - 1e-9).all():
            shifts = exact
    return np.asarray(np.clip(shifts * size, low, high))


class Peak(NamedTuple):
    """A lower bound of the cost for given multipliers, and its pieces."""

    value: float
    weights: Doubles  # [demands]
    missing: Doubles  # [demands]: what the best pieces lack, the direction of ascent
    shifts: Doubles  # [pieces]: the best shifts within each
    worth: Doubles  # [pieces]: cost of each, minus its weighted gain
    best: Places  # [items]: the best piece of each


class Relaxation:
    """The Lagrangian relaxation of a task, for some of the pieces.

    The items are then independent, so any multipliers give a lower bound. It is a concave,
    piecewise quadratic function of them, and is maximised by Newton steps.
    """

    def __init__(self, task: LeafTask, alive: Places) -> None:
        self.alive, self.need, self.base = alive, task.need, task.base_cost
        self.low, self.high = task.low[alive], task.high[alive]
        self.slopes, self.gains, self.costs = (
            task.slopes[alive],
            task.gains[alive],
            task.costs[alive],
        )
        self.item = task.item[alive]
        self.starts = _starts(self.item)

    def at(self, weights: Doubles) -> Peak:
        """Return the bound for given multipliers."""
        pull = self.slopes @ weights
        shifts = np.clip(pull / 2, self.low, self.high)
        worth = self.costs + shifts * (shifts - pull) - self.gains @ weights
        least = np.minimum.reduceat(worth, self.starts)
        places = np.flatnonzero(worth == least[self.item])[::-1]
        best = np.empty(len(least), np.intp)
        best[self.item[places]] = places  # ties: the first
        brought = self.gains[best].sum(axis=0) + shifts[best] @ self.slopes[best]
        value = self.base + float(self.need @ weights + least.sum())
        terms = np.abs(self.need) + np.abs(self.gains[best]).sum(axis=0)
        terms += np.abs(shifts[best]) @ np.abs(self.slopes[best])
        value -= ERROR * float(terms @ weights)
        return Peak(value, weights, self.need - brought, shifts, worth, best)

    def climb(self, weights: Doubles, enough: float) -> tuple[Peak, Places]:
        """Return the highest bound found, and the best pieces just beyond it.

        Stops when the bound is `enough`.
        """
        here = self.at(weights)
        beyond = here.best
        for _ in range(MAX_STEPS):
            if here.value >= enough:
                break
            peak, beyond = self._walk(here, self._newton(here) - here.weights, enough)
            gained = peak.value - here.value
            here = peak
            if gained <= 1e-11 * abs(here.value):
                break
        return here, beyond

    def _newton(self, here: Peak) -> Doubles:
        """Return the maximiser of the present quadratic piece."""
        shifts = here.shifts[here.best]
        is_free = (shifts > self.low[here.best]) & (shifts < self.high[here.best])
        slopes = self.slopes[here.best[is_free]]
        curve = slopes.T @ slopes / 2
        curve += np.eye(len(curve)) * 1e-8 * (1.0 + np.trace(curve))
        pull = here.missing + curve @ here.weights
        if len(curve) == 1:
            return np.asarray(np.maximum(pull / curve[0], 0.0))
        root = np.linalg.cholesky(curve)
        try:
            return np.asarray(nnls(root.T, np.linalg.solve(root, pull))[0])
        except RuntimeError:  # scipy: too many iterations
            return np.maximum(here.weights + here.missing, 0.0)

    def _walk(self, here: Peak, way: Doubles, enough: float) -> tuple[Peak, Places]:
        """Return the maximum along a direction, and the best pieces on its other side."""
        rise = float(here.missing @ way)
        if rise <= 0:
            return here, here.best
        with np.errstate(divide="ignore", invalid="ignore"):
            most = float(np.min(np.where(way < 0, -here.weights / way, math.inf)))
        lower, lower_step, lower_rise = here, 0.0, rise
        upper, upper_step, upper_rise = None, math.inf, 0.0
        step = min(1.0, most)
        for tries in range(MAX_TRIES):
            point = self.at(np.maximum(here.weights + step * way, 0.0))
            slope = float(point.missing @ way)
            if slope >= 0:
                lower, lower_step, lower_rise = point, step, slope
                if slope <= 1e-12 * rise or point.value >= enough or step >= most:
                    break
            else:
                upper, upper_step, upper_rise = point, step, slope
                if slope >= -1e-12 * rise:
                    break
            if upper is None:
                step = min(4 * step, most)
                continue
            step = upper.value - lower.value + lower_rise * lower_step - upper_rise * upper_step
            step /= lower_rise - upper_rise  # where the tangents meet
            highest = lower.value + lower_rise * (step - lower_step)
            if highest - max(lower.value, upper.value) <= 1e-7 * abs(highest):
                break
            if tries % 3 == 2 or not lower_step < step < upper_step:
                step = (lower_step + upper_step) / 2
        if upper is None:
            return lower, lower.best
        return (lower, upper.best) if lower.value >= upper.value else (upper, lower.best)

    def cut(self, peak: Peak) -> list[tuple[float, Places]]:
        """Branch on an item between two of its pieces; return both parts and their bounds."""
        best = peak.best[self.item]
        regret = peak.worth - peak.worth[best]
        other = np.abs(peak.shifts - peak.shifts[best]) > 1e-9 * (1 + np.abs(peak.shifts[best]))
        other |= (self.costs > 0) | (self.costs[best] > 0)
        other &= np.arange(len(best)) != best
        if other.any():
            rival = int(np.argmin(np.where(other, regret, math.inf)))
        else:
            rival = int(np.flatnonzero(np.arange(len(best)) != best)[0])
        last = (rival + int(best[rival])) // 2  # of the first part
        is_own = self.item == self.item[rival]
        is_first = np.arange(len(best)) <= last
        return [
            (peak.value + float(regret[is_in].min()), self.alive[is_in | ~is_own])
            for is_in in (is_own & is_first, is_own & ~is_first)
        ]


class Search:
    """The search for the cheapest solution of a task; `least` is a lower bound of its cost.

    Parameters
    ----------
    task : LeafTask
        The problem.

    Examples
    --------
    One number of slope 1, a category with a gain of 3; 4 are needed:

    >>> task = LeafTask(
    ...     item=np.array([0, 1, 1]),
    ...     low=np.array([-9.0, 0.0, 0.0]),
    ...     high=np.array([9.0, 0.0, 0.0]),
    ...     slopes=np.array([[1.0], [0.0], [0.0]]),
    ...     gains=np.array([[0.0], [0.0], [3.0]]),
    ...     costs=np.array([0.0, 0.0, 1.0]),
    ...     need=np.array([4.0]),
    ... )
    >>> def confirm(shifts, pieces):
    ...     return 1.0 + float(shifts @ shifts)
    >>> Search(task).run(math.inf, confirm, max_nodes=9)[:2]
    (2.0, inf)
    """

    def __init__(self, task: LeafTask) -> None:
        self.task = task
        size = np.abs(task.slopes).max(axis=0, initial=0.0)
        size = np.where(size > 0, size, np.abs(task.gains).max(axis=0, initial=0.0))
        size[size == 0] = 1.0
        self._even = LeafTask(
            task.item,
            task.low,
            task.high,
            task.slopes / size,
            task.gains / size,
            task.costs,
            task.need / size,
            task.base_cost,
        )
        self._dearest = task.dearest * (1 + 1e-9) + 1e-9
        self._all = np.arange(len(task.item))
        top, _ = Relaxation(self._even, self._all).climb(np.zeros(len(task.need)), self._dearest)
        self._weights = top.weights
        self.least = self._bound(top)

    def _bound(self, peak: Peak) -> float:
        return math.inf if peak.value > self._dearest else peak.value

    def run(
        self,
        limit: float,
        confirm: Callable[[Doubles, Places], float],
        *,
        max_nodes: int,
    ) -> tuple[float, float, int]:
        """Find the cheapest confirmed solution.

        Parameters
        ----------
        limit : float
            A cost that has to be beaten.
        confirm : function of shifts and pieces (both per item)
            Returns the true cost, infinite if the prediction is not as wanted.
        max_nodes : int
            Give up after so many nodes.

        Returns
        -------
        cost : float
            The least cost that was confirmed, or the limit.
        unsearched : float
            Lower bound of the cost of anything cheaper than `cost` that was not searched.
        n_nodes : int
            Number of nodes searched.
        """
        unsearched, n_nodes, order = math.inf, 0, itertools.count()
        known: dict[bytes, tuple[float, float, bool]] = {}
        rest = [(self.least, next(order), self._all, self._weights)]
        while rest and rest[0][0] < limit * EQUAL:
            if n_nodes >= max_nodes:
                return limit, min(unsearched, rest[0][0]), n_nodes
            check_time()
            n_nodes += 1
            bound, _, alive, weights = heapq.heappop(rest)
            part = Relaxation(self._even, alive)
            peak, beyond = part.climb(weights, min(limit, self._dearest))
            bound = max(bound, self._bound(peak))
            if bound >= limit * EQUAL:
                continue
            is_last = len(alive) == len(part.starts)
            is_done = False
            for pieces in (alive[peak.best], alive[beyond]):
                key = pieces.tobytes()
                if key not in known:
                    known[key] = self._settle(pieces, peak.weights, limit, confirm)
                least, cost, is_fine = known[key]
                limit = min(limit, cost)
                is_least = least * EQUAL <= bound and math.isfinite(cost)
                if not is_done and (is_least or is_last):
                    is_done = True
                    if not is_fine:
                        unsearched = min(unsearched, bound)
            if not is_done:
                for below, pieces in part.cut(peak):
                    heapq.heappush(rest, (max(bound, below), next(order), pieces, peak.weights))
        return limit, unsearched, n_nodes

    def _settle(
        self,
        pieces: Places,
        weights: Doubles,
        limit: float,
        confirm: Callable[[Doubles, Places], float],
    ) -> tuple[float, float, bool]:
        """Solve the task for given pieces, starting from approximate multipliers.

        At the boundary between two labels rounding decides, so it is crossed by a margin that grows
        until the prediction is as wanted.

        Returns
        -------
        least : float
            Cost without a margin; infinite if the demands cannot be met.
        cost : float
            Confirmed cost, otherwise infinite.
        is_fine : bool
            Whether no confirmed solution could cost less.
        """
        task = self.task
        low, high, slopes = task.low[pieces], task.high[pieces], task.slopes[pieces].T
        fixed = task.base_cost + float(task.costs[pieces].sum())
        need = task.need - task.gains[pieces].sum(axis=0)
        scale = 1.0 + float(np.abs(need).max())
        start = np.clip(0.0, low, high)
        filling = Filling(slopes[0], low, high) if len(need) == 1 else None
        least, size = math.inf, 1.0
        if filling is None:
            peak, _ = Relaxation(self._even, pieces).climb(weights, self._dearest)
            if (bound := self._bound(peak)) >= limit:
                return bound, math.inf, True
            size = math.sqrt(max(bound - fixed, 1e-12))
        for margin in MARGINS:
            wider = need + margin * scale
            if (slopes @ start >= wider).all():
                shifts: Doubles | None = start
            elif filling is not None:
                shifts = filling.shifts(float(wider[0]))
            else:
                try:
                    shifts = project(slopes, low, high, wider, size)
                except RuntimeError:  # scipy: too many iterations
                    return least, math.inf, False
            if shifts is None:
                return least, math.inf, margin <= FINE_MARGIN
            if margin == 0:
                least = fixed + float(shifts @ shifts)
                if least >= limit:
                    return least, math.inf, True
            cost = confirm(shifts, pieces)
            if math.isfinite(cost):
                return least, cost, margin <= FINE_MARGIN
        return least, math.inf, False
