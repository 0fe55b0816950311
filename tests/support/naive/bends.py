"""Bends: trials of other models for a node, with other curves or another memory.

Mirrors `learn/model_trials.py::ModelTrials`, `learn/tree.py::Tree._decide_model`, `BendTrial` of
`kernels/trials.hpp` and the score tests of `kernels/grid.hpp`.
"""

import itertools

import numpy as np

from naive.nodes import digits


class BendTrial:
    """Setting 2: the node's model with other bends, and the losses of the rows it saw."""

    def __init__(self, model, added, removed, born):
        self.model, self.added, self.removed, self.born = model, added, removed, born
        self.node_loss = self.loss = self.evidence = 0.0

    def fade(self, factor):
        self.node_loss, self.loss = factor * self.node_loss, factor * self.loss
        self.evidence *= factor

    def learn(self, rows, node_loss, stands_for):
        loss, _ = self.model.forward(rows)
        self.node_loss += stands_for * (rows.w * node_loss).sum()
        self.loss += stands_for * (rows.w * loss).sum()
        self.evidence += stands_for * rows.w.sum()
        self.model.learn(rows)

    @property
    def gain(self):
        return self.node_loss - self.loss


class TreeBends:
    """Which other model is on trial at a node, and when it replaces the node's."""

    def bend_level(self, node):
        """What the trial must gain: as a split, or a quarter of it with fewer bends.

        With fewer bends it need not be better after many rows, when the node is looked at anyway.
        """
        if not node.bend.removed:
            price = self.PRICE * self.n_fine(node.bend.added) * node.bend.evidence
            return self.required(max(1, len(node.bend.added))) + price
        is_old = node.rows - node.bend.born >= self.UNBEND and node.rows >= node.refresh_at
        return self.required(len(node.bend.removed)) * (-0.25 if is_old else 0.25)

    def n_fine(self, bends):
        return max(0, len(bends) - self.PIECES * len({j for j, _, _ in bends}))

    def decide_bend(self, node):
        """The model on trial becomes the node's; what was tried beside the old one starts again."""
        trial = node.bend
        if trial is None or self.has_no_trials(node) or trial.gain < self.bend_level(node):
            return
        ready = [t for t in node.trials if min(t.n) >= self.MIN_SIDE]
        gains = (t.gain if node.split is None else min(t.gain, t.replacement_gain) for t in ready)
        second = max(gains, default=None)
        kind = "bend" if trial.added else "unbend" if trial.removed else "memory"
        sums = trial.node_loss, trial.loss, trial.evidence
        self.record(kind, node, self.bend_level(node), *sums, second=second, n_removed=0)
        node.model, node.bend, node.trials, node.renewed = trial.model, None, [], None
        node.own_loss -= trial.gain
        if node.split is None:
            node.subtree_loss -= trial.gain
        for grid in node.grid:
            grid.count, grid.gradient = 0 * grid.count, 0 * grid.gradient
        node.n_failed = 0
        wait = self.TRIAL_AGE if self.finer_curves(node) is None else self.REFRESH
        node.next_bend = node.rows + wait
        self.renew(node)

    def refresh_bends(self, node):
        """End the trial of a model if it failed; start another when it is time.

        While bends that failed are barred, another memory has its turn.
        """
        trial = node.bend
        if not self.max_bends:
            return
        if trial is None:
            if node.rows >= node.next_bend:
                bends = self.other_bends(node)
                self.try_model(node, node.model.bends if bends is None else bends, bends is None)
            return
        age = node.rows - trial.born
        patience = min(self.TRIAL_AGE, 20 * self.n_fine(trial.added))
        lost = age > patience and trial.gain < -self.bend_level(node)
        lost = lost or (age > self.TRIAL_AGE and trial.gain <= 0)
        if (age >= self.UNBEND and not trial.added) or (lost and not trial.removed):
            node.bend = None
            of_bends = trial.added or trial.removed
            if of_bends or self.other_bends(node) is None:
                node.next_bend = node.rows + self.BAR * 2 ** min(node.n_failed, self.MOST_BARS)
                node.n_failed += 1
            if of_bends:
                self.try_model(node, node.model.bends, other_memory=True)

    def other_bends(self, node):
        """Spec, BENDS: what comes first goes by how often something failed since the last win."""
        more, finer, fewer = self.more_bends(node), self.finer_curves(node), self.fewer_bends(node)
        if node.n_failed % 2:
            ideas = fewer, more, finer
        elif node.n_failed or node.model.bends:
            ideas = finer, more, fewer
        else:
            ideas = more, finer, fewer
        return next((idea for idea in ideas if idea is not None), None)

    def try_model(self, node, bends, other_memory):
        old = node.model.bends
        columns = {c[1]: i for i, c in enumerate(self.columns) if c[0] == "numeric"}
        model = node.model.rebent(bends, columns)
        if other_memory:
            model.memory = 1.0 if model.memory == self.SHORT_MEMORY else self.SHORT_MEMORY
        added, removed = [b for b in bends if b not in old], [b for b in old if b not in bends]
        node.bend = BendTrial(model, added, removed, node.rows)

    def more_bends(self, node):
        """Curves for the best features: all, after each second failure half as many.

        As fine as all have room for; where not even two pieces each have room, first come, first
        served, once there are scores. What is left goes to features of few values, for a knot at
        each.
        """
        bent = {feature for feature, _, _ in node.model.bends}
        ranked, scores = self.ranked(node, [j for j in self.bendable(node) if j not in bent])
        room, added = min(self.max_bends, self.BENDS) - len(node.model.bends), []
        for n in range(self.PIECES, 1, -1):
            curves = [self.curve(j, node.grid[j].edges, n) for j in ranked]
            if sum(len(curve) for curve in curves) <= room:
                break
        else:
            if not any(scores.values()):
                return None
        for i, j in enumerate(ranked):
            n_edges = len(node.grid[j].edges)
            finest = [*curves[:i], self.curve(j, node.grid[j].edges, n_edges), *curves[i + 1 :]]
            is_code = n_edges < min(self.CODES, self.bins - 1)
            if is_code and sum(len(curve) for curve in finest) <= room:
                curves = finest
        for curve in curves:
            added += curve if len(added) + len(curve) <= room else []
        return node.model.bends + added if added else None

    def bendable(self, node):
        return [
            j
            for j, scale in self.scales.items()
            if not scale.only_bits and len(node.grid[j].edges) >= 2
        ]

    def ranked(self, node, features):
        """The best features, as many as failures leave, and the scores of all."""
        scores = {j: max(self.bend_scores(node, j), default=0.0) for j in features}
        ranked = sorted(features, key=lambda j: (-scores[j], j))
        return ranked[: max(1, len(ranked) // 2 ** (node.n_failed // 2))], scores

    def finer_curves(self, node):
        """A knot at each edge of features of few whole numbers, as far as there is room.

        A piece that is there stays; of its parts all but the last are added.
        """
        bends, finer = node.model.bends, {}
        for j in self.bendable(node):
            edges, own = node.grid[j].edges, [bend for bend in bends if bend[0] == j]
            knots = sorted({*edges, *(low for _, low, _ in own), *(high for *_, high in own)})
            highs = [high for *_, high in own]
            parts = [(j, low, high) for low, high in itertools.pairwise(knots) if high not in highs]
            if parts and len(edges) < self.bins - 1 and all(edge == int(edge) for edge in edges):
                finer[j] = parts
        added = []
        for j in self.ranked(node, list(finer))[0]:
            if len(bends) + len(added) + len(finer[j]) <= self.max_bends:
                added += finer[j]
        return bends + added if added else None

    def fewer_bends(self, node):
        """Without the curves that seem to earn less than a nat per parameter."""
        bends, worth = node.model.bends, node.model.worth()
        per_bend = 1 if self.c <= 2 else self.c - 1
        earned = {j: 0.0 for j, _, _ in bends}
        for (j, _, _), own in zip(bends, worth, strict=True):
            earned[j] += own - per_bend
        kept = [bend for bend in bends if earned[bend[0]] > 0]
        return kept if len(kept) < len(bends) else None

    @staticmethod
    def curve(j, edges, n):
        """Pieces between n + 1 of the edges, evenly chosen; all if there are not as many."""
        last = len(edges) - 1
        n = min(n, last)
        knots = [edges[round(i * last / n)] for i in range(n + 1)]
        return [(j, knots[i], knots[i + 1]) for i in range(n)]

    def bend_scores(self, node, j):
        """Score tests of a hinge at each edge, beside an intercept and the feature's own input.

        Rows are where their slot's middle is; of their gradients both sums are known.
        """
        grid, edges = node.grid[j], node.grid[j].edges
        z_of = lambda x: self.scales[j].standard(np.array(x, dtype=float))  # noqa: E731
        ends = [edges[0], *edges, edges[-1] + (edges[-1] - edges[-2])]
        z = z_of([(a + b) / 2 for a, b in itertools.pairwise(ends)])
        count, gradient = grid.count[:-1], grid.gradient[:-1]
        by_1, by_z = gradient[:, :, 0], gradient[:, :, self.columns.index(("numeric", j))]
        n, known = count.sum(), np.column_stack([np.ones(len(z)), z])
        if n == 0 or np.average((z - np.average(z, weights=count)) ** 2, weights=count) <= 1e-9:
            return
        for i, knot in enumerate(z_of(edges)):
            above = np.arange(len(z)) > i
            hinge = np.where(above, z - knot, 0.0)
            fit = np.linalg.solve(known.T @ (count[:, None] * known), known.T @ (count * hinge))
            variance = (count * (hinge - known @ fit) ** 2).sum()
            if variance > 1e-4 * n:
                u = (by_z - knot * by_1)[above].sum(axis=0) - fit @ [
                    by_1.sum(axis=0),
                    by_z.sum(axis=0),
                ]
                yield digits((u**2).sum() / variance, 9)
