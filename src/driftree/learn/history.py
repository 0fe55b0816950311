"""History: the changes of a tree, and what its nodes were like at times in between.

The log of changes is bounded: the oldest ones are folded into the tree that they made, so that the
tree after any later step can be built again. Samples are taken at equal distances of rows; when
there are too many, every second one goes and the distance doubles.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from driftree.learn.events import Condition, Event, Replace, Split, Spot, make_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from driftree.learn.evidence import Entrant

MAX_EVENTS = 1000
MAX_SAMPLES = 256
LEAST_DISTANCE = 100  # rows between the very first samples, of which there are a dozen
SMALL = 4  # nodes; samples of a larger tree cost more, and are as much further apart
MAX_BYTES = 4_000_000  # of the weights in all samples


@dataclass(slots=True)
class Structure:
    """The nodes of a tree and their splits at some time, without the models.

    Attributes
    ----------
    nodes : dict of int to Spot
        The nodes by id, from the root down, left before right.

    Examples
    --------
    >>> age = Condition("age", "<=", 40.0)
    >>> spots = Spot(0, condition=age, left=1, right=2), Spot(1, 0, 1), Spot(2, 0, 1)
    >>> structure = Structure({spot.node: spot for spot in spots})
    >>> [str(condition) for leaf in structure.leaves() for condition in structure.path(leaf)]
    ['age <= 40', 'age > 40']
    >>> print(structure)
    |--- age <= 40
    |   |--- leaf 1, since row 0
    |--- age > 40
    |   |--- leaf 2, since row 0
    """

    nodes: dict[int, Spot] = field(default_factory=lambda: {0: Spot(0)})

    def walk(self, node: int = 0) -> Iterator[Spot]:
        """Yield a node and all below it from the top down, left before right."""
        rest = [node]
        while rest:
            spot = self.nodes[rest.pop()]
            yield spot
            if not spot.is_leaf:
                rest += [spot.right, spot.left]

    def below(self, node: int) -> tuple[Spot, ...]:
        """Return all nodes below one, from the top down."""
        return tuple(self.walk(node))[1:]

    def leaves(self) -> list[int]:
        """Return the leaves from left to right."""
        return [spot.node for spot in self.walk() if spot.is_leaf]

    def path(self, node: int) -> tuple[Condition, ...]:
        """Return the conditions from the root to a node."""
        conditions = []
        while (above := self.nodes[node].parent) >= 0:
            condition = self.nodes[above].condition
            assert condition is not None
            is_left = self.nodes[above].left == node
            conditions.append(condition if is_left else condition.negated())
            node = above
        return make_path(reversed(conditions))

    def after(self, event: Event) -> Structure:
        """Return what the tree is after a change."""
        spot = self.nodes[event.node]
        gone = {below.node for below in self.below(event.node)}
        nodes = {node: spot for node, spot in self.nodes.items() if node not in gone}
        since = (event.step, event.n_rows)
        if isinstance(event, (Split, Replace)):
            nodes[event.node] = Spot(
                event.node,
                spot.parent,
                spot.depth,
                event.condition,
                event.left,
                event.right,
                *since,
            )
            for child in (event.left, event.right):
                leaf = Spot(child, event.node, spot.depth + 1)
                nodes[child] = replace(leaf, since_step=since[0], since_row=since[1])
        else:
            leaf = Spot(event.node, spot.parent, spot.depth)
            nodes[event.node] = replace(leaf, since_step=since[0], since_row=since[1])
        changed = Structure(nodes)
        return Structure({spot.node: spot for spot in changed.walk()})

    def __str__(self) -> str:
        lines = []
        for spot in self.walk():
            if spot.depth:
                lines.append(f"{'|   ' * (spot.depth - 1)}|--- {self.path(spot.node)[-1]}")
            if spot.is_leaf:
                leaf = f"|--- leaf {spot.node}, since row {spot.since_row:,}"
                lines.append("|   " * spot.depth + leaf)
        return "\n".join(lines)


class NodeSample(NamedTuple):
    """A node at the time of a sample.

    Attributes
    ----------
    since_step : int
        Step since which the node is what it is; tells it from another node of the same id.
    is_leaf : bool
        Whether there is nothing below.
    depth : int
        Conditions above.
    rows : float
        Rows that the node had learnt.
    loss : float
        Mean loss per row of the node's own model since the sample before; NaN if no rows came.
    weights : ndarray of float32 or None
        Weights of a leaf's model, [outputs, inputs], as effects: what the log-odds gain when a
        number grows by two standard deviations (in the paper's setting: over its whole range), or
        a 0/1 input from 0 to 1. None at inner nodes, and where they would take too much memory.
    entrants : tuple of Entrant
        The best candidates and their gains, best first.
    needed : float
        What the gain of a candidate must reach; infinite where the tree may not grow.
    """

    since_step: int
    is_leaf: bool
    depth: int
    rows: float
    loss: float
    weights: NDArray[np.float32] | None
    entrants: tuple[Entrant, ...]
    needed: float


class Sample(NamedTuple):
    """The nodes of the tree after some step, by id; `n_bytes` is the size of their weights."""

    step: int
    n_rows: int
    nodes: dict[int, NodeSample]
    n_bytes: int


class Mark(NamedTuple):
    """The sums of a node at its last sample: what it lost since is the difference."""

    since_step: int
    loss: float
    rows: float
    clock: float


def thin(samples: list[Sample]) -> list[Sample]:
    """Return every second sample, the last one among them; each answers for the one before it."""
    kept = []
    before = None
    if len(samples) % 2:
        before = samples[0]
        kept.append(before)
    for gone, sample in zip(samples[-2::-2][::-1], samples[-1::-2][::-1][len(kept) :], strict=True):
        nodes = {
            node: seen._replace(loss=_mean(before, gone, node, seen))
            for node, seen in sample.nodes.items()
        }
        before = sample
        kept.append(sample._replace(nodes=nodes))
    return kept


def _mean(before: Sample | None, gone: Sample, node: int, seen: NodeSample) -> float:
    """Return the mean loss of a node over the rows of two samples."""
    middle = gone.nodes.get(node)
    if middle is None or middle.since_step != seen.since_step:
        return seen.loss
    start = None if before is None else before.nodes.get(node)
    is_same = start is not None and start.since_step == seen.since_step
    first_rows = middle.rows - (start.rows if is_same and start is not None else 0.0)
    parts = ((middle.loss, first_rows), (seen.loss, seen.rows - middle.rows))
    known = [(loss, rows) for loss, rows in parts if not math.isnan(loss) and rows > 0]
    total = sum(rows for _, rows in known)
    return sum(loss * rows for loss, rows in known) / total if known else math.nan


class History:
    """The log of a tree's changes, and samples of its nodes; both bounded.

    Parameters
    ----------
    distance : int
        Rows between samples, until there are too many.

    Attributes
    ----------
    events : deque of Event
        The latest changes, oldest first.
    first_step, first_row : int
        The earliest step for which the tree can be built again, and the rows learnt then.
    now : Structure
        The tree at present.
    samples : list of Sample
        Oldest first, at equal distances while the tree is small.
    marks : dict of int to Mark
        What the next sample's losses are counted from.
    next_row : int
        Rows at which the next sample is due.
    """

    def __init__(self, distance: int) -> None:
        self.events: deque[Event] = deque()
        self.first_step = self.first_row = 0
        self.now = Structure()
        self.samples: list[Sample] = []
        self.next_row, self._distance = min(LEAST_DISTANCE, distance), distance
        self._n_bytes = 0
        self._first = Structure()
        self.marks: dict[int, Mark] = {}

    def __copy__(self) -> History:
        """Return a history that goes on by itself; what is in it never changes, and is shared."""
        twin = History(self._distance)
        twin.__dict__ = self.__dict__ | {
            "events": self.events.copy(),
            "samples": self.samples.copy(),
        }
        return twin

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._facts() == other._facts()

    def _facts(self) -> tuple[object, ...]:
        """Return all that is remembered, such that unknown losses are equal to each other."""
        samples = [
            (
                sample.step,
                node,
                None if seen.weights is None else seen.weights.tobytes(),
                repr(seen._replace(weights=None)),
            )
            for sample in self.samples
            for node, seen in sample.nodes.items()
        ]
        first = (self.first_step, self.first_row, self._first)
        return (list(self.events), *first, self.now, samples, repr(self.marks), self.next_row)

    # ------------------------------------------------------------------ changes
    def add(self, event: Event) -> None:
        """Take in a change; the oldest one is folded when there are too many."""
        self.events.append(event)
        self.now = self.now.after(event)
        if len(self.events) > MAX_EVENTS:
            oldest = self.events.popleft()
            self._first = self._first.after(oldest)
            self.first_step, self.first_row = oldest.step, oldest.n_rows

    def at(self, step: int) -> Structure:
        """Return the tree after a step: what the log begins with, and all changes until then."""
        structure = self._first
        for event in self.events:
            if event.step > step:
                break
            structure = structure.after(event)
        return structure

    # ------------------------------------------------------------------ samples
    def take(self, sample: Sample) -> None:
        """Keep a sample; when there are too many, every second one goes."""
        self.samples.append(sample)
        self._n_bytes += sample.n_bytes
        while len(self.samples) > MAX_SAMPLES or (
            self._n_bytes > MAX_BYTES and len(self.samples) > 1
        ):
            self.samples = thin(self.samples)
            self._n_bytes = sum(sample.n_bytes for sample in self.samples)
            self._distance *= 2
        distance = min(self._distance, max(LEAST_DISTANCE, sample.n_rows // 4))
        distance *= max(1, len(sample.nodes) // SMALL)
        self.next_row = (sample.n_rows // distance + 1) * distance
