"""Trials: splits that are really tried, and the evidence that fades.

Mirrors `kernels/trials.hpp` and `learn/evidence.py::MeasuredTrials`.
"""

import copy
import math

import numpy as np


class Trial:
    """Setting 2: a candidate that is really trained; discounted losses of the rows it saw."""

    def __init__(self, split, slot, models, born):
        self.split, self.slot, self.models, self.born = split, slot, models, born
        self.node_loss = self.subtree_loss = self.trial_loss = 0.0
        self.evidence = 0.0  # rows behind these losses, faded like them
        self.n = [0.0, 0.0]  # weight seen by each side, not discounted

    def fade(self, factor):
        self.node_loss, self.subtree_loss = factor * self.node_loss, factor * self.subtree_loss
        self.trial_loss, self.evidence = factor * self.trial_loss, factor * self.evidence

    def learn(self, side, rows, loss, leaf_loss, stands_for):
        """Add the losses of the node, its leaves and the trial side by side: equal ones cancel."""
        own_loss, _ = self.models[side].forward(rows)
        self.node_loss += stands_for * (rows.w * loss).sum()
        self.subtree_loss += stands_for * (rows.w * leaf_loss).sum()
        self.trial_loss += stands_for * (rows.w * own_loss).sum()
        self.evidence += stands_for * rows.w.sum()
        self.n[side] += rows.w.sum()
        self.models[side].learn(rows)

    @property
    def gain(self):
        return self.node_loss - self.trial_loss  # (3)

    @property
    def replacement_gain(self):
        return self.subtree_loss - self.trial_loss  # (4)


class TreeTrials:
    """The sums of a node, and which splits are on trial there."""

    def gather_evidence(self, node, rows, loss, residual, leaf_loss, stands_for):
        """Spec: fade by the stream's clock, then add to the node, its trials and its grid.

        The losses and the rows behind them are sums in which a row counts for ``stands_for``;
        the grid and the trials' sides count the rows that were looked at. In calm times, and where
        rows are costly, a trial that does not earn, and the grid of an old node, look at a quarter.
        """
        may_rest = rows.spares and stands_for == 1
        _, grid_rests, bend_rests, trials_rest = node.resting
        fade = math.exp(-(self.T - node.T) / self.window)
        node.T = self.T
        node.own_loss = fade * node.own_loss + stands_for * (rows.w * loss).sum()
        price = self.price * self.window * (1 - fade)  # for each split; of each row, faded
        below = price * (len(node.nodes()) // 2)
        node.subtree_loss = fade * node.subtree_loss + stands_for * (rows.w * leaf_loss).sum()
        node.subtree_loss += below
        node.evidence = fade * node.evidence + stands_for * rows.w.sum()
        earned = stands_for * ((rows.w * loss).sum() - (rows.w * leaf_loss).sum())
        node.recent = fade**self.RECENT * node.recent + earned
        if self.trials_rest and (self.spares or self.always_rest) and stands_for != 1:
            for sums in [*node.trials, *([node.bend] if node.bend else [])]:
                sums.fade(fade)
            for grid in node.grid or []:
                grid.count *= fade
                grid.gradient *= fade
            return
        for trial, rests in zip(node.trials, trials_rest, strict=True):
            part, counts_for = self.look_at(rows, rests=may_rest and rests)
            trial.fade(fade)
            trial.trial_loss += price
            trial.subtree_loss += below
            for side, mask in enumerate(trial.split.sides(rows.X)):
                if (mask := mask & part).any():
                    counts = stands_for * counts_for
                    trial.learn(side, rows.take(mask), loss[mask], leaf_loss[mask], counts)
        if node.bend:
            part, counts_for = self.look_at(rows, rests=may_rest and bend_rests)
            node.bend.fade(fade)
            if part.any():
                node.bend.learn(rows.take(part), loss[part], stands_for * counts_for)
        if not node.grid:
            node.buffer = (node.buffer + list(rows.X))[: self.WARM_UP]
            return
        part, _ = self.look_at(rows, rests=may_rest and grid_rests)
        rows, residual = rows.take(part), residual[part]
        for j, grid in enumerate(node.grid):
            grid.count *= fade
            grid.gradient *= fade
            for x, r, z, w in zip(rows.X[:, j], residual, rows.z, rows.w, strict=True):
                grid.count[grid.slot(x)] += w
                grid.gradient[grid.slot(x)] += w * np.outer(r, z)

    def refresh(self, node):
        """Every REFRESH rows of the node: drop trials that lost, propose new ones.

        An old node has found what there is: it asks less often, and for one at a time.
        """
        if node.grid and node.buffer:  # the grid was chosen in this step
            node.buffer = []
            self.refresh_bends(node)
            return
        if node.grid:
            self.restart(node)
        if not node.grid or node.rows < node.refresh_at or self.has_no_trials(node):
            return
        self.refresh_bends(node)
        self.renew(node)
        young, leaf = node.rows <= self.YOUTH or not self.is_calm(), node.split is None
        node.refresh_at = node.rows + (self.REFRESH if young else self.OLD_REFRESH)
        gains = [t.gain if leaf else t.replacement_gain for t in node.trials]
        for trial, gain in zip(list(node.trials), gains, strict=True):
            if node.rows - trial.born > self.TRIAL_AGE and gain <= 0:
                node.trials.remove(trial)
                node.barred[trial.split.feature, trial.slot] = node.rows + self.BAR
        room = self.n_trials * self.may_split(node) if leaf else self.INNER_TRIALS
        if not young or self.is_costly:
            room = min(room, 1 + sum(gain > 0 for gain in gains))
        taken = {trial.split.feature for trial in node.trials}
        for _, split, slot, n in self.proposals(node):
            if split.feature in taken or node.rows < node.barred.get((split.feature, slot), 0):
                continue
            taken.add(split.feature)  # only the best of a feature, and not the split that is there
            present = not leaf and split.value == node.split.value
            present = present and split.feature == node.split.feature
            if len(node.trials) < room and not present and not self.is_near(node, split):
                models = [copy.deepcopy(node.model) for _ in "LR"]
                for model, side in zip(models, n, strict=True):
                    model.A /= side / sum(n)
                    model.A += self.side_variance * self.habits.variance * np.eye(len(model.A))
                node.trials.append(Trial(split, slot, models, node.rows))

    def is_near(self, node, split):
        """Is there nearly the same threshold on the way to the node, or has one moved past it?"""
        above = self.root
        while above is not node and self.root.grid and self.is_threshold(split):
            other, is_left = above.split, node in above.left.nodes()
            edges = self.root.grid[split.feature].edges or [0.0, 0.0]
            gap = other.value - split.value if is_left else split.value - other.value
            is_same = other.feature == split.feature and self.is_threshold(other)
            if is_same and gap < self.distance * (edges[-1] - edges[0]):
                return True
            above = above.left if is_left else above.right
        return False
