"""The grid of a node: sums by feature and slot, which propose splits.

Mirrors `kernels/grid.hpp` and `_choose_grid` of `learn/evidence.py::MeasuredTrials`.
"""

import math

import numpy as np

from naive.nodes import Split, digits


class FeatureGrid:
    """Setting 2: discounted counts and gradients of one feature per slot; the last is missing."""

    def __init__(self, edges, slots, shape):
        self.edges = edges  # None: categorical, the slot is the code
        self.count, self.gradient = np.zeros(slots), np.zeros((slots, *shape))

    def slot(self, x):
        if math.isnan(x):
            return len(self.count) - 1
        return int(x) if self.edges is None else sum(e < x for e in self.edges)


class TreeGrids:
    """Which edges the grids have, and which splits they propose."""

    def choose_grid(self, node):
        """Of the first rows, when there are enough."""
        if not node.grid and len(node.buffer) == self.WARM_UP:
            node.grid = [self.new_grid(j, np.array(node.buffer)[:, j]) for j in range(self.m)]
            node.refresh_at = node.rows + self.REFRESH

    def new_grid(self, j, x):
        """Edges: distinct inverted quantiles i / bins of the values, without the maximum."""
        if j in self.leveled:
            return FeatureGrid(None, self.LEVELS + 2, self.shape)
        v = sorted(x[~np.isnan(x)].tolist())
        places = [-(-i * len(v) // self.bins) - 1 for i in range(1, self.bins)] if v else []
        edges = sorted({v[place] for place in places} - {max(v, default=None)})
        return FeatureGrid(edges, len(edges) + 2, self.shape)

    def proposals(self, node):
        """Candidates of the grid as (score, split, slot, n of both sides), best first."""
        found = []
        for j, grid in enumerate(node.grid):
            slots, last = np.arange(len(grid.count)), len(grid.count) - 1
            missing = slots == last
            splits = [(missing, Split(j, -math.inf, False, True), last)]
            if grid.edges is None:  # equality with a level; missing goes right
                splits += [(slots == i, Split(j, float(i), True, False), i) for i in slots[:-2]]
            for i, edge in enumerate(grid.edges or []):
                low = slots <= i
                both = [(low, Split(j, edge, False, False), i)]
                both += [(low | missing, Split(j, edge, False, True), i)]
                if grid.count[last] == 0:  # none counted: missing goes with the majority
                    both = both[1:] if grid.count[low].sum() > grid.count[~low].sum() else both[:1]
                splits += both
            for mask, split, slot in splits:
                n = [grid.count[side].sum() for side in (mask, ~mask)]
                if min(n) > 1e-9 * sum(n):
                    g = [grid.gradient[side].sum(axis=0) for side in (mask, ~mask)]
                    score = (g[0] ** 2).sum() / n[0] + (g[1] ** 2).sum() / n[1]
                    found.append((digits(score, 9), split, slot, n))
        return sorted(found, key=lambda f: (-f[0], f[1].feature, f[1].value, f[1].missing_left))
