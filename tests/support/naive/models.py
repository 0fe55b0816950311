"""The simple models and their losses.

Mirrors `kernels/logit.hpp` and `kernels/softmax.hpp` (losses), `kernels/sgd.hpp` (the paper's
model), and `kernels/blend.hpp` and `Blend` of `kernels/models.hpp` (ours).
"""

import copy
import math
from dataclasses import dataclass

import numpy as np


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
