"""Borders: thresholds that move to where the rows near them lose less.

Mirrors `kernels/borders.hpp`, `judge_border` of `kernels/model_tree.hpp::ModelTree`,
`set_borders` of `learn/evidence.py::MeasuredTrials`, `learn/tree.py::Tree._decide_threshold` and
`threshold_moved` of `kernels/trials.hpp::Trials`.
"""

import itertools
import math

import numpy as np

from naive.nodes import Split


class Border:
    """Spec, SHIFT: what rows near a threshold would have cost on the other side of it.

    ``rows`` are (distance, value, gain, loss on the other side, weight), for either side.
    """

    CELLS, MOST, NEAR = 10, 4.0, 0.25

    def __init__(self, width, now):
        self.width, self.T = width, now
        self.ends = [width * 2.0 ** (i + 1 - self.CELLS) for i in range(self.CELLS)]
        self.rows = [[], []]

    def fade(self, factor):
        for row in self.rows[0] + self.rows[1]:
            row[2:] = [factor * x for x in row[2:]]

    def add(self, above, distance, value, paid, other, w):
        gain = min(max(paid - other, -self.MOST), self.MOST)
        self.rows[above].append([distance, value, w * gain, w * other, w])

    def best(self, threshold, low, high, least, most):
        """Return the gain, the loss, the rows and the threshold of the best shift."""
        found = [(0.0, 0.0, 0.0, threshold)]
        for above, end in itertools.product((0, 1), self.ends):
            inside = [row for row in self.rows[above] if row[0] < end]
            beyond = [row[1] for row in self.rows[0] if row[0] >= end]
            if above:
                to = max((row[1] for row in inside), default=threshold)
            else:
                to = max(beyond, default=threshold - end)
            near = self.NEAR * self.width
            if low + near < to < high - near and to != threshold and least <= to < most:
                found.append((*(sum(row[i] for row in inside) for i in (2, 3, 4)), to))
        return max(found, key=lambda shift: shift[0])


class TreeBorders:
    """Which rows are judged by both sides, and which threshold moves."""

    def judge_border(self, node, rows):
        """Spec, SHIFT: before they are learnt, rows near the threshold are judged by both sides."""
        split = node.split
        if not (self.measured and self.max_bends and self.BORDER) or split.equality:
            return
        if node.border is None:
            scale = self.scales[split.feature]
            deviation = 0.5 if scale.only_bits else math.sqrt(scale.m2 / scale.n)
            if scale.low == scale.high or deviation == 0:
                return
            node.border = Border(self.BORDER * deviation, self.T)
        border, judged = node.border, []
        for i, x in enumerate(rows.X):
            distance = abs(x[split.feature] - split.value)
            if not distance < border.width:
                continue
            above = int(x[split.feature] > split.value)
            sides = (node.right, node.left) if above else (node.left, node.right)
            one = rows.take(np.arange(len(rows.w)) == i)
            (paid,), (other,) = (self.leaf(x, side).model.forward(one)[0] for side in sides)
            judged.append((above, distance, x[split.feature], paid, other, rows.w[i]))
        if judged:
            border.fade(math.exp(-(self.T - border.T) / self.window))
            border.T = self.T
        for row in judged:
            border.add(*row)

    def limits(self, node):
        """The nearest thresholds of the same feature on the path of a node and below it."""
        low, high = -math.inf, math.inf
        j, above = node.split.feature, self.root
        while above is not node:
            is_left = node in above.left.nodes()
            if above.split.feature == j and self.is_threshold(above.split):
                value = above.split.value
                low, high = (low, min(high, value)) if is_left else (max(low, value), high)
            above = above.left if is_left else above.right
        for child in (node.left, node.right):
            for one in child.nodes():
                if one.split and one.split.feature == j and self.is_threshold(one.split):
                    value = one.split.value
                    is_left = child is node.left
                    low, high = (max(low, value), high) if is_left else (low, min(high, value))
        return low, high

    @staticmethod
    def is_threshold(split):
        """Not a level, nor whether a value is missing."""
        return not split.equality and math.isfinite(split.value)

    def shift(self, node):
        """The best shift, and by how much it exceeds what it must prove."""
        if node.border is None:
            return None, -math.inf
        scale = self.scales[node.split.feature]
        best = node.border.best(node.split.value, *self.limits(node), scale.low, scale.high)
        return best, best[0] - (-math.log(self.epsilon) + 0.1)

    def decide_threshold(self, node):
        """Spec, SHIFT: the split stays, and its threshold moves if that would have saved enough."""
        best, excess = self.shift(node)
        if excess < 0:
            return
        gain, after, rows, value = best
        moved = Split(node.split.feature, value, False, node.split.missing_left)
        sums = gain - excess, after + gain, after, rows
        self.record("shift", node, *sums, moved, n_removed=0)
        node.split, node.border = moved, None
        self.drop_useless(node, moved)

    @staticmethod
    def drop_useless(node, moved):
        """Spec, SHIFT: trials of the same split, or with all rows on one side, are dropped."""

        def is_useless(split, above):
            if split.feature != moved.feature or split.equality:
                return False
            if above is node:
                return split.value == moved.value
            if above is node.left:
                return split.value >= moved.value
            return -math.inf < split.value <= moved.value

        for above in (node, node.left, node.right):
            for one in [node] if above is node else above.nodes():
                one.trials = [t for t in one.trials if not is_useless(t.split, above)]
