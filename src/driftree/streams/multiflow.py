"""The three synthetic streams of the paper's experiments, row for row.

The authors drew them with scikit-multiflow 0.5.3 and scaled each feature to [0, 1] over the whole
stream, which looks ahead. Here the same draws are taken from `numpy.random.RandomState` in the same
order, mostly in bulk. What follows from scikit-multiflow's rules and is not in the paper:

- Labels are swapped when ``0.01 + draw <= 0.1``, that is for 9 % of the rows.
- The generators behind a drifting stream share one seed: after a drift of SEA or Agrawal the
  features of the stream's beginning come again, under a new concept.
- Perturbation leaves an Agrawal house with one of two values, 0 or ``(9 - zipcode) * 100,000``.
"""

from collections.abc import Sequence

import numpy as np

from driftree.streams.concepts import (
    AGE,
    COMMISSION,
    HOUSE_VALUE,
    HOUSE_YEARS,
    LOAN,
    SALARY,
    ZIPCODE,
    Features,
    Labels,
    Mask,
    label_agrawal,
    label_sea,
)
from driftree.streams.synthetic import MovingPlane

SEED = 112
DRIFT_SEED = 0


def paper_sea(n_rows: int = 1_000_000) -> tuple[Features, Labels]:
    """Return the paper's SEA stream: functions 0, 1, 2, 3, 0, abrupt drift every 200,000 rows.

    Parameters
    ----------
    n_rows : int, default=1_000_000
        Rows from the beginning. The features are scaled over these rows: a prefix holds the same
        rows as the full stream, but scaled by its own range.

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
    draws = np.random.RandomState(SEED).random_sample((source.max(initial=-1) + 1, 4))
    features = 10 * draws[:, :3]
    labels = np.array([label_sea(features, function) for function in functions])
    labels ^= _happens(draws[:, 3])
    return _normalise(features[source]), labels[concept, source]


def paper_agrawal(n_rows: int = 1_000_000) -> tuple[Features, Labels]:
    """Return the paper's Agrawal stream: functions 0, 1, 2, 3, three long gradual drifts.

    Parameters
    ----------
    n_rows : int, default=1_000_000
        Rows from the beginning; see `paper_sea`. A million rows take some seconds: how many draws
        a row takes depends on the row, hence a loop.

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
    _perturb(features, draws, perturbation=0.1)
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
    state = np.random.RandomState(SEED)
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
    """Tell where an event of scikit-multiflow with "percentage" 0.1 happens."""
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
        draws = np.random.RandomState(DRIFT_SEED).random_sample(len(reached))
        concept[reached[draws <= chance]] = level + 1
    source = np.empty(n_rows, dtype=np.int64)
    for level in range(len(drifts) + 1):
        rows = np.flatnonzero(concept == level)
        source[rows] = np.arange(len(rows))
    return concept, source


def _draw_applicants(n_rows: int) -> tuple[Features, Features]:
    """Draw Agrawal's features before perturbation, and the six draws that will perturb them."""
    state = np.random.RandomState(SEED)
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


def _perturb(X: Features, draws: Features, perturbation: float) -> None:
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
