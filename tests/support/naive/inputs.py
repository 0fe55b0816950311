"""Rows, their order, and what the simple models read of them.

Mirrors `kernels/row_keys.hpp` and `kernels/chunk.hpp` (the order within a step), and
`kernels/table.hpp` and `kernels/scaling.hpp` (columns, scales and bends).
"""

import math

import numpy as np

from naive.models import BlendModel

GOLDEN, WORD = 0x9E3779B97F4A7C15, 0xFFFFFFFFFFFFFFFF


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


class TreeInputs:
    """From what the user has to the inputs of the models."""

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
