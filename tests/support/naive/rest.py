"""What is spared: who rests, when times are calm, and for how many rows that is decided.

Mirrors `look`, `choose_rows`, `absorb_last` and `open_block` of `kernels/trials.hpp::Trials`: what
docs/algorithm.md says of calm times, costly rows and blocks.
"""

import math

import numpy as np

LEAST_GAIN = 1e-9


class TreeRest:
    """Who rests in a step, and the alarm that ends all rest."""

    def begin_block(self, n):
        """Spec, BLOCKS: of rows that come alone, who rests is decided for a block of them.

        Returns whether the step belongs to one: then nothing is decided until it is over.
        """
        begins = self.n_rows % self.block_rows == 0
        waits = n == 1 and self.block_rows > 1 and (self.in_block or begins)
        if waits and not self.in_block:
            self.in_block, self.block_spares = True, self.is_calm()
            for node in self.root.nodes():
                node.resting = self.who_rests(node, node.rows)
            self.challenger_rests = self.challenger and self.challenger_is_lost()
        return waits

    def who_rests(self, node, rows):
        """Who at a node rests in calm times: itself, its grid, its bend, and each trial."""
        leaf = node.split is None
        gains = [t.gain if leaf else t.replacement_gain for t in node.trials]
        trials = [
            rows - trial.born > self.trial_rest and gain <= LEAST_GAIN
            for trial, gain in zip(node.trials, gains, strict=True)
        ]
        bend = node.bend
        is_lost = bend and not bend.removed and bend.gain <= LEAST_GAIN
        bend_rests = is_lost and rows - bend.born > self.trial_rest
        grid_rests = rows > (self.trial_rest if self.is_costly else self.grid_rest)
        return self.is_far_from_change(node), grid_rests, bend_rests, trials

    @property
    def is_costly(self):
        return self.measured and len(self.columns) > self.costly_columns

    def is_calm(self):
        return self.restless_until <= self.T

    def watch(self, rows, leaf_loss):
        """Spec, ALARM: who has recently lost clearly more than in the long run must not rest."""
        fade = math.exp(-rows.w.sum() / self.window)
        new = np.array([(rows.w * leaf_loss).sum(), rows.w.sum()])
        self.lately, self.usually = fade**self.RECENT * self.lately + new, fade * self.usually + new
        if self.lately[0] / self.lately[1] > self.ALARM * self.usually[0] / self.usually[1]:
            self.restless_until = self.T + self.RESTLESS * self.window

    def has_no_trials(self, node):
        """Far from any change there is nothing to try."""
        may_rest = self.spares or self.always_rest
        return self.trials_rest and may_rest and self.is_far_from_change(node)

    def is_far_from_change(self, node):
        """Spec, REST: a branch that earns so much, and goes on earning, is far from any change."""
        if node.split is None:
            return False
        return self.REST * self.tau(node) <= node.earned <= 2 * self.RECENT * node.recent

    @staticmethod
    def look_at(rows, *, rests):
        """The rows that are looked at, and how many rows each of them stands for."""
        return (rows.quarter, 4) if rests else (np.full(len(rows.w), True), 1)
