"""The challenger: one model of all rows with the other link, with a noise floor or without.

Mirrors `Challenger` of `kernels/trials.hpp`, `adopt_challenger` of
`kernels/model_tree.hpp::ModelTree` and `learn/tree.py::Tree._change_link`.
"""

import copy
import math

import numpy as np

from naive.models import BlendModel
from naive.nodes import Node
from naive.rest import LEAST_GAIN


class TreeChallenger:
    """The challenger's gain over the tree, and the restart from it."""

    @property
    def floor_gain(self):
        return self.tree_loss - self.challenger_loss

    @property
    def floor_level(self):
        return self.FLOOR_GATE * self.tau(self.root)

    def floor_is_due(self):
        return self.floor_gain >= self.floor_level

    def update_challenger(self, rows, leaf_loss):
        """Spec, noise floor: one root model with the other link competes with the whole tree.

        No row costs either more than it can with a floor. Far behind, the challenger rests.
        """
        fade = math.exp(-rows.w.sum() / self.window)
        if not self.in_block:
            self.challenger_rests = self.challenger_is_lost()
        rests = (self.spares or self.is_costly) and self.challenger_rests
        seen, stands_for = self.look_at(rows, rests=rests)
        part, leaf_loss = rows.take(seen), leaf_loss[seen]
        loss, _ = self.challenger.forward(part)
        most = -math.log(BlendModel.FLOOR_LEAST)
        loss, leaf_loss = np.minimum(loss, most), np.minimum(leaf_loss, most)
        self.tree_loss = fade * self.tree_loss + stands_for * (part.w * leaf_loss).sum()
        self.challenger_rows = fade * self.challenger_rows + stands_for * part.w.sum()
        self.challenger_loss = fade * self.challenger_loss + stands_for * (part.w * loss).sum()
        self.challenger.learn(part)

    def challenger_is_lost(self):
        """Whether it is far behind, or has no gain after some rows."""
        is_late = self.challenger_rows > self.trial_rest
        return self.floor_gain <= -self.floor_level or (is_late and self.floor_gain <= LEAST_GAIN)

    def flip_floor(self):
        """The challenger's model becomes a tree of one leaf, challenged by the other link.

        With the floor by a copy, without it by what the root had learnt.
        """
        sums = self.tree_loss, self.challenger_loss, min(self.challenger_rows, self.T)
        self.record("floor", self.root, self.floor_level, *sums)
        old, self.root = self.root, Node((), self.challenger, self.shape, self.T)
        if self.challenger.rho is None:
            self.challenger = copy.deepcopy(self.challenger)
            self.challenger.set_floor(True)
        else:
            self.challenger = old.model
        self.tree_loss = self.challenger_loss = self.challenger_rows = 0.0
