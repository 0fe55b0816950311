"""The tree: what it knows, the step, and the decisions of the measured setting about its splits.

Mirrors `learn/tree.py::Tree`, and `learn` of `kernels/model_tree.hpp::ModelTree`.
"""

import itertools
import math
from collections import namedtuple

import numpy as np

from naive.bends import TreeBends
from naive.borders import TreeBorders
from naive.challenger import TreeChallenger
from naive.grid import TreeGrids
from naive.inputs import Rows, Scale, TreeInputs, bend_input, random_quarter, visiting_order
from naive.models import BlendModel, Habits, SgdModel, likelihood, losses
from naive.nodes import Node
from naive.paper_setting import TreePaper
from naive.renewed import TreeRenewed
from naive.rest import TreeRest
from naive.trials import TreeTrials

EVENT = "kind step path gain threshold loss_before loss_after rows feature value second n_removed"
Event = namedtuple("Event", EVENT)


class NaiveTree(
    TreeInputs,
    TreeGrids,
    TreeTrials,
    TreeBends,
    TreeRenewed,
    TreeBorders,
    TreeChallenger,
    TreeRest,
    TreePaper,
):
    """Dynamic Model Tree; override the capitals in a subclass to exercise short streams."""

    CHUNK, WARM_UP, REFRESH, TRIAL_AGE, BAR = 200, 300, 200, 1000, 2000
    MIN_SIDE, LEVELS, INNER_TRIALS, FLOOR_GATE = 20, 32, 1, 4
    YOUTH, OLD_REFRESH, REST = 10_000, 1000, 16
    RECENT, ALARM, RESTLESS = 16, 1.2, 0.5
    PIECES, CODES, BENDS, UNBEND, MOST_BARS, SURENESS = 4, 16, 64, 5000, 5, 500
    PRICE, SHORT_MEMORY, DISTANCE, SIDE_VARIANCE = 0.001, 1 / 3, 0.03, 0.0
    TRIAL_REST, GRID_REST, COSTLY = 200, 2000, 128
    RENEW, DOUBT, RENEWED_REST, HARM = 200, 3.0, 1.0, 6.0
    BORDER = 0.5

    def __init__(self, n_features, n_classes=2, setting="measured", *, epsilon=None,
                 evidence_window=20000, model_window=1000, bins=64, trials=3, max_bends=128, seed=1,
                 max_nodes=None, max_depth=None, learning_rate=0.05, gain_step=None, candidates=3,
                 replacement_rate=0.5, categorical=()):  # fmt: skip
        self.measured = {"measured": True, "paper": False}[setting]
        self.m, self.c, self.outputs = n_features, n_classes, 1 if n_classes <= 2 else n_classes
        self.epsilon = epsilon or ((1e-8 if max_bends else 1e-14) if self.measured else 1e-7)
        self.window, self.max_bends = evidence_window, max_bends
        lines = Habits(model_window, 10.0, 0.0, mean_curvature=False)
        self.habits = Habits(model_window, 1.0, self.SURENESS) if max_bends else lines
        self.price, self.distance = (self.PRICE, self.DISTANCE) if max_bends else (0.0, 0.0)
        self.side_variance = self.SIDE_VARIANCE if max_bends else 0.0
        never = math.inf, math.inf
        self.trial_rest, self.grid_rest = (self.TRIAL_REST, self.GRID_REST) if max_bends else never
        self.trials_rest = False  # wholly, with their node
        self.always_rest = max_bends > 0  # nodes far from any change
        self.block_rows, self.in_block = 1, False  # of trees that are large enough: set by a test
        self.costly_columns = self.COSTLY if max_bends else math.inf
        self.bins, self.n_trials = bins, trials
        self.seed, self.learning_rate = seed, learning_rate
        self.gain_step = learning_rate if gain_step is None else gain_step
        self.max_nodes, self.max_depth = max_nodes or math.inf, max_depth
        self.store_size = candidates * n_features
        self.replacements = math.floor(replacement_rate * self.store_size)
        self.categorical = frozenset(categorical)
        self.leveled = self.categorical if self.measured else frozenset()  # get level columns
        self.scales = {j: Scale() for j in range(n_features) if j not in self.leveled}
        self.columns = [("intercept",)] + [("numeric", j) for j in self.scales]
        self.T, self.steps, self.n_rows, self.events = 0.0, 0, 0, []
        self.lately, self.usually = np.zeros(2), np.zeros(2)  # loss and rows
        self.restless_until = self.RESTLESS * evidence_window
        self.root = Node((), self.new_model(), self.shape, 0.0)
        has_floor = self.measured and n_classes <= 2
        self.challenger = BlendModel(self.shape, self.habits, floor=True) if has_floor else None
        self.tree_loss = self.challenger_loss = self.challenger_rows = 0.0

    @property
    def shape(self):
        return self.outputs, len(self.columns)

    def required(self, n_inputs):
        """Spec, setting 2: what a change must prove that adds so many inputs to a model."""
        return -math.log(self.epsilon) + 0.1 * n_inputs * (1 if self.c <= 2 else self.c - 1)

    def tau(self, node):
        """Spec, setting 2: the threshold of every measured gain of a split, in nats."""
        return self.required(len(self.columns) + len(node.model.bends))

    def new_model(self):
        if self.measured:
            return BlendModel(self.shape, self.habits)
        return SgdModel(self.shape, self.learning_rate)

    def nodes(self):
        return self.root.nodes()

    # ------------------------------------------------------------------ outputs

    def leaf(self, x, node=None):
        node = node or self.root
        while node.split is not None:
            node = node.left if node.split.left(x[None])[0] else node.right
        return node

    def logits(self, X):
        """Linear logits [n, outputs] of the leaf that each row reaches."""
        X = self.raw(X)
        each = []
        for x, z, full in zip(X, self.inputs(X), self.filled(X), strict=True):
            leaf = self.leaf(x)
            bent = (bend_input(bend, full[None])[0] for bend in leaf.model.bends)
            each.append(leaf.W @ [*z, *bent])
        return np.array(each).reshape(-1, self.outputs)

    def predict_proba(self, X):
        """P(class | x) with the leaf's link; minus the log of it is the loss."""
        out = np.zeros((len(X), max(2, self.c)))
        for i, (x, logits) in enumerate(zip(self.raw(X), self.logits(X), strict=True)):
            rho = self.leaf(x).model.rho
            out[i] = [math.exp(-likelihood(logits, y, rho)[0]) for y in range(out.shape[1])]
        return out

    def structure(self, node=None):
        node = node or self.root
        if node.split is None:
            return "leaf", node.W.tolist()
        s = node.split
        below = self.structure(node.left), self.structure(node.right)
        return "split", s.feature, s.value, s.equality, s.missing_left, *below

    # ------------------------------------------------------------------ learn

    def learn(self, X, y, weight=None):
        """Learn labelled rows: pieces of CHUNK rows, or the whole batch in the paper setting."""
        X, y = self.raw(X), np.asarray(y, dtype=int)
        w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
        self.awaken_columns(X)
        size = self.CHUNK if self.measured else max(1, len(X))
        for start in range(0, len(X), size):
            piece = slice(start, start + size)
            self.step(X[piece], y[piece], w[piece])
        return self

    def step(self, X, y, w):
        """One complete time step: update, then decide bottom-up (Section "Basic Algorithm")."""
        order = visiting_order(X, self.seed)
        X, y, w = X[order], y[order], w[order]
        self.steps += 1
        waits = self.begin_block(len(X))
        self.spares = self.block_spares if self.in_block else self.is_calm()
        self.n_rows += len(X)
        self.T += w.sum()
        for j, scale in self.scales.items():
            scale.see(X[:, j], w)
        quarter = random_quarter(len(X), self.n_rows, self.seed)
        inputs = self.inputs(X), y, w, quarter, self.filled(X)
        rows, visited = Rows(X, *inputs, spares=self.spares or self.is_costly), []
        loss, told = self.update(self.root, rows, visited).T
        if self.challenger:
            self.update_challenger(rows, loss)
        if self.measured:
            self.watch(rows, told)
        if waits and self.n_rows % self.block_rows:
            return
        self.in_block = False
        visited = self.root.nodes() if waits else visited
        if self.challenger and self.floor_is_due():
            self.flip_floor()
            return
        for node in sorted(visited, key=lambda node: (-len(node.path), node.id)):
            if self.measured:
                self.choose_grid(node)
                self.decide_bend(node)
                self.decide_measured(node)
                self.refresh(node)
            else:
                self.decide_paper(node)

    def update(self, node, rows, visited):
        """Update a node and all below it; returns what each row cost its leaf, and the tree.

        They differ where the leaf has a renewed model: what is tried is compared with the first.
        """
        visited.append(node)
        if self.measured and not self.in_block:
            node.resting = self.who_rests(node, node.rows)
        node.rows += rows.w.sum()
        rests = self.measured and (self.spares or self.always_rest) and node.resting[0]
        seen, stands_for = self.look_at(rows, rests=rests)
        part = rows.take(seen)
        loss, residual = node.model.forward(part)
        paid = np.column_stack([loss, loss]) if node.split is None else np.zeros((len(rows.w), 2))
        if node.split is not None:
            self.judge_border(node, rows)
            for child, mask in zip((node.left, node.right), node.split.sides(rows.X), strict=True):
                if mask.any():
                    paid[mask] = self.update(child, rows.take(mask), visited)
        elif node.renewed:
            paid[:, 1], _ = losses(node.W, rows.seen_by(node.model), node.model.rho)
            self.update_renewed(node.renewed, rows, loss)
            self.update_harm(node.renewed, rows, paid[:, 1])
        node.model.learn(part)
        if self.measured:
            leaf_loss = paid[seen, 0]
            self.gather_evidence(node, part, loss, residual, leaf_loss, stands_for)
        else:
            self.gather_windows(node, part, loss, residual)
        return paid

    # ------------------------------------------------------------------ changes

    def record(self, kind, node, threshold, before, after, rows, split=None, second=None,
               n_removed=None):  # fmt: skip
        """Note a change BEFORE it is made; `second` is the gain of the runner-up."""
        what = (split.feature, split.value) if split else (None, None)
        sums = (float(x) for x in (before - after, threshold, before, after, rows))
        n_removed = len(node.nodes()) - 1 if n_removed is None else n_removed
        self.events.append(Event(kind, self.steps, node.path, *sums, *what, second, n_removed))

    def may_split(self, node):
        deep = self.max_depth is not None and len(node.path) >= self.max_depth
        return not deep and len(self.nodes()) + 2 <= self.max_nodes

    def branch(self, node, split, models):
        """The children get the first ids that are free: they say who decides first."""
        node.split = None
        taken = {one.id for one in self.nodes()}
        free = (i for i in itertools.count() if i not in taken)
        node.split = split
        node.left, node.right = (
            Node((*node.path, side), model, self.shape, self.T)
            for side, model in zip("LR", models, strict=True)
        )
        node.left.id, node.right.id = next(free), next(free)

    def decide_measured(self, node):
        """Measured gains (3), (4), (5) against tau."""
        tau = self.tau(node)
        seen = [t for t in node.trials if min(t.n) >= self.MIN_SIDE]
        ready = [t for t in seen if t.gain >= tau]
        if node.split is None:
            if ready and self.may_split(node):
                gains = sorted((t.gain for t in seen), reverse=True)
                best = max(ready, key=lambda t: t.gain)
                self.adopt_trial("split", node, best, gains[1] if len(gains) > 1 else None)
            return
        gains = sorted((t.replacement_gain for t in ready), reverse=True)
        best = max(ready, key=lambda t: t.replacement_gain, default=None)
        excess = best.replacement_gain - tau if best else -math.inf
        if -node.earned >= -tau / 4 and -node.earned + tau / 4 >= excess:
            sums = node.subtree_loss, node.own_loss, node.evidence
            second = gains[0] if gains else None
            self.record("prune", node, -tau / 4, *sums, node.split, second)
            node.split = node.left = node.right = node.border = None
            node.subtree_loss = node.own_loss
        elif excess >= 0:
            self.adopt_trial("replace", node, best, gains[1] if len(gains) > 1 else None)
        else:
            self.decide_threshold(node)

    def adopt_trial(self, kind, node, trial, second):
        """The trial becomes the split; its models become the children's."""
        before, after = trial.subtree_loss, trial.trial_loss
        before = trial.node_loss if kind == "split" else before
        self.record(kind, node, self.tau(node), before, after, trial.evidence, trial.split, second)
        self.branch(node, trial.split, trial.models)
        node.own_loss, node.subtree_loss, node.trials = trial.node_loss, trial.trial_loss, []
        node.evidence, node.recent, node.bend = trial.evidence, 0.0, None
        node.renewed = node.border = None
        node.left.n_failed = node.right.n_failed = node.n_failed
