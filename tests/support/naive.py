"""The slow, obvious Dynamic Model Tree: the oracle that the fast kernels are compared with.

Written from the paper and the specification only: one object per node, float64 throughout, no
shortcut. "(3)" is an equation of the paper, "Alg. 1, l. 8" a line of its Algorithm 1, and "spec"
a choice of the project's own specification, where the paper is silent or overruled. Two settings
share the tree, the gains (3), (4), (5) and the bottom-up decisions:

* ``paper``: one SGD model per node, candidate losses approximated by (6) and (7).
* ``measured``: a blend of Adagrad and online Newton per node, candidate losses measured by trials.
"""

import copy
import itertools
import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np

GOLDEN, WORD = 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF
LEAST_GAIN = 1e-9
EVENT = "kind step path gain threshold loss_before loss_after rows feature value second n_removed"
Event = namedtuple("Event", EVENT)


def mix64(key):
    """The splitmix64 finaliser (spec, ORDER)."""
    key = (key + GOLDEN) & WORD
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & WORD
    return key ^ (key >> 31)


def visiting_order(X, seed):
    """The order in which the rows of a step are visited: by a hash of the row's own values."""
    bits = np.where(np.isnan(X), np.nan, X + 0.0).view(np.uint64).tolist()
    keys = [sum(mix64((b + seed * GOLDEN) & WORD) for b in row) & WORD for row in bits]
    return sorted(range(len(X)), key=lambda i: keys[i])  # stable: equal rows keep their order


def random_quarter(n, n_rows, seed):
    """Which of the last n of n_rows rows are looked at by those who rest (spec, REST).

    The stream's last row so far is the first that the step visits.
    """
    return np.array([mix64((seed + n_rows - row) & WORD) % 4 == 0 for row in range(n)])


class Rows:
    """Rows of one step: raw values X, model inputs z, label codes y, weights w.

    The models learn with the weight, at most 1 (``steps``); sums take all of it. Who rests looks
    at the rows in the ``quarter``. In calm times work is spared.
    """

    def __init__(self, X, z, y, w, quarter, filled, *, spares):
        self.X, self.z, self.y, self.w, self.quarter = X, z, y, w, quarter
        self.filled, self.spares = filled, spares

    def seen_by(self, model):
        """The same rows with the inputs of a model: behind those of all models its bends'."""
        z = np.hstack([self.z, *(bend_input(bend, self.filled)[:, None] for bend in model.bends)])
        parts = self.X, z, self.y, self.w, self.quarter, self.filled
        return Rows(*parts, spares=self.spares)

    def take(self, keep):
        own = self.X, self.z, self.y, self.w, self.quarter, self.filled
        return Rows(*(part[keep] for part in own), spares=self.spares)

    @property
    def steps(self):
        return np.minimum(self.w, 1.0)

    def __iter__(self):
        return zip(self.z, self.y, self.steps, strict=True)


def bend_input(bend, X):
    """Spec, BENDS: 0 up to one value, 1 from another on, a line between."""
    feature, low, high = bend
    return np.clip((X[:, feature] - low) / (high - low), 0.0, 1.0)


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


class Scale:
    """What has been seen of one numeric feature; turns raw values into model inputs."""

    def __init__(self):
        self.n = self.mean = self.m2 = 0.0
        self.low, self.high, self.only_bits = math.inf, -math.inf, True

    def see(self, x, w):
        """Chan's merge of the chunk's moments, never faded; missing values are left out."""
        x, w = x[~np.isnan(x)], w[~np.isnan(x)]
        if w.sum() == 0:
            return
        n, mean = w.sum(), (w * x).sum() / w.sum()
        delta = mean - self.mean
        self.m2 += (w * (x - mean) ** 2).sum() + delta**2 * self.n * n / (self.n + n)
        self.mean += delta * n / (self.n + n)
        self.n += n
        self.low, self.high = min(self.low, x.min()), max(self.high, x.max())
        self.only_bits = self.only_bits and bool(np.isin(x, (0.0, 1.0)).all())

    def standard(self, x):
        """Spec, setting 2: clip((x - mean) / sd, -3, 3) / 2; constant -> 0; bits unchanged."""
        if self.only_bits:
            return x
        if self.low == self.high or self.m2 == 0:  # constant, whatever rounding made of m2
            return np.zeros(len(x))
        return np.clip((x - self.mean) / math.sqrt(self.m2 / self.n), -3, 3) / 2

    def unit(self, x):
        """Spec, setting 1: min-max that is the identity on inputs within [0, 1]."""
        low, high = min(0.0, self.low), max(1.0, self.high)
        return (x - low) / (high - low)


def sigmoid(t):
    return math.exp(min(t, 0.0)) / (1.0 + math.exp(-abs(t)))


def likelihood(logits, y, rho=None):
    """Loss -log P(y | x) of ONE row, its residual per output, and half the sum of its curvatures.

    One logit: P(y) = rho_y + (1 - rho_0 - rho_1) s_y, plain if rho is None. Several: soft-max.
    """
    if len(logits) == 1:
        t = logits[0] if y == 1 else -logits[0]  # log-odds of the label that came
        s, wrong = sigmoid(t), sigmoid(-t)
        loss, factor = float(np.logaddexp(0.0, -t)), 1.0
        if rho is not None:
            floored = rho[y] + (1.0 - rho.sum()) * s
            loss, factor = -math.log(floored), (1.0 - rho.sum()) * s / floored
        residual = np.array([-wrong if y == 1 else wrong]) * factor
        return loss, residual, s * wrong * factor
    log_sum = logits.max() + math.log(np.exp(logits - logits.max()).sum())
    p = np.exp(logits - log_sum)
    residual = p - (np.arange(len(p)) == y)
    return float(log_sum - logits[y]), residual, (p * (1 - p)).sum() / 2


def losses(weights, rows, rho=None):
    """Losses and residuals of many rows, each by itself: the others must not change its bits."""
    each = [likelihood(weights @ z, y, rho) for z, y in zip(rows.z, rows.y, strict=True)]
    return np.array([e[0] for e in each]), np.array([e[1] for e in each])


class SgdModel:
    """Section "Simple Models": a (multinomial) logit model, SGD with a constant learning rate."""

    rho, bends = None, []

    def __init__(self, shape, rate):
        self.W, self.rate = np.zeros(shape), rate

    def forward(self, rows):
        """Loss and residual of each row BEFORE the batch is learnt (test, then train)."""
        return losses(self.W, rows)

    def learn(self, rows):
        for z, y, w in rows:
            self.W -= self.rate * w * np.outer(likelihood(self.W @ z, y)[1], z)


@dataclass(frozen=True)
class Habits:
    """Spec: how the simple models of a tree learn, with bends and without."""

    memory: float
    variance: float = 1.0
    sureness_window: float = 500.0
    mean_curvature: bool = True


class BlendModel:
    """Spec, setting 2: Adagrad (a) and online Newton (b), mixed by their recent losses (D)."""

    FLOOR_START, FLOOR_FIRST, FLOOR_MEMORY, FLOOR_MAX = 0.1, 1000, 10_000, 0.5
    FLOOR_LEAST, MOST_SURE = 1e-6, 20.0

    def __init__(self, shape, habits, floor=False):
        self.habits, self.A = habits, habits.variance * np.eye(shape[1])
        self.D, self.wrong, self.sureness, self.grip = 0.0, 0.0, 1.0, 0.0
        self.memory = 1.0  # of Newton, as a share of the usual
        self.Wa, self.Ga, self.Wb = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.bends = []  # inputs (feature, low, high) of its own, behind those of all models
        self.set_floor(floor)

    def rebent(self, bends, columns):
        """Spec, BENDS: a copy with other bends; `columns` are those of the features' own inputs.

        Newton's beliefs are those of a Gaussian: inputs that go are conditioned on a weight of 0.
        """
        n_plain = self.Wa.shape[1] - len(self.bends)
        kept = [*range(n_plain), *(n_plain + self.bends.index(b) for b in bends if b in self.bends)]
        gone = [n_plain + i for i, bend in enumerate(self.bends) if bend not in bends]
        fit = self.A[np.ix_(kept, gone)] @ np.linalg.inv(self.A[np.ix_(gone, gone)])
        inverse = self.A[np.ix_(kept, kept)] - fit @ self.A[np.ix_(gone, kept)]
        weights = self.Wb[:, kept] - self.Wb[:, gone] @ fit.T

        new = copy.deepcopy(self)
        new.bends = list(bends)
        places = [*range(n_plain), *(n_plain + i for i, b in enumerate(bends) if b in self.bends)]
        shape = len(weights), n_plain + len(bends)
        new.A = self.habits.variance * np.eye(shape[1])
        new.A[np.ix_(places, places)] = inverse
        new.Wa, new.Ga, new.Wb = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        new.Wa[:, places], new.Ga[:, places] = self.Wa[:, kept], self.Ga[:, kept]
        new.Wb[:, places] = weights
        for i, bend in enumerate(bends):
            if bend not in self.bends:
                new.Ga[:, n_plain + i] = self.Ga[:, columns[bend[0]]]
        return new

    def renewed(self):
        """Spec, RENEWED: a copy that knows nothing of how good its weights are."""
        new = copy.deepcopy(self)
        new.A, new.Ga = self.habits.variance * np.eye(len(self.A)), 0 * self.Ga
        return new

    def restarted(self):
        """Spec, RENEWED: a copy that knows nothing but the bends."""
        new = self.renewed()
        new.Wa, new.Wb = 0 * self.Wa, 0 * self.Wb
        new.D, new.wrong, new.sureness, new.grip = 0.0, 0.0, 1.0, 0.0
        return new

    def worth(self):
        """About what each bend earns: the loss without it, by the curvature of the present one."""
        n_plain = self.Wa.shape[1] - len(self.bends)
        return ((self.Wb**2).sum(axis=0) / (2 * np.diag(self.A)))[n_plain:]

    def set_floor(self, floor):
        self.rho, self.floor_rows = np.full(2, self.FLOOR_START) if floor else None, 0.0

    @property
    def W(self):  # noqa: N802
        """The ONE linear model that the node reports."""
        return self.sureness * ((1 - sigmoid(self.D)) * self.Wa + sigmoid(self.D) * self.Wb)

    def forward(self, rows):
        """Losses of both learners and of the blend, residual of the blend; nothing learnt yet."""
        rows = rows.seen_by(self)
        self.loss_a, self.loss_b = (losses(one, rows, self.rho)[0] for one in (self.Wa, self.Wb))
        self.loss, residual = losses(self.W, rows, self.rho)
        self.said, self.residual = [self.W @ z for z in rows.z], residual
        return self.loss, residual

    def learn(self, rows):
        """D; humility; sureness; Adagrad, once or 3 times; Newton once; EM of the floor."""
        rows = rows.seen_by(self)
        for a, b, w in zip(self.loss_a, self.loss_b, rows.steps, strict=True):
            self.D = min(8.0, max(-8.0, 0.998**w * self.D + w * (a - b)))
        factor = self.humility(rows.steps)
        self.shrink(factor)
        self.sureness = min(1.0, self.sureness / factor)  # the doubt is in the weights now
        if self.habits.sureness_window:
            self.doubt(rows)
        clear_lead = 2 if len(rows.y) == 1 else 0  # of Newton
        for _ in range(1 if rows.spares and clear_lead < self.D else 3):
            for z, y, w in rows:
                self.adagrad(z, y, w)
        for z, y, w in rows:
            self.newton(z, y, w)
        if self.rho is not None:
            for loss, y, w in zip(self.loss, rows.y, rows.steps, strict=True):
                self.expect_noise(math.exp(-loss), y, w)

    def humility(self, steps):
        """Spec, SURENESS: a row costs who is mostly wrong no more than MOST_SURE."""
        for loss, w in zip(self.loss, steps, strict=True):
            self.wrong = 0.98**w * self.wrong + (1 - 0.98**w) * (loss > math.log(2))
        beyond = np.maximum(0.0, self.loss - math.log(2))  # about what was said against the label
        loss = self.loss + (1 / self.sureness - 1) * beyond  # by learners, without the doubt
        factors = self.MOST_SURE / np.maximum(loss, self.MOST_SURE)
        return (factors**steps).min(initial=1.0) if self.wrong > 0.5 else 1.0

    def doubt(self, rows):
        """Spec, SURENESS: a Newton step of the factor's logarithm t, over all rows at once."""
        pull = grip = 0.0
        for said, residual, y, w in zip(self.said, self.residual, rows.y, rows.steps, strict=True):
            pull += w * (residual @ said)  # dL / dt
            if len(said) == 1:
                grip += w * likelihood(said, y, self.rho)[2] * said[0] ** 2
            else:  # the variance of what it said, by its own probabilities
                p = residual + (np.arange(len(said)) == y)
                grip += w * (p * (said - p @ said) ** 2).sum()
        self.grip = math.exp(-rows.steps.sum() / self.habits.sureness_window) * self.grip + grip
        step = np.clip(pull / (self.grip + 10), -0.5, 0.5)
        self.sureness = float(np.clip(self.sureness * math.exp(-step), 0.01, 1.0))

    def shrink(self, factor):
        self.Wa, self.Ga, self.Wb = factor * self.Wa, factor**2 * self.Ga, factor * self.Wb

    def adagrad(self, z, y, w):
        """G += g^2; W_a -= g / (sqrt(G) + 1e-8), the length of the step in single precision."""
        g = np.outer(likelihood(self.Wa @ z, y, self.rho)[1], z)
        self.Ga += w * g * g
        length = 1 / (np.sqrt(self.Ga.astype(np.float32)) + np.float32(1e-8))
        self.Wa -= w * g * length.astype(np.float64)

    def newton(self, z, y, w):
        """u = A z; q = f + h z'u; A <- (A - h u u' / q) / f; W_b -= residual u' / q."""
        _, residual, h = likelihood(self.Wb @ z, y, self.rho)
        if self.habits.mean_curvature and len(residual) > 1:
            h *= 2 / (len(residual) - 1)
        h = max(0.01, h)
        f = (1.0 - 1.0 / (self.memory * max(self.habits.memory, 20 * len(z)))) ** w
        u = self.A @ z
        q = f + w * h * (z @ u)
        self.A = (self.A - w * h * np.outer(u, u) / q) / f  # outer(u, u) is exactly symmetric
        self.Wb -= w * np.outer(residual, u) / q
        most = self.habits.variance
        if np.trace(self.A) > 2 * most * len(z):  # no input gets less certain than at the start
            shrink = np.sqrt(np.minimum(1.0, most / np.diag(self.A)))
            self.A *= np.outer(shrink, shrink)

    def expect_noise(self, likelihood, y, w):
        """Online EM: how probably was this label drawn from the floor?"""
        e = np.zeros(2)
        e[y] = self.rho[y] / likelihood
        self.floor_rows += w
        rate = w / min(self.FLOOR_MEMORY, self.FLOOR_FIRST + self.floor_rows)
        self.rho = np.maximum(self.FLOOR_LEAST, self.rho + rate * (e - self.rho))
        self.rho *= min(1.0, self.FLOOR_MAX / self.rho.sum())


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


class FeatureGrid:
    """Setting 2: discounted counts and gradients of one feature per slot; the last is missing."""

    def __init__(self, edges, slots, shape):
        self.edges = edges  # None: categorical, the slot is the code
        self.count, self.gradient = np.zeros(slots), np.zeros((slots, *shape))

    def slot(self, x):
        if math.isnan(x):
            return len(self.count) - 1
        return int(x) if self.edges is None else sum(e < x for e in self.edges)


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


def widen(holder, p):
    """New model columns start with W = 0, G = 0, gradient 0, and A as at the start."""
    n_bends = len(getattr(holder, "bends", ()))
    for name in {"W", "Wa", "Ga", "Wb", "gradient"} & vars(holder).keys():
        old = getattr(holder, name)
        at = old.shape[-1] - n_bends
        setattr(holder, name, np.insert(old, [at] * (p - at), 0.0, axis=-1))
    if isinstance(holder, BlendModel):
        at = len(holder.A) - n_bends
        old = [i + (p - at) * (i >= at) for i in range(len(holder.A))]
        known, holder.A = holder.A, holder.habits.variance * np.eye(p + n_bends)
        holder.A[np.ix_(old, old)] = known


class NaiveTree:
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

    @property
    def k(self):
        """Free parameters of one simple model."""
        return len(self.columns) * (1 if self.c <= 2 else self.c - 1)

    def required(self, n_inputs):
        """Spec, setting 2: what a change must prove that adds so many inputs to a model."""
        return -math.log(self.epsilon) + 0.1 * n_inputs * (1 if self.c <= 2 else self.c - 1)

    def tau(self, node):
        """Spec, setting 2: the threshold of every measured gain of a split, in nats."""
        return self.required(len(self.columns) + len(node.model.bends))

    @property
    def floor_gain(self):
        return self.tree_loss - self.challenger_loss

    @property
    def floor_level(self):
        return self.FLOOR_GATE * self.tau(self.root)

    def floor_is_due(self):
        return self.floor_gain >= self.floor_level

    def new_model(self):
        if self.measured:
            return BlendModel(self.shape, self.habits)
        return SgdModel(self.shape, self.learning_rate)

    def nodes(self):
        return self.root.nodes()

    # ------------------------------------------------------------------ inputs and outputs

    def raw(self, X):
        """A private copy; levels from number LEVELS on share one code."""
        X = np.array(X, dtype=np.float64).reshape(-1, self.m)
        for j in self.leveled:
            X[:, j] = np.minimum(X[:, j], self.LEVELS)  # keeps NaN
        return X

    def inputs(self, X):
        """Model inputs, one per live column; a missing value is 0 and its indicator 1."""
        out = np.ones((len(X), len(self.columns)))
        for i, (kind, j, *code) in enumerate(self.columns[1:], start=1):
            x = X[:, j]
            if kind == "level":
                out[:, i] = x == code[0]
            elif kind == "missing":
                out[:, i] = np.isnan(x)
            else:
                z = self.scales[j].standard(x) if self.measured else self.scales[j].unit(x)
                out[:, i] = np.where(np.isnan(x), 0.0, z)
        return out

    def filled(self, X):
        """For bends a missing number is the mean, as for the inputs of all models."""
        out = np.array(X, dtype=float)
        for j, scale in self.scales.items():
            out[np.isnan(out[:, j]), j] = scale.mean
        return out

    def awaken_columns(self, X):
        """Level and missing columns come to life in order of arrival: by row, then feature."""
        for row in X:
            for j, x in enumerate(row):
                column = ("missing", j) if math.isnan(x) else ("level", j, int(x))
                known = column in self.columns or (column[0] == "level" and j not in self.leveled)
                self.columns += [] if known else [column]
        holders = [self.challenger] if self.challenger else []
        for node in self.nodes():
            holders += [node, node.model, *node.store.values(), *node.grid]
            holders += [model for trial in node.trials for model in trial.models]
            holders += [node.bend.model] if node.bend else []
            holders += [node.renewed.model] if node.renewed else []
        for holder in holders:
            widen(holder, len(self.columns))

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

    # ------------------------------------------------------------------ setting 1: the paper

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

    # ------------------------------------------------------------------ setting 2: measured

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

    # ------------------------------------------------------------------ bends

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
        second = max((t.gain for t in node.trials), default=None)
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
