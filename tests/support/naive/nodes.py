"""Nodes and their splits.

Mirrors `kernels/nodes.hpp` and `kernels/loss_tree.hpp`.
"""

from dataclasses import dataclass

import numpy as np

from naive.models import sigmoid


@dataclass(frozen=True)
class Split:
    """A binary split; ``left`` marks the rows of the set C_t of the paper."""

    feature: int
    value: float
    equality: bool
    missing_left: bool

    def left(self, X):
        x = X[:, self.feature]
        hit = (x == self.value) if self.equality else (x <= self.value)
        return np.where(np.isnan(x), self.missing_left, hit)

    def sides(self, X):
        return [self.left(X), ~self.left(X)]


class Node:
    """A node: every node has a model, an inner node also a split and two children."""

    def __init__(self, path, model, shape, now):
        self.path, self.model, self.rows, self.id = path, model, 0, 0
        self.split = self.left = self.right = None
        # setting 1: life sums (Alg. 1, l. 1-3) and candidates by (feature, value)
        self.loss, self.n, self.gradient, self.store = 0.0, 0.0, np.zeros(shape), {}
        # setting 2: discounted losses, grid, trials
        self.T, self.own_loss, self.subtree_loss, self.evidence = now, 0.0, 0.0, 0.0
        self.recent = 0.0  # what the branch earned lately
        self.buffer, self.grid, self.trials = [], [], []  # buffer: raw rows until edges are chosen
        self.refresh_at, self.barred = 0, {}  # (feature, slot) -> rows of the node until free
        self.bend, self.next_bend, self.n_failed = None, 0, 0  # the trial of other bends
        self.renewed = None  # of a leaf
        self.border = None  # of an inner node

    @property
    def W(self):  # noqa: N802
        """What a leaf says: a mean of both models, by their lead."""
        if self.renewed is None:
            return self.model.W
        share = sigmoid(self.renewed.lead)
        return (1 - share) * self.model.W + share * self.renewed.model.W

    @property
    def earned(self):
        return self.own_loss - self.subtree_loss  # minus (5)

    def nodes(self):
        return [self] + ([] if self.split is None else self.left.nodes() + self.right.nodes())


def digits(x, n):
    """Return x rounded to n significant digits, so that rounding noise decides no ranking."""
    return float(f"{x:.{n - 1}e}")
