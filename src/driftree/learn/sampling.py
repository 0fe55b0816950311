"""Sampling: what the nodes of a tree are like right now, for its history."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np

from driftree.learn.history import MAX_BYTES, Mark, NodeSample, Sample

if TYPE_CHECKING:
    from driftree.learn._kernels import Engine
    from driftree.learn.evidence import Entrant, Evidence
    from driftree.learn.history import History

MAX_ENTRANTS = 3  # of a node


def take_sample(history: History, engine: Engine, evidence: Evidence) -> None:
    """Add a sample of all nodes to the history."""
    spots = history.now.nodes
    ids = np.fromiter(spots, np.int32, len(spots))
    needed = np.where(engine.left[ids] < 0, engine.split_level[ids], engine.replace_level[ids])
    figures = zip(
        engine.own_loss[ids].tolist(),
        engine.evidence[ids].tolist(),
        engine.node_clock[ids].tolist(),
        engine.rows[ids].tolist(),
        needed.tolist(),
        strict=True,
    )
    n_bytes = 4 * engine.n_outputs * engine.n_columns * (len(spots) + 1) // 2
    has_weights = n_bytes <= MAX_BYTES // 8
    nodes, marks = {}, {}
    for spot, (loss, loss_rows, clock, rows, level) in zip(spots.values(), figures, strict=True):
        node = spot.node
        weighs = has_weights and spot.is_leaf
        marks[node] = Mark(spot.since_step, loss, loss_rows, clock)
        nodes[node] = NodeSample(
            spot.since_step,
            spot.is_leaf,
            spot.depth,
            rows,
            _mean_loss(history.marks.get(node), marks[node], evidence.window),
            engine.weights(node).astype(np.float32) if weighs else None,
            tuple(_best(evidence.race(node))),
            level,
        )
    history.marks = marks
    history.take(Sample(engine.n_steps, engine.n_rows, nodes, n_bytes if has_weights else 0))


def _mean_loss(before: Mark | None, now: Mark, window: float) -> float:
    """Return the mean loss per row since the last sample, faded like the sums it is taken from.

    A node that is new, or has a new split, starts with the sums that came with it.
    """
    loss, rows = now.loss, now.rows
    if before is not None and before.since_step == now.since_step:
        keep = math.exp(-(now.clock - before.clock) / window)
        loss, rows = loss - keep * before.loss, rows - keep * before.rows
    return loss / rows if rows > 1e-3 else math.nan


def _best(entrants: list[Entrant]) -> list[Entrant]:
    return heapq.nlargest(MAX_ENTRANTS, entrants, key=lambda entrant: entrant.gain)
