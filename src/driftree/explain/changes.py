"""Changes: why the tree changed, in words and as data; earlier trees; callbacks."""

from __future__ import annotations

import numbers
from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from driftree.explain.describe import inside
from driftree.explain.text import join_words
from driftree.learn.events import (
    ALL_DIGITS,
    Bend,
    LinkChange,
    MemoryChange,
    Prune,
    Replace,
    Shift,
    Split,
    Unbend,
    join_path,
    say_curves,
    say_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from driftree.explain.readable import Readable
    from driftree.learn.drifts import Drift
    from driftree.learn.events import Condition, Event
    from driftree.learn.history import History, Sample, Structure
    from driftree.learn.tree import Tree

    OnChange = Callable[[Event], object]
    OnDrift = Callable[[Drift], object]

Path = tuple["Condition", ...]

Library = Literal["pandas", "polars", "pyarrow"]

FRAMES: tuple[Library, ...] = ("pandas", "polars", "pyarrow")
KINDS = {
    "split": "split",
    "replace": "replacement",
    "shift": "shift",
    "prune": "pruning",
    "bend": "bend",
    "unbend": "straightening",
    "memory": "memory change",
    "link": "restart",
}


@dataclass(frozen=True, slots=True)
class Diff:
    """How a tree changed from one step to another; `str` describes it.

    Attributes
    ----------
    before, after : Structure
        The two trees.
    events : list of Event
        The changes in between, oldest first.
    added, removed, kept : list of tuple of Condition
        Paths of the leaves of only the second, only the first, and both trees.
    moved : list of (tuple of Condition, tuple of Condition)
        Paths in the first and in the second tree of the leaves that stayed, but got other rows when
        a threshold above them moved.
    """

    before: Structure
    after: Structure
    events: list[Event]
    added: list[Path]
    removed: list[Path]
    kept: list[Path]
    moved: list[tuple[Path, Path]]

    def __bool__(self) -> bool:
        return bool(self.events)

    def __str__(self) -> str:
        if not self.events:
            return "Nothing changed."
        kinds = Counter(event.kind for event in self.events)
        counts = ", ".join(
            f"{count} {KINDS[kind]}{'s' if count > 1 else ''}" for kind, count in kinds.items()
        )
        n_leaves = len(self.before.leaves()), len(self.after.leaves())
        lines = [f"{counts}; from {_leaves(n_leaves[0])} to {_leaves(n_leaves[1])}."]
        digits = self._digits()
        for title, paths in (("Gone", self.removed), ("New", self.added), ("Kept", self.kept)):
            lines += [f"{title}: {say_rows(path, digits)}" for path in paths]
        for old, new in self.moved:
            lines.append(f"Moved: {say_rows(new, digits)}, before: {join_path(old, digits)}")
        return "\n".join([*lines, *(f"- {event}" for event in self.events)])

    def _digits(self) -> int:
        """Return how many digits distinguish old leaves from new ones."""
        before = [*self.removed, *(old for old, _ in self.moved)]
        after = [*self.added, *(new for _, new in self.moved)]
        for digits in range(ALL_DIGITS):
            gone, new = ({say_rows(path, digits) for path in paths} for paths in (before, after))
            if gone.isdisjoint(new):
                break
        return digits


def history(model: Readable, library: str | None = None) -> Any:
    """Return the log of changes as a data frame: see `Readable.history`."""
    return to_frame(history_of(inside(model)[0]).events, library)


def to_frame(events: Iterable[Event], library: str | None, **more: list[int]) -> Any:
    """Return events as a data frame; `more` are further columns of whole numbers."""
    rows = [_figures(event) for event in events]
    schema = {**dict.fromkeys(more, nw.Int64()), **SCHEMA}
    columns = {name: more.get(name) or [row[name] for row in rows] for name in schema}
    backend = _choose_library(library)
    frame = nw.from_dict(columns, schema=nw.Schema(schema), backend=backend).to_native()
    if backend == "pandas":  # before version 3 it converts None to text
        for name in ("condition", "old_condition", "runner_up", "curves"):
            frame[name] = frame[name].where([text is not None for text in columns[name]], None)
    return frame


def tree_at(model: Readable, step: int | None = None, row: int | None = None) -> Structure:
    """Return the tree after a step or row: see `Readable.tree_at`."""
    tree, _ = inside(model)
    return history_of(tree).at(_step_at(tree, step, row))


def diff(
    model: Readable,
    first: int | None = None,
    second: int | None = None,
    row: tuple[int, int] | None = None,
) -> Diff:
    """Return what changed from one step or row to another: see `Readable.diff`."""
    tree, _ = inside(model)
    if row is not None and np.shape(row) != (2,):
        raise ValueError(f"row must be two rows, such as row=(1000, 2000), got {row!r}")
    rows = (None, None) if row is None else row
    first, second = _step_at(tree, first, rows[0]), _step_at(tree, second, rows[1])
    if row is not None and row[0] > row[1]:
        raise ValueError(f"the first row must not be later than the second: {row[0]} > {row[1]}")
    before, after = tree_at(model, first), tree_at(model, second)
    if first > second:
        raise ValueError(f"the first step must not be later than the second: {first} > {second}")
    log = history_of(inside(model)[0])
    events = [event for event in log.events if first < event.step <= second]
    gone = {spot.node for event in events for spot in event.removed}  # others may have their ids
    old, new = _leaf_paths(before), _leaf_paths(after)
    stayed = {leaf for leaf in new if leaf in old and leaf not in gone}
    moved = {leaf for leaf in stayed if _rows_of(old[leaf]) != _rows_of(new[leaf])}
    old_tests, new_tests = ({*map(_tests, paths.values())} for paths in (old, new))
    kept = {leaf for leaf, path in new.items() if leaf in stayed or _tests(path) in old_tests}
    return Diff(
        before=before,
        after=after,
        events=events,
        added=[path for leaf, path in new.items() if leaf not in kept],
        removed=[
            path
            for leaf, path in old.items()
            if leaf not in stayed and _tests(path) not in new_tests
        ],
        kept=[path for leaf, path in new.items() if leaf in kept and leaf not in moved],
        moved=[(old[leaf], path) for leaf, path in new.items() if leaf in moved],
    )


def why(
    model: Readable,
    *,
    step: int | None = None,
    node: int | None = None,
    row: int | None = None,
) -> str:
    """Return why the tree changed: see `Readable.why`."""
    tree, _ = inside(model)
    log = history_of(tree)
    is_now = step is None and row is None
    if is_now and node is not None:
        return _why_node(tree, _check_node(log.now, node, "at present"))
    now = int(tree.engine.n_steps) if is_now else _step_at(tree, step, row)
    when = f"row {row:,}" if row is not None else f"step {now:,}"
    events = [event for event in log.events if event.step <= now]
    if node is not None:
        events = _events_of(events, _check_node(log.at(now), node, f"after {when}"))
    exact = [
        event for event in events if (event.step == now if row is None else event.n_rows == row)
    ]
    if exact:
        return "\n".join(map(str, exact))
    where = "" if node is None else f" at node {node}"
    if events and is_now:
        return str(events[-1])
    nothing = f"Nothing changed{where} {'so far' if is_now else f'at {when}'}"
    if events:
        return f"{nothing}. The last change before: {events[-1]}"
    if log.first_step:
        return (
            f"The log begins after step {log.first_step:,} (row {log.first_row:,}): the reasons "
            f"of earlier changes{where} are no longer known."
        )
    return f"{nothing}: no candidate had gained enough."


def _events_of(events: list[Event], node: int) -> list[Event]:
    """Return the changes of one node, oldest first, from the one that created it."""
    own: list[Event] = []
    for event in reversed(events):
        is_made = isinstance(event, (Split, Replace)) and node in (event.left, event.right)
        if is_made or event.node == node:
            own.append(event)
        if is_made or any(spot.node == node for spot in event.removed):  # before: another node
            break
    return own[::-1]


# ---------------------------------------------------------------------- one node
def _why_node(tree: Tree, node: int) -> str:
    """Describe a node, the change that created it, and how near it is to the next."""
    log = history_of(tree)
    spot = log.now.nodes[node]
    events = _events_of(list(log.events), node)
    what = "a leaf" if spot.is_leaf else f"split by {spot.condition}"
    since = f" since row {spot.since_row:,}" if spot.since_step else ""
    shifts = [event for event in events if isinstance(event, Shift)]
    if spot.condition is not None and shifts and shifts[-1].step >= spot.since_step:
        since = f" since row {shifts[-1].n_rows:,}, and by {spot.condition.feature}{since}"
    lines = [f"Node {node}, {say_rows(log.now.path(node))}, is {what}{since}."]
    if bends := tree.engine.bends(int(tree.engine.model[node])):
        lines.append(f"In its model {say_curves(tree.curves(bends), 'bends', 'bend')}.")
    lines += map(str, events[-1:])
    if not spot.is_leaf:
        lines.append(_next_pruning(tree, node))
    lines.append(_next_change(tree, node))
    return "\n".join([*lines, *_next_model(tree, node)])


def _next_pruning(tree: Tree, node: int) -> str:
    own = tree.engine.node(node)
    return (
        f"Removing the split has a gain of {own.subtree_loss - own.own_loss:,.1f} over "
        f"{own.evidence:,.0f} rows; {own.prune_level:,.1f} is required."
    )


def _next_change(tree: Tree, node: int) -> str:
    own = tree.engine.node(node)
    needed = own.split_level if own.is_leaf else own.replace_level
    what = "split" if own.is_leaf else "other split"
    if needed == float("inf"):
        return "It may not be split: the tree has reached max_nodes or max_depth."
    entrants = tree.entrants(node, own)
    if not entrants:
        return f"No {what} is being tried at present."
    best = max(entrants, key=lambda entrant: entrant.gain)
    condition = tree.words(
        best.feature, best.threshold, equality=best.equality, missing_left=best.missing_left
    )
    return (
        f"The best {what} at present, {condition}, has a gain of {best.gain:,.1f}; "
        f"{needed:,.1f} is required."
    )


def _next_model(tree: Tree, node: int) -> list[str]:
    """Describe the model on trial at the node, if any."""
    models = tree.evidence.models
    best = None if models is None else models.candidate(node)
    if best is None:
        return []
    curves = tree.changed_curves(node, best)
    if best.added:
        what = f"A model in which {say_curves(curves, 'bends', 'bend')}"
    elif not best.removed:
        what = f"A model that remembers some {best.memory:,.0f} rows"
    else:
        what = f"A model without the bends of {join_words([curve.feature for curve in curves])}"
    return [
        f"{what} has a gain of {best.gain:,.1f} over {best.rows:,.0f} rows; "
        f"{best.threshold:,.1f} is required."
    ]


# ---------------------------------------------------------------------- parts
def _step_at(tree: Tree, step: int | None, row: int | None) -> int:
    """Return a step, given directly or as the number of rows learnt."""
    if (step is None) == (row is None):
        raise ValueError(
            f"give either a step or row=, the number of rows learnt: got step "
            f"{step!r} and row {row!r}"
        )
    if row is None:
        return _check_step(tree, step)
    log, last = history_of(tree), int(tree.engine.n_rows)
    if not isinstance(row, numbers.Integral) or not log.first_row <= row <= last:
        raise ValueError(
            f"row must be a whole number from {log.first_row} (where the log begins) to {last}, "
            f"got {row!r}"
        )
    steps = [event.step for event in log.events if event.n_rows <= row]
    return max(steps, default=log.first_step)


def _check_step(tree: Tree, step: int | None) -> int:
    first, last = history_of(tree).first_step, tree.engine.n_steps
    if not isinstance(step, numbers.Integral) or not first <= step <= last:
        raise ValueError(
            f"step must be a whole number from {first} (where the log begins) to {last}, got "
            f"{step!r}; a batch is a step, or several of 200 rows"
        )
    return int(step)


def _check_node(structure: Structure, node: int, when: str) -> int:
    if not isinstance(node, numbers.Integral) or node not in structure.nodes:
        known = ", ".join(map(str, sorted(structure.nodes)))
        raise ValueError(f"there is no node {node!r} {when}; there are {known}")
    return int(node)


def _leaf_paths(structure: Structure) -> dict[int, Path]:
    return {leaf: structure.path(leaf) for leaf in structure.leaves()}


def _tests(path: Path) -> tuple[object, ...]:
    """Return the conditions without the side of missing values, which may be unknown."""
    return tuple((test.feature, test.operator, test.value) for test in path)


def _rows_of(path: Path) -> str:
    """Return the same as text, without conditions that others imply."""
    return join_path(tuple(replace(test, missing_passes=None) for test in path), ALL_DIGITS)


def _leaves(count: int) -> str:
    return f"{count} lea{'ves' if count > 1 else 'f'}"


# ---------------------------------------------------------------------- frames
SCHEMA = {
    "step": nw.Int64(),
    "n_rows": nw.Int64(),
    "kind": nw.String(),
    "node": nw.Int64(),
    "depth": nw.Int64(),
    "path": nw.String(),
    "condition": nw.String(),
    "old_condition": nw.String(),
    "gain": nw.Float64(),
    "threshold": nw.Float64(),
    "loss_before": nw.Float64(),
    "loss_after": nw.Float64(),
    "rows": nw.Float64(),
    "runner_up": nw.String(),
    "runner_up_gain": nw.Float64(),
    "n_removed": nw.Int64(),
    "removed": nw.String(),
    "curves": nw.String(),
    "memory": nw.Float64(),
    "floor": nw.Float64(),
    "why": nw.String(),
}


def _figures(event: Event) -> dict[str, Any]:
    """Return the figures of a change by the names of the columns."""
    new = event.condition if isinstance(event, (Split, Replace, Shift)) else None
    old = event.old_condition if isinstance(event, (Prune, Replace, Shift)) else None
    second = event.runner_up
    return {
        "step": event.step,
        "n_rows": event.n_rows,
        "kind": event.kind,
        "node": event.node,
        "depth": len(event.path),
        "path": join_path(event.path),
        "condition": None if new is None else str(new),
        "old_condition": None if old is None else str(old),
        "gain": event.gain,
        "threshold": event.threshold,
        "loss_before": event.loss_before,
        "loss_after": event.loss_after,
        "rows": event.rows,
        "runner_up": None if second is None else str(second.condition),
        "runner_up_gain": None if second is None else second.gain,
        "n_removed": event.n_removed,
        "removed": "; ".join(str(spot.condition) for spot in event.removed if spot.condition),
        "curves": "; ".join(map(str, event.curves)) if isinstance(event, (Bend, Unbend)) else None,
        "memory": event.memory if isinstance(event, MemoryChange) else None,
        "floor": sum(event.floor) if isinstance(event, LinkChange) else None,
        "why": str(event),
    }


def _choose_library(name: str | None) -> Library:
    """Return the requested library, or the first that is installed."""
    if name is not None and name not in FRAMES:
        raise ValueError(f"library must be one of {', '.join(FRAMES)}, got {name!r}")
    for library in FRAMES:
        if name in (None, library) and find_spec(library):
            return library
    what = " or ".join(FRAMES) if name is None else name
    raise ImportError(
        f"the data frame needs {what}: pip install {name or FRAMES[0]}, or use events_"
    )


# ---------------------------------------------------------------------- the tree at every sample A
# node keeps its own model from the split that created it until it is removed, even while it has
# children. So it can be followed over that time; later its id may belong to another node.
class Moment(NamedTuple):
    """A sample, the tree at that time, and the row at which each of its nodes was created."""

    sample: Sample
    structure: Structure
    births: dict[int, int]


def replay(history: History) -> tuple[list[Moment], dict[int, int]]:
    """Return the samples with the trees of their times, and the births of the present nodes.

    Samples from before the log begins are left out, as the nodes are not known then. The root
    always exists, though it gets another model when the link changes.
    """
    structure = history.at(history.first_step)
    births = dict.fromkeys(structure.nodes, history.first_row)
    rest = [event for event in history.events if event.step > history.first_step]
    moments = []
    for sample in history.samples:
        if sample.step < history.first_step:
            continue
        while rest and rest[0].step <= sample.step:
            event = rest.pop(0)
            structure, births = structure.after(event), _after(births, event)
        moments.append(Moment(sample, structure, births))
    for event in rest:
        births = _after(births, event)
    return moments, births


def births_at(history: History, step: int) -> dict[int, int]:
    """Return the row at which each node of the tree after a step was created."""
    births = dict.fromkeys(history.at(history.first_step).nodes, history.first_row)
    for event in history.events:
        if history.first_step < event.step <= step:
            births = _after(births, event)
    return births


def _after(births: dict[int, int], event: Event) -> dict[int, int]:
    gone = {spot.node for spot in event.removed}
    kept = {node: row for node, row in births.items() if node not in gone}
    if isinstance(event, (Split, Replace)):
        kept |= dict.fromkeys((event.left, event.right), event.n_rows)
    return kept


def history_of(tree: Tree) -> History:
    """Return the history of a tree; raise if it has none."""
    if tree.history is None:
        raise ValueError("the model keeps no history: create it with keep_history=True")
    return tree.history


# ---------------------------------------------------------------------- calls back
class Listener:
    """Calls back with a model's changes and drifts, each once.

    Parameters
    ----------
    on_change : callable, optional
        Called with every `Event`.
    on_drift : callable, optional
        Called with every `Drift`.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> model, listener = DynamicModelTreeClassifier(), Listener(on_change=print)
    >>> for rows in np.split(np.arange(2000), 4):
    ...     listener.look(model.partial_fit(X[rows], (X[rows, 0] > 0) ^ (X[rows, 1] > 0)))
    Row 700, step 4: all rows are split by x1 <= -0.01286. ...
    """

    def __init__(self, on_change: OnChange | None = None, on_drift: OnDrift | None = None) -> None:
        self.on_change = on_change
        self.on_drift = on_drift
        self._n_rows = 0

    def skip(self, model: Any) -> None:
        """Skip everything so far."""
        self._n_rows = getattr(model, "n_rows_seen_", 0)

    def look(self, model: Any) -> None:
        """Report what has happened since the last call."""
        if self.on_change is None and self.on_drift is None:
            return
        seen, self._n_rows = self._n_rows, getattr(model, "n_rows_seen_", 0)
        if self.on_change is not None:
            for event in model.events_:
                if event.n_rows > seen:
                    self.on_change(event)
        if self.on_drift is not None:
            for drift in model.drifts(since=seen):
                self.on_drift(drift)


def can_tell(model: Any) -> bool:
    """Return whether a model has a history."""
    return hasattr(model, "drifts") and bool(getattr(model, "keep_history", False))


def count_changes(model: Any) -> int:
    """Return how often the trees of a model have changed or were replaced; 0 for FIMT-DD.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> count_changes(DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0)))
    1
    """
    return 0 if model._tree is None else int(model._tree.n_changes)
