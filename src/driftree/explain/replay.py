"""Replay: the samples of a history, each with the tree of its time, and how old each node was.

A node keeps its own model from the split that made it until it is removed, also while there are
nodes below it. So it can be followed over that time; after it the id may belong to another node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from driftree.learn.events import Replace, Split

if TYPE_CHECKING:
    from driftree.learn.events import Event
    from driftree.learn.history import History, Sample, Structure
    from driftree.learn.tree import Tree


class Moment(NamedTuple):
    """A sample, the tree at that time, and at which row each of its nodes was made."""

    sample: Sample
    structure: Structure
    births: dict[int, int]


def replay(history: History) -> tuple[list[Moment], dict[int, int]]:
    """Return the samples with the trees of their times, and the births of the present nodes.

    Samples from before the log begins are left out: what the nodes were then is not known. The root
    has always been there, though it starts again with another model when the link changes.
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
    """Return at which row each node of the tree after a step was made."""
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
    """Return the history of a tree, or say how to get one."""
    if tree.history is None:
        raise ValueError("the model keeps no history: make it with keep_history=True")
    return tree.history
