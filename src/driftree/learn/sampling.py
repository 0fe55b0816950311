"""Sampling: the nodes of a tree at present, as a sample for its history."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from driftree.learn.curves import node_effects
from driftree.learn.history import MAX_BYTES, Mark, NodeSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, PaperEngine
    from driftree.learn.events import Event, Spot
    from driftree.learn.history import Entrant, History


class Sampler:
    """Takes samples of the nodes of a tree."""

    def __init__(
        self,
        engine: MeasuredEngine | PaperEngine,
        window: float,
        entrants: Callable[[int], list[Entrant]],
    ) -> None:
        self.engine = engine
        self.window = window
        self.entrants = entrants

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
        n_bytes = sum(0 if one.weights is None else one.weights.nbytes for one in nodes.values())
        history.take(Sample(engine.n_steps, engine.n_rows, nodes, n_bytes), marks)

    def marks(self, event: Event) -> dict[int, Mark]:
        """Return the marks of the nodes that have changed: their losses count from now on."""
        nodes = (event.node, getattr(event, "left", -1), getattr(event, "right", -1))
        return {node: self._mark(node, event.step) for node in nodes if node >= 0}

    def _mark(self, node: int, since_step: int) -> Mark:
        own = self.engine.node(node)
        return Mark(since_step, own.own_loss, own.evidence, own.clock)

    def _look(self, spot: Spot, before: Mark | None, now: Mark, *, has_weights: bool) -> NodeSample:
        node, is_leaf = spot.node, spot.is_leaf
        engine = self.engine
        own = engine.node(node)
        loss, loss_rows = _since(before, now, self.window)
        return NodeSample(
            spot.since_step,
            is_leaf,
            spot.depth,
            own.rows,
            loss,
            loss_rows,
            self._effects(node) if is_leaf and has_weights else None,
            tuple(self.entrants(node)),
            own.split_level if is_leaf else own.replace_level,
        )

    def _effects(self, node: int) -> NDArray[np.float32]:
        """Return the effects of a leaf's inputs; huge ones, of a huge target, as what has room."""
        most = float(np.finfo(np.float32).max)
        return np.clip(node_effects(self.engine, node), -most, most).astype(np.float32)


def _since(before: Mark | None, now: Mark, window: float) -> tuple[float, float]:
    """Return the mean loss per row since a mark, and the rows, both faded like the sums."""
    loss, rows = now.loss, now.rows
    if before is not None:
        keep = math.exp(-(now.clock - before.clock) / window)
        loss, rows = loss - keep * before.loss, rows - keep * before.rows
    return (loss / rows, rows) if rows > 1e-3 else (math.nan, 0.0)
