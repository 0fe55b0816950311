"""Streams made of streams: from one concept to another, abruptly or gradually."""

from collections.abc import Iterable
from itertools import count

import numpy as np

from driftree.streams.concepts import Features, Labels
from driftree.streams.synthetic import Batches


def drift(
    before: Iterable[tuple[Features, Labels]],
    after: Iterable[tuple[Features, Labels]],
    *,
    at: int,
    width: int = 1,
    seed: int = 1,
    batch_rows: int = 1000,
) -> Batches:
    """Yield batches of a stream that changes into another.

    Abrupt or gradual: at any time a row follows one concept or the other. For incremental change,
    in which the concept itself moves, see `hyperplane` and `random_rbf`. A change of a change gives
    recurring concepts:
    ``drift(drift(sea(1000), sea(1000, function=2), at=1000), sea(1000, seed=2), at=2000)``.

    Parameters
    ----------
    before, after : iterable of (X, y)
        Batches of any size, with the same number of features. Each stream is read only as far as
        its rows are taken, the second one from its own first row.
    at : int
        Number of the row, from 0, at which the change is half done.
    width : int, default=1
        Rows that the change takes. 1 is abrupt: row `at` is the first of `after`. Otherwise row t
        comes from `after` with a chance of ``1 / (1 + exp(-4 (t - at) / width))``, as in MOA.
    seed : int, default=1
        Seed of these choices.
    batch_rows : int, default=1000
        Rows per batch; the last batch may be shorter. Has no influence on the rows.

    Yields
    ------
    tuple of (X, y)
        Features and labels, until `after` has no more rows. When `before` has none left, which may
        not happen before row `at`, all rows come from `after`.

    Examples
    --------
    >>> from driftree.streams import stagger
    >>> small_red, others = stagger(1000), stagger(1000, function=2)
    >>> [y.tolist() for _, y in drift(small_red, others, at=4, batch_rows=4)][:2]
    [[0, 0, 0, 0], [1, 0, 1, 0]]
    """
    for name, value, low in (("at", at, 0), ("width", width, 1), ("batch_rows", batch_rows, 1)):
        if value < low:
            raise ValueError(f"{name} must be at least {low}, but is {value}")

    def batches() -> Batches:
        generator = np.random.default_rng(seed)
        old, new = _Rows(before), _Rows(after)
        for start in count(0, batch_rows):
            distance = np.arange(start, start + batch_rows) - at
            chance = distance >= 0 if width == 1 else 0.5 + 0.5 * np.tanh(2 * distance / width)
            is_new = generator.random(batch_rows) < chance
            old_part = old.take(int((~is_new).sum()))
            lacking = np.flatnonzero(~is_new)[len(old_part[1]) :]
            if len(lacking):  # the first stream has ended: from here on there is only the second
                if start + lacking[0] < at:
                    raise ValueError(
                        f"the stream before the drift ended at row {start + lacking[0]:,}, but was "
                        f"to last until row {at:,}: give it more rows, or an earlier `at`"
                    )
                is_new[lacking[0] :] = True
            new_part = new.take(int(is_new.sum()))
            n_rows = batch_rows
            if len(new_part[1]) < is_new.sum():
                n_rows = int(np.flatnonzero(is_new)[len(new_part[1])])
            if n_rows:
                order = np.concatenate([np.flatnonzero(~is_new), np.flatnonzero(is_new)])
                X, y = _join([old_part, new_part])
                chosen = np.argsort(order[: len(y)])[:n_rows]
                yield X[chosen], y[chosen]
            if n_rows < batch_rows:
                return

    return batches()


class _Rows:
    """The rows of a stream of batches, taken in any numbers."""

    def __init__(self, batches: Iterable[tuple[Features, Labels]]) -> None:
        self.batches = iter(batches)
        self.rest: tuple[Features, Labels] = np.empty((0, 0)), np.empty(0, dtype=np.int64)

    def take(self, n_rows: int) -> tuple[Features, Labels]:
        """Take the next rows; fewer where the stream ends."""
        parts, n_missing = [], n_rows
        while True:
            X, y = self.rest
            parts.append((X[:n_missing], y[:n_missing]))
            self.rest = X[n_missing:], y[n_missing:]
            n_missing -= len(parts[-1][1])
            if n_missing == 0:
                return _join(parts)
            following = next(self.batches, None)
            if following is None:
                return _join(parts)
            self.rest = following


def _join(parts: list[tuple[Features, Labels]]) -> tuple[Features, Labels]:
    """Join batches; those without rows may have any number of features."""
    filled = [part for part in parts if len(part[1])] or parts[:1]
    widths = sorted({X.shape[1] for X, _ in filled})
    if len(widths) > 1:
        raise ValueError(f"all rows must have the same number of features, but have {widths}")
    return np.concatenate([X for X, _ in filled]), np.concatenate([y for _, y in filled])
