"""Few changes: counterfactuals that a person can act on.

The nearest row may move every number a little. Here the fewest features change first: all sets of
one, then of two, ... are searched, each exactly, and those that contain a set that is enough are
left out. Numbers that came as whole numbers stay whole: where the nearest row has a fraction, it is
searched again below and above it (branch and bound), so that it is still the nearest such row.
"""

from __future__ import annotations

import heapq
import itertools
import math
from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driftree.explain.counterfactual import Hunt
    from driftree.explain.counterfactual.goals import Constraints

MAX_SETS = 400  # of features that are searched
MAX_HUNTS = 40  # for whole numbers


def search_few(
    hunt: Hunt, limits: Constraints, max_changes: int, n: int
) -> tuple[list[Hunt], bool]:
    """Return searches that found a row, the fewest changes first, then the nearest.

    Parameters
    ----------
    hunt : Hunt
        The search, not begun.
    limits : Constraints
        What the user allows.
    max_changes : int
        How many features may change at most.
    n : int
        How many rows are wanted, each with other features changed.

    Returns
    -------
    found : list of Hunt
        Searches at their end.
    is_exact : bool
        Whether all sets of features were searched that had to be.
    """
    alone = _whole(hunt, limits.only((), hunt.encoder, hunt.values))
    if alone.best is not None:
        return [alone], True  # nothing has to change
    free = _changeable(hunt, limits)
    found: list[Hunt] = []
    enough: list[frozenset[int]] = []
    n_sets = 0
    for size in range(1, min(max_changes, len(free)) + 1):
        here: list[Hunt] = []
        for places in itertools.combinations(free, size):
            if any(known <= set(places) for known in enough):
                continue
            n_sets += 1
            if n_sets > MAX_SETS:
                return _nearest_first(found, here)[:n], False
            one = _whole(hunt, limits.only(places, hunt.encoder, hunt.values))
            if one.best is not None:
                here.append(one)
        found = _nearest_first(found, here)
        enough += [frozenset(one.changed(one.best)) for one in here if one.best is not None]
        if len(found) >= n:
            break
    return found[:n], True


def _nearest_first(found: list[Hunt], more: list[Hunt]) -> list[Hunt]:
    return found + sorted(more, key=lambda one: one.cost)


def _changeable(hunt: Hunt, limits: Constraints) -> list[int]:
    """Return the features that may change, those first that the nearest row changes most."""
    nearest = hunt.again()
    nearest.run(deepcopy(limits))
    places = np.flatnonzero(~np.isnan(hunt.values)).tolist()
    held = [hunt.encoder.names[name] for name in hunt.own_names()]
    free = [j for j in places if j not in held and limits.leaves_room(j)]
    if nearest.best is None:
        return []
    costs = nearest.start.costs(nearest.best)
    return sorted(free, key=lambda j: -costs[j])


def _whole(hunt: Hunt, limits: Constraints) -> Hunt:
    """Return the search for the nearest row whose whole numbers are whole."""
    order = itertools.count()
    first = hunt.again()
    first.run(limits)
    rest = [(first.cost, next(order), first)]
    unsearched = first.unsearched
    while rest:
        cost, _, nearest = heapq.heappop(rest)
        split = None if nearest.best is None else _fraction(nearest)
        if split is None:
            nearest.unsearched = min(unsearched, nearest.unsearched)
            return nearest
        if next(order) > MAX_HUNTS:
            nearest.best, nearest.cost, nearest.unsearched = None, math.inf, cost
            return nearest
        for one in _halves(nearest, *split):
            unsearched = min(unsearched, one.unsearched)
            if one.best is not None:
                heapq.heappush(rest, (one.cost, next(order), one))
    first.best, first.cost, first.unsearched = None, math.inf, unsearched
    return first


def _fraction(hunt: Hunt) -> tuple[int, float] | None:
    """Return a number of the row that should be whole, and is not."""
    assert hunt.best is not None
    for j in hunt.whole_places():
        if not float(hunt.best[j]).is_integer():
            return j, float(hunt.best[j])
    return None


def _halves(hunt: Hunt, j: int, value: float) -> Iterator[Hunt]:
    """Yield the searches below and above a fraction."""
    for side in (0, 1):
        limits = deepcopy(hunt.limits)
        if side == 0:
            limits.high[j] = min(limits.high[j], math.floor(value))
        else:
            limits.low[j] = max(limits.low[j], math.ceil(value))
        if limits.low[j] <= limits.high[j]:
            one = hunt.again()
            one.run(limits)
            yield one
