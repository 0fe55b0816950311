"""Synthetic streams in batches: SEA, Agrawal and Hyperplane, with known drift.

The streams are vectorised and hold one block of rows in memory: a batch, or several small ones.
Every row takes the same number of draws, so that the size of the batches never changes the rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from driftree.streams.concepts import (
    AGE,
    AGRAWAL_RULES,
    CAR,
    COMMISSION,
    EDUCATION,
    HOUSE_VALUE,
    HOUSE_YEARS,
    LOAN,
    SALARY,
    SEA_THRESHOLDS,
    ZIPCODE,
    Features,
    Labels,
    Mask,
    check_function,
    exceed_sea,
    label_agrawal,
)

Batches = Iterator[tuple[Features, Labels]]

BLOCK_DRAWS = 32_768  # so many in one go: few calls of NumPy, and the cache still holds them


def sea(
    n_rows: int, *, batch_rows: int = 1000, seed: int = 1, function: int = 0, noise: float = 0.1
) -> Batches:
    """Yield batches of SEA (Street and Kim, 2001): three features in [0, 10], two of them relevant.

    Parameters
    ----------
    n_rows : int
        Rows in total.
    batch_rows : int, default=1000
        Rows per batch; the last batch may be shorter. Has no influence on the rows.
    seed : int, default=1
        Seed of all draws.
    function : int, default=0
        Concept, 0 to 3; see `label_sea`.
    noise : float, default=0.1
        Share of labels that are swapped.

    Yields
    ------
    tuple of (X, y)
        Features, float64 of shape (n, 3), and labels, int64.

    Examples
    --------
    >>> X, y = next(sea(1000, batch_rows=4, noise=0.0))
    >>> X.round(1).tolist()[0], y.tolist()
    ([5.1, 9.5, 1.4], [1, 0, 0, 1])
    """
    check_sizes(n_rows, batch_rows)
    check_function(function, len(SEA_THRESHOLDS))
    check_share("noise", noise)

    def batches() -> Batches:
        for _, draws in draw_rows(n_rows, batch_rows, 4, np.random.default_rng(seed)):
            X = np.empty((len(draws), 3))
            for j in range(3):  # NumPy is slow where its innermost loop has three steps
                np.multiply(draws[:, j], 10, out=X[:, j])
            swapped = draws[:, 3] < noise
            yield X, (exceed_sea(X, function) ^ swapped).astype(np.int64)

    return cut_batches(batches(), batch_rows)


def agrawal(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    function: int = 0,
    perturbation: float = 0.0,
) -> Batches:
    """Yield batches of Agrawal's loan applications (Agrawal et al., 1993).

    Parameters
    ----------
    n_rows, batch_rows, seed
        As in `sea`.
    function : int, default=0
        Concept, 0 to 9; see `label_agrawal`.
    perturbation : float, default=0.0
        Numeric features are shifted, after labelling, by up to this share of their range. The
        house value stays in its zipcode's range (other libraries reduce it to two values here).

    Yields
    ------
    tuple of (X, y)
        Features, float64 of shape (n, 9), in the order of `AGRAWAL_FEATURES`, and labels, int64.

    Examples
    --------
    >>> from driftree.streams import AGRAWAL_FEATURES
    >>> X, y = next(agrawal(1000, batch_rows=4, function=2))
    >>> X[0, AGRAWAL_FEATURES.index("age")], y
    (np.float64(28.0), array([0, 1, 0, 1]))
    """
    return drifting_agrawal(
        n_rows,
        batch_rows=batch_rows,
        seed=seed,
        functions=(function,),
        perturbation=perturbation,
    )


def drifting_agrawal(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    functions: Sequence[int] = (0, 1, 2, 3),
    width: int = 1,
    perturbation: float = 0.0,
) -> Batches:
    """Yield batches of Agrawal's loan applications whose rule changes at equal distances.

    Parameters
    ----------
    n_rows, batch_rows, seed, perturbation
        As in `agrawal`.
    functions : sequence of int, default=(0, 1, 2, 3)
        Concepts in order of appearance, each 0 to 9.
    width : int, default=1
        Rows that a change takes. 1 is abrupt; otherwise the chance that a row follows the new rule
        rises as a sigmoid, ``1 / (1 + exp(-4 (t - position) / width))``.

    Yields
    ------
    tuple of (X, y)
        As in `agrawal`.

    Examples
    --------
    >>> [y.tolist() for _, y in drifting_agrawal(8, batch_rows=4, functions=(0, 7))]
    [[1, 1, 0, 1], [0, 0, 0, 0]]
    """
    check_sizes(n_rows, batch_rows)
    if not functions:
        raise ValueError("functions must name at least one concept")
    if width < 1:
        raise ValueError(f"width must be at least 1, but is {width}")
    for function in functions:
        check_function(function, len(AGRAWAL_RULES))
    check_share("perturbation", perturbation)
    positions = np.arange(1, len(functions)) * n_rows / len(functions)

    def batches() -> Batches:
        for start, draws in draw_rows(n_rows, batch_rows, 16, np.random.default_rng(seed)):
            distance = np.arange(start, start + len(draws))[:, None] - positions
            chance = 0.5 + 0.5 * np.tanh(2 * distance / width) if width > 1 else distance >= 0
            concept = (draws[:, 15:] < chance).sum(axis=1)
            X = _place_applicants(draws[:, :9])
            y = np.choose(concept, [label_agrawal(X, function) for function in functions])
            _perturb(X, draws[:, 9:15], perturbation)
            yield X, y

    return cut_batches(batches(), batch_rows)


def _place_applicants(draws: Features) -> Features:
    """Turn nine uniform draws per row into an applicant's features."""
    X = np.empty_like(draws)
    X[:, SALARY] = 20_000 + 130_000 * draws[:, SALARY]
    has_commission = X[:, SALARY] < 75_000
    X[:, COMMISSION] = np.where(has_commission, 10_000 + 65_000 * draws[:, COMMISSION], 0)
    X[:, AGE] = 20 + np.floor(61 * draws[:, AGE])
    X[:, EDUCATION] = np.floor(5 * draws[:, EDUCATION])
    X[:, CAR] = 1 + np.floor(20 * draws[:, CAR])
    X[:, ZIPCODE] = np.floor(9 * draws[:, ZIPCODE])
    X[:, HOUSE_VALUE] = (9 - X[:, ZIPCODE]) * 100_000 * (0.5 + draws[:, HOUSE_VALUE])
    X[:, HOUSE_YEARS] = 1 + np.floor(30 * draws[:, HOUSE_YEARS])
    X[:, LOAN] = 500_000 * draws[:, LOAN]
    return X


def _perturb(X: Features, draws: Features, perturbation: float) -> None:
    """Shift the six numeric features in place, each within its range."""
    house_scale = (9 - X[:, ZIPCODE]) * 100_000
    bounds: dict[int, tuple[float | Features, float | Features]] = {
        SALARY: (20_000, 150_000),
        COMMISSION: (10_000, 75_000),
        AGE: (20, 80),
        HOUSE_VALUE: (0.5 * house_scale, 1.5 * house_scale),
        HOUSE_YEARS: (1, 30),
        LOAN: (0, 500_000),
    }
    has_commission = X[:, COMMISSION] > 0
    for shift, (column, (low, high)) in zip((2 * draws - 1).T, bounds.items(), strict=True):
        X[:, column] = np.clip(X[:, column] + shift * perturbation * (high - low), low, high)
    X[~has_commission, COMMISSION] = 0
    X[:, [AGE, HOUSE_YEARS]] = X[:, [AGE, HOUSE_YEARS]].round()


def hyperplane(
    n_rows: int,
    *,
    batch_rows: int = 1000,
    seed: int = 1,
    n_features: int = 10,
    n_drifting: int = 2,
    magnitude: float = 0.0,
    reversal: float = 0.1,
    noise: float = 0.05,
) -> Batches:
    """Yield batches of the moving hyperplane (Hulten et al., 2001): features in [0, 1].

    Parameters
    ----------
    n_rows, batch_rows, seed, noise
        As in `sea`.
    n_features : int, default=10
        Number of features.
    n_drifting : int, default=2
        How many of them, the first ones, have weights that move.
    magnitude : float, default=0.0
        What each moving weight gains or loses after every row.
    reversal : float, default=0.1
        Chance that a moving weight turns round after a row.

    Yields
    ------
    tuple of (X, y)
        Features, float64 of shape (n, n_features), and labels, int64: is the weighted sum of the
        features at least half of the sum of the weights?

    Examples
    --------
    >>> X, y = next(hyperplane(1000, batch_rows=4, n_features=3, magnitude=0.01))
    >>> X.shape, y.tolist()
    ((4, 3), [1, 1, 0, 0])
    """
    check_sizes(n_rows, batch_rows)
    if not 0 <= n_drifting <= n_features:
        raise ValueError(
            f"n_drifting must be from 0 to n_features={n_features}, but is {n_drifting}"
        )
    check_share("reversal", reversal)
    check_share("noise", noise)

    def batches() -> Batches:
        generator = np.random.default_rng(seed)
        plane = MovingPlane(generator.random(n_features), n_drifting, magnitude)
        n_draws = n_features + 1 + n_drifting
        for _, draws in draw_rows(n_rows, batch_rows, n_draws, generator):
            X = draws[:, :n_features].copy()
            y = plane.label(X, draws[:, n_features + 1 :] < reversal)
            yield X, y ^ (draws[:, n_features] < noise)

    return cut_batches(batches(), batch_rows)


class MovingPlane:
    """A hyperplane whose first weights move by a fixed step after every row.

    Parameters
    ----------
    weights : array of float64
        Weights before the first row.
    n_drifting : int
        How many of the weights move.
    magnitude : float
        Size of a step. All moving weights start upwards.

    Examples
    --------
    >>> plane = MovingPlane(np.array([0.5, 0.5]), n_drifting=1, magnitude=1.0)
    >>> plane.label(np.array([[0.4, 0.7], [0.4, 0.7]]), reversals=np.array([[False], [True]]))
    array([1, 0])
    >>> plane.weights
    array([2.5, 0.5])
    """

    def __init__(self, weights: Features, n_drifting: int, magnitude: float) -> None:
        self.weights = weights
        self.steps = np.full(n_drifting, magnitude)

    def label(self, X: Features, reversals: Mask) -> Labels:
        """Label rows in order; `reversals` says which weights turn round after which row."""
        n_drifting = len(self.steps)
        steps = np.vstack([self.steps, np.where(reversals, -1.0, 1.0)]).cumprod(axis=0)
        path = np.vstack([self.weights[:n_drifting], steps[:-1]]).cumsum(axis=0)
        weights = np.tile(self.weights, (len(X), 1))
        weights[:, :n_drifting] = path[:-1]
        self.weights[:n_drifting], self.steps = path[-1], steps[-1]

        score = np.zeros(len(X))
        for j in range(X.shape[1]):  # one feature after the other: the sum is rounded as in a loop
            score += weights[:, j] * X[:, j]
        above: Mask = score >= weights.sum(axis=1) * 0.5
        return above.astype(np.int64)


def draw_rows(
    n_rows: int, batch_rows: int, n_draws: int, generator: np.random.Generator
) -> Iterator[tuple[int, Features]]:
    """Yield the number of a block's first row, and uniform draws for each of its rows.

    A block is one batch, or as many small ones as `BLOCK_DRAWS` allows: see `cut_batches`. The
    next block overwrites its draws.
    """
    block_rows = batch_rows * max(1, BLOCK_DRAWS // (n_draws * batch_rows))
    draws = np.empty((min(block_rows, n_rows), n_draws))
    for start in range(0, n_rows, block_rows):
        yield start, generator.random(out=draws[: n_rows - start])


def cut_batches(blocks: Batches, batch_rows: int) -> Batches:
    """Cut blocks of `draw_rows` into their batches."""
    for X, y in blocks:
        for start in range(0, len(y), batch_rows):
            rows = slice(start, start + batch_rows)
            yield X[rows], y[rows]


def check_sizes(n_rows: int, batch_rows: int) -> None:
    """Raise unless there can be so many rows in batches of that size."""
    if n_rows < 0:
        raise ValueError(f"n_rows must be at least 0, but is {n_rows}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, but is {batch_rows}")


def check_share(name: str, value: float) -> None:
    """Raise an error unless `value` is a share, 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be from 0 to 1, but is {value}")
