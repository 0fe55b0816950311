"""History: the changes of a tree, and samples of its nodes in between.

The log of changes is bounded: the oldest ones are folded into a snapshot of the tree, so that the
tree after any later step can be rebuilt. Samples are taken at equal distances of rows; when there
are too many, every second one is dropped and the distance doubles.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.learn.events import (
    Bend,
    Condition,
    Event,
    LinkChange,
    ModelChange,
    Replace,
    Shift,
    Split,
    Spot,
    Unbend,
    make_path,
)
from driftree.learn.memory import text_bytes
from driftree.learn.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, NodeState, PaperEngine
    from driftree.learn.drifts import Drift

MAX_EVENTS = 1000
MAX_DRIFTS = 1000
MAX_TEXT = 2**23  # bytes of all events in a model file: names may be long
MAX_ENTRANTS = 3  # candidates of a node in a sample
MAX_SAMPLES = 256
LEAST_DISTANCE = 100  # rows between the very first samples, of which there are a dozen
MAX_BYTES = 4_000_000  # of the weights in all samples
MAX_SAMPLE_BYTES = MAX_BYTES // 8  # of those in one sample; larger ones are left out
MAX_NODES = 8192  # in all samples
ROOT = Spot(0)  # of every new tree


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

    nodes: dict[int, Spot] = field(default_factory=lambda: {0: ROOT})

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

    def children(self) -> dict[int, tuple[int, int]]:
        """Return the two nodes below each inner node, from the root down."""
        return {spot.node: (spot.left, spot.right) for spot in self.walk() if not spot.is_leaf}

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
        """Return the structure after a change."""
        changed = Structure(dict(self.nodes))
        changed.change(event)
        return changed.in_order()

    def change(self, event: Event) -> None:
        """Apply a change in place; new nodes come last, wherever they are in the tree."""
        if isinstance(event, ModelChange):
            return  # the nodes stay
        nodes, since = self.nodes, (event.step, event.n_rows)
        spot = nodes[event.node]
        if isinstance(event, Shift):
            nodes[event.node] = replace(spot, condition=event.condition)
            return
        for below in self.below(event.node):
            del nodes[below.node]
        parent, depth = spot.parent, spot.depth
        if isinstance(event, (Split, Replace)):
            children = event.left, event.right
            nodes[event.node] = Spot(event.node, parent, depth, event.condition, *children, *since)
            for child in children:
                nodes[child] = Spot(child, event.node, depth + 1, None, -1, -1, *since)
        else:
            nodes[event.node] = Spot(event.node, parent, depth, None, -1, -1, *since)

    def in_order(self) -> Structure:
        """Return the same with the nodes from the root down, left before right."""
        return Structure({spot.node: spot for spot in self.walk()})

    def __str__(self) -> str:
        lines = []
        for spot in self.walk():
            if spot.depth:
                lines.append(f"{'|   ' * (spot.depth - 1)}|--- {self.path(spot.node)[-1]}")
            if spot.is_leaf:
                leaf = f"|--- leaf {spot.node}, since row {spot.since_row:,}"
                lines.append("|   " * spot.depth + leaf)
        return "\n".join(lines)


class Entrant(NamedTuple):
    """A candidate in the race to change a node, and its gain so far."""

    feature: int
    threshold: float
    equality: bool
    missing_left: bool
    gain: float


class NodeSample(NamedTuple):
    """A node at the time of a sample.

    Attributes
    ----------
    since_step : int
        Step at which the node got its present form; tells it from another node of the same id.
    is_leaf : bool
        Whether there is nothing below.
    depth : int
        Conditions above.
    rows : float
        Rows that the node had learnt.
    loss : float
        Mean loss per row of the node's own model since the previous sample, or since the node got
        its present form or its model other bends; NaN without rows.
    loss_rows : float
        Number of rows of this mean, discounted like the sums that the tree compares.
    weights : ndarray of float32 or None
        Weights of a leaf's model, [outputs, inputs], as effects: the change of the log-odds
        (regressors: of the target) when a number grows by two standard deviations (in the paper's
        setting: over its whole range), or a 0/1 input from 0 to 1. For a curve, the most that they
        rise or fall when it grows by up to that. None at inner nodes, and if they would take too
        much memory.
    entrants : tuple of Entrant
        The best candidates and their gains, best first.
    needed : float
        The required gain of a candidate; infinite if the tree may not grow.
    """

    since_step: int
    is_leaf: bool
    depth: int
    rows: float
    loss: float
    loss_rows: float
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
    """The sums of a node at its last sample: its loss since then is the difference."""

    since_step: int
    loss: float
    rows: float
    clock: float


def thin(samples: list[Sample]) -> list[Sample]:
    """Return every second sample, including the last; each absorbs the losses of the one before."""
    kept = samples[-1::-2][::-1]
    gone = samples[-2::-2][::-1]
    first = kept[: len(kept) - len(gone)]
    return first + [_merge(*pair) for pair in zip(gone, kept[len(first) :], strict=True)]


def _merge(gone: Sample, kept: Sample) -> Sample:
    """Return a sample whose losses include those of the one before it."""
    nodes = {}
    for node, seen in kept.nodes.items():
        before = gone.nodes.get(node)
        is_same = before is not None and before.since_step == seen.since_step
        both = [before, seen] if is_same else [seen]
        parts = [part for part in both if part is not None and part.loss_rows > 0]
        rows = sum((part.loss_rows for part in parts), 0.0)
        loss = sum(part.loss * part.loss_rows for part in parts) / rows if parts else math.nan
        nodes[node] = seen._replace(loss=loss, loss_rows=rows)
    return kept._replace(nodes=nodes)


def text_of(event: Event) -> int:
    """Return the approximate bytes of a change in a model file."""
    second = event.runner_up
    conditions = [
        *event.path,
        getattr(event, "condition", None),
        getattr(event, "old_condition", None),
        None if second is None else second.condition,
    ]
    said = [one for one in conditions if one is not None]
    texts = [text for one in said for text in (one.feature, one.value)]
    curves = event.curves if isinstance(event, (Bend, Unbend)) else ()
    texts += [curve.feature for curve in curves]
    n_numbers = sum(1 + len(curve.knots) for curve in curves)
    if isinstance(event, LinkChange):
        texts.append(event.third_label)
    return 500 + 100 * len(said) + 25 * n_numbers + text_bytes(texts)  # with keys and figures


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
    drifts : tuple of Drift
        The latest alarms, oldest first.
    first_step, first_row : int
        The earliest step for which the tree can be rebuilt, and the rows learnt then.
    samples : list of Sample
        Oldest first, at equal distances while the tree is small.
    marks : dict of int to Mark
        Where the losses of the next sample start.
    next_row : int
        Rows at which the next sample is due.
    """

    def __init__(self, distance: int) -> None:
        self.events: deque[Event] = deque()
        self.drifts: tuple[Drift, ...] = ()
        self.first_step = self.first_row = 0
        self.samples: list[Sample] = []
        self.next_row, self._distance = min(LEAST_DISTANCE, distance), distance
        self._n_bytes = self._n_nodes = 0  # in all samples
        self._n_text = -1  # of all events in a file, as `text_of`; counted when one is added
        self._first, self._now = Structure({0: ROOT}), Structure({0: ROOT})
        self._now_in_order: Structure | None = None
        self.marks: dict[int, Mark] = {}

    def __copy__(self) -> History:
        """Return an independent history; its entries never change, and are shared."""
        twin = History(self._distance)
        twin.__dict__ = self.__dict__ | {
            "events": self.events.copy(),
            "samples": self.samples.copy(),
            "marks": self.marks.copy(),
            "_first": Structure(dict(self._first.nodes)),
            "_now": Structure(dict(self._now.nodes)),
        }
        return twin

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._facts() == other._facts()

    def _facts(self) -> tuple[object, ...]:
        """Return the contents for a comparison in which unknown losses are equal."""
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
        return (
            list(self.events),
            repr(self.drifts),
            *first,
            self.now,
            samples,
            repr(self.marks),
            self.next_row,
        )

    # ------------------------------------------------------------------ changes
    def add(self, event: Event, marks: dict[int, Mark] | None = None) -> None:
        """Add a change, and the marks of its nodes, atomically.

        The oldest changes are folded when there are too many, or too long.
        """
        n_text = sum(map(text_of, self.events)) if self._n_text < 0 else self._n_text
        n_text += text_of(event)
        events, now = self.events.copy(), Structure(dict(self._now.nodes))
        events.append(event)
        now.change(event)
        facts = {"events": events, "_now": now, "_now_in_order": None}
        if marks:
            facts["marks"] = self.marks | marks
        first = Structure(dict(self._first.nodes))
        while len(events) > MAX_EVENTS or (len(events) > 1 and n_text > MAX_TEXT):
            oldest = events.popleft()
            n_text -= text_of(oldest)
            first.change(oldest)
            facts |= {"_first": first, "first_step": oldest.step, "first_row": oldest.n_rows}
        self.__dict__ = self.__dict__ | facts | {"_n_text": n_text}

    def add_drift(self, drift: Drift) -> None:
        """Add an alarm; if there are too many, the oldest is dropped."""
        self.drifts = (*self.drifts, drift)[-MAX_DRIFTS:]

    def at(self, step: int) -> Structure:
        """Return the tree after a step: the start of the log, and all changes until then."""
        structure = Structure(dict(self._first.nodes))
        for event in self.events:
            if event.step > step:
                break
            structure.change(event)
        return structure.in_order()

    @property
    def now(self) -> Structure:
        """The tree at present."""
        if self._now_in_order is None:
            self._now_in_order = self._now.in_order()
        return self._now_in_order

    def below(self, node: int) -> tuple[Spot, ...]:
        """Return all nodes below one at present, from the top down."""
        return self._now.below(node)

    def parts(self) -> Iterator[tuple[Hashable, object]]:
        """Yield the contents in parts, each with a key under which its size can be cached."""
        trees = self._first.nodes, self._now.nodes
        yield ("trees", *map(len, trees), len(self.marks)), (*trees, self.marks)
        for event in self.events:
            yield (type(event), event.step, event.node), event
        for drift in self.drifts:
            yield ("drift", drift.n_rows), drift
        for sample in self.samples:
            yield sample.step, sample

    # ------------------------------------------------------------------ samples
    def take(self, sample: Sample, marks: dict[int, Mark]) -> None:
        """Add a sample and its marks, atomically; beyond a limit, every second one is dropped."""
        samples, distance = [*self.samples, sample], self._distance
        n_bytes, n_nodes = self._n_bytes + sample.n_bytes, self._n_nodes + len(sample.nodes)
        while len(samples) > MAX_SAMPLES or (
            len(samples) > 1 and (n_bytes > MAX_BYTES or n_nodes > MAX_NODES)
        ):
            samples = thin(samples)
            n_bytes = sum(sample.n_bytes for sample in samples)
            n_nodes = sum(len(sample.nodes) for sample in samples)
            distance *= 2
        # The cost of a sample is linear in the nodes, that of a row about logarithmic.
        n_own = len(sample.nodes)
        rows = min(distance, max(LEAST_DISTANCE, sample.n_rows // 4))
        rows *= max(1, n_own // n_own.bit_length())
        self.__dict__ = self.__dict__ | {
            "samples": samples,
            "marks": marks,
            "next_row": (sample.n_rows // rows + 1) * rows,
            "_distance": distance,
            "_n_bytes": n_bytes,
            "_n_nodes": n_nodes,
        }


def check_history(
    history: History | None, engine: MeasuredEngine | PaperEngine, *, is_kept: bool
) -> None:
    """Raise unless a history belongs to the tree that an engine holds, if one is kept."""
    if (history is None) == bool(is_kept):
        raise ValueError("there must be a history if, and only if, keep_history is True")
    if history is None:
        return
    now = history._now.nodes
    if {s.node: (s.parent, s.left, s.right, s.depth) for s in now.values()} != _links(engine):
        raise ValueError("the history is not that of this tree")
    last = history.events[-1].step - 1 if history.events else 0  # a link may change early
    sampled = history.samples[-1].step if history.samples else 0
    if max(history.first_step, last, sampled) > engine.n_steps:
        raise ValueError("the history goes beyond the last step")
    clocks = engine.node_clock if history.marks else ()
    for node, mark in history.marks.items():
        latest = clocks[node] if node in now else engine.clock
        if mark.clock > latest:
            raise ValueError(f"the history marks node {node} at a time in the future")


def _links(engine: MeasuredEngine | PaperEngine) -> dict[int, tuple[int, int, int, int]]:
    """Return parent, children and depth of every node."""
    if engine.n_nodes == 1:  # as in every young tree
        return {0: (-1, -1, -1, 0)}
    alive = engine.alive.tolist()
    columns = (engine.parent, engine.left, engine.right, engine.depth)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {node: row for node, row in enumerate(rows) if alive[node]}


# ---------------------------------------------------------------------- samples of the present
class Sampler:
    """Takes samples of the nodes of a tree."""

    def __init__(
        self,
        engine: MeasuredEngine | PaperEngine,
        window: float,
        entrants: Callable[[int, NodeState], list[Entrant]],
    ) -> None:
        self.engine = engine
        self.window = window
        self.entrants = entrants

    def take(self, history: History) -> None:
        """Add a sample of all nodes to the history."""
        engine = self.engine
        spots = history.now.nodes
        n_bytes = 4 * engine.n_outputs * engine.n_columns * (len(spots) + 1) // 2
        factor = unit_of(engine).factor if n_bytes <= MAX_SAMPLE_BYTES else None
        nodes, marks = {}, {}
        for node, spot in spots.items():
            own = engine.node(node)
            before, now = history.marks.get(node), _mark(own, spot.since_step)
            marks[node] = now
            nodes[node] = self._look(spot, own, _since(before, now, self.window), factor)
        n_bytes = sum(0 if one.weights is None else one.weights.nbytes for one in nodes.values())
        history.take(Sample(engine.n_steps, engine.n_rows, nodes, n_bytes), marks)

    def marks(self, event: Event) -> dict[int, Mark]:
        """Return the marks of the nodes that have changed: their losses count from now on."""
        if isinstance(event, Shift):
            return {}  # the models stay
        nodes = (event.node, getattr(event, "left", -1), getattr(event, "right", -1))
        return {node: _mark(self.engine.node(node), event.step) for node in nodes if node >= 0}

    def _look(
        self, spot: Spot, own: NodeState, loss: tuple[float, float], factor: float | None
    ) -> NodeSample:
        """Return a node with its loss and, given the factor of its unit, its effects."""
        node, is_leaf = spot.node, spot.is_leaf
        effects = None
        if is_leaf and factor is not None:
            effects = self.engine.sampled_effects(node, factor)
        return NodeSample(
            spot.since_step,
            is_leaf,
            spot.depth,
            own.rows,
            *loss,
            effects,
            tuple(self.entrants(node, own)),
            own.split_level if is_leaf else own.replace_level,
        )


def _mark(own: NodeState, since_step: int) -> Mark:
    return Mark(since_step, own.own_loss, own.evidence, own.clock)


def _since(before: Mark | None, now: Mark, window: float) -> tuple[float, float]:
    """Return the mean loss per row since a mark, and the rows, both discounted like the sums."""
    loss, rows = now.loss, now.rows
    if before is not None:
        keep = math.exp(-(now.clock - before.clock) / window)
        loss, rows = loss - keep * before.loss, rows - keep * before.rows
    return (loss / rows, rows) if rows > 1e-3 else (math.nan, 0.0)
