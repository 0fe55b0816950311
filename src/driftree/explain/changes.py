"""Changes: why the tree changed, in words and as data, and what it was at any time before."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import narwhals.stable.v2 as nw

from driftree.explain.describe import inside
from driftree.explain.replay import history_of
from driftree.learn.events import Prune, Replace, Split, join_path, say_rows

if TYPE_CHECKING:
    from driftree.explain.readable import Readable
    from driftree.learn.events import Condition, Event
    from driftree.learn.history import Structure
    from driftree.learn.tree import Tree

Path = tuple["Condition", ...]

Library = Literal["pandas", "polars", "pyarrow"]

FRAMES: tuple[Library, ...] = ("pandas", "polars", "pyarrow")
KINDS = {"split": "split", "replace": "replacement", "prune": "pruning", "link": "restart"}


@dataclass(frozen=True, slots=True)
class Diff:
    """What became of a tree from one step to another; `str` says it in words.

    Attributes
    ----------
    before, after : Structure
        The two trees.
    events : list of Event
        The changes in between, oldest first.
    added, removed, kept : list of tuple of Condition
        Paths of the leaves that only the second, only the first, and both of the trees have.
    """

    before: Structure
    after: Structure
    events: list[Event]
    added: list[Path]
    removed: list[Path]
    kept: list[Path]

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
        for title, paths in (("Gone", self.removed), ("New", self.added), ("Kept", self.kept)):
            lines += [f"{title}: {say_rows(path)}" for path in paths]
        return "\n".join([*lines, *(f"- {event}" for event in self.events)])


def history(model: Readable) -> Any:
    """Return the log of changes as a data frame: see `Readable.history`."""
    events = history_of(inside(model)[0]).events
    rows = [_figures(event) for event in events]
    columns = {name: [row[name] for row in rows] for name in _SCHEMA}
    return nw.from_dict(columns, schema=nw.Schema(_SCHEMA), backend=_frame_library()).to_native()


def tree_at(model: Readable, step: int) -> Structure:
    """Return the tree after a step: see `Readable.tree_at`."""
    tree, _ = inside(model)
    return history_of(tree).at(_check_step(tree, step))


def diff(model: Readable, first: int, second: int) -> Diff:
    """Return what changed from one step to another: see `Readable.diff`."""
    if first > second:
        raise ValueError(f"the first step must not be later than the second: {first} > {second}")
    before, after = tree_at(model, first), tree_at(model, second)
    events = [e for e in history_of(inside(model)[0]).events if first < e.step <= second]
    old, new = ({_tests(path): path for path in _leaf_paths(tree)} for tree in (before, after))
    return Diff(
        before=before,
        after=after,
        events=events,
        added=[path for tests, path in new.items() if tests not in old],
        removed=[path for tests, path in old.items() if tests not in new],
        kept=[path for tests, path in new.items() if tests in old],
    )


def why(model: Readable, *, step: int | None = None, node: int | None = None) -> str:
    """Say why the tree changed: see `Readable.why`."""
    tree, _ = inside(model)
    log = history_of(tree)
    if step is None and node is not None:
        return _why_node(tree, node)
    now = _check_step(tree, tree.engine.n_steps if step is None else step)
    if node is not None:
        _check_node(log.at(now), node, f"after step {now}")
    events = [e for e in log.events if e.step <= now and node in (None, e.node)]
    exact = [event for event in events if event.step == now]
    if exact:
        return "\n".join(map(str, exact))
    where = "" if node is None else f" at node {node}"
    when = "so far" if step is None else f"at step {step:,}"
    nothing = f"Nothing changed{where} {when}"
    if not events:
        return f"{nothing}: no candidate had gained enough."
    return str(events[-1]) if step is None else f"{nothing}. The last change before: {events[-1]}"


# ---------------------------------------------------------------------- one node
def _why_node(tree: Tree, node: int) -> str:
    """Say what a node is, what made it so, and how near it is to a change."""
    log = history_of(tree)
    _check_node(log.now, node, "at present")
    spot = log.now.nodes[node]
    rows = say_rows(log.now.path(node))
    what = "a leaf" if spot.is_leaf else f"split by {spot.condition}"
    makers = [
        event
        for event in log.events
        if event.step == spot.since_step
        and (event.node == node or node in (getattr(event, "left", -1), getattr(event, "right", 0)))
    ]
    since = f" since row {spot.since_row:,}" if spot.since_step else ""
    lines = [f"Node {node}, {rows}, is {what}{since}.", *map(str, makers[-1:])]
    return "\n".join([*lines, _next_change(tree, node)])


def _next_change(tree: Tree, node: int) -> str:
    engine = tree.engine
    is_leaf = engine.left[node] < 0
    needed = float((engine.split_level if is_leaf else engine.replace_level)[node])
    what = "split" if is_leaf else "other split"
    if needed == float("inf"):
        return "It may not be split: the tree has reached max_nodes or max_depth."
    entrants = tree.evidence.race(node)
    if not entrants:
        return f"No {what} is being tried at present."
    best = max(entrants, key=lambda entrant: entrant.gain)
    condition = tree.words(
        best.feature, best.threshold, equality=best.equality, missing_left=best.missing_left
    )
    return (
        f"The best {what} at present, {condition}, has a gain of {best.gain:,.1f}, of "
        f"{needed:,.1f} required."
    )


# ---------------------------------------------------------------------- parts
def _check_step(tree: Tree, step: int) -> int:
    first, last = history_of(tree).first_step, tree.engine.n_steps
    if not first <= step <= last:
        raise ValueError(f"step must be from {first} (where the log begins) to {last}, got {step}")
    return step


def _check_node(structure: Structure, node: int, when: str) -> None:
    if node not in structure.nodes:
        known = ", ".join(map(str, sorted(structure.nodes)))
        raise ValueError(f"there is no node {node} {when}; there are {known}")


def _leaf_paths(structure: Structure) -> list[Path]:
    return [structure.path(leaf) for leaf in structure.leaves()]


def _tests(path: Path) -> tuple[object, ...]:
    """Return the tests alone: whether missing values pass is not known before one has come."""
    return tuple((c.feature, c.operator, c.value) for c in path)


def _leaves(count: int) -> str:
    return f"{count} lea{'ves' if count > 1 else 'f'}"


# ---------------------------------------------------------------------- frames
_SCHEMA = {
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
    "why": nw.String(),
}


def _figures(event: Event) -> dict[str, Any]:
    """Return the figures of a change by the names of the columns."""
    new = event.condition if isinstance(event, (Split, Replace)) else None
    old = event.old_condition if isinstance(event, (Prune, Replace)) else None
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
        "why": str(event),
    }


def _frame_library() -> Library:
    """Return the data frame library in use, or else one that is there."""
    for name in FRAMES:
        if name in sys.modules:
            return name
    for name in FRAMES:
        if find_spec(name):
            return name
    raise ImportError(
        "a data frame needs pandas, polars or pyarrow: pip install pandas, or use `events_`"
    )
