"""Loss over time: the loss of each node's rows; local or global drift."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.explain.changes import history_of, replay
from driftree.explain.describe import divide_rows, inside
from driftree.learn.events import join_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.explain.changes import Moment
    from driftree.explain.readable import Readable

EARLIER = 12  # samples that a loss is compared with
LEAST_EARLIER = 4
LEAST_ROWS = 20  # rows for a meaningful mean
MAD = 0.6745  # median distance from the median, in standard deviations
SURPRISE = 4.0  # nats: the loss of a label with a predicted probability of 2 %
NORMAL = 0.5  # nats squared: the variance of the loss for normally distributed errors
CLEAR = (0.1, 4.0)  # nats per row, standard errors: a rise begins
LIKELY = (0.05, 2.5)  # further branches of the same rise
NEARLY_ALL = 0.8  # of the rows


class NodeLoss(NamedTuple):
    """The loss of the rows that reached a node, between two samples.

    Attributes
    ----------
    n_rows : int
        Rows of the stream learnt at the later sample.
    node, parent, depth : int
        Id of the node, of the one above (-1 at the root), and the conditions above it.
    path : str
        These conditions in words.
    start, stop : float
        Its interval of all rows, from 0 to 1: nodes of a level are side by side in tree order.
    rows : float
        Number of rows of the mean loss: those that reached these leaves since the previous sample,
        or since they are leaves, discounted like the sums that the tree compares.
    loss : float
        Mean loss per row, in nats, of the leaves at and below it; NaN without rows.
    change : float
        The loss minus the median of the node's up to 12 samples before, NaN before there are four,
        or with fewer than 20 rows.
    error : float
        Standard error of the change, from the spread of these samples.
    """

    n_rows: int
    node: int
    parent: int
    depth: int
    path: str
    start: float
    stop: float
    rows: float
    loss: float
    change: float
    error: float

    @property
    def has_risen(self) -> bool:
        """Whether the loss clearly rose: by more than 0.1 nats per row and 4 standard errors."""
        return self.exceeds(*CLEAR)

    def exceeds(self, least: float, errors: float) -> bool:
        """Return whether the loss rose by so much and by so many standard errors; NaN does not."""
        return self.change > max(least, errors * self.error)


def loss_by_node(model: Readable) -> list[NodeLoss]:
    """Return the loss of each node's rows over time, and its changes.

    If the stream changes for all rows, the loss rises in all nodes of a level at once; if it
    changes for some rows, in one branch.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.

    Returns
    -------
    list of NodeLoss
        Sample by sample; in a sample from the root down, left before right.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(6000, 2))
    >>> y = X[:, 0] + rng.normal(scale=0.3, size=6000) > 0
    >>> y ^= np.arange(6000) > 4000  # labels flip
    >>> losses = loss_by_node(DynamicModelTreeClassifier().partial_fit(X, y))
    >>> [loss.n_rows for loss in losses if loss.has_risen]
    [4600]
    """
    tree, _ = inside(model)
    has_labels = tree.engine.has_labels
    earlier: dict[tuple[int, int], deque[tuple[float, float]]] = {}
    found = []
    for moment in replay(history_of(tree))[0]:
        keys = {node: (node, born) for node, born in moment.births.items()}
        below = _losses_below(moment)
        places = _places(moment)
        for node, spot in moment.structure.nodes.items():
            before = earlier.setdefault(keys[node], deque(maxlen=EARLIER))
            loss, rows = below[node]
            change, error = _compare(before, loss, rows, has_labels=has_labels)
            found.append(
                NodeLoss(
                    n_rows=moment.sample.n_rows,
                    node=node,
                    parent=spot.parent,
                    depth=spot.depth,
                    path=join_path(moment.structure.path(node)),
                    start=places[node][0],
                    stop=places[node][1],
                    rows=rows,
                    loss=loss,
                    change=change,
                    error=error,
                )
            )
            if rows > 0:
                before.append((loss, rows))
    return found


def _losses_below(moment: Moment) -> dict[int, tuple[float, float]]:
    """Return the mean loss of the leaves at and below each node, and the rows it is a mean of."""
    sums: dict[int, tuple[float, float]] = {}
    for node, spot in reversed(moment.structure.nodes.items()):
        if spot.is_leaf:
            seen = moment.sample.nodes[node]
            rows = seen.loss_rows
            sums[node] = (seen.loss * rows, rows) if rows > 0 else (0.0, 0.0)
        else:
            left, right = sums[spot.left], sums[spot.right]
            sums[node] = left[0] + right[0], left[1] + right[1]
    return {node: (loss / n if n > 0 else math.nan, n) for node, (loss, n) in sums.items()}


def _compare(
    before: Sequence[tuple[float, float]], loss: float, rows: float, *, has_labels: bool
) -> tuple[float, float]:
    """Return how far a mean loss is above those of earlier samples, and the standard error.

    The standard deviation of a sample's mean falls with the root of its rows. It is at least that
    of a model that is right except for rare surprises, which few samples may have had; for
    regressors, at least that of normally distributed errors.
    """
    if len(before) < LEAST_EARLIER or rows < LEAST_ROWS:
        return math.nan, math.nan
    losses, weights = np.array(before).T
    middle = float(np.median(losses))
    per_row = (float(np.median(np.sqrt(weights) * np.abs(losses - middle))) / MAD) ** 2
    per_row = max(per_row, SURPRISE * middle if has_labels else NORMAL)
    return loss - middle, math.sqrt(per_row * (1 / rows + 1 / float(weights.sum())))


def _places(moment: Moment) -> dict[int, tuple[float, float]]:
    """Assign intervals of rows to the nodes of each level, in tree order."""
    children = moment.structure.children()
    rows = {node: seen.rows for node, seen in moment.sample.nodes.items()}
    shares = divide_rows(children, rows, unknown=0.5)
    places = {0: (0.0, 1.0)}
    for node, (left, right) in children.items():
        start, stop = places[node]
        middle = start + shares[left]
        places[left], places[right] = (start, middle), (middle, stop)
    return places


@dataclass(frozen=True, slots=True)
class LossRise:
    """A period in which the loss rose; `str` says where, and whether that was local or global.

    Attributes
    ----------
    start, stop : int
        Rows of the stream: of the last sample before, and of the last one with a rise.
    share : float
        Share of the rows that reach the branches in which the loss rose, when it was largest.
    possible_share : float
        The same including branches in which it may have risen: within a standard error of 0.1.
    n_branches, n_risen : int
        Branches with enough samples, and those in which it rose.
    paths : tuple of str
        The conditions of these branches, in words; "" is all rows.
    """

    start: int
    stop: int
    share: float
    possible_share: float
    n_branches: int
    n_risen: int
    paths: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return "global" (80 % of rows or more), "local" (surely fewer), "unclear" or "undivided".

        It is unclear if it may have risen for 80 % of rows, and undivided if there was one branch.
        """
        if self.n_branches == 1:
            return "undivided"
        if self.share >= NEARLY_ALL:
            return "global"
        return "unclear" if self.possible_share >= NEARLY_ALL else "local"

    def __str__(self) -> str:
        when = f"Between rows {self.start:,} and {self.stop:,} the loss rose"
        if self.kind == "undivided":
            return f"{when} for all rows; no branch was old enough to tell local from global."
        if self.n_risen == self.n_branches and self.kind == "global":
            which = "both" if self.n_branches == 2 else f"all {self.n_branches}"
            return f"{when} in {which} branches: global."
        which = f"{self.n_risen} of {self.n_branches} branches, {self.share:.0%} of rows"
        if self.kind == "unclear":
            return f"{when} in {which}, perhaps in more: local or global is unclear."
        where = "" if self.kind == "global" else f" ({'; '.join(self.paths)})"
        return f"{when} in {which}{where}: {self.kind}."


def loss_rises(model: Readable) -> list[LossRise]:
    """Return the periods in which the loss rose, and whether locally or globally.

    A rise begins where some branch's loss exceeds the median of up to 12 samples before by more
    than 0.1 nats per row and 4 standard errors. It includes all branches whose loss, in this or the
    following samples without a break, exceeds theirs by 0.05 nats per row and 2.5 standard errors.
    The branches are the lowest nodes that have existed for four samples.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.

    Returns
    -------
    list of LossRise
        Oldest first; `str` of each is a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(20_000, 3))
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    >>> turned = (np.arange(20_000) >= 15_000) & (X[:, 0] > 0)  # later, and in one half
    >>> y[turned] = X[turned, 2] > 0.8
    >>> for rise in loss_rises(DynamicModelTreeClassifier().partial_fit(X, y)):
    ...     print(rise)
    Between rows 15,000 and 16,000 the loss rose in 1 of 4 branches, 25% of rows (x1 <= ...): local.
    """
    samples: dict[int, list[NodeLoss]] = {}
    for seen in loss_by_node(model):
        samples.setdefault(seen.n_rows, []).append(seen)
    rises: list[LossRise] = []
    run: list[_Judged] = []
    high: set[int] = set()  # branches of earlier rises; a shift changes their paths
    before = start = 0
    for n_rows, nodes in samples.items():
        branches = _lowest_judged(nodes)
        likely = [node for node in branches if node.exceeds(*LIKELY)]
        fresh = [node for node in likely if node.node not in high]
        if any(node.exceeds(*(LIKELY if run else CLEAR)) for node in fresh):
            start = start if run else before
            possible = [node for node in branches if node.change + node.error > CLEAR[0]]
            run.append(_Judged(len(branches), fresh, possible))
            high.update(node.node for node in fresh)
        elif run:
            rises.append(_sum_up(start, before, run))
            run = []
        high &= {node.node for node in likely}
        before = n_rows
    return [*rises, _sum_up(start, before, run)] if run else rises


class _Judged(NamedTuple):
    n_branches: int
    risen: list[NodeLoss]
    possible: list[NodeLoss]


def _lowest_judged(nodes: list[NodeLoss]) -> list[NodeLoss]:
    """Return the lowest nodes with enough samples, which cover all rows; or none."""
    known = {node.node for node in nodes if not math.isnan(node.change)}
    pairs: dict[int, list[int]] = {}
    for node in nodes:
        pairs.setdefault(node.parent, []).append(node.node)
    is_open = {node: all(child in known for child in pair) for node, pair in pairs.items()}
    shown = []
    reached = {-1} if is_open.get(-1) else set()
    for node in nodes:  # from the root down
        if node.parent in reached:
            if is_open.get(node.node):
                reached.add(node.node)
            else:
                shown.append(node)
    return shown


def _sum_up(start: int, stop: int, run: list[_Judged]) -> LossRise:
    """Combine consecutive samples: a branch counts if it rose in any of them."""
    risen = {node.node: node for judged in run for node in judged.risen}
    return LossRise(
        start=start,
        stop=stop,
        share=_length((node.start, node.stop) for node in risen.values()),
        possible_share=_length(
            (node.start, node.stop) for judged in run for node in judged.possible
        ),
        n_branches=max(len(risen), *(judged.n_branches for judged in run)),
        n_risen=len(risen),
        paths=tuple(node.path for node in risen.values()),
    )


def _length(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total = end = 0.0
    for start, stop in sorted(spans):
        total += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return total


class LossCourse(NamedTuple):
    """Mean loss per row between the samples of the history: of the tree, and of its root alone.

    Attributes
    ----------
    n_rows : ndarray of int
        Rows of the stream learnt at each sample.
    tree : ndarray of float
        Mean loss of the leaves, each with its rows since the sample before; NaN where unknown.
    root : ndarray of float
        Mean loss of the root's own model: that of a single model for all rows.
    """

    n_rows: NDArray[np.int64]
    tree: NDArray[np.float64]
    root: NDArray[np.float64]


def loss_course(model: Readable) -> LossCourse:
    """Return the mean loss per row of the tree over time, and that of one linear model.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.

    Returns
    -------
    LossCourse

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> course = loss_course(model)
    >>> print(f"{course.tree[-1]:.2f} {course.root[-1]:.2f}")
    0.04 0.69
    """
    tree, _ = inside(model)
    roots = [seen for seen in loss_by_node(model) if seen.node == 0]
    moments, _ = replay(history_of(tree))
    return LossCourse(
        n_rows=np.array([seen.n_rows for seen in roots], dtype=np.int64),
        tree=np.array([seen.loss for seen in roots]),
        root=np.array([moment.sample.nodes[0].loss for moment in moments]),
    )
