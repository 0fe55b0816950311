"""Renewed models: the second model of a leaf, which follows at once.

Mirrors `renew` and `restart` of `learn/model_trials.py::ModelTrials`, and what `kernels/trials.hpp`
sums for them.
"""

import math

import numpy as np


class Renewed:
    """Setting 2: a leaf's second model, and how far it is ahead of the first."""

    MOST_LEAD, MOST_ADVANTAGE = 8.0, 3.0

    def __init__(self, model, lead, born, harm=0.0):
        self.model, self.lead, self.born, self.harm = model, lead, born, harm

    def learn(self, rows, node_loss, stands_for):
        loss, _ = self.model.forward(rows)
        self.model.learn(rows)
        less = np.clip(node_loss - loss, -self.MOST_ADVANTAGE, self.MOST_ADVANTAGE)
        return stands_for * (rows.w * less).sum()

    def follow(self, doubt, advantage, n_rows):
        """The lead fades to where a renewed model begins."""
        lead = 0.998**n_rows * (self.lead + doubt) - doubt + advantage
        self.lead = min(self.MOST_LEAD, max(-self.MOST_LEAD, lead))


class TreeRenewed:
    """When a leaf's second model starts again, and how its lead moves."""

    def update_renewed(self, renewed, rows, loss):
        """Spec, RENEWED: in calm times one that is clearly behind looks at a quarter."""
        is_behind = renewed.lead < -self.DOUBT - self.RENEWED_REST
        part, stands_for = self.look_at(rows, rests=self.spares and is_behind)
        advantage = renewed.learn(rows.take(part), loss[part], stands_for) if part.any() else 0.0
        renewed.follow(self.DOUBT, advantage, rows.w.sum())

    def renew(self, node):
        """Spec, RENEWED: a leaf's second model starts again from the first, unless it leads."""
        before = node.renewed
        is_due = node.rows - (before.born if before else 0) >= self.RENEW
        leads = before is not None and before.lead > -self.DOUBT
        if self.max_bends and node.split is None and is_due and not leads and not self.is_costly:
            lead = before.lead if before else -self.DOUBT
            harm = before.harm if before else 0.0
            node.renewed = Renewed(node.model.renewed(), lead, node.rows, harm)

    def update_harm(self, renewed, rows, told):
        """Spec, RENEWED: what a leaf has lately lost beyond all labels being equally likely."""
        keep = 0.9 ** rows.w.sum()
        more = np.average(told, weights=rows.w) - math.log(self.c)
        renewed.harm = max(0.0, keep * renewed.harm + more * (1 - keep) / (1 - 0.9))

    def restart(self, node):
        """Spec, RENEWED: where a leaf does harm, its second model starts from zero."""
        if node.renewed and node.renewed.harm >= self.HARM:
            node.renewed = Renewed(node.model.restarted(), 0.0, node.rows)
