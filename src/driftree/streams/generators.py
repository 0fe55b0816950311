"""More synthetic streams in batches: LED, RandomRBF with moving centres, STAGGER and Sine.

As in `synthetic`, only one block is in memory, and the rows do not depend on the batch size. Any
of them can be joined to another by `drift`, or scaled by `normalise_online`.
"""

from collections.abc import Iterable
from itertools import count

import numpy as np

from driftree.streams.concepts import (
    LED_DIGITS,
    SINE_RULES,
    STAGGER_RULES,
    Features,
    Labels,
    check_function,
    label_sine,
    label_stagger,
)
from driftree.streams.synthetic import Batches, check_share, check_sizes, cut_batches, draw_rows


def led(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    noise: float = 0.0,
    n_irrelevant: int = 0,
    n_swapped: int = 0,
) -> Batches:
    """Yield batches of digits on a display of seven segments (Breiman et al., 1984).

    Parameters
    ----------
    n_rows, batch_rows, seed
        As in `sea`.
    noise : float, default=0.0
        Share of segments that are inverted.
    n_irrelevant : int, default=0
        Number of random features, 0 or 1, after the segments; 17 is usual.
    n_swapped : int, default=0
        How many segments, the first ones, are swapped with the first irrelevant features. Streams
        that differ in it are different concepts, for use in `drift`.

    Yields
    ------
    tuple of (X, y)
        Features, float64 of shape (n, 7 + n_irrelevant), and digits, int64; see `label_led`.

    Examples
    --------
    >>> X, y = next(led(1000, batch_rows=2))
    >>> X.astype(int).tolist(), y.tolist()
    ([[1, 1, 0, 1, 0, 1, 1], [1, 1, 0, 1, 0, 1, 1]], [5, 5])
    """
    n_digits, n_segments = LED_DIGITS.shape
    check_sizes(n_rows, batch_rows)
    check_share("noise", noise)
    _check_least("n_irrelevant", n_irrelevant, 0)
    most = min(n_segments, n_irrelevant)
    if not 0 <= n_swapped <= most:
        raise ValueError(
            f"n_swapped must be from 0 to {most} with n_irrelevant={n_irrelevant}, "
            f"but is {n_swapped}"
        )
    columns = np.arange(n_segments + n_irrelevant)
    first, second = columns[:n_swapped].copy(), columns[n_segments : n_segments + n_swapped].copy()
    columns[first], columns[second] = second, first

    def batches() -> Batches:
        n_draws = 1 + len(columns)
        for _, draws in draw_rows(n_rows, batch_rows, n_draws, np.random.default_rng(seed)):
            y = (n_digits * draws[:, 0]).astype(np.int64)
            X = (draws[:, 1:] < 0.5).astype(np.float64)
            inverted = draws[:, 1 : 1 + n_segments] < noise
            X[:, :n_segments] = np.abs(LED_DIGITS[y] - inverted)
            yield X[:, columns], y

    return cut_batches(batches(), batch_rows)


def random_rbf(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    n_features: int = 10,
    n_classes: int = 2,
    n_centres: int = 50,
    n_moving: int | None = None,
    speed: float = 0.0,
) -> Batches:
    """Yield batches of points around random centres, each with a class, which may move.

    Centres lie in the unit cube, with a random weight and standard deviation; a row lies in a
    random direction from one of them, at a normally distributed distance.

    Parameters
    ----------
    n_rows, batch_rows, seed
        As in `sea`. The seed also places the centres.
    n_features : int, default=10
        Number of features.
    n_classes : int, default=2
        Number of classes.
    n_centres : int, default=50
        Number of centres, at least one per class.
    n_moving : int, optional
        How many of the centres, the first ones, move; all by default.
    speed : float, default=0.0
        Distance that each moving centre travels per row, in a straight line, reflected at the walls
        of the unit cube.

    Yields
    ------
    tuple of (X, y)
        Features, float64 of shape (n, n_features), and labels, int64.

    Examples
    --------
    >>> X, y = next(random_rbf(1000, batch_rows=4, n_features=3, n_classes=4, speed=0.001))
    >>> X.shape, y.tolist()
    ((4, 3), [1, 2, 0, 0])
    """
    check_sizes(n_rows, batch_rows)
    _check_least("n_features", n_features, 1)
    _check_least("n_classes", n_classes, 1)
    if n_centres < n_classes:
        raise ValueError(f"n_centres must be at least n_classes={n_classes}, but is {n_centres}")
    n_moving = n_centres if n_moving is None else n_moving
    if not 0 <= n_moving <= n_centres:
        raise ValueError(f"n_moving must be from 0 to n_centres={n_centres}, but is {n_moving}")
    _check_least("speed", speed, 0.0)

    def batches() -> Batches:
        places, choices, offsets = np.random.default_rng(seed).spawn(3)
        centres = places.random((n_centres, n_features))
        spreads = places.random(n_centres)
        shares = places.random(n_centres).cumsum()
        shares /= shares[-1]
        velocities = speed * _to_unit_length(places.standard_normal((n_centres, n_features)))
        velocities[n_moving:] = 0.0
        for start, draws in draw_rows(n_rows, batch_rows, 1, choices):
            centre = np.searchsorted(shares, draws[:, 0], side="right")
            time = np.arange(start, start + len(draws))[:, None]
            position = _reflect(centres[centre] + time * velocities[centre])
            normal = offsets.standard_normal((len(draws), n_features + 1))
            distance = spreads[centre] * normal[:, -1]
            X = position + distance[:, None] * _to_unit_length(normal[:, :-1])
            yield X, centre.astype(np.int64) % n_classes

    return cut_batches(batches(), batch_rows)


def _to_unit_length(vectors: Features) -> Features:
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: Features = vectors / lengths
    return unit


def _reflect(positions: Features) -> Features:
    """Reflect positions back into [0, 1]."""
    folded: Features = 1 - np.abs(positions % 2 - 1)
    return folded


def stagger(
    n_rows: int, *, batch_rows: int = 1000, seed: int = 1, function: int = 0, noise: float = 0.0
) -> Batches:
    """Yield batches of STAGGER (Schlimmer and Granger, 1986): size, color and shape of objects.

    Parameters
    ----------
    n_rows, batch_rows, seed, noise
        As in `sea`; without noise by default.
    function : int, default=0
        Concept, 0 to 2; see `label_stagger`.

    Yields
    ------
    tuple of (X, y)
        Features 0, 1 or 2, float64 of shape (n, 3), in the order of `STAGGER_FEATURES`, and
        labels, int64.

    Examples
    --------
    >>> X, y = next(stagger(1000, batch_rows=4, function=1))
    >>> X.tolist()[0], y.tolist()
    ([1.0, 2.0, 0.0], [1, 0, 0, 1])
    """
    check_sizes(n_rows, batch_rows)
    check_function(function, len(STAGGER_RULES))
    check_share("noise", noise)

    def batches() -> Batches:
        for _, draws in draw_rows(n_rows, batch_rows, 4, np.random.default_rng(seed)):
            X = np.floor(3 * draws[:, :3])
            yield X, label_stagger(X, function) ^ (draws[:, 3] < noise)

    return cut_batches(batches(), batch_rows)


def sine(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    function: int = 0,
    noise: float = 0.0,
    n_irrelevant: int = 0,
) -> Batches:
    """Yield batches of Sine (Gama et al., 2004): points in the unit square, below a curve or not.

    Parameters
    ----------
    n_rows, batch_rows, seed, noise
        As in `sea`; without noise by default.
    function : int, default=0
        Concept, 0 to 3; see `label_sine`. 1 reverses 0, and 3 reverses 2.
    n_irrelevant : int, default=0
        Number of irrelevant features after the first two; 2 is usual.

    Yields
    ------
    tuple of (X, y)
        Features in [0, 1], float64 of shape (n, 2 + n_irrelevant), and labels, int64.

    Examples
    --------
    >>> X, y = next(sine(1000, batch_rows=4))
    >>> X.round(1).tolist()[0], y.tolist()
    ([0.5, 1.0], [1, 0, 0, 1])
    """
    check_sizes(n_rows, batch_rows)
    check_function(function, len(SINE_RULES))
    check_share("noise", noise)
    _check_least("n_irrelevant", n_irrelevant, 0)

    def batches() -> Batches:
        n_draws = 3 + n_irrelevant
        for _, draws in draw_rows(n_rows, batch_rows, n_draws, np.random.default_rng(seed)):
            X = draws[:, :-1].copy()
            yield X, label_sine(X, function) ^ (draws[:, -1] < noise)

    return cut_batches(batches(), batch_rows)


def _check_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, but is {value}")


# ---------------------------------------------------------------------- streams made of streams
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

    The drift is abrupt or gradual: each row follows one concept or the other. For incremental
    drift, in which the concept itself moves, see `hyperplane` and `random_rbf`. Nested drifts give
    recurring concepts: ``drift(drift(sea(1000), sea(1000, function=2), at=1000), sea(1000, seed=2),
    at=2000)``.

    Parameters
    ----------
    before, after : iterable of (X, y)
        Batches of any size, with the same number of features. Each stream is read only as far as
        its rows are taken, the second one from its own first row.
    at : int
        Row number, from 0, at the middle of the drift.
    width : int, default=1
        Length of the drift in rows. 1 is abrupt: row `at` is the first of `after`. Otherwise row t
        comes from `after` with probability ``1 / (1 + exp(-4 (t - at) / width))``, as in MOA.
    seed : int, default=1
        Seed of these choices.
    batch_rows : int, default=1000
        Rows per batch; the last batch may be shorter. The rows do not depend on it.

    Yields
    ------
    tuple of (X, y)
        Features and labels, until `after` has no more rows. When `before` ends, which must not
        happen before row `at`, all rows come from `after`.

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
        old, new = _RowQueue(before), _RowQueue(after)
        for start in count(0, batch_rows):
            distance = np.arange(start, start + batch_rows) - at
            chance = distance >= 0 if width == 1 else 0.5 + 0.5 * np.tanh(2 * distance / width)
            is_new = generator.random(batch_rows) < chance
            old_part = old.take(int((~is_new).sum()))
            lacking = np.flatnonzero(~is_new)[len(old_part[1]) :]
            if len(lacking):  # the first stream has ended: from here on, only the second
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


class _RowQueue:
    """The rows of a stream of batches, as a queue."""

    def __init__(self, batches: Iterable[tuple[Features, Labels]]) -> None:
        self.batches = iter(batches)
        self.rest: tuple[Features, Labels] = np.empty((0, 0)), np.empty(0, dtype=np.int64)

    def take(self, n_rows: int) -> tuple[Features, Labels]:
        """Take the next rows; fewer at the end of the stream."""
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
    """Concatenate batches; empty ones may have any number of features."""
    filled = [part for part in parts if len(part[1])] or parts[:1]
    widths = sorted({X.shape[1] for X, _ in filled})
    if len(widths) > 1:
        raise ValueError(f"all rows must have the same number of features, but have {widths}")
    return np.concatenate([X for X, _ in filled]), np.concatenate([y for _, y in filled])


def normalise_online(batches: Iterable[tuple[Features, Labels]]) -> Batches:
    """Scale each batch by the range of the rows before it, without looking ahead.

    The paper scales each feature to [0, 1] over the whole stream, which looks ahead. This does not:
    scikit-learn's `MinMaxScaler` transforms a batch first and learns its range afterwards. The
    first batch, which only trains in test-then-train, is scaled by its own range. Values beyond the
    range so far are not clipped but fall outside of [0, 1], and a feature that has been constant so
    far is only shifted: a new extreme remains visible.

    Parameters
    ----------
    batches : iterable of (X, y)
        Batches; rows in stream order.

    Yields
    ------
    tuple of (X, y)
        The same batches with scaled features.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.zeros(2, dtype=np.int64)
    >>> batches = [(np.array([[0.0], [2.0]]), y), (np.array([[4.0], [1.0]]), y)]
    >>> [X.ravel().tolist() for X, _ in normalise_online(batches)]
    [[0.0, 1.0], [2.0, 0.5]]
    """
    from sklearn.preprocessing import MinMaxScaler

    scaler = MinMaxScaler()
    for X, y in batches:
        if len(X) == 0:
            yield X, y
            continue
        if not hasattr(scaler, "n_samples_seen_"):
            yield scaler.fit(X).transform(X), y
            continue
        scaled: Features = np.asarray(scaler.transform(X))
        scaler.partial_fit(X)
        yield scaled, y
