"""Sampling: what the nodes of a tree are like right now, for its history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from driftree.learn.history import MAX_BYTES, Mark, NodeSample, Sample

if TYPE_CHECKING:
    from driftree.learn._kernels import Engine
    from driftree.learn.events import Event, Spot
    from driftree.learn.evidence import Evidence
    from driftree.learn.history import History


class Sampler:
    """Takes samples of the nodes that an engine holds."""

    def __init__(self, engine: Engine, evidence: Evidence) -> None:
        self.engine = engine
        self.evidence = evidence
        # Views of the engine's arrays, which never move; making one costs more than reading it.
        self._loss, self._loss_rows, self._clock = (
            engine.own_loss,
            engine.evidence,
            engine.node_clock,
        )
        self._rows = engine.rows
        self._split_level, self._replace_level = engine.split_level, engine.replace_level

    def take(self, history: History) -> None:
        """Add a sample of all nodes to the history."""
        engine = self.engine
        spots = history.now.nodes
        n_bytes = 4 * engine.n_outputs * engine.n_columns * (len(spots) + 1) // 2
        has_weights = n_bytes <= MAX_BYTES // 8
        nodes, marks = {}, {}
        for node, spot in spots.items():
            before, now = history.marks.get(node), self._mark(node, spot.since_step)
            marks[node] = now
            nodes[node] = self._look(spot, before, now, has_weights=has_weights)
        n_bytes = n_bytes if has_weights else 0
        history.take(Sample(engine.n_steps, engine.n_rows, nodes, n_bytes), marks)

    def marks(self, event: Event) -> dict[int, Mark]:
        """Return the marks of the nodes that have changed: their losses count from now on."""
        nodes = (event.node, getattr(event, "left", -1), getattr(event, "right", -1))
        return {node: self._mark(node, event.step) for node in nodes if node >= 0}

    def _mark(self, node: int, since_step: int) -> Mark:
        loss, rows, clock = self._loss[node], self._loss_rows[node], self._clock[node]
        return Mark(since_step, float(loss), float(rows), float(clock))

    def _look(self, spot: Spot, before: Mark | None, now: Mark, *, has_weights: bool) -> NodeSample:
        node, is_leaf = spot.node, spot.is_leaf
        loss, loss_rows = _since(before, now, self.evidence.window)
        return NodeSample(
            spot.since_step,
            is_leaf,
            spot.depth,
            float(self._rows[node]),
            loss,
            loss_rows,
            self.engine.weights(node).astype(np.float32) if is_leaf and has_weights else None,
            tuple(self.evidence.race(node)),
            float((self._split_level if is_leaf else self._replace_level)[node]),
        )


def _since(before: Mark | None, now: Mark, window: float) -> tuple[float, float]:
    """Return the mean loss per row since a mark, and the rows, both faded like the sums."""
    loss, rows = now.loss, now.rows
    if before is not None:
        keep = math.exp(-(now.clock - before.clock) / window)
        loss, rows = loss - keep * before.loss, rows - keep * before.rows
    return (loss / rows, rows) if rows > 1e-3 else (math.nan, 0.0)
