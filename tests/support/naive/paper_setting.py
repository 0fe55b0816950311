"""The paper's setting: stored candidates, their gains (6), (7), and decisions by the AIC (11).

Mirrors `kernels/candidate_store.hpp`, `kernels/candidates.hpp` and
`learn/evidence.py::GradientApproximation`.
"""

import copy
import math

import numpy as np

from naive.nodes import Split, digits


class Window:
    """Setting 1: a candidate's n, loss and gradient per side since stored (Alg. 1, l. 7-10).

    Both sides are summed, not "total minus left", so that an empty side is exactly empty.
    """

    def __init__(self, split, shape):
        self.split = split
        self.n, self.loss, self.gradient = np.zeros(2), np.zeros(2), np.zeros((2, *shape))

    def add(self, rows, loss, residual):
        for side, mask in enumerate(self.split.sides(rows.X)):
            self.n[side] += rows.w[mask].sum()
            self.loss[side] += (rows.w * loss)[mask].sum()
            self.gradient[side] += (residual * rows.w[:, None])[mask].T @ rows.z[mask]

    def gains(self, step):
        """(7): lambda |gradient|^2 / n of each side; an empty side has none."""
        squares = (self.gradient**2).sum(axis=(1, 2))
        return np.where(self.n > 0, step * squares / np.where(self.n > 0, self.n, 1.0), 0.0)


class TreePaper:
    """Which candidates a node stores, and what the paper decides by them."""

    @property
    def k(self):
        """Free parameters of one simple model."""
        return len(self.columns) * (1 if self.c <= 2 else self.c - 1)

    def gather_windows(self, node, rows, loss, residual):
        """Alg. 1, l. 1-3 and 6-10; then the store admits candidates of this batch."""
        node.n += rows.w.sum()
        node.evidence += rows.w.sum()
        node.loss += (rows.w * loss).sum()
        node.gradient += (residual * rows.w[:, None]).T @ rows.z
        for window in node.store.values():
            window.add(rows, loss, residual)
        new = {}
        for j in range(self.m):
            values = sorted({x for x in rows.X[:, j].tolist() if not math.isnan(x)})
            if j not in self.categorical and len(values) > 1:
                values.pop()  # x <= maximum leaves the right side empty
            for key in ((j, value) for value in values if (j, value) not in node.store):
                new[key] = Window(Split(*key, j in self.categorical, False), self.shape)
                new[key].add(rows, loss, residual)
        self.admit(node.store, new)

    def rank(self, item):
        """Best first: larger gain, then smaller feature, then smaller value."""
        return -digits(item[1].gains(self.gain_step).sum(), 12), *item[0]

    def admit(self, store, new):
        """Section "Algorithmic Considerations": fill, then replace the worst, at most a share."""
        old, new = (sorted(items.items(), key=self.rank) for items in (store, new))
        free = self.store_size - len(old)
        store.update(new[:free])
        for item in new[free : free + self.replacements]:
            if not old or self.rank(item)[0] >= self.rank(old[-1])[0]:  # not a larger gain
                break
            del store[old.pop()[0]]
            store.update([item])

    def decide_paper(self, node):
        """Gains (3), (4), (5) against the AIC thresholds (Alg. 1, l. 18, with (11))."""
        slack = -math.log(self.epsilon)
        eligible = [item for item in node.store.items() if (item[1].n > 0).all()]
        ranked = [window for _, window in sorted(eligible, key=self.rank)]
        gains = [window.gains(self.gain_step).sum() for window in ranked]  # (3) by (7)
        best, gain = (ranked[0], gains[0]) if ranked else (None, -math.inf)
        if node.split is None:
            if gain >= self.k + slack and self.may_split(node):
                second = gains[1] if len(gains) > 1 else None
                self.adopt_window("split", node, best, self.k + slack, node.loss, second)
            return
        leaves = [n.loss for n in node.nodes() if n.split is None]
        prune, to_prune = sum(leaves) - node.loss, self.k * (1 - len(leaves)) + slack  # (5)
        replace, to_replace = prune + gain, self.k * (2 - len(leaves)) + slack  # (4)
        if prune >= to_prune and prune - to_prune >= replace - to_replace:
            second = replace if best else None
            sums = sum(leaves), node.loss, node.evidence
            self.record("prune", node, to_prune, *sums, node.split, second)
            node.split = node.left = node.right = None
        elif replace >= to_replace:
            second = prune + gains[1] if len(gains) > 1 else None
            self.adopt_window("replace", node, best, to_replace, sum(leaves), second)

    def adopt_window(self, kind, node, window, threshold, before, second):
        """(6): theta - lambda / n gradient; (7): a share of the loss minus the side's gain."""
        gains, total = window.gains(self.gain_step), window.loss.sum()
        after = node.loss - gains.sum()
        rows = window.n.sum() if kind == "split" else node.evidence
        self.record(kind, node, threshold, before, after, rows, window.split, second)
        self.branch(node, window.split, [copy.deepcopy(node.model) for _ in "LR"])
        for side, child in enumerate((node.left, node.right)):
            child.model.W -= self.gain_step / window.n[side] * window.gradient[side]
            share = window.loss[side] / total if total > 0 else 0.5
            child.loss = node.loss * share - gains[side]
            child.evidence = node.evidence * window.n[side] / window.n.sum()  # rows behind it
