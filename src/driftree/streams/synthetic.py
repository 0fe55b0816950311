"""Synthetic streams in batches: SEA, Agrawal and Hyperplane, with known drift.

The streams are vectorised and hold one block of rows in memory: a batch, or several small ones.
Every row takes the same number of random draws, so that the rows do not depend on the batch size.
The paper's three streams are reproduced row for row, too. The authors generated them with
scikit-multiflow 0.5.3 and scaled each feature to [0, 1] over the whole stream, which looks ahead.
The same draws are taken from `numpy.random.RandomState` in the same order, mostly in bulk. Details
of scikit-multiflow that are not in the paper:

- Labels are swapped when ``0.01 + draw <= 0.1``, that is for 9 % of the rows.
- The generators behind a drifting stream share one seed: after a drift of SEA or Agrawal the
  features from the beginning of the stream are repeated, under a new concept.
- Perturbation leaves an Agrawal house with one of two values, 0 or ``(9 - zipcode) * 100,000``.
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
    label_sea,
)

Batches = Iterator[tuple[Features, Labels]]

BLOCK_DRAWS = 32_768  # at a time: few NumPy calls, and they fit into the cache

PAPER_SEED = 112
PAPER_DRIFT_SEED = 0


def sea(
    n_rows: int, *, batch_rows: int = 1000, seed: int = 1, function: int = 0, noise: float = 0.1
) -> Batches:
    """Yield batches of SEA (Street and Kim, 2001): three features in [0, 10], two of them relevant.

    Parameters
    ----------
    n_rows : int
        Rows in total.
    batch_rows : int, default=1000
        Rows per batch; the last batch may be shorter. The rows do not depend on it.
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
            for j in range(3):  # NumPy is slow if its innermost loop has three steps
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
    """Yield batches of Agrawal's loan applications whose rule changes at regular intervals.

    Parameters
    ----------
    n_rows, batch_rows, seed, perturbation
        As in `agrawal`.
    functions : sequence of int, default=(0, 1, 2, 3)
        Concepts in order of appearance, each 0 to 9.
    width : int, default=1
        Length of a drift in rows. 1 is abrupt; otherwise the probability of the new rule rises as a
        sigmoid, ``1 / (1 + exp(-4 (t - position) / width))``.

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
    """Convert nine uniform draws per row to an applicant's features."""
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
        Change of each moving weight per row.
    reversal : float, default=0.1
        Probability that a moving weight reverses its direction after a row.

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
        """Label rows in order; `reversals` says which weights reverse after which row."""
        n_drifting = len(self.steps)
        steps = np.vstack([self.steps, np.where(reversals, -1.0, 1.0)]).cumprod(axis=0)
        path = np.vstack([self.weights[:n_drifting], steps[:-1]]).cumsum(axis=0)
        weights = np.tile(self.weights, (len(X), 1))
        weights[:, :n_drifting] = path[:-1]
        self.weights[:n_drifting], self.steps = path[-1], steps[-1]

        score = np.zeros(len(X))
        for j in range(X.shape[1]):  # feature by feature, so that the sum is rounded as in a loop
            score += weights[:, j] * X[:, j]
        above: Mask = score >= weights.sum(axis=1) * 0.5
        return above.astype(np.int64)


def draw_rows(
    n_rows: int, batch_rows: int, n_draws: int, generator: np.random.Generator
) -> Iterator[tuple[int, Features]]:
    """Yield the number of a block's first row, and uniform draws for each of its rows.

    A block is one batch, or as many small ones as `BLOCK_DRAWS` allows: see `cut_batches`. The next
    block overwrites its draws.
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
    """Raise unless the numbers of rows are valid."""
    if n_rows < 0:
        raise ValueError(f"n_rows must be at least 0, but is {n_rows}")
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, but is {batch_rows}")


def check_share(name: str, value: float) -> None:
    """Raise an error unless `value` is a share, 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be from 0 to 1, but is {value}")


# ---------------------------------------------------------------------- as the paper drew them
def paper_sea(n_rows: int = 1_000_000) -> tuple[Features, Labels]:
    """Return the paper's SEA stream: functions 0, 1, 2, 3, 0, abrupt drift every 200,000 rows.

    Parameters
    ----------
    n_rows : int, default=1_000_000
        Rows from the beginning. The features are scaled over these rows: a prefix has the same rows
        as the full stream, but scaled by its own range.

    Returns
    -------
    X : array of float64, shape (n_rows, 3)
        Features in [0, 1].
    y : array of int64
        Labels.

    Examples
    --------
    >>> X, y = paper_sea(1000)
    >>> X.shape, int(y.sum())
    ((1000, 3), 656)
    """
    functions = (0, 1, 2, 3, 0)
    concept, source = _choose_concepts(n_rows, [(200_000, 1)] * 4)
    draws = np.random.RandomState(PAPER_SEED).random_sample((source.max(initial=-1) + 1, 4))
    features = 10 * draws[:, :3]
    labels = np.array([label_sea(features, function) for function in functions])
    labels ^= _happens(draws[:, 3])
    return _normalise(features[source]), labels[concept, source]


def paper_agrawal(n_rows: int = 1_000_000) -> tuple[Features, Labels]:
    """Return the paper's Agrawal stream: functions 0, 1, 2, 3, three long gradual drifts.

    Parameters
    ----------
    n_rows : int, default=1_000_000
        Rows from the beginning; see `paper_sea`. A million rows take some seconds: the number of
        draws depends on the row, which needs a loop.

    Returns
    -------
    X : array of float64, shape (n_rows, 9)
        Features in [0, 1], in the order of `AGRAWAL_FEATURES`.
    y : array of int64
        Labels; 0 and 1 are swapped in comparison with `label_agrawal`, as in scikit-multiflow.

    Examples
    --------
    >>> X, y = paper_agrawal(1000)
    >>> X.shape, int(y.sum())
    ((1000, 9), 320)
    """
    functions = (0, 1, 2, 3)
    drifts = [(100_000, 100_000), (100_000, 200_000), (300_000, 100_000)]
    concept, source = _choose_concepts(n_rows, drifts)
    features, draws = _draw_applicants(int(source.max(initial=-1)) + 1)
    labels = np.array([1 - label_agrawal(features, function) for function in functions])
    _perturb_as_there(features, draws, perturbation=0.1)
    return _normalise(features[source]), labels[concept, source]


def paper_hyperplane(n_rows: int = 500_000) -> tuple[Features, Labels]:
    """Return the paper's Hyperplane stream: 50 features, the weights of 25 move by 0.5 per row.

    Parameters
    ----------
    n_rows : int, default=500_000
        Rows from the beginning; see `paper_sea`.

    Returns
    -------
    X : array of float64, shape (n_rows, 50)
        Features in [0, 1].
    y : array of int64
        Labels.

    Examples
    --------
    >>> X, y = paper_hyperplane(1000)
    >>> X.shape, int(y.sum())
    ((1000, 50), 470)
    """
    n_features, n_drifting, block = 50, 25, 10_000
    state = np.random.RandomState(PAPER_SEED)
    plane = MovingPlane(state.random_sample(n_features), n_drifting, magnitude=0.5)
    X, y = np.empty((n_rows, n_features)), np.empty(n_rows, dtype=np.int64)
    for start in range(0, n_rows, block):
        rows = slice(start, min(start + block, n_rows))
        draws = state.random_sample((rows.stop - rows.start, n_features + 1 + n_drifting))
        X[rows] = draws[:, :n_features]
        y[rows] = plane.label(X[rows], _happens(draws[:, n_features + 1 :]))
        y[rows] ^= _happens(draws[:, n_features])
    return _normalise(X), y


def _happens(draws: Features) -> Mask:
    """Return where an event of scikit-multiflow with "percentage" 0.1 happens."""
    return 0.01 + draws <= 0.1


def _choose_concepts(n_rows: int, drifts: Sequence[tuple[int, int]]) -> tuple[Labels, Labels]:
    """Choose each row's concept as nested drifting streams do, each (position, width).

    Every stream counts, and draws for, only the rows that reach it. The second array numbers the
    rows of each concept, since each concept's generator starts from the same seed.
    """
    concept = np.zeros(n_rows, dtype=np.int64)
    for level, (position, width) in enumerate(drifts):
        reached = np.flatnonzero(concept == level)
        time = np.arange(1, len(reached) + 1)
        with np.errstate(over="ignore"):
            chance = 1.0 / (1.0 + np.exp(-4.0 * (time - position) / width))
        draws = np.random.RandomState(PAPER_DRIFT_SEED).random_sample(len(reached))
        concept[reached[draws <= chance]] = level + 1
    source = np.empty(n_rows, dtype=np.int64)
    for level in range(len(drifts) + 1):
        rows = np.flatnonzero(concept == level)
        source[rows] = np.arange(len(rows))
    return concept, source


def _draw_applicants(n_rows: int) -> tuple[Features, Features]:
    """Draw Agrawal's features before perturbation, and the six draws that perturb them."""
    state = np.random.RandomState(PAPER_SEED)
    uniform, integer = state.random_sample, state.randint
    X, draws = np.zeros((n_rows, 9)), np.zeros((n_rows, 6))
    for i in range(n_rows):
        salary = 20_000 + 130_000 * uniform()
        has_commission = salary < 75_000
        X[i] = (
            salary,
            10_000 + 75_000 * uniform() if has_commission else 0,
            20 + integer(61),
            integer(5),
            integer(20),
            integer(9),
            uniform(),
            1 + integer(30),
            uniform() * 500_000,
        )
        if has_commission:
            draws[i] = uniform(6)
        else:
            draws[i, [0, 2, 3, 4, 5]] = uniform(5)
    X[:, HOUSE_VALUE] = (9 - X[:, ZIPCODE]) * 100_000 * (0.5 + X[:, HOUSE_VALUE])
    return X, draws


def _perturb_as_there(X: Features, draws: Features, perturbation: float) -> None:
    """Shift the six numeric features in place by scikit-multiflow's rules."""
    bounds: dict[int, tuple[float | Features, float, float]] = {
        SALARY: (20_000, 150_000, 130_000),
        COMMISSION: (10_000, 75_000, 65_000),
        AGE: (20, 80, 60),
        HOUSE_VALUE: ((9 - X[:, ZIPCODE]) * 100_000, 0, 135_000),
        HOUSE_YEARS: (1, 30, 29),
        LOAN: (0, 500_000, 500_000),
    }
    has_commission = X[:, COMMISSION] > 0
    for draw, (column, (low, high, spread)) in zip(draws.T, bounds.items(), strict=True):
        value = X[:, column] + spread * (2 * (draw - 0.5)) * perturbation
        # Not a clip: for the house value, low is above high.
        X[:, column] = np.where(value < low, low, np.where(value > high, high, value))
    X[~has_commission, COMMISSION] = 0
    X[:, [AGE, HOUSE_YEARS]] = X[:, [AGE, HOUSE_YEARS]].round()


def _normalise(X: Features) -> Features:
    """Scale each feature to [0, 1], rounded as in scikit-learn's MinMaxScaler."""
    if len(X) == 0:
        return X
    low, spread = X.min(axis=0), np.ptp(X, axis=0)
    scale = 1 / np.where(spread == 0, 1, spread)
    scaled: Features = X * scale - low * scale
    return scaled
