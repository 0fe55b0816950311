"""Counterfactual: what would have to be different for another prediction.

In each leaf the model is a sum of curves, one per number: straight up to three standard deviations
from the mean (flat beyond that), except for bends. So the nearest point of a leaf's box is a convex
problem once the category of each and the straight piece of each number are chosen; these are chosen
by branch and bound. A category may become each level that was learnt (of very many, the first 32),
or those in `ranges`. The paper's setting keeps no list of the values of numbers named in
`categorical`: there, the options are the values in splits.

The numbers of the nearest row are then rounded, away from the row that it started from, to as few
digits as keep the wanted prediction: the numbers shown are exactly those of the row.

For a regressor, a range of numbers is a goal like a label (`goals`): the sum of the leaf's model
has to reach a limit. Inputs that the model computes itself, such as "last y", cannot change. With
sparse features, those that a row holds may be removed, and those that the tree may split on may be
added (`leaf_tasks.SparseSpace`).

With `max_changes` the fewest features change first: all sets of one, then of two, ... are searched,
each exactly, and supersets of sufficient sets are skipped (`search_few`). Whole numbers then stay
whole: where the nearest row has a fraction, it is searched again below and above it (branch and
bound), so that it is still the nearest such row.

`goals` reads what is wanted and what may change, `leaf_tasks` formulates an optimisation problem
for each leaf, and `solver` solves it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from copy import deepcopy
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.contributions import read_one, with_parts
from driftree.explain.counterfactual.goals import Constraints, Wish, read_constraints
from driftree.explain.counterfactual.leaf_tasks import (
    Plan,
    Region,
    SparseSpace,
    Start,
    plan_for,
    reach,
)
from driftree.explain.counterfactual.solver import EQUAL, check_time
from driftree.explain.describe import inside
from driftree.explain.sparse import unknown_names
from driftree.explain.text import one_line, percent, say_changes, say_unknown
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.columns import level_names
from driftree.learn.encoding import Encoder
from driftree.learn.events import ALL_DIGITS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from driftree.explain.counterfactual.goals import Demands, LabelGoal, NumberGoal
    from driftree.explain.counterfactual.solver import Doubles, Places
    from driftree.explain.readable import Readable
    from driftree.learn.columns import Batch
    from driftree.learn.events import Condition
    from driftree.learn.tree import Tree

MAX_NODES = 500  # of all searches together; then one node each
MAX_SETS = 400  # of features that are searched for few changes
MAX_HUNTS = 40  # for whole numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """The nearest row with another prediction, or that there is none; `str` describes it.

    Attributes
    ----------
    exists : bool
        Whether there is one; also ``bool(result)``.
    target : hashable
        The label predicted for it; if there is none, the wanted label. For a regressor the wanted
        range, such as "below 200".
    prediction : hashable
        What the model predicts for it, the label or the number; None if there is none.
    x : dict or None
        The whole row with the changes; numbers are rounded, and the prediction is for the rounded
        row.
    changes : dict
        Names of the changed features to their old and new values, the largest change first.
    distance : float
        Distance of `x` from the old row, see `counterfactual`; infinite if there is none. Because
        of rounding it may be slightly larger than the minimum: mostly by less than 0.02 per number.
    probability : float
        Probability of the target after the change; NaN if there is none, and for regressors.
    leaf : int or None
        Id of the leaf that the row then reaches.
    path : tuple of Condition
        The conditions from the root to this leaf.
    exact : bool
        Whether it is certain that, except for rounding, nothing is nearer (or that there is
        nothing). False if the search was cut short (very many categories or bends with more than
        two labels), of forests, with `probability` and more than two labels, of several quantiles,
        which may cross, and where numbers named in `categorical` may change in the paper's setting.
    reason : str
        If there is none, why.
    note : str
        The threshold, if there is one, and names in the row that the model does not know.
    said : str
        For a regressor: the prediction as text, with as many digits as show that it is as wanted;
        if there is none, what was wanted.
    """

    exists: bool
    target: Any
    x: dict[Hashable, Any] | None = None
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    distance: float = math.inf
    probability: float = math.nan
    leaf: int | None = None
    path: tuple[Condition, ...] = ()
    exact: bool = True
    reason: str = ""
    note: str = ""
    prediction: Any = None
    said: str = ""

    def __bool__(self) -> bool:
        return self.exists

    def __str__(self) -> str:
        return f"{self._sentence()} {self.note}".rstrip()

    def _sentence(self) -> str:
        label = "anything else" if self.target is None else one_line(repr(self.target))
        what, odds = (self.said, "") if self.said else (label, f" ({percent(self.probability)})")
        if not self.exists:
            none = "Nothing makes" if self.exact else "Nothing was found that makes"
            return f"{none} it {what}: {self.reason}."
        if not self.changes:
            return f"It is {what} already{odds}: nothing has to change."
        return f"It would be {what}{odds} if {say_changes(self.changes)}."

    def _repr_html_(self) -> str:
        from driftree.explain.markup import counterfactuals_html  # it imports what describes trees

        return counterfactuals_html([self])


class Counterfactuals(list[Counterfactual]):
    """Several counterfactuals, the fewest changes first; notebooks show each as a table.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> model = DynamicModelTreeClassifier()
    >>> for age, income in rng.uniform(20, 80, size=(300, 2)).tolist():
    ...     model.learn_one({"age": age, "income": income}, "yes" if age + income > 100 else "no")
    >>> print(model.counterfactuals({"age": 35, "income": 40}, n=2))
    It would be 'yes' (64%) if age were 62 instead of 35.
    It would be 'yes' (64%) if income were 73 instead of 40.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        from driftree.explain.markup import counterfactuals_html

        return counterfactuals_html(self)


def counterfactual(
    model: Readable,
    x: Mapping[Hashable, Any],
    *,
    fixed: Iterable[Hashable] = (),
    ranges: Mapping[Hashable, Any] | None = None,
    max_changes: int | None = None,
    **wish: Any,
) -> Counterfactual:
    """Return the nearest row with another prediction: see `Readable.counterfactual`."""
    if max_changes is not None:
        return counterfactuals(
            model, x, n=1, fixed=fixed, ranges=ranges, max_changes=max_changes, **wish
        )[0]
    hunt = find_nearest(model, x, fixed=fixed, ranges=ranges, **wish)
    if hunt.best is not None:
        return hunt.result()
    return hunt.nothing(_say_why(hunt), is_exact=hunt.unsearched == math.inf)


def counterfactuals(
    model: Readable,
    x: Mapping[Hashable, Any],
    *,
    n: int,
    fixed: Iterable[Hashable],
    ranges: Mapping[Hashable, Any] | None,
    max_changes: int,
    **wish: Any,
) -> Counterfactuals:
    """Return rows with few changes: see `Readable.counterfactuals`."""
    for name, value in (("max_changes", max_changes), ("n", n)):
        if value < 1 or value != int(value):
            raise ValueError(f"{name} must be a whole number, 1 or more, got {value!r}")
    hunt, limits = prepare(model, x, fixed=fixed, ranges=ranges, **wish)
    hunt.keeps_whole = True
    found, is_exact = search_few(hunt, limits.seen(hunt.encoder, hunt.values), max_changes, n)
    if found:
        return Counterfactuals(one.result(is_exact=is_exact) for one in found)
    free = hunt.again()
    free.run(limits)
    if free.best is None:
        return Counterfactuals([free.nothing(_say_why(free), is_exact=free.unsearched == math.inf)])
    changes = free.changes(free.rounded())
    words = "1 change is" if max_changes == 1 else f"{max_changes} changes are"
    result = free.nothing("", is_exact=is_exact)
    searched = "" if result.exact else ", as far as was searched"
    reason = f"{words} not enough within the values seen{searched}; it would be if "
    return Counterfactuals([replace(result, reason=reason + say_changes(changes))])


def find_nearest(
    model: Readable,
    x: Mapping[Hashable, Any],
    *,
    fixed: Iterable[Hashable] = (),
    ranges: Mapping[Hashable, Any] | None = None,
    **wish: Any,
) -> Hunt:
    """Return the finished search: the nearest row, before any rounding.

    `wish` is `target` and `probability`, or `below`, `above` or `between`.
    """
    hunt, limits = prepare(model, x, fixed=fixed, ranges=ranges, **wish)
    hunt.run(limits)
    return hunt


def prepare(
    model: Readable,
    x: Mapping[Hashable, Any],
    *,
    fixed: Iterable[Hashable] = (),
    ranges: Mapping[Hashable, Any] | None = None,
    **wish: Any,
) -> tuple[Hunt, Constraints]:
    """Return the search, not started, and the constraints."""
    tree, encoder = inside(model)
    x = with_parts(encoder, x)
    batch = read_one(encoder, x)
    space = encoder if batch.sparse is None else SparseSpace(encoder, dict(x))
    values = batch.matrix[0] if isinstance(space, Encoder) else space.values
    limits = read_constraints(space, x, values, fixed, ranges)
    goal = Wish(**wish).read(tree, batch)
    return Hunt(tree, space, dict(x), values, goal), limits


def own_features(tree: Tree) -> list[Hashable]:
    """Return the names of the inputs that the model computes itself."""
    return list(level_names(tree.engine))


class Hunt:
    """The search over all leaves.

    Attributes
    ----------
    best : array of shape (features,) or None
        The nearest confirmed row, not rounded.
    cost : float
        Its squared distance.
    unsearched : float
        Lower bound of the cost of anything nearer that was not searched.
    """

    def __init__(
        self,
        tree: Tree,
        encoder: Encoder | SparseSpace,
        x: dict[Hashable, Any],
        values: Doubles,
        goal: LabelGoal | NumberGoal,
    ) -> None:
        self.tree, self.encoder, self.x, self.values = tree, encoder, x, values
        self.goal = goal
        self.keeps_whole = False
        self.best: Doubles | None = None
        self.cost = self.unsearched = math.inf

    def again(self) -> Hunt:
        """Return the same search, not started."""
        hunt = Hunt(self.tree, self.encoder, self.x, self.values, self.goal)
        hunt.keeps_whole = self.keeps_whole
        return hunt

    def run(self, limits: Constraints) -> None:
        """Search the leaves in order of their least cost, until the next is no nearer."""
        self.limits = limits
        for name in own_features(self.tree):
            limits.hold(self.encoder.names[name], self.values)
        if self.unlisted():
            self.unsearched = 1.0  # the cost of another value
        if self._agrees(self.values) and limits.allow(self.values):
            self.best, self.cost = self.values, 0.0
            return
        if self.goal.impossible:
            return
        self.start = Start(self.tree, self.encoder, self.values, limits)
        regions = (reach(self.tree, self.start, limits, leaf) for leaf in self.tree.leaves())
        rest: list[tuple[float, int, Region | Plan]] = [
            (self.start.least_cost(region), region.leaf, region) for region in regions if region
        ]
        heapq.heapify(rest)
        order = itertools.count(len(self.tree.engine.alive))  # ties: the first found
        nodes_left = MAX_NODES
        while rest and rest[0][0] < self.cost * EQUAL:
            check_time()
            _, _, nearest = heapq.heappop(rest)
            if isinstance(nearest, Plan):
                nodes_left -= self._search(nearest, max(nodes_left, 1))
                continue
            for demands, constants in self._demands(nearest.leaf):
                plan = plan_for(nearest, self.start, demands, constants)
                heapq.heappush(rest, (plan.search.least, next(order), plan))

    def unlisted(self) -> list[str]:
        """Return the categories that may change, but whose values are not known."""
        if self.tree.parameters.setting != "paper":
            return []
        return [
            self.encoder.display_names[j]
            for j in np.flatnonzero(self.tree.engine.is_categorical).tolist()
            if self.encoder.levels[j] is None
            and j not in self.limits.values
            and not math.isnan(self.values[j])
        ]

    def _search(self, plan: Plan, max_nodes: int) -> int:
        _, unsearched, n_nodes = plan.search.run(
            self.cost, partial(self._confirm, plan), max_nodes=max_nodes
        )
        self.unsearched = min(self.unsearched, unsearched)
        return n_nodes

    def _demands(self, leaf: int) -> list[Demands]:
        weights = self.tree.engine.weights(leaf)
        if self.start.sparse is not None:
            weights = np.hstack([weights, self.start.sparse.weights(leaf)])
        return self.goal.demands(leaf, weights)

    def _confirm(self, plan: Plan, shifts: Doubles, pieces: Places) -> float:
        """Return the squared distance of a row if its prediction is as wanted, else infinity."""
        values = plan.row(self.start, shifts, pieces)
        if not self._agrees(values):
            return math.inf
        cost = float(self.start.costs(values).sum())
        if cost < self.cost:
            self.best, self.cost = values, cost
        return cost

    def _agrees(self, values: Doubles) -> bool:
        return self.goal.agrees(self._read(self.row(values)))

    def rounded(self) -> Doubles:
        """Return the nearest row with its new numbers rounded, as far as the prediction allows.

        A number is rounded away from its old value, which is where the target lies. If that is not
        possible (because of a limit, the end of the leaf, a third label) it is rounded back.
        """
        best = self.best
        assert best is not None
        numbers = [j for j in self.changed(best) if j not in self.start.options]
        for more in range(ALL_DIGITS):
            away, back = best.copy(), best.copy()
            for j in numbers:
                old, new = float(self.values[j]), float(best[j])
                digits = self.encoder.digits(j, new) + more
                away[j], back[j] = round_away(new, old, digits), round_back(new, old, digits)
                alone = best.copy()
                alone[j] = away[j]
                if not self._stays(alone):
                    away[j] = back[j]
            one_back = np.where(np.eye(len(best), dtype=bool)[numbers], back, away)
            candidates: list[Doubles] = [away, *one_back]
            for values in candidates:
                if self._stays(values) and self._agrees(values):
                    return values
        return best

    def _stays(self, values: Doubles) -> bool:
        """Return whether a row is within the limits and the leaf of the nearest one."""
        assert self.best is not None
        return self._leaf(values) == self._leaf(self.best) and self.limits.allow(values)

    def _says_whole(self, j: int) -> bool:
        """Return whether a whole number is shown as one."""
        return self.keeps_whole or j in self.start.options

    def _leaf(self, values: Doubles) -> int:
        matrix = values[None]
        if isinstance(self.encoder, SparseSpace):
            matrix = self.encoder.known(matrix)
        return int(self.tree.engine.leaves(matrix)[0])

    def _read(self, row: dict[Hashable, Any]) -> Batch:
        return self.tree.encoder.read_dict(row, learning=False)

    def row(self, values: Doubles) -> dict[Hashable, Any]:
        """Return the original row with the changes."""
        if isinstance(self.encoder, SparseSpace):
            return self.encoder.row(values, self.changed(values))
        row = dict(self.x)
        for j in self.changed(values):
            name, value, levels = self.encoder.feature_names[j], values[j], self.encoder.levels[j]
            if levels is None:
                is_whole = isinstance(row[name], int) and value == int(value)
                row[name] = int(value) if is_whole and self._says_whole(j) else float(value)
            elif value < MAX_LEVELS:
                row[name] = self.encoder.level(j, value)
            else:
                row[name] = self.limits.other_level[j]
        return row

    def whole_places(self) -> list[int]:
        """Return the features with whole numbers in the original row."""
        names = self.encoder.feature_names
        return [
            j
            for j in self.changed(self.values + 1)
            if self.encoder.levels[j] is None
            and isinstance(self.x.get(names[j]), (int, np.integer))
            and not isinstance(self.x.get(names[j]), bool)
        ]

    def changed(self, values: Doubles) -> list[int]:
        """Return the features that differ in a row."""
        return np.flatnonzero((values != self.values) & ~np.isnan(self.values)).tolist()

    def changes(self, values: Doubles) -> dict[str, tuple[Any, Any]]:
        """Return old and new values by name, the largest change first."""
        row, changed = self.row(values), self.changed(values)
        if changed:
            costs = self.start.costs(values)
            changed.sort(key=lambda j: -costs[j])
        encoder = self.encoder
        names = [(encoder.display_names[j], encoder.feature_names[j]) for j in changed]
        return {shown: (self.x.get(name, 0), row[name]) for shown, name in names}

    @property
    def _note(self) -> str:
        """Return a note on the threshold, and on unknown and missing names."""
        given = {*self.x, *own_features(self.tree)}
        encoder = self.tree.encoder
        unknown = unknown_names(encoder, self.x)
        missing = [name for name in encoder.names if name not in given]
        return f"{self.goal.note}{say_unknown(unknown, missing)}".rstrip()

    def nothing(self, reason: str, *, is_exact: bool) -> Counterfactual:
        """Return the result if there is no such row, with the reason."""
        return Counterfactual(
            exists=False,
            **self.goal.wanted(),
            exact=is_exact and not self.goal.doubt,
            reason=reason,
            note=self._note,
        )

    def result(self, *, is_exact: bool = True) -> Counterfactual:
        """Return the result, rounded."""
        values = self.rounded()
        row = self.row(values)
        leaf = self._leaf(values)
        return Counterfactual(
            exists=True,
            **self.goal.reached(self._read(row)),
            x=row,
            changes=self.changes(values),
            distance=math.sqrt(self.start.costs(values).sum()) if self.cost else 0.0,
            leaf=leaf,
            path=self.tree.path(leaf),
            exact=is_exact and not self.goal.doubt and self.cost <= self.unsearched,
            note=self._note,
        )


# ---------------------------------------------------------------------- few changes
def search_few(
    hunt: Hunt, limits: Constraints, max_changes: int, n: int
) -> tuple[list[Hunt], bool]:
    """Return successful searches, the fewest changes first, then the nearest.

    Parameters
    ----------
    hunt : Hunt
        The search, not begun.
    limits : Constraints
        What the user allows.
    max_changes : int
        How many features may change at most.
    n : int
        How many rows are wanted, each with different features changed.

    Returns
    -------
    found : list of Hunt
        The finished searches.
    is_exact : bool
        Whether all necessary sets of features were searched, and to the end.
    """
    alone = _whole(hunt, limits.only((), hunt.encoder, hunt.values))
    if alone.best is not None:
        return [alone], True  # nothing has to change
    free = _changeable(hunt, limits)
    found: list[Hunt] = []
    enough: list[frozenset[int]] = []
    n_sets, is_exact = 0, True
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
            is_exact &= one.best is not None or one.unsearched == math.inf
        found = _nearest_first(found, here)
        enough += [frozenset(one.changed(one.best)) for one in here if one.best is not None]
        if len(found) >= n:
            break
    return found[:n], is_exact


def _nearest_first(found: list[Hunt], more: list[Hunt]) -> list[Hunt]:
    return found + sorted(more, key=lambda one: one.cost)


def _changeable(hunt: Hunt, limits: Constraints) -> list[int]:
    """Return the features that may change, by how much they change in the nearest row."""
    nearest = hunt.again()
    nearest.run(deepcopy(limits))
    places = np.flatnonzero(~np.isnan(hunt.values)).tolist()
    held = [hunt.encoder.names[name] for name in own_features(hunt.tree)]
    free = [j for j in places if j not in held and limits.leaves_room(j)]
    if nearest.best is None:
        return []
    costs = nearest.start.costs(nearest.best)
    return sorted(free, key=lambda j: -costs[j])


def _whole(hunt: Hunt, limits: Constraints) -> Hunt:
    """Return the search for the nearest row in which whole numbers stay whole."""
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
    """Return a number of the row that should be whole, but is not."""
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


# ---------------------------------------------------------------------- words
def _say_why(hunt: Hunt) -> str:
    """Explain why there is no such row: the limits are too narrow, or the model has none."""
    if hunt.goal.impossible:
        return hunt.goal.impossible
    if unlisted := hunt.unlisted():
        return (
            f"the paper's setting does not know all values of {', '.join(unlisted)}: give them in "
            "ranges"
        )
    if hunt.unsearched < math.inf:
        return "the search was cut short"
    narrow = hunt.limits.say(hunt.encoder.display_names)
    if narrow:
        free = hunt.again()
        free.run(Constraints.open(len(hunt.values)))
        if free.best is not None:
            changes = free.changes(free.rounded())
            how = f"would be if {say_changes(changes)}" if changes else "is already"
            return f"{narrow}; without these limits it {how}"
    same = " with the same features missing" if np.isnan(hunt.values).any() else ""
    return hunt.goal.doubt or f"{hunt.goal.say_none()}{same}"


def round_away(new: float, old: float, digits: int) -> float:
    """Return a number rounded to so many digits, but no nearer to an old one; whole ones in full.

    Examples
    --------
    >>> round_away(51664.35, old=25000.0, digits=4), round_away(-0.12341, old=0.0, digits=4)
    (51665.0, -0.1235)
    """
    return _round(new, digits, ROUND_CEILING if new > old else ROUND_FLOOR)


def round_back(new: float, old: float, digits: int) -> float:
    """Return a number rounded to so many digits, but between an old one and itself.

    Examples
    --------
    >>> round_back(51664.35, old=25000.0, digits=4), round_back(0.12341, old=0.1234, digits=3)
    (51664.0, 0.1234)
    """
    if new > old:
        return max(old, _round(new, digits, ROUND_FLOOR))
    return min(old, _round(new, digits, ROUND_CEILING))


def _round(value: float, digits: int, direction: str) -> float:
    exact = Decimal(value)
    places = digits - 1 - exact.adjusted()
    if abs(value) < 1e15:
        places = max(0, places)
    return float(exact.quantize(Decimal(1).scaleb(-places), rounding=direction))
